"""Prints the events of a worker: lines for logs, progress bars for terminals, JSON for programs."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import rich.progress
from rich.console import Console
from rich.markup import escape

from nunatak.maintenance.job_spec import Gain
from nunatak.terminal import echo, printable
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.redaction import redact

STEP_SECONDS = 10  # at most one log line per step and interval


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """An event of a worker; `text` is the complete message for people, the other fields are for programs."""

    event: str
    text: str
    job_id: int | None = None
    type: str | None = None
    table: str | None = None
    attempt: int | None = None
    step: ProgressStep | None = None
    state: str | None = None
    changed: bool | None = None
    gains: list[Gain] = []
    detail: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None


PrintEvent = Callable[[WorkerEvent], None]


def redact_event(event: WorkerEvent) -> WorkerEvent:
    """Returns the event without secrets, safe to print or log."""
    return msgspec.convert(redact(msgspec.to_builtins(event)), WorkerEvent)


def format_gains(gains: list[Gain]) -> str:
    return ", ".join(f"{each.of} {_number(each.before)} -> {_number(each.after)}" for each in gains)


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


@contextlib.contextmanager
def print_lines() -> Iterator[PrintEvent]:
    """Prints one line per event; for a step at its start and then every STEP_SECONDS."""
    last: tuple[str, float] | None = None

    def print_event(event: WorkerEvent) -> None:
        nonlocal last
        event = redact_event(event)
        if event.step is not None:
            now = time.monotonic()
            if last is not None and last[0] == event.step.text and now < last[1] + STEP_SECONDS:
                return
            last = (event.step.text, now)
        echo(event.text)

    yield print_event


@contextlib.contextmanager
def print_json_lines() -> Iterator[PrintEvent]:
    """Prints one JSON document per event."""
    yield lambda event: echo(msgspec.json.encode(redact_event(event)))


@contextlib.contextmanager
def print_with_bars() -> Iterator[PrintEvent]:
    """Prints one line per event, and a progress bar for the current step."""
    with rich.progress.Progress(console=Console(), transient=True) as shown:
        tasks: dict[str, rich.progress.TaskID] = {}

        def print_event(event: WorkerEvent) -> None:
            event = redact_event(event)
            if event.step is None:
                for task in tasks.values():
                    shown.remove_task(task)
                tasks.clear()
                shown.console.print(escape(printable(event.text)), highlight=False)
                return
            if event.step.text not in tasks:
                tasks[event.step.text] = shown.add_task(escape(printable(event.step.text)))
            shown.update(tasks[event.step.text], completed=event.step.done, total=event.step.total)

        yield print_event
