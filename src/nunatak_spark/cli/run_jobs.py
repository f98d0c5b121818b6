"""Shared by the commands that run jobs on Spark: the session, the worker's name, output and exit codes."""

import functools
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from nunatak.cli.login import find_login
from nunatak.cli.main import CommandRefused
from nunatak.cli.options import CommandSession, connect
from nunatak.cli.output import echo
from nunatak.cli.securable_names import securable_of, warehouse_of
from nunatak.client import Client, Json
from nunatak.errors import CatalogError, Conflict
from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.compatibility import RUNTIME, compatibility_matrix
from nunatak_spark.console import PrintEvent, print_json_lines, print_lines, print_with_bars
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobContext
from nunatak_spark.maintenance.job_context import JobRefused as WouldHarm
from nunatak_spark.shutdown import ShutdownSignal
from nunatak_spark.spark_session import session
from nunatak_spark.worker import (
    JobResult,
    SharedSession,
    Worker,
    WorkerOptions,
    dry_run_event,
    progress_event,
    unique_worker_name,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEAT_SECONDS = 5.0  # a heartbeat that was not answered by then is sent again
DONE, FAILED, LOOK, NOT_DONE = 0, 1, 4, 5
EXIT_CODES = (
    "Exit codes: 0 done, 1 a job failed, or the catalog or this machine refused, 2 wrong usage or settings, 3 server "
    "not reachable, 4 done, and the result has warnings, 5 a job was not done: cancelled, handed back, "
    "or leased by another worker."
)

Command = Callable[..., Any]

catalog_option = click.option("--catalog", default="lake", show_default=True, help="Name of the catalog in Spark.")
bundle_option = click.option(
    "--bundle",
    "bundles",
    multiple=True,
    type=click.Choice(
        sorted({name for one in compatibility_matrix().sparks.values() for name in one.jars} - {RUNTIME})
    ),
    help="Also the jar for this cloud's storage; may be repeated.",
)


@dataclass(frozen=True)
class Where:
    """The master and settings of the Spark session; the catalog's address and login come with the client."""

    catalog: str
    master: str | None
    remote: str | None
    config: dict[str, str]
    bundles: tuple[str, ...]


def runs_spark(command: Command) -> Command:
    """Give a command the options of a session; it is called with `where`."""

    @catalog_option
    @click.option(
        "--master", help="Spark master, such as local[4] or spark://host:7077; default: as Spark is configured."
    )
    @click.option("--remote", help="A Spark Connect server, such as sc://host:15002.")
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=_pairs, help="A setting of Spark.")
    @bundle_option
    @functools.wraps(command)
    def with_where(
        *positional: Any,
        catalog: str,
        master: str | None,
        remote: str | None,
        conf: dict[str, str],
        bundles: tuple[str, ...],
        **arguments: Any,
    ) -> Any:
        return command(*positional, where=Where(catalog, master, remote, conf, bundles), **arguments)

    return with_where


