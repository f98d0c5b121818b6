"""What every act of the demo is handed: a session, a catalog, how much there is to do, and whom to tell."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nunatak.client import Client
from nunatak_spark.demo.sample_data import Size
from nunatak_spark.jobs import Progress, no_progress
from nunatak_spark.progress import report_task_progress

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class Narrator(Protocol):
    """Whoever tells the audience what happens."""

    def act(self, title: str, sentence: str) -> contextlib.AbstractContextManager[None]:
        """One act, from its announcement to its end."""
        ...

    def say(self, text: str) -> None:
        """A figure, or what just happened."""
        ...

    @property
    def progress(self) -> Progress: ...


@dataclass
class Silence:
    """For acts that nobody watches; what was said is kept."""

    said: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def act(self, title: str, sentence: str) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        self.said.append(text)

    @property
    def progress(self) -> Progress:
        return no_progress


@dataclass(frozen=True)
class Stage:
    """`root` is the namespace that holds the layers, and `catalog` what the catalog is called in SQL."""

    spark: "SparkSession"
    client: Client
    uri: str
    size: Size
    narrator: Narrator
    root: str = "analytics"
    catalog: str = "lake"

    def name(self, table: str) -> str:
        """Such as `bronze.events` as SQL names it."""
        return f"{self.catalog}.{self.root}.{table}"

    def levels(self, table: str) -> tuple[str, ...]:
        """The same as the catalog's own interface does."""
        return (self.root, *table.split("."))

    def securable(self, table: str) -> str:
        return f"table:default/{'/'.join(self.levels(table))}"

    def run(self, doing: str, statement: str) -> "list[Row]":
        """Run a statement, and tell how far it is."""
        with report_task_progress(self.spark, doing, self.narrator.progress):
            return self.spark.sql(statement).collect()

    def row(self, statement: str) -> "Row":
        """The only row of a query."""
        (row,) = self.spark.sql(statement).collect()
        return row

    def value(self, statement: str) -> Any:
        (value,) = self.row(statement)
        return value


@contextlib.contextmanager
def timed() -> Iterator[list[float]]:
    """The seconds that the block took are in the list afterwards."""
    taken: list[float] = []
    began = time.perf_counter()
    yield taken
    taken.append(time.perf_counter() - began)
