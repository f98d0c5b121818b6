"""Prints the demo on a console: each step with a sentence, a progress bar while Spark works, and the results."""

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from nunatak_spark.demo.demo_context import measure_seconds
from nunatak_spark.jobs import Progress as Tell
from nunatak_spark.jobs import ProgressStep

INDENT = (0, 0, 0, 3)  # left


class ConsoleNarrator:
    """A narrator; without a terminal, as in a log, there are no bars."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._acts = 0
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    @contextlib.contextmanager
    def act(self, title: str, sentence: str) -> Iterator[None]:
        self._acts += 1
        self._console.print(f"\n[bold cyan]{self._acts}  {escape(title)}[/]", highlight=False)
        self._console.print(Padding(f"[italic]{escape(sentence)}[/]", INDENT), highlight=False)
        columns = (TextColumn("   {task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
        quiet = not self._console.is_terminal
        with (
            measure_seconds() as seconds,
            Progress(*columns, console=self._console, transient=True, disable=quiet) as self._bars,
        ):
            yield
        self._bars = None
        self._tasks.clear()
        self._console.print(f"   [dim]{seconds[0]:.1f} s[/]", highlight=False)

    def say(self, text: str) -> None:
        self._console.print(Padding(escape(text), INDENT))

    @property
    def progress(self) -> Tell:
        return self._step

    def _step(self, step: ProgressStep) -> None:
        if self._bars is None:
            return
        if step.text not in self._tasks:
            for task in self._tasks.values():
                self._bars.remove_task(task)
            self._tasks = {step.text: self._bars.add_task(escape(step.text))}
        self._bars.update(self._tasks[step.text], completed=step.done, total=step.total)
