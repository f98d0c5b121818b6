"""`nunatak report`: writes a page from telemetry; `nunatak report ingest`: ingests the telemetry."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nunatak.cli.main import CommandRefused
from nunatak.cli.options import connect, setting_options, uri_option
from nunatak.cli.output import echo, print_json
from nunatak.client import Client
from nunatak.errors import CatalogError
from nunatak.settings import Settings, SettingsError
from nunatak_spark.cli.run_jobs import Where, refusals, runs_spark, started
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.telemetry.ingest import IngestSpec
from nunatak_spark.telemetry.ingest import ingest as ingest_spool
from nunatak_spark.telemetry.telemetry_page import render_page
from nunatak_spark.telemetry.telemetry_report import ReportSpec, collect, unseen_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND = 4  # the exit code: done, and there is something to look at
MAX_LISTED = 100_000  # tables whose names are compared with what telemetry knows

warehouse_option = click.option("--warehouse", help="Warehouse whose namespace `system` holds the tables.")


@click.group(invoke_without_command=True)
@click.option(
    "--to",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("nunatak-report.html"),
    show_default=True,
    help="File to write.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="Period of the report.")
@uri_option
@warehouse_option
@runs_spark
@click.pass_context
def report(context: click.Context, file: Path, days: int, uri: str, warehouse: str | None, where: Where) -> None:
    """Write a report page from telemetry: plots, figures and recommendations.

    It reads the tables of the namespace `system`, which `nunatak report ingest` fills. The page works without
    network. Exit codes: 0 done, 1 refused, 3 server not reachable.
    """
    if context.invoked_subcommand is not None:
        return
    with connect(uri, warehouse) as client:
        listed = _listed(client)
        with _spark(where, client) as (spark, print_event):
            findings = collect(spark, ReportSpec(catalog=where.catalog, days=days), print_event)
            unseen = unseen_tables(spark, where.catalog, listed)
    file.write_text(render_page(findings, catalog=warehouse or uri, unseen=unseen), "utf-8")
    echo(f"Wrote {file}.")


def _listed(client: Client) -> set[str]:
    """The tables of the warehouse, as far as they may be seen."""
    found: set[str] = set()
    for namespace in client.walk_namespaces():
        found.update(".".join(name) for name in client.list_tables(namespace))
        if len(found) > MAX_LISTED:
            return set()
    return found


@report.command()
@click.option("--spool", help="Location of the telemetry spool for Spark; default: from the settings.")
@click.option("--checkpoint", help="Checkpoint location of Spark; default: beside the spool.")
@click.option("--keep-files", is_flag=True, help="Keep ingested files in the spool.")
@uri_option
@warehouse_option
@runs_spark
@setting_options("data", "spool_location")
def ingest(
    settings: Settings,
    spool: str | None,
    checkpoint: str | None,
    keep_files: bool,
    uri: str,
    warehouse: str | None,
    where: Where,
) -> None:
    """Ingest the telemetry spool into the tables of the namespace `system`, each line exactly once.

    It ends when the spool is ingested; run it every hour, for example. After an interruption the next run continues.
    Exit codes: 0 done, 1 refused, 3 server not reachable, 4 done, and some lines went into `system.rejected`.
    """
    place = spool or _place(settings)
    spec = IngestSpec(spool=place, checkpoint=checkpoint, catalog=where.catalog, keep_files=keep_files)
    with connect(uri, warehouse) as client:
        client.load_config()  # before Spark starts: a wrong address shall not cost half a minute
        with _spark(where, client) as (spark, print_event):
            done = ingest_spool(spark, spec, print_event)
    print_json({"lines": done.lines, "rejected": done.rejected, "files": done.files, "files-left": done.files_left})
    if not done.ok:
        raise click.exceptions.Exit(FOUND)


def _place(settings: Settings) -> str:
    folder = settings.spool_folder()
    if folder is None:
        raise SettingsError("spool_location is off: this server keeps no telemetry")
    if not folder.is_dir():
        raise SettingsError(
            f"{folder} does not exist: name the server's data folder with --data, or its spool with --spool"
        )
    return str(folder.resolve())


@contextmanager
def _spark(where: Where, client: Client) -> Iterator[tuple["SparkSession", Callable[[ProgressStep], None]]]:
    """A session and a way to tell how far the work is; what keeps Spark from it is a refusal in one line."""
    status: Any = Console(stderr=True).status("Starting Spark …")
    with refusals(), status:
        spark = started(where, client)
        try:
            yield spark, lambda step: status.update(f"{step.text} {step.done} of {step.total} …")
        except (CannotRun, CatalogError, ConnectionError):  # they say it themselves
            raise
        except Exception as error:
            raise CommandRefused(f"Spark failed: {failure_reason(error)}") from error
        finally:
            spark.stop()
