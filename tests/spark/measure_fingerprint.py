"""How fast a fingerprint is: `python -m tests.spark.measure_fingerprint [ROWS]`. A measurement, and no test."""

import sys
import tempfile
import time
from pathlib import Path

import psutil

import nunatak_spark
from nunatak_spark.fingerprint import fingerprint
from tests.support.server import running_server

ROWS = 6_000_000
ROUNDS = 5
COLUMNS = """
    id, cast(xxhash64(id, 1) % 200000 as int) part, cast(xxhash64(id, 2) % 10000 as int) supplier,
    cast((xxhash64(id, 3) % 5000) / 100 as decimal(15,2)) quantity, xxhash64(id, 4) / 1e9 price,
    cast(id / 7 as float) discount,
    if(id % 3 = 0, null, substr('ANR', cast(id % 3 as int), 1)) flag,
    date_add(date'1992-01-01', cast(id % 2500 as int)) shipped,
    timestamp_seconds(id) at, concat('note ', hex(xxhash64(id, 5))) note
"""


def jvm_cpu_seconds() -> float:
    """Of the JVM that this process started."""
    children = [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]
    return sum(times.user + times.system for times in (child.cpu_times() for child in children))


def measure(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "nunatak-data") as server:
        spark = nunatak_spark.session(server.uri, master="local[2]", config={"spark.driver.memory": "2g"})
        spark.sql("CREATE NAMESPACE lake.measured")
        spark.sql(f"CREATE TABLE lake.measured.items USING iceberg AS SELECT {COLUMNS} FROM range(0, {rows}, 1, 4)")
        for n in range(ROUNDS):
            cpu, wall = jvm_cpu_seconds(), time.monotonic()
            fingerprint(spark, "lake.measured.items")
            cpu, wall = jvm_cpu_seconds() - cpu, time.monotonic() - wall
            free = rows / (cpu / 2) / 1e6
            print(
                f"{n + 1}: {wall:.1f} s, {rows / wall / 1e6:.2f} M rows/s; "
                f"{cpu:.1f} CPU-s, {free:.2f} M rows/s on 2 free cores",
                flush=True,
            )
        spark.stop()


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
