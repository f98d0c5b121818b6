"""The folder of a table under test: files planted in it, their age, what is there, and jobs on the table."""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nunatak.client import Client
from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak_spark.jobs import Progress, no_progress
from nunatak_spark.maintenance.job_context import JobContext, never_stop
from tests.support.spark import Sql, local_path

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DAY = 24 * 3_600
OLD_DAYS = 100


@dataclass(frozen=True)
class Folder:
    """One table of the test's namespace and the local folder in which it lies."""

    sql: Sql
    client: Client
    table: str

    @property
    def path(self) -> Path:
        return local_path(self.metadata["location"])

    @property
    def metadata(self) -> Any:
        return self.client.load_table((self.sql.namespace, self.table))["metadata"]

    @property
    def spark(self) -> "SparkSession":
        return self.sql.spark

    def files(self) -> set[str]:
        """Every file in the folder, by its path in it; checksums that Hadoop leaves beside files do not count."""
        found = {str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file()}
        return {name for name in found if not name.endswith(".crc")}

    def plant(self, *names: str, age_days: float = OLD_DAYS) -> set[str]:
        """Files that nobody knows."""
        for name in names:
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"planted")
            _set_age(file, age_days)
        return set(names)

    def grow_old(self, names: Collection[str] | None = None) -> None:
        """Age alone must save no file that the table needs."""
        for name in self.files() if names is None else names:
            _set_age(self.path / name, OLD_DAYS)

    def work(
        self,
        job: str,
        *,
        type: JobType = "orphan-removal",
        after_days: float = 0,
        dry_run: bool = False,
        check: Callable[[], None] = never_stop,
        progress: Progress = no_progress,
        **options: Any,
    ) -> JobContext:
        """A job as the worker hands it over, `after_days` from now."""
        spec = JobSpec(
            type=type,
            warehouse="default",
            namespace=[self.sql.namespace],
            table=self.table,
            table_uuid=self.metadata["table-uuid"],
            options={
                "older-than-seconds": 60 * DAY,
                **{name.replace("_", "-"): value for name, value in options.items()},
            },
        )
        shift_ms = int(after_days * DAY * 1000)
        return JobContext(
            spark=self.spark,
            client=self.client,
            catalog="lake",
            spec=spec,
            job=f"{self.sql.namespace}.{self.table}.{job}",
            progress=progress,
            check=check,
            now_ms=lambda: time.time_ns() // 1_000_000 + shift_ms,
            dry_run=dry_run,
        )

    def journal(self) -> "list[Row]":
        """What the journal says of this table."""
        return self._system_rows("deleted_files")

    def noted(self) -> list[str]:
        """The paths in the journal, in the folder, each as often as it is there."""
        return sorted(self._inside(row["path"]) for row in self.journal())

    def quarantined(self) -> set[str]:
        return {self._inside(row["path"]) for row in self._system_rows("orphan_candidates")}

    def planned(self) -> "list[Row]":
        return self._system_rows("planned_deletions")

    def _system_rows(self, name: str) -> "list[Row]":
        full = f"lake.system.{name}"
        if not self.spark.catalog.tableExists(full):
            return []
        return self.spark.table(full).where(f"table_uuid = '{self.metadata['table-uuid']}'").collect()

    def _inside(self, location: str) -> str:
        # Hadoop writes paths as they are: a percent sign in one stands for itself.
        return str(Path(location.removeprefix("file:")).relative_to(self.path))


def _set_age(file: Path, age_days: float) -> None:
    then = time.time() - age_days * DAY
    os.utime(file, (then, then))
