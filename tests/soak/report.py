"""Writes docs/explanation/reliability.md from the outcomes of a soak: every figure with its test, seed and commit."""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import apsw
import psutil

from tests.soak.run import PROJECT, Figures, Outcome
from tests.support.postgres import find_binaries

PAGE = PROJECT / "docs" / "explanation" / "reliability.md"

INTRODUCTION = """\
# What the catalog promises, and how that is tested

A catalog is asked for one thing above all: a commit that was answered with success is there, once, whatever happens
to the server, its database, the network or the machine. This page says what Nunatak promises, how each promise is put
to the test, and what came of the last run. It is written by `make soak REPORT=1`; nobody edits it by hand.

How a test works: many writers append to tables over HTTP and note what they asked, when, and what they were answered.
Meanwhile something is broken, again and again. Afterwards a checker compares the notes with what the tables, their
files and the commit log hold. It reports

- a commit that was **lost**: answered with success, but not in the table;
- one that was **doubled**: what its writer wanted once is in the table twice;
- a **wrong answer**: a refusal of something that was applied, or a status that the
  [commit contract](commit-contract.md) does not allow; clients delete data files after a refusal, so this destroys
  tables;
- a pointer that is **dangling**: its metadata file is missing, not whole, or another table's;
- a **gap** in the sequence of a table's snapshots, or a transaction that is **torn**: in some of its tables only;
- a **stale read**: a load that shows less than what was acknowledged, or shown to somebody, before it began. Together
  with the order of commits in real time this makes each table linearizable;
- an **orphan**: a metadata file that nothing leads to and no sweep has taken.

A test that finds nothing proves little unless it could have. So each fault test has *canaries*: servers with one
mistake built in (the compare-and-swap left out, keys forgotten, the file written after the pointer, and so on), which
the same test must find. They are among the tests counted below.
"""

LIMITS = """\
## What these tests do not show

- **kill -9 is not a power cut.** What a killed process had written is still in the page cache. Whether it was on the
  disk is another question, which F9 asks: there the database and the files are written to a disk made for the test,
  which forgets what was not synced. A real disk that lies about syncing is beyond any catalog.
- **PostgreSQL's own safety is taken from PostgreSQL.** Its crashes and failovers are tested, its disk is not. A
  failover loses nothing only with synchronous replication.
- **A client that gives up does not know.** If no answer came and nobody asks again, the commit may have been applied.
  When the same request is sent again, with a key or without, the answer is right; keys are remembered for
  `idempotency_seconds`.
- **The files are local.** Object stores of clouds fail in their own ways.
- **Metadata only.** The writers commit snapshots without data files: the catalog is under test, not an engine.
- **One machine.** Clients, servers and databases share it. Messages between them are lost, repeated and delayed by
  proxies of the tests, not by a real network.
"""


@dataclass(frozen=True)
class Soak:
    """A whole run."""

    outcomes: Sequence[Outcome]
    seed: str
    scale: float
    started: datetime
    seconds: float


def write(soak: Soak, page: Path = PAGE) -> None:
    page.write_text(text_of(soak, machine()), "utf-8")


def text_of(soak: Soak, machine: str) -> str:
    parts = [INTRODUCTION, _run(soak, machine), *(_promise(outcome) for outcome in soak.outcomes), LIMITS]
    return "\n".join(parts)


def _run(soak: Soak, machine: str) -> str:
    kept = sum(outcome.kept for outcome in soak.outcomes)
    size = "full size" if soak.scale == 1 else f"{soak.scale:g} of the full size, as a trial"
    return (
        "## The last run\n\n"
        f"{kept} of {len(soak.outcomes)} promises held, at {size}.\n\n"
        f"- Commit: {_commits(soak)}\n"
        f"- Seed: `{soak.seed}` (`NUNATAK_TEST_SEED={soak.seed}` repeats its choices)\n"
        f"- Date: {soak.started.astimezone(UTC):%Y-%m-%d %H:%M} UTC\n"
        f"- Duration: {duration(soak.seconds)}\n"
        f"- Machine: {machine}\n\n"
        "| | What is broken | Tests | Time | The promise |\n"
        "|---|---|---|---|---|\n" + "".join(map(_row, soak.outcomes))
    )


def _commits(soak: Soak) -> str:
    """One, or where a trial was repeated after a change, each with what ran on it."""
    faults: dict[str, list[str]] = {}
    for outcome in soak.outcomes:
        faults.setdefault(outcome.commit, []).append(outcome.trial.fault)
    if len(faults) == 1:
        return f"`{soak.outcomes[0].commit}`"
    return "; ".join(f"`{commit}` ({', '.join(dict.fromkeys(ran))})" for commit, ran in faults.items())


def _row(outcome: Outcome) -> str:
    verdict = "held" if outcome.kept else "**did not hold**"
    tests = outcome.passed + outcome.failed
    return f"| {outcome.trial.fault} | {outcome.trial.title} | {tests} | {duration(outcome.seconds)} | {verdict} |\n"


def _promise(outcome: Outcome) -> str:
    trial = outcome.trial
    verdict = "held" if outcome.kept else "**did not hold**"
    counts = f"{outcome.passed} tests passed"
    if outcome.failed:
        counts += f", {outcome.failed} failed"
    if outcome.skipped:
        counts += f", {outcome.skipped} not run"
    if outcome.short_of:
        counts += f"; short of its goal: {', '.join(outcome.short_of)}"
    lines = [f"- {line.promise}: {shown(line.figures)}" for line in outcome.lines]
    test = f"[{trial.test}](../../tests/{trial.test})"
    return "\n".join(
        [
            f"## {trial.fault}: {trial.title}\n",
            f"{trial.promise}\n",
            *([*lines, ""] if lines else []),
            f"It {verdict}: {counts}, {duration(outcome.seconds)}. Test: {test}.\n",
        ]
    )


def shown(figures: Figures) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in figures.items()
    )


def duration(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


def machine() -> str:
    """The hardware and the versions that count, in one line."""
    gib = psutil.virtual_memory().total / 2**30
    parts = [
        f"{psutil.cpu_count()} cores ({_processor()})",
        f"{gib:.0f} GiB",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"SQLite {apsw.sqlite_lib_version()}",
    ]
    binaries = find_binaries()
    if binaries is not None:
        said = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=False)
        parts.append(f"PostgreSQL {said.stdout.split()[2]}")
    return ", ".join(parts)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
