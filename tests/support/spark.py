"""A real Spark for tests: the Java it needs, its jars by checksum, one lean session. No server and no fixture."""

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import unquote, urlparse

from nunatak_spark.compatibility import compatibility_matrix
from nunatak_spark.errors import JarChecksumMismatch, UnsupportedJava
from nunatak_spark.installation import import_pyspark
from nunatak_spark.jars import jar_locations, load_jar
from nunatak_spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SPARK = compatibility_matrix().spark(compatibility_matrix().default)
JARS = (SPARK.runtime, SPARK.jars["aws"], *compatibility_matrix().drivers.values())


def rest_catalog(name: str, uri: str, **options: str) -> dict[str, str]:
    """The settings of a Spark catalog called `name` that speaks to `uri`; an option's `_` stands for `-`."""
    return catalog(name, type="rest", uri=uri, **options)


def catalog(name: str, **options: str) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}"
    settings = {f"{prefix}.{option.replace('_', '-')}": value for option, value in options.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **settings}


def configure(spark: "SparkSession", settings: Mapping[str, str]) -> None:
    """Add a catalog to a running session; Spark looks its settings up on first use."""
    for key, value in settings.items():
        spark.conf.set(key, value)


@dataclass(frozen=True)
class Installation:
    """All that a session needs from the machine."""

    java_home: Path
    jars: list[Path]


def find_installation(jar_folder: Path) -> Installation:
    """What this machine has, or CannotRun if something is missing; a jar that is not the pinned one is a failure."""
    import_pyspark("pyspark")
    try:
        java_home = find_java(SPARK, os.environ)
    except UnsupportedJava:  # a user is told; a test takes another one if there is one
        java_home = find_java(SPARK, {"PATH": os.environ["PATH"]})
    places = replace(jar_locations(os.environ), cache=jar_folder)
    try:
        return Installation(java_home, [load_jar(jar, places).path for jar in JARS])
    except JarChecksumMismatch as error:
        raise AssertionError(str(error)) from error


@contextlib.contextmanager
def spark_session(installation: Installation, work: Path, settings: Mapping[str, str]) -> Iterator["SparkSession"]:
    """One session in one JVM, warmed up, with nothing kept outside `work`."""
    # Not at the top: this file is also imported where there is no pyspark, to say so.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # else 20 kB of JSON per refused statement
    builder = SparkSession.builder.master("local[2]").appName("nunatak-tests")
    for key, value in {**_lean_settings(installation.jars, work), **settings}.items():
        builder = builder.config(key, value)
    variables = {
        "JAVA_HOME": str(installation.java_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with mock.patch.dict(os.environ, variables):
        os.environ.pop("SPARK_HOME", None)  # the Spark under test is the one that pip installed
        session = builder.getOrCreate()
    try:
        session.sparkContext.setLogLevel("OFF")
        session.range(1).count()  # warm up here, so that no test is blamed for it
        yield session
    finally:
        session.stop()


def _lean_settings(jars: list[Path], work: Path) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Short statements never repay the optimizing compiler; this halves the suite.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@dataclass(frozen=True)
class Sql:
    """Runs statements in the test's own namespace, the current one; `here.` names it where Spark wants a full name."""

    spark: "SparkSession"
    catalog: str
    namespace: str

    def __call__(self, statement: str) -> "list[Row]":
        return self.frame(statement).collect()

    def value(self, statement: str) -> Any:
        """The only value of the only row."""
        ((value,),) = self(statement)
        return value

    def pairs(self, statement: str) -> dict[Any, Any]:
        """The first column to the second, as SHOW TBLPROPERTIES and DESCRIBE NAMESPACE answer."""
        return {row[0]: row[1] for row in self(statement)}

    def frame(self, statement: str) -> "DataFrame":
        return self.spark.sql(re.sub(r"\bhere\.", f"{self.catalog}.{self.namespace}.", statement))

    def call(self, procedure: str, arguments: str) -> "Row":
        """The first row that an Iceberg procedure of the test's catalog answers with."""
        return self(f"CALL {self.catalog}.system.{procedure}({arguments})")[0]

    def location(self, table: str) -> Path:
        """The local folder of a table."""
        return local_path(self.pairs(f"DESCRIBE TABLE EXTENDED {table}")["Location"])

    def metadata_location(self, table: str) -> str:
        """The table's current metadata file, as the table itself says; `table` is unqualified."""
        return str(self.value(f"SELECT max_by(file, timestamp) FROM here.{table}.metadata_log_entries"))


def local_path(location: str) -> Path:
    """The local file behind a `file:` location."""
    return Path(unquote(urlparse(location).path))


def run_together(*actions: Callable[[], object]) -> None:
    """Run each in a thread of its own, let all start at once, and raise what any of them raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        try:
            start.wait(60)
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]
