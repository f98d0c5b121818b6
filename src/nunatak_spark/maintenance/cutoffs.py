"""Cutoff times of jobs, and their SQL literals, which mean the same in a session of any time zone."""

import datetime

from nunatak_spark.maintenance.job_context import JobContext, JobRefused


def cutoff_ms(context: JobContext, age_option: str) -> int:
    """Returns the cutoff: as it was planned, or now minus the policy's age. Raises JobRefused if neither is given."""
    options = context.spec.options
    if "older-than-ms" in options:
        return int(options["older-than-ms"])
    if age_option not in options:
        raise JobRefused(f"The job has no cutoff: {age_option} is missing")
    return context.now_ms() - int(options[age_option]) * 1000


def timestamp_literal(moment_ms: int) -> str:
    return f"TIMESTAMP '{_format_utc(moment_ms)}Z'"


def timestamp_ntz_literal(moment_ms: int) -> str:
    """In UTC."""
    return f"TIMESTAMP_NTZ '{_format_utc(moment_ms)}'"


def date_literal(moment_ms: int) -> str:
    """The day in UTC."""
    return f"DATE '{_at(moment_ms):%Y-%m-%d}'"


def _at(moment_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(moment_ms / 1000, datetime.UTC)


def _format_utc(moment_ms: int) -> str:
    return f"{_at(moment_ms - moment_ms % 1000):%Y-%m-%d %H:%M:%S}.{moment_ms % 1000:03}"
