"""JDBC and SQL catalogs on Nunatak's PostgreSQL database: both sides write the same tables at once and lose nothing."""

import asyncio
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.postgres import NOT_INSTALLED, PostgresServer, execute, find_binaries, running_postgres
from tests.support.spark import catalog, configure, rest_catalog
from tests.support.workload import seeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPENDS = int(os.environ.get("NUNATAK_TEST_APPENDS", "5"))  # of each writer
NAMES = itertools.count(1)
LINES = pa.schema([pa.field("writer", pa.string()), pa.field("n", pa.int64())])
NO_RETRIES = {"commit.retry.num-retries": "0"}
PATIENCE = {"commit.retry.num-retries": "60", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "200"}

Line = tuple[str, int]


@dataclass(frozen=True)
class Lake:
    """A server on PostgreSQL, and the address of the database for whoever goes past it."""

    server: RunningServer
    url: str

    @property
    def warehouse(self) -> str:
        return (self.server.data / "warehouse").as_uri()

    def rest(self) -> RestCatalog:
        return RestCatalog("lake", uri=self.server.uri)

    def sql(self) -> SqlCatalog:
        """It finds its rows by its own name, which is the warehouse's."""
        return sql_catalog(self.url, self.warehouse)

    def jdbc(self) -> dict[str, str]:
        return jdbc_catalog("default", self.url, self.warehouse)


def sql_catalog(url: str, warehouse: str) -> SqlCatalog:
    return SqlCatalog("default", uri=url.replace("postgresql://", "postgresql+psycopg://"), warehouse=warehouse)


def jdbc_catalog(name: str, url: str, warehouse: str, schema_version: str = "V1") -> dict[str, str]:
    address = url.partition("@")[2]
    settings = catalog(
        name,
        catalog_impl="org.apache.iceberg.jdbc.JdbcCatalog",
        uri=f"jdbc:postgresql://{address}",
        warehouse=warehouse,
        cache_enabled="false",  # both sides write, so neither may remember a table from its last visit
    )
    prefix = f"spark.sql.catalog.{name}.jdbc"
    return settings | {f"{prefix}.user": "postgres", f"{prefix}.schema-version": schema_version}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as server:
        yield server


@pytest.fixture(scope="module")
def lake(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    url = postgres.new_database()
    data = tmp_path_factory.mktemp("jdbc") / "data"
    with running_server(data, environment={"NUNATAK_DATABASE_URL": url}) as server:
        yield Lake(server, url)


@pytest.fixture
def rest(lake: Lake) -> Iterator[RestCatalog]:
    with closing(lake.rest()) as opened:
        yield opened


@pytest.fixture
def sql(lake: Lake) -> Iterator[SqlCatalog]:
    with closing(lake.sql()) as opened:
        yield opened


@pytest.fixture
def namespace(rest: RestCatalog) -> str:
    name = f"shared_{next(NAMES)}"
    rest.create_namespace(name, {"owner": "ann"})
    return name


def lines(writer: str, *numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"writer": writer, "n": n} for n in numbers], schema=LINES)


def read(catalog: Catalog, name: tuple[str, str]) -> list[Line]:
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted((row["writer"], row["n"]) for row in rows)


# One after the other


