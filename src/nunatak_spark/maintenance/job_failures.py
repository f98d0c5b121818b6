"""Handles failures of maintenance jobs: the error in one line, and a retry after a commit conflict."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nunatak.errors import CatalogError
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason, safe_str, throwables
from nunatak_spark.maintenance.job_context import JobContext, JobRefused, JobStopped

TRIES = 5
# What Iceberg throws after its own commit retries, if the table was changed meanwhile.
CONFLICTS = ("CommitFailedException", "ValidationException", "rewrite commits failed")


class JobFailed(Exception):
    """The job failed; the text is one line. What it committed before stays."""


@contextmanager
def translate_failures() -> Iterator[None]:
    """Turns what Spark raises in the block into JobFailed; errors with clear messages pass."""
    try:
        yield
    except (JobRefused, JobStopped, JobFailed, CannotRun, CatalogError, ConnectionError):
        raise
    except Exception as error:
        raise JobFailed(failure_reason(error)) from error


def is_conflict(error: BaseException) -> bool:
    """Returns whether another writer's commit caused the failure, anywhere in the chain of causes."""
    told = [f"{each.name}: {each.message}" for each in throwables(error)] or [safe_str(error)]
    return any(name in text for text in told for name in CONFLICTS)


def retry_on_conflict(context: JobContext, act: Callable[[], object]) -> int:
    """Repeats the action after a commit conflict; returns the number of conflicts. Raises the last one after TRIES."""
    for conflicts in range(TRIES):
        context.check()
        try:
            act()
            return conflicts
        except Exception as error:
            if not is_conflict(error) or conflicts == TRIES - 1:
                raise
    raise AssertionError("the loop returns or raises")
