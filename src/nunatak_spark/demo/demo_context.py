"""The context of the demo steps: Spark session, catalog, amounts of data, and a narrator."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nunatak.client import Client
from nunatak_spark.demo.sample_data import DemoSize
from nunatak_spark.jobs import Progress
from nunatak_spark.progress import report_task_progress

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class Narrator(Protocol):
    """Prints what the demo does."""

    def act(self, title: str, sentence: str) -> contextlib.AbstractContextManager[None]:
        """Announces a step; the block is its duration."""
        ...

    def say(self, text: str) -> None:
        """Prints a result."""
        ...

    @property
    def progress(self) -> Progress: ...


@dataclass(frozen=True)
class DemoContext:
    """`root` is the namespace of the layers, `catalog` the catalog's name in SQL."""

    spark: "SparkSession"
    client: Client
    uri: str
    size: DemoSize
    narrator: Narrator
    root: str = "analytics"
    catalog: str = "lake"

    def name(self, table: str) -> str:
        """Returns the SQL name of a table such as `bronze.events`."""
        return f"{self.catalog}.{self.root}.{table}"

    def levels(self, table: str) -> tuple[str, ...]:
        """Returns the levels of the name for the REST API."""
        return (self.root, *table.split("."))

    def securable(self, table: str) -> str:
        return f"table:default/{'/'.join(self.levels(table))}"

    def run(self, doing: str, statement: str) -> "list[Row]":
        """Runs a statement and reports its progress."""
        with report_task_progress(self.spark, doing, self.narrator.progress):
            return self.spark.sql(statement).collect()

    def row(self, statement: str) -> "Row":
        """Returns the only row of a query."""
        (row,) = self.spark.sql(statement).collect()
        return row

    def value(self, statement: str) -> Any:
        (value,) = self.row(statement)
        return value


@contextlib.contextmanager
def measure_seconds() -> Iterator[list[float]]:
    """Puts the duration of the block into the list."""
    taken: list[float] = []
    began = time.perf_counter()
    yield taken
    taken.append(time.perf_counter() - began)