def test_a_commit_of_either_side_is_seen_by_the_other_at_once(
    rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    """MISSION: 004-09, 004-13"""
    name = (namespace, "log")
    rest.create_table(name, LINES)
    for n in range(0, 6, 2):
        rest.load_table(name).append(lines("rest", n))
        assert ("rest", n) in read(sql, name)
        sql.load_table(name).append(lines("sql", n + 1))
        assert ("sql", n + 1) in read(rest, name)

    assert rest.load_table(name).metadata == sql.load_table(name).metadata
    assert len(rest.load_table(name).snapshots()) == 6


@pytest.mark.parametrize("winner", ["rest", "sql"])
def test_of_two_interleaved_appends_the_loser_gets_a_conflict(
    rest: RestCatalog, sql: SqlCatalog, namespace: str, winner: str
) -> None:
    """MISSION: 000-36, 004-12, 004-14"""
    name = (namespace, "log")
    rest.create_table(name, LINES, properties=NO_RETRIES)
    first, second = rest.load_table(name), sql.load_table(name)
    if winner == "sql":
        first, second = second, first

    first.append(lines("first", 1))
    with pytest.raises(CommitFailedException):
        second.append(lines("second", 1))

    assert read(rest, name) == read(sql, name) == [("first", 1)]
    second.refresh().append(lines("second", 2))
    assert read(rest, name) == read(sql, name) == [("first", 1), ("second", 2)]


def test_names_and_namespaces_are_shared(rest: RestCatalog, sql: SqlCatalog, namespace: str) -> None:
    """MISSION: 004-07, 004-25"""
    sql.create_table((namespace, "theirs"), LINES).append(lines("sql", 1))
    rest.create_table((namespace, "ours"), LINES)
    assert sorted(rest.list_tables(namespace)) == sorted(sql.list_tables(namespace))
    for side, taken in ((rest, "theirs"), (sql, "ours")):
        with pytest.raises(TableAlreadyExistsError):
            side.create_table((namespace, taken), LINES)

    sql.rename_table((namespace, "theirs"), (namespace, "renamed"))
    assert read(rest, (namespace, "renamed")) == [("sql", 1)]
    rest.rename_table((namespace, "renamed"), (namespace, "again"))
    assert read(sql, (namespace, "again")) == [("sql", 1)]
    sql.drop_table((namespace, "again"))
    with pytest.raises(NoSuchTableError):
        rest.load_table((namespace, "again"))
    sql.update_namespace_properties(namespace, updates={"owner": "bob"})
    assert rest.load_namespace_properties(namespace)["owner"] == "bob"


def test_a_sqlcatalog_becomes_a_rest_catalog_in_place(postgres: PostgresServer, tmp_path: Path) -> None:
    """Whoever leaves again keeps a catalog. MISSION: 004-03, 004-25"""
    url = postgres.new_database()
    data = tmp_path / "data"
    (data / "warehouse").mkdir(parents=True)
    with closing(sql_catalog(url, (data / "warehouse").as_uri())) as before:
        before.create_namespace("sales", {"owner": "ann"})
        before.create_table(("sales", "log"), LINES).append(lines("sql", 1))

    with (
        running_server(data, environment={"NUNATAK_DATABASE_URL": url}) as server,
        closing(RestCatalog("lake", uri=server.uri)) as rest,
    ):
        assert rest.list_namespaces() == [("sales",)]
        rest.load_table(("sales", "log")).append(lines("rest", 2))

    with closing(sql_catalog(url, (data / "warehouse").as_uri())) as after:
        assert read(after, ("sales", "log")) == [("rest", 2), ("sql", 1)]


# All at once


@dataclass
class Writer:
    """Appends one line at a time through its own door and notes which were acknowledged."""

    name: str
    append: Callable[[str, Line], None]
    random: random.Random
    acknowledged: dict[str, list[Line]] = field(default_factory=dict)

    def run(self, tables: Sequence[str], start: threading.Barrier) -> None:
        start.wait(60)
        for n in range(APPENDS):
            table = self.random.choice(tables)
            self.append(table, (self.name, n))
            self.acknowledged.setdefault(table, []).append((self.name, n))


def through(catalog: Catalog, namespace: str) -> Callable[[str, Line], None]:
    def append(table: str, line: Line) -> None:
        catalog.load_table((namespace, table)).append(lines(line[0], line[1]))

    return append


def run_all(writers: Sequence[Writer], tables: Sequence[str]) -> None:
    start = threading.Barrier(len(writers))
    with ThreadPoolExecutor(len(writers)) as pool:
        for running in [pool.submit(writer.run, tables, start) for writer in writers]:
            running.result()


def wrong_in(catalog: Catalog, namespace: str, tables: Sequence[str], writers: Sequence[Writer]) -> list[str]:
    """What was acknowledged and is not there once, and what is there besides; the history must be one line, too."""
    sentences = []
    for table in tables:
        wanted = {line for writer in writers for line in writer.acknowledged.get(table, ())}
        found = Counter(read(catalog, (namespace, table)))
        sentences += [f"lost: {line} is not in {table}" for line in wanted - found.keys()]
        sentences += [f"foreign: {line} is in {table}" for line in found.keys() - wanted]
        sentences += [f"doubled: {line} is {count} times in {table}" for line, count in found.items() if count > 1]
        metadata: Any = catalog.load_table((namespace, table)).metadata
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        length, current = 0, metadata.current_snapshot_id
        while current in snapshots:
            length, current = length + 1, snapshots[current].parent_snapshot_id
        if not length == len(snapshots) == metadata.last_sequence_number == len(wanted):
            sentences.append(f"torn: {table} has {len(snapshots)} snapshots, {length} of them in line")
    return sorted(sentences)


def test_writers_on_both_sides_lose_nothing_of_each_other(lake: Lake, rest: RestCatalog, namespace: str) -> None:
    """MISSION: 000-36, 004-12, 004-14"""
    chance = seeded("jdbc on postgres")
    tables = ["a", "b"]
    for table in tables:
        rest.create_table((namespace, table), LINES, properties=PATIENCE)
    catalogs = [lake.rest(), lake.sql(), lake.rest(), lake.sql()]
    writers = [
        Writer(f"{type(each).__name__} {number}", through(each, namespace), random.Random(chance.random()))
        for number, each in enumerate(catalogs)
    ]

    run_all(writers, tables)

    print(f"{sum(len(each) for writer in writers for each in writer.acknowledged.values())} acknowledged")
    for opened in catalogs:
        assert wrong_in(opened, namespace, tables, writers) == []
    # The canary: a client that sets the pointer without looking undoes what another had been told was done.
    careless = "UPDATE iceberg_tables SET metadata_location = previous_metadata_location WHERE table_namespace = $1"
    lake_execute(lake, careless, namespace)
    assert [sentence.partition(":")[0] for sentence in wrong_in(rest, namespace, tables, writers)].count("lost") == 2
    for opened in catalogs:
        opened.close()


def lake_execute(lake: Lake, sql: str, *values: object) -> None:
    asyncio.run(execute(lake.url, sql, *values))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
def test_spark_s_jdbc_catalog_writes_beside_the_server_and_loses_nothing(
    spark: "SparkSession", lake: Lake, rest: RestCatalog, namespace: str
) -> None:
    """Two kinds of clients on each side of the same tables. MISSION: 004-12, 004-14, 004-20"""
    chance = seeded("spark jdbc on postgres")
    session = spark.newSession()
    configure(session, {**lake.jdbc(), **rest_catalog("rest", lake.server.uri, cache_enabled="false")})
    tables = ["a", "b"]
    session.sql(f"CREATE TABLE `default`.{namespace}.a (writer STRING, n BIGINT) USING iceberg")
    session.sql(f"CREATE TABLE rest.{namespace}.b (writer STRING, n BIGINT) USING iceberg")
    for door, table in (("`default`", "a"), ("rest", "b")):
        settings = ", ".join(f"'{name}' = '{value}'" for name, value in PATIENCE.items())
        session.sql(f"ALTER TABLE {door}.{namespace}.{table} SET TBLPROPERTIES ({settings})")

    def insert(door: str) -> Callable[[str, Line], None]:
        def append(table: str, line: Line) -> None:
            session.sql(f"INSERT INTO {door}.{namespace}.{table} VALUES ('{line[0]}', {line[1]})")

        return append

    with closing(lake.sql()) as sql, closing(lake.rest()) as another:
        appends = {
            "spark jdbc": insert("`default`"),
            "spark rest": insert("rest"),
            "pyiceberg sql": through(sql, namespace),
            "pyiceberg rest": through(another, namespace),
        }
        writers = [Writer(name, append, random.Random(chance.random())) for name, append in appends.items()]
        run_all(writers, tables)

        assert wrong_in(rest, namespace, tables, writers) == []
        assert wrong_in(sql, namespace, tables, writers) == []
    for table in tables:
        counted = f"SELECT count(*), count(DISTINCT writer, n) FROM {{}}.{namespace}.{table}"
        ours, theirs = (session.sql(counted.format(door)).collect() for door in ("rest", "`default`"))
        assert ours == theirs
        assert ours[0][0] == ours[0][1] == sum(len(writer.acknowledged.get(table, ())) for writer in writers)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
@pytest.mark.parametrize("schema_version", ["V0", "V1"])
def test_a_jdbc_catalog_moves_to_the_server_by_changing_nothing_but_the_configuration(
    spark: "SparkSession", postgres: PostgresServer, tmp_path: Path, schema_version: str
) -> None:
    """MISSION: 004-25"""
    url = postgres.new_database()
    data = tmp_path / "data"
    session = spark.newSession()
    configure(session, jdbc_catalog("default", url, (data / "warehouse").as_uri(), schema_version))
    session.sql("CREATE NAMESPACE `default`.sales")
    session.sql("CREATE TABLE `default`.sales.orders USING iceberg AS SELECT id FROM range(5)")

    with running_server(data, environment={"NUNATAK_DATABASE_URL": url}) as server:
        configure(session, rest_catalog("moved", server.uri, cache_enabled="false"))
        session.sql("INSERT INTO moved.sales.orders VALUES (100)")
        session.sql("INSERT INTO `default`.sales.orders VALUES (200)")
        assert session.sql("SELECT count(*), max(id) FROM moved.sales.orders").collect() == [(7, 200)]

    assert session.sql("SELECT count(*), sum(id) FROM `default`.sales.orders").collect() == [(7, 310)]
