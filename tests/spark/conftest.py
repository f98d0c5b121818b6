"""What the tests of the Spark jobs share: one session per process, which engine tests may have started before."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nunatak_spark
from nunatak_spark.errors import CannotRun
from nunatak_spark.installation import import_pyspark
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.spark import Installation, Sql, find_installation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = itertools.count(1)
# Short statements never repay the optimizing compiler; this halves the suite.
LEAN = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    # PySpark leaves every socket it reads rows from to the garbage collector; that is not ours to fail for.
    tolerate = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(tolerate)


@pytest.fixture(scope="session")
def installation(cache_folder: Path) -> Installation:
    try:
        return find_installation(cache_folder / "jars")
    except CannotRun as reason:
        pytest.skip(f"NOT RUN: {reason}")


@pytest.fixture(scope="session")
def environment(installation: Installation) -> Iterator[None]:
    """The Java that fits and the Spark that pip installed, whatever the shell of whoever runs this says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(installation.java_home))
        for name in ("SPARK_HOME", "SPARK_REMOTE", "NUNATAK_TOKEN", "NUNATAK_CREDENTIAL", "NUNATAK_SPARK_JARS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def spark(
    installation: Installation,
    environment: None,
    shared_server: RunningServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator["SparkSession"]:
    """Made by nunatak_spark.session; the one that runs already if there is one, and then it is left running."""
    running = import_pyspark("pyspark").SparkContext._active_spark_context is not None
    work = tmp_path_factory.mktemp("spark")
    folders = {"spark.local.dir": str(work / "local"), "spark.sql.warehouse.dir": str(work / "spark-warehouse")}
    config = {} if running else {**LEAN, **folders}
    session = nunatak_spark.session(
        shared_server.uri, master=None if running else "local[2]", jars=installation.jars, config=config
    )
    session.range(1).count()  # warm up here, so that no test is blamed for it
    yield session
    if not running:
        session.stop()


@pytest.fixture
def sql(spark: "SparkSession") -> Iterator[Sql]:
    """Statements in a namespace of the test's own, which is the current one; nothing is dropped afterwards."""
    namespace = f"jobs_{os.getpid()}_{next(NAMES)}"
    spark.sql(f"CREATE NAMESPACE lake.{namespace}")
    spark.sql(f"USE lake.{namespace}")
    yield Sql(spark, "lake", namespace)
    spark.sql("USE spark_catalog.default")


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that asks who you are."""
    with running_server(tmp_path_factory.mktemp("secured") / "nunatak-data", auth=True) as server:
        yield server
