"""How many lines of a spool were rejected and not reported yet: each is counted once, wherever an ingest is killed.

Iceberg notes query and batch in the snapshot that a batch makes. What was counted, and the count that no run has
reported yet, are properties of `system.rejected` and change in one commit. The next run goes on from there.
"""

import datetime
import hashlib
from typing import TYPE_CHECKING

from nunatak_spark.sql_text import literal
from nunatak_spark.system_tables import system_table_name
from nunatak_spark.telemetry.telemetry_tables import REJECTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTED = "nunatak.rejected-counted."  # with the spool, the day and the query: the last batch that is counted
PENDING = "nunatak.rejected-pending."  # with the spool: how many lines no run has reported
KEPT_DAYS = 60  # longer than anybody keeps the snapshots that are counted


class Rejections:
    """The count of one spool, for one run."""

    def __init__(self, spark: "SparkSession", catalog: str, spool: str) -> None:
        self._spark = spark
        self._table = system_table_name(catalog, REJECTED)
        mark = hashlib.sha256(spool.encode()).hexdigest()[:16]
        self._pending_key, self._counted = f"{PENDING}{mark}", f"{COUNTED}{mark}."
        # A handful of properties: those that all system tables have, and one for each recent day with rejected lines.
        rows = spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect()
        self._properties = {str(row[0]): str(row[1]) for row in rows}
        self._asked: set[str] = set()

    def count(self, day: str, query_id: str) -> None:
        """Count what the day's query has committed; before its files are deleted, because then nobody asks again."""
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
            self._set({key: str(row["last"]), self._pending_key: str(self._pending + int(row["lines"]))})

    def report(self, today: datetime.date) -> int:
        """The lines that no run has reported; from now on they are."""
        found = self._pending
        if found:
            names = ", ".join(map(literal, (self._pending_key, *self._outdated(today))))
            self._spark.sql(f"ALTER TABLE {self._table} UNSET TBLPROPERTIES IF EXISTS ({names})")
            del self._properties[self._pending_key]
        return found

    def _outdated(self, today: datetime.date) -> list[str]:
        """What was counted for days of long ago that have no files any more."""
        oldest = (today - datetime.timedelta(days=KEPT_DAYS)).isoformat()
        counted = [key for key in self._properties if key.startswith(self._counted)]
        return [key for key in counted if key not in self._asked and key < f"{self._counted}{oldest}"]

    @property
    def _pending(self) -> int:
        return int(self._properties.get(self._pending_key, 0))

    def _set(self, changes: dict[str, str]) -> None:
        pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in changes.items())
        self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({pairs})")
        self._properties |= changes
