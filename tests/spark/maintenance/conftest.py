"""What the tests of maintenance jobs share: a way to run one on a table of the test's own namespace."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from nunatak.client import Client, Json
from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak_spark.fingerprint import Fingerprint, fingerprint
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, never_stop, wall_clock_ms
from tests.support.catalogs.process import RunningServer
from tests.support.spark import Sql

JOBS = itertools.count(1)


@dataclass(frozen=True)
class Maintenance:
    """Runs jobs on tables of one namespace, as a worker would; rows are compared in full unless the test says else."""

    sql: Sql
    client: Client

    def work(
        self,
        table: str,
        kind: JobType,
        *,
        job: str | None = None,
        check: Callable[[], None] = never_stop,
        now_ms: Callable[[], int] = wall_clock_ms,
        dry_run: bool = False,
        max_bytes: int | None = None,
        table_uuid: str | None = None,
        **options: Any,
    ) -> JobContext:
        """An option's `_` stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in {"verify": "full", **options}.items()}
        spec = JobSpec(
            type=kind,
            warehouse="default",
            namespace=[self.sql.namespace],
            table=table,
            table_uuid=table_uuid or self.metadata(table)["table-uuid"],
            options=named,
            max_bytes=max_bytes,
        )
        return JobContext(
            spark=self.sql.spark,
            client=self.client,
            catalog=self.sql.catalog,
            spec=spec,
            job=job or f"test-{next(JOBS)}",
            check=check,
            now_ms=now_ms,
            dry_run=dry_run,
        )

    def run(self, table: str, kind: JobType, **more: Any) -> JobOutcome:
        return maintain(self.work(table, kind, **more))

    def metadata(self, table: str) -> Json:
        found: Json = self.load(table)["metadata"]
        return found

    def load(self, table: str) -> Json:
        return self.client.load_table((self.sql.namespace, table))

    def commit(self, table: str, *updates: Json) -> Json:
        return self.client.commit_table((self.sql.namespace, table), [], updates)

    def fingerprint(self, table: str) -> Fingerprint:
        name = f"{self.sql.catalog}.{self.sql.namespace}.{table}"
        self.sql.spark.sql(f"REFRESH TABLE {name}")
        return fingerprint(self.sql.spark, name)

    def files(self, table: str) -> dict[str, int]:
        """How many data files and delete files there are."""
        current = self.metadata(table)["current-snapshot-id"]
        (summary,) = (each["summary"] for each in self.metadata(table)["snapshots"] if each["snapshot-id"] == current)
        return {"data": int(summary["total-data-files"]), "deletes": int(summary["total-delete-files"])}

    def pins(self, table: str) -> list[str]:
        return [name for name in self.metadata(table).get("refs", {}) if name.startswith("nunatak-pin-")]


@pytest.fixture
def maintenance(sql: Sql, shared_server: RunningServer) -> Iterator[Maintenance]:
    with Client(shared_server.uri) as client:
        yield Maintenance(sql, client)


def later(seconds: int) -> Callable[[], int]:
    """A clock that is ahead."""
    return lambda: time.time_ns() // 1_000_000 + seconds * 1000
