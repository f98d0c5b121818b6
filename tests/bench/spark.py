"""The command `python -m tests.bench spark` (`make bench BENCH=spark`): how fast the jobs on Spark are.

Rounds of what is compared take turns, so that a busy moment meets both; CPU seconds are the calmer measure.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psutil
from rich.console import Console
from rich.table import Table

import nunatak_spark
from nunatak.client import Client
from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobContext
from tests.bench.report import geometric_mean_of_ratios
from tests.bench.verification import measure_verification, verification_lines
from tests.support.catalogs.process import running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
# Ten columns of the usual types, and a null here and there.
COLUMNS = """
    id, cast(xxhash64(id, 1) % 200000 as int) part, cast(xxhash64(id, 2) % 10000 as int) supplier,
    cast((xxhash64(id, 3) % 5000) / 100 as decimal(15,2)) quantity, xxhash64(id, 4) / 1e9 price,
    cast(id / 7 as float) discount,
    if(id % 3 = 0, null, substr('ANR', cast(id % 3 as int), 1)) flag,
    date_add(date'1992-01-01', cast(id % 2500 as int)) shipped,
    timestamp_seconds(id) at, concat('note ', hex(xxhash64(id, 5))) note
"""
PLAIN, OURS = "plain procedure", "our job"
FASTEST_ROWS, MOST_SLOWDOWN = 1.5e6, 1.10  # the goals: rows a second on two cores, and times the plain procedure


@dataclass(frozen=True)
class Reading:
    """One run: the time that passed, and the CPU time of Spark and of this process."""

    what: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Bench:
    """A session, the catalog behind it, and where readings are told as they come."""

    spark: "SparkSession"
    client: Client
    tell: Callable[[str], None]

    def measured(self, what: str, action: Callable[[], object]) -> Reading:
        cpu, began = cpu_seconds(), time.monotonic()
        action()
        reading = Reading(what, time.monotonic() - began, cpu_seconds() - cpu)
        self.tell(f"{what}: {reading.seconds:.2f} s, {reading.cpu_seconds:.2f} CPU-s")
        return reading


def cpu_seconds() -> float:
    """Of this process and of the JVM that it started, without the catalog."""
    ours = psutil.Process()
    processes = [ours, *(child for child in ours.children(recursive=True) if child.name() == "java")]
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


# Fingerprint


def measure_fingerprint(bench: Bench, rows: int, rounds: int) -> list[Reading]:
    """Of one table, again and again: the first rounds are those of a JVM that is not warm."""
    bench.spark.sql(
        f"CREATE TABLE lake.bench.items USING iceberg AS SELECT {COLUMNS} FROM range(0, {rows}, 1, {2 * CORES})"
    )
    return [bench.measured("fingerprint", lambda: fingerprint(bench.spark, "lake.bench.items")) for _ in range(rounds)]


def fingerprint_lines(readings: Sequence[Reading], rows: int) -> list[tuple[str, str]]:
    warm = readings[len(readings) // 2 :]
    wall = rows / statistics.median(one.seconds for one in warm)
    free = rows * CORES / statistics.median(one.cpu_seconds for one in warm)
    return [
        ("first round", f"{rows / readings[0].seconds / 1e6:.2f} M rows/s"),
        (f"warm, the last {len(warm)} rounds", f"{wall / 1e6:.2f} M rows/s"),
        (f"warm, by CPU time, if {CORES} cores were free", f"{free / 1e6:.2f} M rows/s"),
        ("goal", f"{FASTEST_ROWS / 1e6:.2f} M rows/s"),
    ]


# Compaction


def measure_compaction(bench: Bench, rows: int, files: int, rounds: int) -> list[Reading]:
    """The same files joined by Iceberg's procedure and by our job, in turn; after each the table is put back."""
    table = "lake.bench.small"
    bench.spark.sql(f"CREATE TABLE {table} USING iceberg AS SELECT {COLUMNS} FROM range(0, {rows}, 1, {files})")
    (before,) = bench.spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").collect()
    spec = compaction_spec(bench.client)
    actions: dict[str, Callable[[], object]] = {
        PLAIN: lambda: bench.spark.sql("CALL lake.system.rewrite_data_files('bench.small')").collect(),
        OURS: lambda: maintain(JobContext(bench.spark, bench.client, "lake", spec, "job-bench")),
    }
    readings = []
    for n in range(rounds):
        order = [PLAIN, OURS] if n % 2 == 0 else [OURS, PLAIN]
        for what in order:
            readings.append(bench.measured(what, actions[what]))
            _require_joined(bench, table, files)
            bench.spark.sql(f"CALL lake.system.rollback_to_snapshot('bench.small', {before.snapshot_id})")
    return readings


