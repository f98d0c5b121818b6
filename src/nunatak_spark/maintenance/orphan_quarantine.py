"""The quarantine of orphan files, `system.orphan_candidates`: files that were seen and not deleted yet."""

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nunatak_spark import system_tables
from nunatak_spark.maintenance.job_context import JobContext
from nunatak_spark.sql_text import literal

TABLE = "orphan_candidates"
MAX_KNOWN = 100_000  # candidates per table that are loaded, oldest first; others count as never seen
COLUMNS = (
    "path STRING NOT NULL, table_uuid STRING NOT NULL, first_seen TIMESTAMP NOT NULL, last_seen TIMESTAMP NOT NULL, "
    "size BIGINT"
)


@dataclass(frozen=True)
class ClassifiedOrphans:
    """The orphans of one run: new ones, those in quarantine, those due; and candidates that were not seen again."""

    fresh: list[str]
    waiting: list[str]
    due: list[str]
    unseen: list[str]


def classify_orphans(
    found: Collection[str], first_seen_ms: Mapping[str, int], seen_before_ms: int, begun: Collection[str] = ()
) -> ClassifiedOrphans:
    """Classifies orphans: a file is due if an earlier run saw it by `seen_before_ms` and this run sees it again.

    Files in `begun`, whose deletion has started, are left out.
    """
    open_ones = [path for path in found if path not in begun]
    known = [path for path in open_ones if path in first_seen_ms]
    seen = {*found, *begun}
    return ClassifiedOrphans(
        fresh=[path for path in open_ones if path not in first_seen_ms],
        waiting=[path for path in known if first_seen_ms[path] > seen_before_ms],
        due=[path for path in known if first_seen_ms[path] <= seen_before_ms],
        unseen=sorted(path for path in first_seen_ms if path not in seen),
    )


class OrphanQuarantine:
    """The candidates of one table."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._name = system_tables.ensure_system_table(
            context.spark,
            context.catalog,
            TABLE,
            COLUMNS,
            partitioned_by=("table_uuid",),
            comment="Files that no table led to when they were seen",
        )

    @staticmethod
    def load_first_seen(context: JobContext) -> dict[str, int]:
        """Returns when each candidate was first seen, in milliseconds; empty if the system table does not exist."""
        name = system_tables.system_table_name(context.catalog, TABLE)
        return _rows(context, name) if context.spark.catalog.tableExists(name) else {}

    def first_seen(self) -> dict[str, int]:
        return _rows(self._context, self._name)

    def replace(self, first_seen_ms: Mapping[str, int]) -> None:
        """Replaces the table's candidates; all of them were seen now. One commit, so a kill leaves all or nothing."""
        uuid, now = self._context.spec.table_uuid, _time(self._context.now_ms())
        if not first_seen_ms:
            self._context.spark.sql(f"DELETE FROM {self._name} WHERE table_uuid = {literal(uuid)}")
            return
        values = [(path, uuid, _time(first), now, None) for path, first in sorted(first_seen_ms.items())]
        frame = self._context.spark.createDataFrame(values, COLUMNS.replace(" NOT NULL", ""))
        frame.writeTo(self._name).overwritePartitions()


def _rows(context: JobContext, name: str) -> dict[str, int]:
    context.spark.sql(f"REFRESH TABLE {name}")
    rows: list[Any] = context.spark.sql(
        f"SELECT path, unix_millis(first_seen) AS first_seen FROM {name} "
        f"WHERE table_uuid = {literal(context.spec.table_uuid)} ORDER BY first_seen, path LIMIT {MAX_KNOWN}"
    ).collect()
    return {str(row["path"]): int(row["first_seen"]) for row in rows}


def _time(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
