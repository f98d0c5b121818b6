"""The command `python -m tests.bench` (`make bench`): what to measure and where the report goes."""

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nunatak import __version__
from tests.bench import report, rounds, servers
from tests.bench.cost import cost
from tests.bench.prepare import PrepareFailed
from tests.bench.rounds import KINDS, Plan
from tests.bench.spark import spark
from tests.bench.trace import trace

LEAST_TABLES = 40  # a fifth is loaded, and each of 32 writers has one of the others


@click.group(invoke_without_command=True, help="Measure Nunatak, alone or in turn with other catalogs.")
@click.option("--reference", is_flag=True, help="Measure Iceberg's Java reference server on SQLite too.")
@click.option("--server", "given", multiple=True, metavar="NAME=URI[;pid=N]", help="Measure a running server too.")
@click.option(
    "--baseline", metavar="NAME", help="The server that ratios are against; by default the first of the others."
)
@click.option("--only", metavar="KIND,…", help=f"Some workloads only: {', '.join(KINDS)}.")
@click.option("--rounds", "round_count", default=Plan.rounds, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--warm-up", default=Plan.warm_up, show_default=True, type=click.IntRange(0, 100), help="Rounds not counted."
)
@click.option(
    "--seconds", default=Plan.seconds, show_default=True, type=click.FloatRange(0.05, 600), help="Of one slice."
)
@click.option("--tables", default=Plan.tables, show_default=True, type=click.IntRange(LEAST_TABLES, 100_000))
@click.option("--snapshots", default=Plan.snapshots, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def bench(
    context: click.Context,
    reference: bool,
    given: tuple[str, ...],
    baseline: str | None,
    only: str | None,
    round_count: int,
    warm_up: int,
    seconds: float,
    tables: int,
    snapshots: int,
    out: Path | None,
    as_json: bool,
) -> None:
    if context.invoked_subcommand is not None:
        return
    plan = Plan(round_count, warm_up, seconds, tables, snapshots, _kinds(only))
    with tempfile.TemporaryDirectory(prefix="nunatak-bench-") as folder:
        candidates = [servers.nunatak(Path(folder))]
        if reference:
            candidates.append(servers.reference(Path(folder)))
        try:
            candidates += [servers.given(text) for text in given]
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--server") from error
        names = [candidate.name for candidate in candidates]
        if len(set(names)) < len(names):
            raise click.UsageError(f"two servers have one name: {', '.join(names)}")
        if baseline is not None and baseline not in names:
            raise click.BadParameter(f"is none of {', '.join(names)}", param_hint="--baseline")
        machine = _machine()
        with _progress() as progress:
            task = progress.add_task("", total=rounds.steps(plan, len(candidates)))

            def show(text: str) -> None:
                progress.update(task, advance=1, description=text)

            try:
                result = rounds.measure(plan, candidates, show)
            except (PrepareFailed, OSError) as error:
                raise click.ClickException(f"{progress.tasks[0].description}: {error}") from error
    summary = report.summarize(result, baseline or (names[1] if len(names) > 1 else None), machine)
    if out is not None:
        out.write_text(report.as_markdown(summary), "utf-8")
    if as_json:
        click.echo(json.dumps(report.as_json(summary), indent=2))
    elif sys.stdout.isatty():
        report.print_tables(summary, Console(highlight=False))
    else:
        click.echo(report.as_markdown(summary))
    if summary.broken_promises:
        raise click.ClickException("commits were lost, or applied although they were refused; see the report")


bench.add_command(cost)
bench.add_command(spark)
bench.add_command(trace)


def _kinds(only: str | None) -> tuple[str, ...]:
    if only is None:
        return KINDS
    kinds = tuple(kind.strip() for kind in only.split(","))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: there are {', '.join(KINDS)}", param_hint="--only")
    return kinds


def _machine() -> dict[str, Any]:
    return {
        "Nunatak": __version__,
        "Python": platform.python_version(),
        "cores": os.cpu_count(),
        "load average at the start": round(os.getloadavg()[0], 1),
    }


def _progress() -> Progress:
    """On standard error, and only if somebody looks at it."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


if __name__ == "__main__":
    bench()
