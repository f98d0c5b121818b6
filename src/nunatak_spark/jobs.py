"""What a job is, which there are, and how one is run: JSON in, JSON out. What each does stands in its own file."""

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

# Where each job lives; a job that stands elsewhere is named as `module:function`.
JOBS = {
    "fingerprint": "nunatak_spark.comparison_jobs:fingerprint_table",
    "compare": "nunatak_spark.comparison_jobs:compare_tables",
    "ingest": "nunatak_spark.telemetry.ingest:ingest",
    "report": "nunatak_spark.telemetry.telemetry_report:collect",
}


class ProgressStep(msgspec.Struct, frozen=True, rename="kebab"):
    """How far a job has come: `done` of `total` pieces, and what it is at."""

    text: str
    done: int
    total: int


Progress = Callable[[ProgressStep], None]


class Spec(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """What a job is asked for; each job has its own kind. An unknown field is a mistake and not ignored."""


class Report(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """What a job found or did; `ok` is False where it worked and somebody should look at what it found."""

    ok: bool = True


@dataclass(frozen=True)
class SparkJob:
    """A function `(spark, spec, progress) → report`, SQL and DataFrames only: so it runs locally, on a cluster and over
    Spark Connect alike."""

    name: str
    spec: type[Spec]
    function: Callable[["SparkSession", Any, Progress], Report]


def find_job(name: str) -> SparkJob:
    """A job of ours by name, or anybody's as `module:function`."""
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
    """The kind of specification, which is what the second parameter is annotated with."""
    parameters = list(inspect.signature(function).parameters.values()) if callable(function) else []
    kind = parameters[1].annotation if len(parameters) == 3 else None
    if isinstance(kind, str):
        kind = getattr(importlib.import_module(function.__module__), kind, None)
    if not (isinstance(kind, type) and issubclass(kind, Spec)):
        raise InvalidSpec(f"{name} is not a job", fix="A job is a function of spark, a Spec and progress.")
    return kind


def parse_spec(job: SparkJob, text: str | bytes) -> Spec:
    """The specification, checked whole before anything starts."""
    try:
        return msgspec.json.decode(text, type=job.spec)
    except msgspec.DecodeError as error:
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(job.spec))
        raise InvalidSpec(
            f"The specification of {job.name} is wrong: {error}", fix=f"Its fields are {fields}."
        ) from error


def no_progress(_: ProgressStep) -> None:
    """Progress that nobody wants to see."""


def run(job: SparkJob, spark: "SparkSession", spec: Spec, progress: Progress = no_progress) -> Report:
    protect_sql_text(spark)  # the caller may have made the session itself
    return job.function(spark, spec, progress)
