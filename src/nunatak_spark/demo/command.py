"""The command `python -m nunatak_spark.demo` (`make demo`): runs the demo, writes the page, prints what to try next."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import duckdb
import pyiceberg
from rich.console import Console
from rich.markup import escape

from nunatak.client import Client
from nunatak_spark.demo.catalog_process import run_catalog
from nunatak_spark.demo.console_narrator import ConsoleNarrator
from nunatak_spark.demo.demo_context import DemoContext
from nunatak_spark.demo.demo_folder import claim_folder
from nunatak_spark.demo.demo_page import render
from nunatak_spark.demo.demo_run import DemoResult, run_demo
from nunatak_spark.demo.sample_data import demo_size
from nunatak_spark.errors import CannotRun, JarChecksumMismatch, JarNotFound
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.installation import Installation, find_installation
from nunatak_spark.jars import jar_locations, load_jar
from nunatak_spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED, CANNOT_RUN = 1, 3
PAGE, DATA, LOG, SPARK_LOG = "demo.html", "data", "catalog.log", "spark.log"
STDERR = 2
SMALL = 4  # up to this scale most of the time is statement overhead
LOGINS = ("NUNATAK_TOKEN", "NUNATAK_CREDENTIAL")  # logins of another catalog; the demo's catalog needs none


@dataclass(frozen=True)
class DemoOptions:
    """The command line options."""

    scale: float
    files: int
    folder: Path
    master: str
    keep: bool
    port: int


@click.command(
    epilog="Exit codes: 0 success, 1 a step failed, 2 wrong usage, 3 a requirement is missing on this machine."
)
@click.option(
    "--scale", default=1.0, show_default=True, type=click.FloatRange(0.001, 1000), help="1 is 200,000 orders."
)
@click.option(
    "--files", default=2_000, show_default=True, type=click.IntRange(40, 100_000), help="Small files to make."
)
@click.option(
    "--folder",
    default=Path("nunatak-demo"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the catalog, tables and page; that of an earlier demo is emptied.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--keep", is_flag=True, help="Keep the catalog running until Ctrl-C.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port of the catalog; default: a free port.")
def demo(scale: float, files: int, folder: Path, master: str, keep: bool, port: int) -> None:
    """Run a pipeline from raw events to revenue on a catalog of its own, and make a page about it."""
    console = Console()
    wishes = DemoOptions(scale, files, folder, master, keep, port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also ends the catalog
    try:
        problems = run(wishes, console)
    except CannotRun as error:
        console.print(f"[bold red]{escape(error.problem)}[/]\n[bold]Fix:[/] {escape(error.fix)}", highlight=False)
        raise click.exceptions.Exit(CANNOT_RUN) from error
    except KeyboardInterrupt:
        console.print("\nStopped; the catalog is down.")
        raise click.exceptions.Exit(FAILED) from None
    except Exception as error:
        console.print(f"[bold red]The demo failed:[/] {escape(failure_reason(error))}", highlight=False)
        console.print(f"More is in {folder / SPARK_LOG} and {folder / LOG}.", highlight=False)
        raise click.exceptions.Exit(FAILED) from error
    for problem in problems:
        console.print(f"[bold red]Problem:[/] {escape(problem)}", highlight=False)
    if problems:
        raise click.exceptions.Exit(FAILED)


def run(wishes: DemoOptions, console: Console) -> list[str]:
    """Runs the whole demo; returns the problems."""
    for name in LOGINS:
        os.environ.pop(name, None)
    installation = find_installation(os.environ)  # first: fails at once without Java
    with claim_folder(wishes.folder) as folder, run_catalog(folder / DATA, folder / LOG, wishes.port) as uri:
        console.print(f"[bold]The catalog listens on {uri}[/]; its data are in {folder / DATA}.", highlight=False)
        with _start_spark(installation, uri, wishes, folder / SPARK_LOG, console) as spark, Client(uri) as client:
            result = run_demo(
                DemoContext(spark, client, uri, demo_size(wishes.scale, wishes.files), ConsoleNarrator(console))
            )
            spark_version = spark.version
        page = folder / PAGE
        versions = {"Spark": spark_version, "PyIceberg": pyiceberg.__version__, "DuckDB": duckdb.__version__}
        commands = commands_for(folder, uri if wishes.keep else None)
        page.write_text(render(result, made_at=datetime.now(UTC), versions=versions, commands=commands), "utf-8")
        _close(result, page, commands, console)
        if wishes.keep:
            _wait(uri, console)
    return list(result.problems())


@contextlib.contextmanager
def _start_spark(
    installation: Installation, uri: str, wishes: DemoOptions, log: Path, console: Console
) -> "Iterator[SparkSession]":
    with console.status("Starting Spark …"), _stderr_into(log):
        settings = {"spark.driver.memory": "2g", **_compiler(wishes.scale), **_packages(installation)}
        try:
            spark = session(uri, master=wishes.master, config=settings, app_name="nunatak-demo")
        except CannotRun:
            raise
        except Exception as error:
            raise CannotRun("Spark did not start", fix=f"Look into {log}, or ask `nunatak spark doctor`.") from error
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Redirects stderr; a JVM that is started in the block writes its log there for its whole life."""
    sys.stderr.flush()
    kept = os.dup(STDERR)
    with log.open("wb") as file:
        os.dup2(file.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def _compiler(scale: float) -> dict[str, str]:
    """Returns JVM options without the optimizing compiler, which short statements never repay: it halves a
    small demo's time.
    """
    return {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} if scale <= SMALL else {}


def _packages(installation: Installation) -> dict[str, str]:
    """Returns nothing if the jar is here or Maven gets it; else the setting for Spark's own resolver."""
    try:
        load_jar(installation.spark.runtime, jar_locations(os.environ, spark_home=installation.spark_home))
    except JarChecksumMismatch:
        raise
    except JarNotFound:
        if os.environ.get("NUNATAK_MAVEN_URL") or jar_locations(os.environ).maven is not None:
            raise  # Maven is configured and failed
        return {"spark.jars.packages": installation.spark.runtime.coordinate}
    return {}


def commands_for(folder: Path, uri: str | None) -> dict[str, str]:
    """Returns what to try next; without a running catalog it is started first."""
    start = {} if uri else {"Start the catalog on this data again": f"nunatak serve --data {folder / DATA}"}
    at = uri or "http://127.0.0.1:8181"
    named = f" --uri {uri}" if uri else ""
    return {
        **start,
        "List the tables": f"nunatak table list analytics.bronze{named}",
        "Print the health of the tables": f"nunatak health analytics.bronze{named}",
        "Explain the policies": f"nunatak policy explain analytics.bronze.clicks{named}",
        "List the maintenance jobs": f"nunatak job list{named}",
        "Read gold in Python": "from pyiceberg.catalog import load_catalog\n"
        f'load_catalog("lake", type="rest", uri="{at}").load_table("analytics.gold.revenue").scan().to_arrow()',
    }


def _close(result: DemoResult, page: Path, commands: dict[str, str], console: Console) -> None:
    faster = result.before.query_seconds / max(result.after.query_seconds, 0.001)
    console.print(
        f"\n[bold]Health {result.before.health.score} → {result.after.health.score}[/], "
        f"{result.before.health.files:,} → {result.after.health.files:,} files, a query {faster:.1f} times faster."
    )
    console.print(f"[bold green]The page is {page.resolve()}[/]", highlight=False, soft_wrap=True)
    console.print("\nGo on from here:", highlight=False)
    for sentence, command in commands.items():
        console.print(f"  [dim]# {escape(sentence)}[/]", highlight=False)
        for line in command.splitlines():
            console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)


def _wait(uri: str, console: Console) -> None:
    console.print(f"\n[bold]The catalog runs on at {uri}; Ctrl-C ends it.[/]", highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)
