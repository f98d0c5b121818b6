"""A job for tests, from outside the package: it writes a table, reads it, and looks at what Spark was started with."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nunatak_spark.jobs import Progress, ProgressStep, Report, Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ProbeSpec(Spec, frozen=True, kw_only=True):
    namespace: str
    fail: bool = False


class ProbeReport(Report, frozen=True, kw_only=True):
    rows: int
    command_lines: tuple[str, ...]


def probe(spark: "SparkSession", spec: ProbeSpec, progress: Progress) -> ProbeReport:
    progress(ProgressStep("writing", 0, 2))
    spark.sql(f"CREATE NAMESPACE lake.{spec.namespace}")
    spark.sql(f"CREATE TABLE lake.{spec.namespace}.probe USING iceberg AS SELECT id FROM range(7)")
    progress(ProgressStep("reading", 1, 2))
    if spec.fail:
        spark.sql("SELECT * FROM lake.nowhere.nothing")
    rows = spark.table(f"lake.{spec.namespace}.probe").count()
    progress(ProgressStep("done", 2, 2))
    return ProbeReport(rows=rows, command_lines=children_of(os.getpid()), ok=rows == 7)


def children_of(parent: int) -> tuple[str, ...]:
    """The command lines of the processes that a process started, as every user of the machine can read them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended meanwhile
            continue
    return tuple(found)
