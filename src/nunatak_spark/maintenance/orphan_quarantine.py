"""Orphan files that were seen and not deleted yet, in `system.orphan_candidates`, and what another sighting means."""

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nunatak_spark import system_tables
from nunatak_spark.maintenance.job_context import Work
from nunatak_spark.sql_text import literal

TABLE = "orphan_candidates"
MOST_KNOWN = 100_000  # candidates of one table that are remembered, the oldest; others count as never seen
COLUMNS = (
    "path STRING NOT NULL, table_uuid STRING NOT NULL, first_seen TIMESTAMP NOT NULL, last_seen TIMESTAMP NOT NULL, "
    "size BIGINT"
)


@dataclass(frozen=True)
class Sorted:
    """The orphans of one run: seen for the first time, known for too short a time, and due; and known ones not seen."""

    fresh: list[str]
    waiting: list[str]
    due: list[str]
    unseen: list[str]


def sorted_out(
    found: Collection[str], first_seen_ms: Mapping[str, int], seen_before_ms: int, begun: Collection[str] = ()
) -> Sorted:
    """A file is due if an earlier run saw it by `seen_before_ms`, and this one sees it again. Those whose deletion was
    `begun` already are none of these."""
    open_ones = [path for path in found if path not in begun]
    known = [path for path in open_ones if path in first_seen_ms]
    seen = {*found, *begun}
    return Sorted(
        fresh=[path for path in open_ones if path not in first_seen_ms],
        waiting=[path for path in known if first_seen_ms[path] > seen_before_ms],
        due=[path for path in known if first_seen_ms[path] <= seen_before_ms],
        unseen=sorted(path for path in first_seen_ms if path not in seen),
    )


class Quarantine:
    """The candidates of one table."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._name = system_tables.ensure_system_table(
            work.spark,
            work.catalog,
            TABLE,
            COLUMNS,
            partitioned_by=("table_uuid",),
            comment="Files that no table led to when they were seen",
        )

    @staticmethod
    def read(work: Work) -> dict[str, int]:
        """When each was first seen, in milliseconds; empty where nothing was ever quarantined."""
        name = system_tables.system_table_name(work.catalog, TABLE)
        return _rows(work, name) if work.spark.catalog.tableExists(name) else {}

    def rows(self) -> dict[str, int]:
        return _rows(self._work, self._name)

    def replace(self, first_seen_ms: Mapping[str, int]) -> None:
        """From now on these are the table's candidates; all were seen now. One commit, so a job that is killed has
        noted all of it or nothing."""
        uuid, now = self._work.spec.table_uuid, _time(self._work.now_ms())
        if not first_seen_ms:
            self._work.spark.sql(f"DELETE FROM {self._name} WHERE table_uuid = {literal(uuid)}")
            return
        values = [(path, uuid, _time(first), now, None) for path, first in sorted(first_seen_ms.items())]
        frame = self._work.spark.createDataFrame(values, COLUMNS.replace(" NOT NULL", ""))
        frame.writeTo(self._name).overwritePartitions()


def _rows(work: Work, name: str) -> dict[str, int]:
    work.spark.sql(f"REFRESH TABLE {name}")
    rows: list[Any] = work.spark.sql(
        f"SELECT path, unix_millis(first_seen) AS first_seen FROM {name} "
        f"WHERE table_uuid = {literal(work.spec.table_uuid)} ORDER BY first_seen, path LIMIT {MOST_KNOWN}"
    ).collect()
    return {str(row["path"]): int(row["first_seen"]) for row in rows}


def _time(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
