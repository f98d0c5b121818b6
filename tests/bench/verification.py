"""How long `nunatak migrate verify` takes for many small tables of a Hadoop catalog; a part of `tests.bench spark`."""

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nunatak.client import Client
from nunatak_spark.migration.inventory import take_inventory
from nunatak_spark.migration.planning import Wishes
from nunatak_spark.migration.plans import plan_tables
from nunatak_spark.migration.run import Run
from nunatak_spark.migration.shadow import shadow
from nunatak_spark.migration.side_by_side import verify_tables
from nunatak_spark.migration.sources.hadoop import hadoop_source
from nunatak_spark.migration.sources.origin import add_catalog
from nunatak_spark.migration.state import opened
from nunatak_spark.migration.values import LEVELS
from nunatak_spark.migration.verification import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM = 10  # tables before the clock starts
SECONDS_PER_TABLE = 1.0  # the goal


def measure_verification(spark: "SparkSession", client: Client, tables: int) -> tuple[float, int]:
    """Seconds for all tables after the warm ones, and how many of them are verified."""
    with tempfile.TemporaryDirectory(prefix="nunatak-bench-") as folder:
        source = hadoop_source("small", f"{folder}/hadoop", {})
        add_catalog(spark, source, {})
        for number in range(tables + WARM):
            columns = "id, concat('n', id) AS what, date_add(date'2026-01-01', cast(id AS int)) AS day"
            spark.sql(f"CREATE TABLE small.db.t{number} USING iceberg AS SELECT {columns} FROM range({number % 9})")
        with opened(Path(folder) / "migration", "verify", create=True) as state:
            state.keep_target(client.uri, "")
            with Run(state, lambda: Client(client.uri), lambda: spark, "lake", os.environ) as run:
                take_inventory(run, source)
                shadowed = shadow(run, plan_tables(run, Wishes()))
                verify_tables(run, verify, shadowed[:WARM], LEVELS)
                began = time.monotonic()
                found = verify_tables(run, verify, shadowed[WARM:], LEVELS)
                return time.monotonic() - began, sum(table.state == "verified" for table in found)


def verification_lines(seconds: float, verified: int, tables: int) -> list[tuple[str, str]]:
    return [
        ("tables verified", f"{verified:,} of {tables:,}"),
        ("L0 to L3, each", f"{seconds / tables:.2f} s"),
        ("goal", f"at most {SECONDS_PER_TABLE:.2f} s"),
    ]
