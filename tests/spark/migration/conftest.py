"""What the tests of migrations share: a target that takes tables from wherever tests put them, and the sources."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nunatak_spark.configuration import CatalogConfig
from nunatak_spark.spark_session import add_catalog
from tests.spark.migration.moving import Move, new_name
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.glue import aws_emulator, aws_keys, give_keys, make_bucket
from tests.support.hive_metastore import hive_metastore
from tests.support.java.project import missing_tools
from tests.support.nessie import NoNessie, find_jar, find_java, nessie
from tests.support.reference import ReferenceServer, reference_server
from tests.support.spark import Installation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = "target"  # what it is called in Spark


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Iterator[RunningServer]:
    """The catalog that tables move to; it serves whatever lies in the folders of the tests."""
    everything = f"file://{tmp_path_factory.getbasetemp()}"
    home = tmp_path_factory.mktemp("target") / "nunatak-data"
    with running_server(home, environment={"NUNATAK_ALLOWED_LOCATIONS": everything}) as started:
        add_catalog(spark, CatalogConfig(started.uri, TARGET))
        yield started


@pytest.fixture
def move(tmp_path: Path, spark: "SparkSession", target: RunningServer) -> Move:
    return Move(tmp_path / "migration", spark, target.uri, TARGET)


@pytest.fixture
def name() -> str:
    """Of the source, and of the namespace in it."""
    return new_name("source")


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory, installation: Installation) -> Iterator[str]:
    with hive_metastore(tmp_path_factory.mktemp("metastore"), installation.java_home) as address:
        yield address


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Iterator[str]:
    with aws_emulator(tmp_path_factory.mktemp("aws")) as address, aws_keys():
        give_keys(spark)
        yield address


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServer]:
    missing = missing_tools()
    if missing:
        pytest.skip(f"NOT RUN: {missing}")
    with reference_server(tmp_path_factory.mktemp("reference") / "warehouse") as running:
        yield running


@pytest.fixture(scope="session")
def nessie_catalog(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path, aws: str) -> Iterator[str]:
    try:
        jar = find_jar(cache_folder / "nessie")
        find_java()
    except NoNessie as reason:
        pytest.skip(f"NOT RUN: {reason}")
    make_bucket(aws, "nessie")
    with nessie(tmp_path_factory.mktemp("nessie"), jar, aws, "nessie") as address:
        yield address
