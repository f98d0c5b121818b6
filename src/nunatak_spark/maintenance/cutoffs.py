"""Points in time that jobs compare with, and how SQL writes them: the same in a session of any time zone."""

import datetime

from nunatak_spark.maintenance.job_context import Refused, Work


def cutoff_ms(work: Work, age_option: str) -> int:
    """What is older counts as old: as it was planned, or as the policy's age says now."""
    options = work.spec.options
    if "older-than-ms" in options:
        return int(options["older-than-ms"])
    if age_option not in options:
        raise Refused(f"The job does not say how old is old: {age_option} is missing")
    return work.now_ms() - int(options[age_option]) * 1000


def timestamp(moment_ms: int) -> str:
    return f"TIMESTAMP '{_printed(moment_ms)}Z'"


def timestamp_ntz(moment_ms: int) -> str:
    """Of the clock in UTC."""
    return f"TIMESTAMP_NTZ '{_printed(moment_ms)}'"


def date(moment_ms: int) -> str:
    """The day in UTC."""
    return f"DATE '{_at(moment_ms):%Y-%m-%d}'"


def _at(moment_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(moment_ms / 1000, datetime.UTC)


def _printed(moment_ms: int) -> str:
    return f"{_at(moment_ms - moment_ms % 1000):%Y-%m-%d %H:%M:%S}.{moment_ms % 1000:03}"
