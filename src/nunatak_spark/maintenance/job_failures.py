"""What becomes of a failed maintenance job: its error in one line, and another try if a writer was quicker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nunatak.errors import CatalogError
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason, safe_str, throwables
from nunatak_spark.maintenance.job_context import Refused, Stopped, Work

TRIES = 5
# What Iceberg throws if a table was changed while it worked; its own tries to commit are over by then.
CONFLICTS = ("CommitFailedException", "ValidationException", "rewrite commits failed")


class Failed(Exception):
    """The job did not get through. What it had committed stays; the text is one line."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Whatever Spark raises inside becomes Failed; what speaks for itself passes."""
    try:
        yield
    except (Refused, Stopped, Failed, CannotRun, CatalogError, ConnectionError):
        raise
    except Exception as error:
        raise Failed(failure_reason(error)) from error


def is_conflict(error: BaseException) -> bool:
    """Whether a writer was quicker, wherever in the chain of causes that is said."""
    told = [f"{each.name}: {each.message}" for each in throwables(error)] or [safe_str(error)]
    return any(name in text for text in told for name in CONFLICTS)


def retried(work: Work, act: Callable[[], object]) -> int:
    """Do it again if a writer was quicker; return how many times one was. The last conflict is raised."""
    for conflicts in range(TRIES):
        work.check()
        try:
            act()
            return conflicts
        except Exception as error:
            if not is_conflict(error) or conflicts == TRIES - 1:
                raise
    raise AssertionError("the loop returns or raises")
