"""The registry of Spark jobs, their specification and report types, and how one is run: JSON in, JSON out."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.errors import InvalidSpec
from nunatak_spark.sql_text import protect_sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Built-in jobs; other jobs are named as `module:function`.
JOBS = {
    "fingerprint": "nunatak_spark.comparison_jobs:fingerprint_table",
    "compare": "nunatak_spark.comparison_jobs:compare_tables",
    "ingest": "nunatak_spark.telemetry.ingest:ingest",
    "report": "nunatak_spark.telemetry.telemetry_report:collect",
}


class ProgressStep(msgspec.Struct, frozen=True, rename="kebab"):
    """How far a job is: `done` of `total` pieces, and what it does now."""

    text: str
    done: int
    total: int


Progress = Callable[[ProgressStep], None]


class Spec(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """Base class of job specifications. An unknown field is an error."""


class Report(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """Base class of job reports. `ok` is False if the job worked but found something that needs attention."""

    ok: bool = True


@dataclass(frozen=True)
class SparkJob:
    """A function `(spark, spec, progress) -> report` that uses SQL and DataFrames only.

    So it runs alike in local mode, on a cluster and over Spark Connect.
    """

    name: str
    spec: type[Spec]
    function: Callable[["SparkSession", Any, Progress], Report]


def find_job(name: str) -> SparkJob:
    """Returns a built-in job by name, or any function as `module:function`; raises InvalidSpec."""
    place = JOBS.get(name, name)
    module, colon, attribute = place.partition(":")
    if not colon:
        raise InvalidSpec(f"There is no job {name}", fix=f"Choose among {', '.join(JOBS)}, or write module:function.")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidSpec(f"There is no job {name}: {error}", fix="Write it as module:function.") from error
    return SparkJob(name, _spec_type(name, function), function)


def _spec_type(name: str, function: Any) -> type[Spec]:
    """Returns the specification type: the annotation of the function's second parameter."""
    parameters = list(inspect.signature(function).parameters.values()) if callable(function) else []
    kind = parameters[1].annotation if len(parameters) == 3 else None
    if isinstance(kind, str):
        kind = getattr(importlib.import_module(function.__module__), kind, None)
    if not (isinstance(kind, type) and issubclass(kind, Spec)):
        raise InvalidSpec(f"{name} is not a job", fix="A job is a function of spark, a Spec and progress.")
    return kind


def parse_spec(job: SparkJob, text: str | bytes) -> Spec:
    """Parses and validates the specification before anything starts; raises InvalidSpec."""
    try:
        return msgspec.json.decode(text, type=job.spec)
    except msgspec.DecodeError as error:
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(job.spec))
        raise InvalidSpec(
            f"The specification of {job.name} is wrong: {error}", fix=f"Its fields are {fields}."
        ) from error


def no_progress(_: ProgressStep) -> None:
    """A progress callback that does nothing."""


def run(job: SparkJob, spark: "SparkSession", spec: Spec, progress: Progress = no_progress) -> Report:
    protect_sql_text(spark)  # the caller may have created the session without our settings
    return job.function(spark, spec, progress)
