"""JDBC and SQL catalogs on Nunatak's MariaDB database: both sides write the same tables at once and lose nothing."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from tests.support.catalogs.process import running_server
from tests.support.mariadb import NOT_INSTALLED, PASSWORD, USER, MariadbServer, find_server, running_mariadb
from tests.support.spark import catalog, configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPENDS = int(os.environ.get("NUNATAK_TEST_APPENDS", "5"))  # of each writer
LINES = pa.schema([pa.field("writer", pa.string()), pa.field("n", pa.int64())])
NAME = ("sales", "log")
NO_RETRIES = {"commit.retry.num-retries": "0"}
PATIENCE = {"commit.retry.num-retries": "60", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "200"}


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    if find_server() is None:
        pytest.skip(NOT_INSTALLED)
    with running_mariadb() as server:
        yield server


def sql_catalog(url: str, data: Path) -> SqlCatalog:
    """It finds its rows by its own name, which is the warehouse's."""
    parts = urlsplit(url)
    address = f"mysql+pymysql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{parts.port}{parts.path}"
    return SqlCatalog("default", uri=address, warehouse=(data / "warehouse").as_uri())


@pytest.fixture
def both(mariadb: MariadbServer, tmp_path: Path) -> Iterator[tuple[RestCatalog, SqlCatalog]]:
    """The tables were made by the SqlCatalog, in the database's own collation, and taken over."""
    url, data = mariadb.new_database(), tmp_path / "data"
    (data / "warehouse").mkdir(parents=True)
    with closing(sql_catalog(url, data)) as sql:
        sql.create_namespace("sales", {"owner": "ann"})
        sql.create_table(NAME, LINES, properties=PATIENCE).append(lines("before", 0))
        with (
            running_server(data, environment={"NUNATAK_DATABASE_URL": url}) as server,
            closing(RestCatalog("lake", uri=server.uri)) as rest,
        ):
            yield rest, sql


def lines(writer: str, *numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"writer": writer, "n": n} for n in numbers], schema=LINES)


def read(catalog: Catalog) -> list[tuple[str, int]]:
    rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
    return sorted((row["writer"], row["n"]) for row in rows)


def test_a_sqlcatalog_becomes_a_rest_catalog_in_place_and_goes_on(both: tuple[RestCatalog, SqlCatalog]) -> None:
    """MISSION: 004-03, 004-09, 004-13, 004-25"""
    rest, sql = both
    assert rest.list_namespaces() == [("sales",)]
    assert rest.load_namespace_properties("sales")["owner"] == "ann"

    rest.load_table(NAME).append(lines("rest", 1))
    assert read(sql) == [("before", 0), ("rest", 1)]
    sql.load_table(NAME).append(lines("sql", 2))
    assert read(rest) == [("before", 0), ("rest", 1), ("sql", 2)]
    sql.create_table(("sales", "LOG"), LINES)  # names differ by case since the takeover
    assert sorted(rest.list_tables("sales")) == [("sales", "LOG"), ("sales", "log")]
    rest.rename_table(("sales", "LOG"), ("sales", "renamed"))
    assert sorted(sql.list_tables("sales")) == [("sales", "log"), ("sales", "renamed")]


@pytest.mark.parametrize("winner", ["rest", "sql"])
def test_of_two_interleaved_appends_the_loser_gets_a_conflict(
    both: tuple[RestCatalog, SqlCatalog], winner: str
) -> None:
    """MISSION: 000-36, 004-12, 004-14"""
    rest, sql = both
    with rest.load_table(NAME).transaction() as change:
        change.set_properties(NO_RETRIES)
    first, second = rest.load_table(NAME), sql.load_table(NAME)
    if winner == "sql":
        first, second = second, first

    first.append(lines("first", 1))
    with pytest.raises(CommitFailedException):
        second.append(lines("second", 1))

    assert read(rest) == read(sql) == [("before", 0), ("first", 1)]


def test_writers_on_both_sides_lose_nothing_of_each_other(both: tuple[RestCatalog, SqlCatalog]) -> None:
    """MISSION: 000-36, 004-12, 004-14"""
    writers = {
        f"{kind}{number}": catalog for kind, catalog in zip(("rest", "sql"), both, strict=True) for number in (1, 2)
    }
    start = threading.Barrier(len(writers))

    def write(name: str, catalog: Catalog) -> None:
        start.wait(60)
        for n in range(APPENDS):
            catalog.load_table(NAME).append(lines(name, n))

    with ThreadPoolExecutor(len(writers)) as pool:
        for running in [pool.submit(write, *each) for each in writers.items()]:
            running.result()

    wanted = Counter([("before", 0), *((name, n) for name in writers for n in range(APPENDS))])
    assert Counter(read(both[0])) == Counter(read(both[1])) == wanted
    assert len(both[0].load_table(NAME).snapshots()) == len(wanted)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
@pytest.mark.parametrize("schema_version", ["V0", "V1"])
def test_a_jdbc_catalog_moves_to_the_server_by_changing_nothing_but_the_configuration(
    spark: "SparkSession", mariadb: MariadbServer, tmp_path: Path, schema_version: str
) -> None:
    """And goes on beside it, with nothing lost. MISSION: 004-12, 004-25"""
    url, data = mariadb.new_database(), tmp_path / "data"
    session = spark.newSession()
    configure(session, jdbc_catalog(url, data, schema_version))
    session.sql("CREATE NAMESPACE `default`.sales")
    session.sql("CREATE TABLE `default`.sales.orders USING iceberg AS SELECT id FROM range(5)")

    with running_server(data, environment={"NUNATAK_DATABASE_URL": url}) as server:
        configure(session, rest_catalog("moved", server.uri, cache_enabled="false"))
        session.sql("INSERT INTO moved.sales.orders VALUES (100)")
        session.sql("INSERT INTO `default`.sales.orders VALUES (200)")
        assert session.sql("SELECT count(*), max(id) FROM moved.sales.orders").collect() == [(7, 200)]
        doors = ("moved", "`default`")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda door: [session.sql(insert_into(door)) for _ in range(APPENDS)], doors))

    assert session.sql("SELECT count(*) FROM `default`.sales.orders").collect() == [(7 + 2 * APPENDS,)]


def jdbc_catalog(url: str, data: Path, schema_version: str) -> dict[str, str]:
    settings = catalog(
        "default",
        catalog_impl="org.apache.iceberg.jdbc.JdbcCatalog",
        # Or else the JDBC catalog takes the tables of the database beside it for its own, and creates none.
        uri=f"jdbc:mariadb://{url.partition('@')[2]}?nullDatabaseMeansCurrent=true",
        warehouse=(data / "warehouse").as_uri(),
        cache_enabled="false",  # both sides write, so neither may remember a table from its last visit
    )
    options = {"user": USER, "password": PASSWORD, "schema-version": schema_version}
    return settings | {f"spark.sql.catalog.default.jdbc.{name}": value for name, value in options.items()}


def insert_into(door: str) -> str:
    return f"INSERT INTO {door}.sales.orders VALUES (1)"
