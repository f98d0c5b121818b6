"""Sessions that nunatak_spark makes, or adds a catalog to: they work, and nothing that a user set gets lost."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyspark
import pytest
from pyspark.sql import SparkSession as Spark

import nunatak_spark
from nunatak_spark.configuration import EXTENSIONS, EXTENSIONS_CLASS, JARS
from nunatak_spark.errors import ConfigurationConflict, UnsupportedPyspark
from tests.support.catalogs.process import RunningServer
from tests.support.spark import SPARK, Installation, Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_writes_and_reads_a_table(sql: Sql) -> None:
    sql("CREATE TABLE here.cities (id BIGINT, city STRING) USING iceberg PARTITIONED BY (bucket(2, id))")
    sql("INSERT INTO here.cities VALUES (1, 'Oslo'), (2, 'Bergen')")
    update = "WHEN MATCHED THEN UPDATE SET *"
    sql(f"MERGE INTO here.cities t USING (SELECT 2 AS id, 'Bodø' AS city) u ON t.id = u.id {update}")
    sql("ALTER TABLE here.cities WRITE ORDERED BY city")  # which only Iceberg's extensions understand

    assert sql("SELECT * FROM here.cities ORDER BY id") == [(1, "Oslo"), (2, "Bodø")]


def test_timestamps_mean_the_same_everywhere(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_second_call_adds_a_catalog_to_the_same_session(
    spark: "SparkSession", sql: Sql, shared_server: RunningServer
) -> None:
    sql("CREATE TABLE here.numbers AS SELECT 7 AS n")

    again = nunatak_spark.session(shared_server.uri, warehouse="default", catalog="second")

    assert again.sparkContext is spark.sparkContext
    assert again.sql(f"SELECT n FROM second.{sql.namespace}.numbers").collect() == [(7,)]


def test_a_catalog_of_the_same_name_on_another_server_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(ConfigurationConflict, match=r"spark\.sql\.catalog\.lake\.uri is already set"):
        nunatak_spark.session("http://127.0.0.1:1")


@pytest.mark.parametrize("way", ["credential", "token", "api key"])
def test_a_session_logs_in(spark: "SparkSession", secured: RunningServer, way: str) -> None:
    writer = secured.principal(f"writer_{uuid4().hex[:8]}", warehouse="WRITE")
    name = f"login_{uuid4().hex[:8]}"
    login: dict[str, dict[str, Any]] = {
        "credential": {"credential": writer.credential},
        "token": {"token": secured.token(writer)},
        "api key": {"token": writer.api_key},
    }

    session = nunatak_spark.session(secured.uri, catalog=name, **login[way])
    session.sql(f"CREATE NAMESPACE {name}.{name}")
    session.sql(f"CREATE TABLE {name}.{name}.t AS SELECT 1 AS id")

    assert session.table(f"{name}.{name}.t").collect() == [(1,)]


# Builders


@pytest.fixture
def configuration(environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's spark-defaults.conf, which is empty."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    file = tmp_path / "spark-defaults.conf"
    file.touch()
    return file


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch, installation: Installation) -> None:
    """As in a process that has not started Spark yet; a JVM that runs knows its own settings."""
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)


def test_configure_never_overwrites_what_a_builder_holds(
    configuration: Path, no_jvm: None, installation: Installation
) -> None:
    mine: dict[str, Any] = {
        JARS: "/mine.jar",
        EXTENSIONS: "com.example.Mine",
        "spark.redaction.regex": "mine",
        "spark.ui.enabled": "true",
    }
    builder = Spark.builder.config(map=mine)

    options = nunatak_spark.configure(builder, "http://catalog:8181", jars=installation.jars)._options

    assert options["spark.redaction.regex"] == "mine"
    assert options["spark.ui.enabled"] == "true"
    assert options[EXTENSIONS] == f"com.example.Mine,{EXTENSIONS_CLASS}"
    assert options[JARS].split(",") == ["/mine.jar", *map(str, installation.jars)]
    assert options["spark.sql.catalog.lake.uri"] == "http://catalog:8181"


def test_configure_adds_to_the_users_spark_defaults(
    configuration: Path, no_jvm: None, installation: Installation
) -> None:
    configuration.write_text(f"{EXTENSIONS} com.example.Mine\n{JARS} /mine.jar\n")

    options = nunatak_spark.configure(Spark.builder, "http://catalog:8181", jars=installation.jars)._options

    assert options[EXTENSIONS] == f"com.example.Mine,{EXTENSIONS_CLASS}"
    assert options[JARS].split(",")[0] == "/mine.jar"


def test_configuring_twice_is_configuring_once(configuration: Path, no_jvm: None, installation: Installation) -> None:
    builder = nunatak_spark.configure(Spark.builder, "http://catalog:8181", jars=installation.jars)
    once = dict(builder._options)

    assert nunatak_spark.configure(builder, "http://catalog:8181", jars=installation.jars)._options == once


def test_configure_refuses_a_catalog_that_is_another_one(
    configuration: Path, no_jvm: None, installation: Installation
) -> None:
    builder = Spark.builder.config("spark.sql.catalog.lake.uri", "http://other:1")

    with pytest.raises(ConfigurationConflict, match="Choose another name"):
        nunatak_spark.configure(builder, "http://catalog:8181", jars=installation.jars)


def test_jars_that_would_be_hidden_are_refused(
    configuration: Path, no_jvm: None, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars /mine.jar pyspark-shell")

    with pytest.raises(ConfigurationConflict, match="PYSPARK_SUBMIT_ARGS names --jars"):
        nunatak_spark.configure(Spark.builder, "http://catalog:8181", jars=installation.jars)


def test_a_runtime_that_the_user_named_as_a_package_is_enough(
    configuration: Path, no_jvm: None, installation: Installation
) -> None:
    builder = Spark.builder.config("spark.jars.packages", SPARK.runtime.coordinate)

    options = nunatak_spark.configure(builder, "http://catalog:8181")._options

    assert JARS not in options


def test_a_pyspark_without_a_runtime_is_refused(
    configuration: Path, no_jvm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")

    with pytest.raises(UnsupportedPyspark, match=r"pyspark 4\.3\.0 has no Iceberg runtime"):
        nunatak_spark.session("http://catalog:8181")


def test_a_master_and_a_remote_together_are_refused() -> None:
    with pytest.raises(ConfigurationConflict, match="master and remote"):
        nunatak_spark.session("http://catalog:8181", master="local[1]", remote="sc://host")
