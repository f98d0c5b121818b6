"""Runs one trial as a pytest call of its own and gathers what it showed; a failure is an outcome, not an exception."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.soak.trials import Trial
from tests.support.promises import FIGURES_VARIABLE
from tests.support.workload import SEED_VARIABLE

PROJECT = Path(__file__).parents[2]
TESTS = PROJECT / "tests"
LONGEST_SECONDS = 7200  # a trial that takes longer hangs
CLEAN_UP_SECONDS = 60

Figures = dict[str, int | float | str]


@dataclass(frozen=True)
class Line:
    """One line of `promises.show`."""

    fault: str
    promise: str
    figures: Figures


@dataclass(frozen=True)
class Outcome:
    trial: Trial
    lines: tuple[Line, ...]
    passed: int
    failed: int
    skipped: int
    seconds: float
    scale: float
    log: Path
    commit: str = ""  # of the code that ran

    @property
    def short_of(self) -> list[str]:
        """The goals that were not reached, each with what was."""
        totals = {name: self._total(name) for name in self.trial.goals}
        goals = {name: round(goal * self.scale) for name, goal in self.trial.goals.items()}
        return [f"{name} {totals[name]:,} of {goal:,}" for name, goal in goals.items() if totals[name] < goal]

    @property
    def kept(self) -> bool:
        """Whether the promise held, and was put to the test as much as it should be."""
        return self.passed > 0 and self.failed == 0 and not self.short_of

    def _total(self, name: str) -> int:
        values = [line.figures.get(name, 0) for line in self.lines if line.fault == self.trial.fault]
        return sum(value for value in values if isinstance(value, int))


def run(trial: Trial, scale: float, seed: str, folder: Path) -> Outcome:
    """One pytest call; its output goes to a file in `folder`."""
    figures, results, log, about = files_of(trial, folder)
    for old in (figures, results, log, about):
        old.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", str(TESTS / trial.test)),
        *("-v", "-rP", f"--timeout={LONGEST_SECONDS}", f"--junitxml={results}", "-p", "no:cacheprovider"),
    ]
    environment = {
        **os.environ,
        **trial.environment(scale),
        SEED_VARIABLE: seed,
        FIGURES_VARIABLE: str(figures),
    }
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LONGEST_SECONDS)
        finally:
            end(process)
    about.write_text(
        json.dumps({"seed": seed, "scale": scale, "seconds": time.monotonic() - started, "commit": commit()})
    )
    return read(trial, folder)


def files_of(trial: Trial, folder: Path) -> tuple[Path, Path, Path, Path]:
    """Where its figures, its results, its output and what is said about the run are."""
    name = f"{trial.fault}-{Path(trial.test).stem}"
    figures, results, log, about = (folder / f"{name}.{ending}" for ending in ("figures", "xml", "log", "json"))
    return figures, results, log, about


def read(trial: Trial, folder: Path) -> Outcome:
    """What a call showed that has ended."""
    figures, results, log, about = files_of(trial, folder)
    said = json.loads(about.read_text("utf-8"))
    passed, failed, skipped = count(results)
    return Outcome(
        trial, read_lines(figures), passed, failed, skipped, said["seconds"], said["scale"], log, said["commit"]
    )


def held_before(trial: Trial, scale: float, seed: str, folder: Path) -> Outcome | None:
    """What an earlier call of the same seed and size showed, if the promise held."""
    about = files_of(trial, folder)[3]
    if not about.exists():
        return None
    said = json.loads(about.read_text("utf-8"))
    outcome = read(trial, folder)
    return outcome if (said["seed"], said["scale"]) == (seed, scale) and outcome.kept else None


def commit() -> str:
    """Of the code that runs; it says so if that was changed since."""

    def git(*arguments: str) -> str:
        ended = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
        return ended.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "src", "tests") else ""
    return (git("rev-parse", "HEAD") or "unknown") + changed


def end(process: "subprocess.Popen[bytes]") -> None:
    """Let a call that was interrupted clean up after itself; then end what is left of the session it was given."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(CLEAN_UP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def count(results: Path) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped; a call that left no results has failed."""
    if not results.exists():
        return 0, 1, 0
    suite = ElementTree.parse(results).getroot().find("testsuite")
    assert suite is not None
    total, failures, errors, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    return total - failures - errors - skipped, failures + errors, skipped


def read_lines(figures: Path) -> tuple[Line, ...]:
    if not figures.exists():
        return ()
    read: Sequence[Any] = [json.loads(line) for line in figures.read_text("utf-8").splitlines()]
    return tuple(
        Line(each["fault"], each["promise"], {name.replace("_", " "): value for name, value in each["figures"].items()})
        for each in read
    )
