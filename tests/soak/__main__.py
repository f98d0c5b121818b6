"""The command `python -m tests.soak` (`make soak`): the fault tests at full size, one after the other, to the end."""

import secrets
import signal
import sys
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.soak import report
from tests.soak.run import PROJECT, Outcome, held_before, run
from tests.soak.trials import TRIALS, chosen

LOGS = PROJECT / "build" / "soak"
SHOWN_LOG_LINES = 30


@click.command(help="Run the fault tests at full size; FAULTS such as F1 F5 choose some of them.")
@click.argument("faults", nargs=-1)
@click.option("--report", "write_report", is_flag=True, help=f"Write {report.PAGE.relative_to(PROJECT)}.")
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0.001, 100), help="Of the full size.")
@click.option("--seed", help="Repeat the choices of an earlier run.")
@click.option("--resume", is_flag=True, help="With --seed: leave out what held in that run, and report it as it was.")
def soak(faults: tuple[str, ...], write_report: bool, scale: float, seed: str | None, resume: bool) -> None:
    try:
        trials = chosen(faults)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if write_report and len(trials) < len(TRIALS):
        raise click.UsageError("the report speaks of all faults: choose none")
    seed = seed or secrets.token_hex(4)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a test under way is ended, too
    LOGS.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(f"seed {seed}, scale {scale:g}; the output of each test goes to {LOGS.relative_to(PROJECT)}")
    started = datetime.now(UTC)
    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(trials))
        for trial in trials:
            progress.update(task, description=f"{trial.fault} {trial.title}")
            before = held_before(trial, scale, seed, LOGS) if resume else None
            outcomes.append(before or run(trial, scale, seed, LOGS))
            tell(console, outcomes[-1])
            progress.advance(task)
    whole = report.Soak(outcomes, seed, scale, started, sum(outcome.seconds for outcome in outcomes))
    console.print(table_of(whole))
    if write_report:
        report.write(whole)
        console.print(f"written: {report.PAGE.relative_to(PROJECT)}")
    sys.exit(0 if all(outcome.kept for outcome in outcomes) else 1)


def tell(console: Console, outcome: Outcome) -> None:
    """What one trial showed, and of a failure the end of its output."""
    for line in outcome.lines:
        console.print(f"{line.fault} {line.promise}: {report.shown(line.figures)}", highlight=False)
    if not outcome.kept:
        for text in outcome.log.read_text("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]:
            console.print(f"  {text}", highlight=False, markup=False, style="red")


def table_of(whole: report.Soak) -> Table:
    table = Table("fault", "test", "passed", "failed", "not run", "time", "promise", caption=f"seed {whole.seed}")
    for outcome in whole.outcomes:
        verdict = "held" if outcome.kept else "did not hold"
        if outcome.short_of:
            verdict += f" ({', '.join(outcome.short_of)})"
        table.add_row(
            outcome.trial.fault,
            outcome.trial.title,
            str(outcome.passed),
            str(outcome.failed),
            str(outcome.skipped),
            report.duration(outcome.seconds),
            verdict,
            style=None if outcome.kept else "red",
        )
    return table


if __name__ == "__main__":
    soak()
