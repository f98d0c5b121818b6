"""`nunatak spark …`: what PySpark needs to work with the catalog; jobs themselves run in `nunatak_spark`."""

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click
from rich.console import Console

from nunatak.cli.login import CommandLogin, find_login, has_admin_file
from nunatak.cli.main import SuggestingGroup
from nunatak.cli.names import NameType
from nunatak.cli.options import CommandSession, connect, output_option, talks_to_server, uri_option
from nunatak.cli.output import echo, print_json, print_rows
from nunatak.client import ClientCredential
from nunatak.settings import SettingsError
from nunatak_spark.cli.run_jobs import (
    Where,
    a_worker,
    bundle_option,
    catalog_option,
    event_printer,
    exit_code,
    in_warehouse_of,
    refusals,
    runs_spark,
    worker_name,
)
from nunatak_spark.compatibility import Jar, SparkRelease, compatibility_matrix
from nunatak_spark.configuration import (
    CATALOG,
    EXTENSIONS,
    EXTENSIONS_CLASS,
    JARS,
    PACKAGES,
    REDACTED,
    catalog_config,
    existing_settings,
    format_properties,
)
from nunatak_spark.doctor import DoctorCheck, check_machine, check_server, check_session
from nunatak_spark.errors import CannotRun
from nunatak_spark.installation import find_installation, installed_version
from nunatak_spark.jars import find_jar, jar_locations, load_jar
from nunatak_spark.spark_session import session
from nunatak_spark.worker import WorkerOptions

PRIVATE = 0o600  # a file that may hold a secret
PROBLEM = 1  # the exit code: something keeps Spark from working

warehouse_option = click.option("--warehouse", help="Warehouse by name; the server's default one unless given.")
spark_option = click.option(
    "--spark",
    "version",
    help=f"For this Spark: {' or '.join(compatibility_matrix().sparks)}; else for the pyspark installed here.",
)


@click.group(cls=SuggestingGroup)
def spark() -> None:
    """Configure PySpark for the catalog, and run a maintenance worker."""


@spark.command()
@uri_option
@warehouse_option
@catalog_option
@spark_option
@bundle_option
@click.option("--packages", is_flag=True, help="Let Spark download the jars, even if they are on this machine.")
@click.option("--with-secret", is_flag=True, help="Include the login of NUNATAK_TOKEN or …_CREDENTIAL.")
@click.option(
    "--to", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write a file that only you can read."
)
def conf(
    uri: str,
    warehouse: str | None,
    catalog: str,
    version: str | None,
    bundles: tuple[str, ...],
    packages: bool,
    with_secret: bool,
    file: Path | None,
) -> None:
    """Print the lines of spark-defaults.conf, also for `spark-submit --properties-file`."""
    with refusals():
        # The administrator's own secret, which lies in a file, is never printed: engines get one of their own.
        wanted = catalog_config(os.environ, uri, name=catalog, warehouse=warehouse, token=None, credential=None)
        if with_secret and not wanted.secrets():
            fix = "`nunatak credential create` makes one; set NUNATAK_CREDENTIAL or NUNATAK_TOKEN to it."
            raise CannotRun("--with-secret found no login", fix=fix)
        jars = _spark_of(version).chosen_jars(bundles)
        settings = {
            **_jar_settings(jars, packages=packages),
            EXTENSIONS: EXTENSIONS_CLASS,
            "spark.redaction.regex": REDACTED,
            **wanted.settings(),
            **(wanted.secrets() if with_secret else {}),
        }
        text = format_properties(settings)
    if not with_secret and (wanted.secrets() or has_admin_file(os.environ)):
        echo("The login is left out; add --with-secret to include it.", err=True)
    if file is None:
        echo(text, nl=False)
    else:
        _write_private(file, text)
        echo(f"Wrote {file}.", err=True)


def _jar_settings(jars: list[Jar], *, packages: bool) -> dict[str, str]:
    found = [] if packages else [find_jar(jar, jar_locations(os.environ)) for jar in jars]
    paths = [str(one.path) for one in found if one is not None]
    if len(paths) == len(jars):
        return {JARS: ",".join(paths)}
    return {PACKAGES: ",".join(jar.coordinate for jar in jars)}


def _write_private(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)  # an old file would keep its mode
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w", encoding="utf-8") as out:
        out.write(text)


@spark.command(name="fetch-jars")
@spark_option
@bundle_option
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy the jars to this folder, for example for an image.",
)
def fetch_jars(version: str | None, bundles: tuple[str, ...], folder: Path | None) -> None:
    """Download the jars, verify their checksums, and print their paths, one per line.

    They come from Maven's local repository, the cache, or else through `mvn`; NUNATAK_MAVEN_URL names a repository to
    take them from without Maven.
    """
    with refusals():
        places = jar_locations(os.environ)
        for jar in _spark_of(version).chosen_jars(bundles):
            with Console(stderr=True).status(f"Getting {jar.coordinate} …"):
                path = load_jar(jar, places).path
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    path = Path(shutil.copy(path, folder / jar.file_name))
            echo(str(path))


