"""`nunatak report`: what happened in the catalog, as one page; and `nunatak report ingest`, which it is made from."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nunatak.cli.login import find_login
from nunatak.cli.main import Refused
from nunatak.cli.options import connected, setting_options, uri_option
from nunatak.cli.output import echo, print_json
from nunatak.client import Client
from nunatak.settings import Settings, SettingsError
from nunatak_spark.errors import CannotRun
from nunatak_spark.jobs import Step
from nunatak_spark.sessions import session
from nunatak_spark.telemetry.ingest import IngestSpec
from nunatak_spark.telemetry.ingest import ingest as ingest_spool
from nunatak_spark.telemetry.page import page
from nunatak_spark.telemetry.report import ReportSpec, collect, seen_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = 4  # the exit code: done, and there is something to look at
CATALOG = "lake"
MOST_LISTED = 100_000  # tables whose names are compared with what telemetry knows

warehouse_option = click.option("--warehouse", help="Warehouse whose namespace `system` holds the tables.")
master_option = click.option("--master", help="Where Spark runs; every core of this machine unless given.")


@click.group(invoke_without_command=True)
@click.option(
    "--to",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("nunatak-report.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="How far to look back.")
@uri_option
@warehouse_option
@master_option
@click.pass_context
def report(context: click.Context, file: Path, days: int, uri: str, warehouse: str | None, master: str | None) -> None:
    """Write a page about what happened: plots, figures, and what would help.

    It is made from the tables of the namespace `system`, which `nunatak report ingest` fills. It needs no network to
    be looked at. Exit codes: 0 done, 1 refused, 3 server not reachable.
    """
    if context.invoked_subcommand is not None:
        return
    with connected(uri, warehouse) as client:
        listed = _listed(client)
    with _spark(uri, warehouse, master) as (spark, tell):
        findings = collect(spark, ReportSpec(catalog=CATALOG, days=days), tell)
        unseen = sorted(listed - seen_tables(spark, CATALOG))
    file.write_text(page(findings, catalog=warehouse or uri, unseen=unseen), "utf-8")
    echo(f"Wrote {file}.")


def _listed(client: Client) -> set[str]:
    """The tables of the warehouse, as far as they may be seen."""
    found: set[str] = set()
    for namespace in client.walk_namespaces():
        found.update(".".join(name) for name in client.list_tables(namespace))
        if len(found) > MOST_LISTED:
            return set()
    return found


@report.command()
@click.option("--spool", help="Where the server leaves telemetry, as Spark reads it; else as the settings here say.")
@click.option("--checkpoint", help="Where Spark remembers what it has ingested; beside the spool unless given.")
@click.option("--keep-files", is_flag=True, help="Do not delete what was ingested.")
@uri_option
@warehouse_option
@master_option
@setting_options("data", "spool_location")
def ingest(
    settings: Settings,
    spool: str | None,
    checkpoint: str | None,
    keep_files: bool,
    uri: str,
    warehouse: str | None,
    master: str | None,
) -> None:
    """Bring what the server has spooled into the tables of the namespace `system`, each line exactly once.

    It ends when all that was there is in; run it every hour, or as often as you like. Killed, it goes on the next time.
    Exit codes: 0 done, 1 refused, 3 server not reachable, 4 done, and some lines went into `system.rejected`.
    """
    place = spool or _place(settings)
    spec = IngestSpec(spool=place, checkpoint=checkpoint, catalog=CATALOG, keep_files=keep_files)
    with connected(uri, warehouse) as client:
        client.load_config()  # before Spark starts: a wrong address shall not cost half a minute
    with _spark(uri, warehouse, master) as (spark, tell):
        done = ingest_spool(spark, spec, tell)
    print_json({"lines": done.lines, "rejected": done.rejected, "files": done.files, "files-left": done.files_left})
    if not done.ok:
        raise click.exceptions.Exit(FOUND)


def _place(settings: Settings) -> str:
    folder = settings.spool_folder()
    if folder is None:
        raise SettingsError("spool_location is off: this server keeps no telemetry")
    if not folder.is_dir():
        raise SettingsError(
            f"{folder} is not there: name the server's data folder with --data, or its spool with --spool"
        )
    return str(folder.resolve())


@contextmanager
def _spark(
    uri: str, warehouse: str | None, master: str | None
) -> Iterator[tuple["SparkSession", Callable[[Step], None]]]:
    login = find_login(uri, os.environ)
    status: Any = Console(stderr=True).status("Starting Spark …")
    try:
        with status:
            spark = session(
                uri,
                warehouse=warehouse,
                token=login.token,
                credential=login.credential_text,
                catalog=CATALOG,
                master=master,
                app_name="report",
            )
            try:
                yield spark, lambda step: status.update(f"{step.text} {step.done} of {step.total} …")
            finally:
                spark.stop()
    except CannotRun as error:
        raise Refused(error.problem, hint=error.fix) from error
