"""What a maintenance job is given and what it returns, whether a worker, a command or a test runs it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak.client import Client
from nunatak.maintenance.job_spec import Gain, JobSpec
from nunatak_spark.jobs import Progress, Report, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobStopped(Exception):
    """The job was cancelled, the worker shuts down, or the lease was lost: change nothing more. Commits stay."""


class JobRefused(Exception):
    """The job would do harm; nothing was changed. The text says why, and what to do."""


def never_stop() -> None:
    """A `check` for jobs that cannot be cancelled."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class JobContext:
    """One job on one table, and what it works with.

    `catalog` is the catalog's name in SQL. `job` identifies the job and is the same in each attempt, so that the next
    attempt finds the pins and plans of the last one. `check` raises JobStopped if the job must stop.
    """

    spark: "SparkSession"
    client: Client
    catalog: str
    spec: JobSpec
    job: str
    progress: Progress = no_progress
    check: Callable[[], None] = never_stop
    now_ms: Callable[[], int] = wall_clock_ms
    dry_run: bool = False


class JobOutcome(Report, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """The result of a job: whether the table changed, how many bytes were rewritten, and counts before and after."""

    changed: bool = False
    size_bytes: int = 0
    gains: list[Gain] = msgspec.field(default_factory=list)
    detail: dict[str, Any] = msgspec.field(default_factory=dict)


MaintenanceFunction = Callable[[JobContext], JobOutcome]