def _pairs(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for key, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{key} has no value; write KEY=VALUE")
    return {key: value for key, _, value in pairs}


def started(where: Where, client: Client) -> "SparkSession":
    """A session for the catalog that the client talks to, with its login; CannotRun says what is missing."""
    login = find_login(client.uri, os.environ)
    try:
        return session(
            client.uri,
            warehouse=client.warehouse,
            token=login.token,
            credential=login.credential_text,
            catalog=where.catalog,
            master=where.master,
            remote=where.remote,
            bundles=where.bundles,
            config=where.config,
            app_name="nunatak maintenance",
        )
    except CannotRun:
        raise
    except Exception as error:
        raise CannotRun(f"Spark did not start: {failure_reason(error)}", fix="nunatak spark doctor") from error


@contextmanager
def shared_session(where: Where, client: Client, leaving: ShutdownSignal | None = None) -> Iterator[SharedSession]:
    """A Spark session that is started at its first use and stopped at the end."""

    def start() -> "SparkSession":
        spark = started(where, client)
        if leaving is not None:
            leaving.install_handlers()
        return spark

    shared = SharedSession(start)
    try:
        yield shared
    finally:
        shared.stop()


@contextmanager
def a_worker(wishes: WorkerOptions, where: Where, client: Client, print_event: PrintEvent) -> Iterator[Worker]:
    """One that ends in good order when it is asked to; what keeps Spark from working is a refusal."""
    leaving = ShutdownSignal()
    with ExitStack() as open_:
        open_.enter_context(refusals())
        open_.enter_context(leaving.handle_signals())
        beats = open_.enter_context(connect(client.uri, client.warehouse, timeout_seconds=BEAT_SECONDS))
        shared = open_.enter_context(shared_session(where, client, leaving))
        yield Worker(wishes, client, beats, shared, maintain, leaving, print_event)


def event_printer(session: CommandSession) -> AbstractContextManager[PrintEvent]:
    if session.output == "json":
        return print_json_lines()
    return print_with_bars() if sys.stdout.isatty() else print_lines()


def worker_name(name: str | None) -> str:
    """Returns the worker's name, unique for each process."""
    return unique_worker_name(name or f"{socket.gethostname()}-{os.getpid()}")


def exit_code(ended: list[JobResult]) -> int:
    states = {each.state for each in ended}
    if "failed" in states:
        return FAILED
    if states - {"done"}:
        return NOT_DONE
    return LOOK if any(each.outcome is not None and not each.outcome.ok for each in ended) else DONE


# Jobs done here and now


class Taken(CommandRefused):
    """Another worker leases the job, or it has ended."""

    exit_code = NOT_DONE


def run_due(session: CommandSession, where: Where, securable: str) -> int:
    """Plans and runs due jobs until none is due; returns the outcome."""
    wishes = WorkerOptions(securable=securable, name=worker_name(None), catalog=where.catalog, once=True, plan=True)
    with event_printer(session) as print_event, a_worker(wishes, where, session.client, print_event) as worker:
        worker.run()
    return NOT_DONE if worker.shutdown.requested else exit_code(worker.results)


def run_job(session: CommandSession, where: Where, securable: str, job_id: int) -> int:
    wishes = WorkerOptions(securable=securable, name=worker_name(None), catalog=where.catalog)
    with event_printer(session) as print_event, a_worker(wishes, where, session.client, print_event) as worker:
        try:
            worker.run_one(job_id)
        except Conflict as error:
            raise Taken(error.message, hint=error.hint) from error
    if worker.results[0].state == "handed-back":
        echo(f"The job waits for a worker; `nunatak job cancel {job_id}` drops it.", err=True)
    return exit_code(worker.results)


def try_jobs(session: CommandSession, where: Where, jobs: list[Json]) -> int:
    """Runs jobs as a dry run on Spark; nothing is queued, leased or changed."""
    ended = []
    with refusals(), event_printer(session) as print_event, shared_session(where, session.client) as shared:
        for job in jobs:
            spec = msgspec.convert(job["job"], JobSpec)
            work = JobContext(
                spark=shared.get(),
                client=session.client,
                catalog=where.catalog,
                spec=spec,
                job="dry-run",
                progress=lambda step: print_event(progress_event(None, step)),
                dry_run=True,
            )
            ended.append(_tried(work))
            print_event(dry_run_event(spec, ended[-1]))
    return exit_code(ended)


def _tried(work: JobContext) -> JobResult:
    try:
        return JobResult("done", maintain(work))
    except WouldHarm as error:
        return JobResult("failed", error=str(error))
    except (CannotRun, CatalogError, ConnectionError):
        raise
    except Exception as error:
        return JobResult("failed", error=failure_reason(error))


@contextmanager
def in_warehouse_of(client: Client, securable: str | None) -> Iterator[tuple[Client, str]]:
    """The place whose jobs are meant, the whole warehouse unless given; and a client for the warehouse it lies in."""
    if securable is None:
        yield client, securable_of(client, ())
        return
    home = warehouse_of(securable)
    if client.warehouse not in (None, home):
        raise click.UsageError(f"{securable} is not in the warehouse {client.warehouse}")
    with connect(client.uri, home or None) as own:
        yield own, securable


@contextmanager
def refusals() -> Iterator[None]:
    """Translates errors of the client and of Spark to command errors with a hint."""
    try:
        yield
    except CannotRun as error:
        raise CommandRefused(error.problem, hint=error.fix) from error
