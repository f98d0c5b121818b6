"""What the telemetry tests share: a catalog of their own, which keeps no telemetry about itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from nunatak_spark.jobs import no_progress
from nunatak_spark.telemetry.ingest import IngestReport, IngestSpec, ingest
from tests.support.catalogs.process import running_server
from tests.support.spark import configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@dataclass(frozen=True)
class Telemetry:
    """The `system` tables of one catalog."""

    spark: "SparkSession"
    catalog: str

    def ingest(self, spool: Path, **options: Any) -> IngestReport:
        return ingest(self.spark, IngestSpec(spool=str(spool), catalog=self.catalog, **options), no_progress)

    def rows(self, query: str) -> "list[Row]":
        """What a query answers; `system.` names this catalog's."""
        return self.spark.sql(query.replace("system.", f"{self.catalog}.system.")).collect()

    def values(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.rows(query)]


@pytest.fixture(scope="module")
def telemetry(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Telemetry]:
    data = tmp_path_factory.mktemp("telemetry") / "nunatak-data"
    name = f"{request.module.__name__.rpartition('.')[2]}_{uuid4().hex[:6]}"
    with running_server(data, environment={"NUNATAK_SPOOL_LOCATION": "off"}) as server:
        configure(spark, rest_catalog(name, server.uri))
        yield Telemetry(spark, name)