@spark.command()
@uri_option
@warehouse_option
@catalog_option
@bundle_option
@click.option(
    "--namespace",
    type=NameType(),
    help="Namespace to check for the privilege to create tables; default: the first one.",
)
@click.option("--start", is_flag=True, help="Also start Spark, and run a query against the catalog.")
@output_option
def doctor(
    uri: str,
    warehouse: str | None,
    catalog: str,
    bundles: tuple[str, ...],
    namespace: tuple[str, ...] | None,
    start: bool,
    output: Literal["table", "json"],
) -> None:
    """Check the requirements of Spark, and print how to fix what is missing.

    Nothing is changed. Exit codes: 0 no problem, 1 problems found.
    """
    checks = check_machine(os.environ, bundles=bundles)
    try:
        login = _login_of_spark(uri, catalog)
        with connect(uri, warehouse, login=login) as client:
            checks += check_server(client, namespace)
    except SettingsError as error:  # an address that is none
        said, _, fix = str(error).partition("; ")
        checks.append(DoctorCheck("server", "problem", said, fix))
    except CannotRun as error:
        checks.append(DoctorCheck("login", "problem", error.problem, error.fix))
    if start:
        checks.append(_started(checks, uri, warehouse, catalog, bundles))
    if output == "json":
        print_json([asdict(check) for check in checks])
    else:
        print_rows(["check", "state", "found", "fix"], [(c.name, c.state, c.found, c.fix or "") for c in checks])
    if any(check.state == "problem" for check in checks):
        raise click.exceptions.Exit(PROBLEM)


def _login_of_spark(uri: str, catalog: str) -> CommandLogin:
    """The login that a session of ours would use: what commands find, or else what Spark's own settings hold."""
    found = find_login(uri, os.environ)
    present = _present_settings()
    kept = {key: present.get(f"{CATALOG}{catalog}.{key}") for key in ("uri", "token", "credential")}
    if kept["uri"] and kept["uri"].rstrip("/").removesuffix("/v1") != uri.rstrip("/").removesuffix("/v1"):
        raise CannotRun(
            f"Spark's own settings say that {catalog} is the catalog at {kept['uri']}, not {uri}",
            fix="Choose another name with --catalog, or name that address with --uri.",
        )
    if (kept["token"] or found.token, kept["credential"] or found.credential_text) == (
        found.token,
        found.credential_text,
    ):
        return found
    if found != CommandLogin():
        raise CannotRun(
            f"Spark's own settings hold another login for {catalog} than the environment or the data folder",
            fix="Remove one of them.",
        )
    client_id, _, secret = (kept["credential"] or "").partition(":")
    return CommandLogin(token=kept["token"], credential=None if kept["token"] else ClientCredential(client_id, secret))


def _present_settings() -> dict[str, str]:
    try:
        return existing_settings(os.environ, find_installation(os.environ).spark_home)
    except CannotRun:  # said by another check
        return {}


def _started(
    checks: list[DoctorCheck], uri: str, warehouse: str | None, catalog: str, bundles: tuple[str, ...]
) -> DoctorCheck:
    if any(check.state == "problem" for check in checks):
        return DoctorCheck("session", "not checked", "Spark is not started while there are problems")
    login = find_login(uri, os.environ)
    try:
        started = session(
            uri,
            warehouse=warehouse,
            token=login.token,
            credential=login.credential_text,
            catalog=catalog,
            bundles=bundles,
        )
    except CannotRun as error:
        return DoctorCheck("session", "problem", error.problem, error.fix)
    try:
        return check_session(started, catalog)
    finally:
        started.stop()


@spark.command(
    epilog="Exit codes: 0 shut down cleanly, or with --once no job is due, 1 a job failed, or the catalog "
    "or this machine refused, 2 wrong usage or settings, 3 server not reachable, 4 all done, and a result has "
    "warnings."
)
@click.option("--securable", metavar="OBJECT", help="Only jobs of this object, such as namespace:WAREHOUSE/A.")
@click.option("--once", is_flag=True, help="End when no job is due, for example for cron.")
@click.option("--max-jobs", type=click.IntRange(min=1), help="End after this number of jobs.")
@click.option("--plan", is_flag=True, help="Queue the jobs due by policy before each poll.")
@click.option(
    "--poll",
    "poll_seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Poll interval while no job is queued.",
)
@click.option(
    "--idle-stop",
    "idle_stop_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop Spark after this time without a job; the next job starts it again.",
)
@click.option("--worker-name", "name", help="Name of the worker in `nunatak job show`; default: the host name.")
@runs_spark
@talks_to_server
def worker(
    session: CommandSession,
    securable: str | None,
    once: bool,
    max_jobs: int | None,
    plan: bool,
    poll_seconds: float,
    idle_stop_seconds: float | None,
    name: str | None,
    where: Where,
) -> None:
    """Run maintenance jobs on Spark, one after the other, until stopped.

    Spark is started for the first job and kept running. SIGTERM and Ctrl-C shut the worker down: its current job is
    handed back. The worker needs TABLE_WRITE and TABLE_ALTER on the object whose jobs it runs.
    """
    with (
        in_warehouse_of(session.client, securable) as (client, place),
        event_printer(session) as print_event,
    ):
        wishes = WorkerOptions(
            securable=place,
            name=worker_name(name),
            catalog=where.catalog,
            once=once,
            max_jobs=max_jobs,
            poll_seconds=poll_seconds,
            plan=plan,
            idle_stop_seconds=idle_stop_seconds,
        )
        with a_worker(wishes, where, client, print_event) as one:
            one.run()
            left = one.shutdown.requested
    if not left:  # a job that was cancelled or went to another worker is nothing to be alarmed about
        raise click.exceptions.Exit(exit_code([each for each in one.results if each.state in ("done", "failed")]))


def _spark_of(version: str | None) -> SparkRelease:
    """The Spark that was asked for, or that of the pyspark which is installed, or the one we ship for."""
    return compatibility_matrix().spark(version or installed_version() or compatibility_matrix().default)
