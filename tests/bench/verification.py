"""How long `nunatak migrate verify` takes for many small tables of a Hadoop catalog; a part of `tests.bench spark`."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nunatak.client import Client
from nunatak_spark.migration.inventory import take_inventory
from nunatak_spark.migration.migration_run import MigrationRun
from nunatak_spark.migration.model import LEVELS
from nunatak_spark.migration.parallel_verification import verify_tables
from nunatak_spark.migration.planning_rules import PlanOptions
from nunatak_spark.migration.shadow import shadow
from nunatak_spark.migration.sources.hadoop import hadoop_source
from nunatak_spark.migration.sources.source_catalog import add_source_catalog
from nunatak_spark.migration.state import open_folder_state
from nunatak_spark.migration.table_plans import plan_tables
from nunatak_spark.migration.verification import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM = 10  # tables before the clock starts
SECONDS_PER_TABLE = 1.0  # the goal


@dataclass(frozen=True)
class Verification:
    """Seconds for all tables after the warm ones, how many of them are verified, and the seconds of each level."""

    tables: int
    seconds: float
    cpu_seconds: float
    verified: int
    levels: dict[str, float]


def measure_verification(
    spark: "SparkSession", client: Client, tables: int, cpu_seconds: Callable[[], float]
) -> Verification:
    with tempfile.TemporaryDirectory(prefix="nunatak-bench-") as folder:
        source = hadoop_source("small", f"{folder}/hadoop", {})
        add_source_catalog(spark, source, {})
        for number in range(tables + WARM):
            columns = "id, concat('n', id) AS what, date_add(date'2026-01-01', cast(id AS int)) AS day"
            spark.sql(f"CREATE TABLE small.db.t{number} USING iceberg AS SELECT {columns} FROM range({number % 9})")
        with open_folder_state(Path(folder) / "migration", "verify", create=True) as state:
            state.keep_target(client.uri, "")
            with MigrationRun(state, lambda: Client(client.uri), lambda: spark, "lake", os.environ) as run:
                take_inventory(run, source)
                shadowed = shadow(run, plan_tables(run, PlanOptions()))
                verify_tables(run, verify, shadowed[:WARM], LEVELS)
                began, used = time.monotonic(), cpu_seconds()
                found = verify_tables(run, verify, shadowed[WARM:], LEVELS)
                seconds, used = time.monotonic() - began, cpu_seconds() - used
                levels: dict[str, float] = dict.fromkeys(LEVELS, 0.0)
                for one in (each for table in found for each in state.list_evidence(table)):
                    levels[one.level] += (one.ended_ms - one.started_ms) / 1000
                verified = sum(table.state == "verified" for table in found)
                return Verification(tables, seconds, used, verified, levels)


def verification_lines(found: Verification) -> list[tuple[str, str]]:
    return [
        ("tables verified", f"{found.verified:,} of {found.tables:,}"),
        ("each, of the time that passed", f"{found.seconds / found.tables:.2f} s"),
        ("each, by CPU time, if 2 cores were free", f"{found.cpu_seconds / found.tables / 2:.2f} s"),
        *((f"{level} in its thread", f"{took / found.tables:.2f} s") for level, took in found.levels.items()),
        ("goal", f"at most {SECONDS_PER_TABLE:.2f} s"),
    ]
