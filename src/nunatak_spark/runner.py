"""The program that runs one job: `python -m nunatak_spark run`, under spark-submit, in local mode and over Connect."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
import rich.progress
from rich.console import Console
from rich.markup import escape

from nunatak.terminal import echo, printable, with_printable_message
from nunatak_spark.errors import CannotRun, InvalidSpec
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.installation import import_pyspark
from nunatak_spark.jobs import JOBS, Progress, ProgressStep, Report, find_job, no_progress, parse_spec, run
from nunatak_spark.redaction import redact
from nunatak_spark.spark_session import session
from nunatak_spark.sql_text import protect_sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE, FAILED, WRONG_USAGE, CANNOT_RUN, HAS_FINDINGS = range(5)
EXIT_CODES = (
    "Exit codes: 0 done, 1 the job failed, 2 wrong usage or specification, 3 Spark cannot run here, 4 done, and the "
    "report names something to look at."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def root() -> None:
    """Jobs on Spark for the Nunatak catalog."""


@root.command(name="jobs")
def list_jobs() -> None:
    """List the jobs."""
    for name in JOBS:
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(find_job(name).spec))
        echo(f"{name}: {fields}")


@root.command(name="run", epilog=EXIT_CODES)
@click.option("--job", "name", required=True, help=f"{', '.join(JOBS)}, or module:function.")
@click.option("--spec", required=True, help="JSON, a file with it, or - for standard input.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the report to; printed if left out.",
)
@click.option(
    "--uri",
    help="URI of the catalog; left out, the session's settings name it. Log in with NUNATAK_TOKEN or …_CREDENTIAL.",
)
@click.option("--warehouse", help="Warehouse by name.")
@click.option("--catalog", default="lake", show_default=True, help="Name of the catalog in SQL.")
@click.option("--master", help="Spark master, such as local[4] or spark://host:7077; default: Spark's configuration.")
@click.option("--remote", help="Spark Connect server, such as sc://host:15002.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting.")
@click.option(
    "--progress",
    type=click.Choice(["bar", "text", "json", "none"]),
    help="Progress output on standard error; default: a bar in a terminal, else text.",
)
def run_job(
    name: str,
    spec: str,
    report: Path | None,
    uri: str | None,
    warehouse: str | None,
    catalog: str,
    master: str | None,
    remote: str | None,
    conf: Sequence[str],
    progress: str | None,
) -> None:
    """Run one job and print its report."""
    job = find_job(name)
    parsed = parse_spec(job, _read_spec(spec))  # before Spark starts, which takes half a minute
    settings = dict(_parse_setting(one) for one in conf)
    with _translate_start_failures():
        if uri is None:
            spark = _bare_session(master, remote, settings)
        else:
            spark = session(
                uri, warehouse=warehouse, catalog=catalog, master=master, remote=remote, config=settings, app_name=name
            )
    try:
        with PROGRESS_PRINTERS[progress or ("bar" if sys.stderr.isatty() else "text")]() as print_event:
            outcome = run(job, spark, parsed, print_event)
    finally:
        spark.stop()
    _write_report(outcome, report)
    if not outcome.ok:
        raise click.exceptions.Exit(HAS_FINDINGS)


@contextlib.contextmanager
def _translate_start_failures() -> Iterator[None]:
    try:
        yield
    except CannotRun:
        raise
    except Exception as error:
        raise CannotRun(f"Spark did not start: {failure_reason(error)}", fix="nunatak spark doctor") from error


def _bare_session(master: str | None, remote: str | None, settings: dict[str, str]) -> "SparkSession":
    """Returns the session that Spark's own configuration describes, as under spark-submit with a properties file."""
    builder = import_pyspark("pyspark.sql").SparkSession.builder.config(map=settings)
    if remote:
        builder = builder.remote(remote)
    elif master:
        builder = builder.master(master)
    spark: SparkSession = builder.getOrCreate()
    protect_sql_text(spark)
    return spark


def _read_spec(spec: str) -> str | bytes:
    if spec == "-":
        return sys.stdin.buffer.read()
    if spec.lstrip().startswith("{"):
        return spec
    try:
        return Path(spec).read_bytes()
    except OSError as error:
        raise InvalidSpec(
            f"{spec} cannot be read: {error}", fix="Give a file, JSON or - for standard input."
        ) from error


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidSpec(f"--conf {text} has no value", fix="Write it as KEY=VALUE.")
    return key, value


def _write_report(outcome: Report, file: Path | None) -> None:
    text = msgspec.json.format(msgspec.json.encode(redact(msgspec.to_builtins(outcome))), indent=2)
    if file is None:
        echo(text)
    else:
        file.write_bytes(text + b"\n")


@contextlib.contextmanager
def _nothing() -> Iterator[Progress]:
    yield no_progress


@contextlib.contextmanager
def _text() -> Iterator[Progress]:
    yield lambda step: echo(f"[{step.done}/{step.total}] {step.text}", err=True)


@contextlib.contextmanager
def _json() -> Iterator[Progress]:
    yield lambda step: echo(msgspec.json.encode(step), err=True)


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    """Shows one progress bar per text."""
    with rich.progress.Progress(console=Console(stderr=True)) as bars:
        lines: dict[str, rich.progress.TaskID] = {}

        def print_event(step: ProgressStep) -> None:
            if step.text not in lines:
                lines[step.text] = bars.add_task(escape(printable(step.text)))
            bars.update(lines[step.text], completed=step.done, total=step.total)

        yield print_event


PROGRESS_PRINTERS = {"bar": _bar, "text": _text, "json": _json, "none": _nothing}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns the exit code; errors go to standard error, the fix on the last line."""
    try:
        outcome = root(args=arguments, prog_name="python -m nunatak_spark", standalone_mode=False)
        return outcome if isinstance(outcome, int) else DONE
    except click.ClickException as error:
        with_printable_message(error).show()
        return error.exit_code
    except click.Abort:
        return FAILED
    except InvalidSpec as error:
        echo(error, err=True)
        return WRONG_USAGE
    except CannotRun as error:
        echo(error, err=True)
        return CANNOT_RUN
    except Exception as error:
        echo(f"The job failed: {failure_reason(error)}", err=True)
        return FAILED
