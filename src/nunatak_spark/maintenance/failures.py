"""What Spark and Iceberg say when something goes wrong, as one line that people can read."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nunatak.errors import CatalogError
from nunatak_spark.errors import CannotRun
from nunatak_spark.maintenance.work import Refused, Stopped, Work
from nunatak_spark.redaction import redacted_text

LONGEST = 500
TRIES = 5
# What Iceberg throws if a table was changed while it worked; its own tries to commit are over by then.
CONFLICTS = ("CommitFailedException", "ValidationException", "rewrite commits failed")
CLASS = re.compile(r"^(?:[a-z_$]\w*\.)+[A-Z]\w*:\s*")  # as in `java.lang.IllegalStateException: `


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
        raise Failed(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """The innermost cause that a Java trace names, else the first line; what is around it tells of threads."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    chosen = causes[-1] if causes else (lines[0] if lines else type(error).__name__)
    plain = CLASS.sub("", chosen)
    return redacted_text(plain or chosen)[:LONGEST]  # cut afterwards: half a secret is one


def is_conflict(error: BaseException) -> bool:
    return any(name in str(error) for name in CONFLICTS)


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
