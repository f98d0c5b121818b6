"""What a maintenance job is given and what it gives back, whoever runs it: a worker, a command or a test."""

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


class Stopped(Exception):
    """Somebody wants the job to stop, or the lease was lost: change nothing further. What was committed stays."""


class Refused(Exception):
    """The job would do harm; nothing was changed. The text says what is in the way, and what to do about it."""


def never_stop() -> None:
    """For work that nobody cancels."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Work:
    """One job on one table.

    `catalog` is what the catalog is called in SQL. `job` names the work and is the same in each attempt, so that what
    an earlier attempt began is found again. `check` raises Stopped between two steps if the job is to go no further.
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


class Outcome(Report, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """What became of a job: whether the table changed, how many bytes were rewritten, and counts before and after."""

    changed: bool = False
    size_bytes: int = 0
    gains: list[Gain] = msgspec.field(default_factory=list)
    detail: dict[str, Any] = msgspec.field(default_factory=dict)


Maintain = Callable[[Work], Outcome]
