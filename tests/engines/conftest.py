"""What engine tests share: servers that ask for a login, one Spark session for the whole run, a namespace each."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nunatak_spark.errors import CannotRun
from tests.support.catalogs.principals import SHORT_SECONDS
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.spark import Installation, Sql, find_installation, rest_catalog, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves every socket it reads rows from to the garbage collector; that is not ours to fail for.
    tolerate = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(tolerate)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that asks who you are; each test makes principals and namespaces of its own."""
    with running_server(tmp_path_factory.mktemp("secured") / "nunatak-data", auth=True) as server:
        yield server


@pytest.fixture(scope="session")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The same with tokens that live for seconds."""
    data, seconds = tmp_path_factory.mktemp("hurried") / "nunatak-data", {"NUNATAK_TOKEN_SECONDS": str(SHORT_SECONDS)}
    with running_server(data, environment=seconds, auth=True) as server:
        yield server


@pytest.fixture(scope="session")
def spark_installation(cache_folder: Path) -> Installation:
    try:
        return find_installation(cache_folder / "jars")
    except CannotRun as reason:
        pytest.skip(f"NOT RUN: {reason}")


@pytest.fixture(scope="session")
def spark_uri(spark_installation: Installation, request: pytest.FixtureRequest) -> str:
    """The server that Spark speaks to; SPARK_SUITE_URI names another one, to tell our bugs from Spark's habits."""
    return os.environ.get("SPARK_SUITE_URI") or request.getfixturevalue("shared_server").uri


@pytest.fixture(scope="session")
def spark(
    spark_installation: Installation, spark_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["SparkSession"]:
    """One session for the whole run: starting it takes longer than most of the tests together."""
    with spark_session(
        spark_installation, tmp_path_factory.mktemp("spark"), rest_catalog("lake", spark_uri)
    ) as session:
        yield session


@pytest.fixture
def sql(spark: "SparkSession") -> Iterator[Sql]:
    """Statements in a namespace of the test's own, which is the current one; nothing is dropped afterwards."""
    namespace = f"spark_{os.getpid()}_{next(NAMES)}"
    spark.sql(f"CREATE NAMESPACE lake.{namespace}")
    spark.sql(f"USE lake.{namespace}")
    yield Sql(spark, "lake", namespace)
    spark.sql("USE spark_catalog.default")
