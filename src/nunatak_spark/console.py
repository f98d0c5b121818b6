"""What a worker says while it works: lines for logs, bars for terminals, JSON for programs."""

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

STEP_SECONDS = 10  # a log gets a line of the same step no more often


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One thing that happened, with what is known of it; `text` is the whole of it for people."""

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
    """What may be printed or logged of it."""
    return msgspec.convert(redact(msgspec.to_builtins(event)), WorkerEvent)


def format_gains(gains: list[Gain]) -> str:
    return ", ".join(f"{each.of} {_number(each.before)} -> {_number(each.after)}" for each in gains)


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


@contextlib.contextmanager
def print_lines() -> Iterator[PrintEvent]:
    """One line for each event, and for a step when it begins and now and then."""
    last: tuple[str, float] | None = None

    def tell(event: WorkerEvent) -> None:
        nonlocal last
        event = redact_event(event)
        if event.step is not None:
            now = time.monotonic()
            if last is not None and last[0] == event.step.text and now < last[1] + STEP_SECONDS:
                return
            last = (event.step.text, now)
        echo(event.text)

    yield tell


@contextlib.contextmanager
def print_json_lines() -> Iterator[PrintEvent]:
    yield lambda event: echo(msgspec.json.encode(redact_event(event)))


@contextlib.contextmanager
def print_with_bars() -> Iterator[PrintEvent]:
    """The same lines, and below them a bar for what is being done."""
    with rich.progress.Progress(console=Console(), transient=True) as shown:
        tasks: dict[str, rich.progress.TaskID] = {}

        def tell(event: WorkerEvent) -> None:
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

        yield tell