def compaction_spec(client: Client) -> JobSpec:
    metadata = client.load_table(("bench", "small"))["metadata"]
    return JobSpec(
        type="data-compaction",
        warehouse="default",
        namespace=["bench"],
        table="small",
        table_uuid=metadata["table-uuid"],
        snapshot_id=metadata["current-snapshot-id"],
        format_version=metadata["format-version"],
    )


def _require_joined(bench: Bench, table: str, files: int) -> None:
    """A run that left the files as they were measured nothing."""
    left = bench.spark.table(f"{table}.files").count()
    if left >= files:
        raise click.ClickException(f"{left} of {files} files are left: nothing was joined")


def compaction_lines(readings: Sequence[Reading]) -> list[tuple[str, str]]:
    """The first round of each warms up, if there are more."""
    plain, ours = ([one for one in readings if one.what == what] for what in (PLAIN, OURS))
    if len(plain) > 1:
        plain, ours = plain[1:], ours[1:]
    seconds = geometric_mean_of_ratios([one.seconds for one in ours], [one.seconds for one in plain])
    cpu = geometric_mean_of_ratios([one.cpu_seconds for one in ours], [one.cpu_seconds for one in plain])
    return [
        *(
            (what, f"{statistics.median(one.seconds for one in found):.2f} s, "
             f"{statistics.median(one.cpu_seconds for one in found):.2f} CPU-s")
            for what, found in ((PLAIN, plain), (OURS, ours))
        ),
        (f"our job against it, {len(ours)} rounds", f"{seconds:.2f}× the time, {cpu:.2f}× the CPU time"),
        ("goal", f"at most {MOST_SLOWDOWN:.2f}×"),
    ]  # fmt: skip


# The command


@click.group(invoke_without_command=True)
@click.pass_context
def spark(context: click.Context) -> None:
    """Measure the jobs on Spark; all of them unless one is named."""
    if context.invoked_subcommand is None:
        for command in (fingerprint_command, compaction_command, verification_command):
            context.invoke(command)


@spark.command(name="fingerprint")
@click.option("--rows", default=6_000_000, show_default=True, type=click.IntRange(1_000))
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(2, 100))
def fingerprint_command(rows: int, rounds: int) -> None:
    """How many rows a second the fingerprint of a table of ten columns reads."""
    with started() as bench:
        readings = measure_fingerprint(bench, rows, rounds)
    show(f"Fingerprint of {rows:,} rows, 10 columns, {CORES} cores", fingerprint_lines(readings, rows))


@spark.command(name="compaction")
@click.option("--rows", default=6_000_000, show_default=True, type=click.IntRange(1_000))
@click.option("--files", default=400, show_default=True, type=click.IntRange(10, 10_000))
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(1, 100))
def compaction_command(rows: int, files: int, rounds: int) -> None:
    """How much slower our compaction is than Iceberg's procedure alone."""
    with started() as bench:
        readings = measure_compaction(bench, rows, files, rounds)
    show(f"Compaction of {files:,} files with {rows:,} rows, {CORES} cores", compaction_lines(readings))


@spark.command(name="verification")
@click.option("--tables", default=300, show_default=True, type=click.IntRange(1, 10_000))
def verification_command(tables: int) -> None:
    """How long it takes to verify a small table that was migrated, if there are many."""
    with started() as bench:
        found = measure_verification(bench.spark, bench.client, tables, cpu_seconds)
    show(f"Verification of {tables:,} small tables, {CORES} cores", verification_lines(found))


@contextlib.contextmanager
def started() -> Iterator[Bench]:
    """A fresh catalog and a fresh JVM, as jobs have them."""
    console = Console(stderr=True, highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="nunatak-bench-") as folder,
        running_server(
            Path(folder) / "nunatak-data", environment={"NUNATAK_ALLOWED_LOCATIONS": f"file://{tempfile.gettempdir()}"}
        ) as server,
        Client(server.uri) as client,
    ):
        config = {"spark.scheduler.mode": "FAIR", "spark.driver.memory": "3g", "spark.local.dir": f"{folder}/spark"}
        session = nunatak_spark.session(server.uri, master=f"local[{CORES}]", config=config)
        try:
            session.sql("CREATE NAMESPACE lake.bench")
            yield Bench(session, client, console.print)
        finally:
            session.stop()


def show(title: str, lines: Sequence[tuple[str, str]]) -> None:
    table = Table(title=title, show_header=False, title_justify="left")
    for line in lines:
        table.add_row(*line)
    Console(highlight=False).print(table)
