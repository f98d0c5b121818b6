"""Counts rejected lines of a spool that no run has reported; each line once, even if an ingest is killed.

Iceberg records query and batch ids in the snapshot summaries. The last counted batch and the pending count are
properties of `system.rejected` and change in one commit. The next run continues from there.
"""

import datetime
import hashlib
from typing import TYPE_CHECKING

from nunatak_spark.sql_text import literal
from nunatak_spark.system_tables import system_table_name
from nunatak_spark.telemetry.telemetry_tables import REJECTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTED = "nunatak.rejected-counted."  # + spool, day and query: the last counted batch
PENDING = "nunatak.rejected-pending."  # + spool: lines that no run has reported
KEPT_DAYS = 60  # longer than snapshots of the table are retained


class Rejections:
    """The rejected lines of one spool, for one run."""

    def __init__(self, spark: "SparkSession", catalog: str, spool: str) -> None:
        self._spark = spark
        self._table = system_table_name(catalog, REJECTED)
        mark = hashlib.sha256(spool.encode()).hexdigest()[:16]
        self._pending_key, self._counted = f"{PENDING}{mark}", f"{COUNTED}{mark}."
        # Few properties: the common ones, and one per recent day with rejected lines.
        rows = spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect()
        self._properties = {str(row[0]): str(row[1]) for row in rows}
        self._asked: set[str] = set()

    def count(self, day: str, query_id: str) -> None:
        """Counts what the day's query has committed.

        Call it before the files are deleted: later no run asks for that day.
        """
        key = f"{self._counted}{day}.{query_id}"
        self._asked.add(key)
        last = int(self._properties.get(key, -1))
        epoch = "CAST(summary['spark.sql.streaming.epochId'] AS BIGINT)"
        (row,) = self._spark.sql(
            f"SELECT coalesce(sum(CAST(summary['added-records'] AS BIGINT)), 0) AS lines, max({epoch}) AS last "
            f"FROM {self._table}.snapshots "
            f"WHERE summary['spark.sql.streaming.queryId'] = {literal(query_id)} AND {epoch} > {last}"
        ).collect()
        if row["lines"]:
            self._set_properties({key: str(row["last"]), self._pending_key: str(self._pending + int(row["lines"]))})

    def report(self, today: datetime.date) -> int:
        """Returns the lines that no run has reported, and marks them as reported."""
        found = self._pending
        if found:
            names = ", ".join(map(literal, (self._pending_key, *self._outdated_keys(today))))
            self._spark.sql(f"ALTER TABLE {self._table} UNSET TBLPROPERTIES IF EXISTS ({names})")
            del self._properties[self._pending_key]
        return found

    def _outdated_keys(self, today: datetime.date) -> list[str]:
        """Returns the counters of old days that have no files any more."""
        oldest = (today - datetime.timedelta(days=KEPT_DAYS)).isoformat()
        counted = [key for key in self._properties if key.startswith(self._counted)]
        return [key for key in counted if key not in self._asked and key < f"{self._counted}{oldest}"]

    @property
    def _pending(self) -> int:
        return int(self._properties.get(self._pending_key, 0))

    def _set_properties(self, changes: dict[str, str]) -> None:
        pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in changes.items())
        self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({pairs})")
        self._properties |= changes
