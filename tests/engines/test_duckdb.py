"""DuckDB with its iceberg extension: reading and writing the catalog, alone and side by side with PyIceberg."""

import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tests.support.catalogs.process import RunningServer

EXTENSIONS = ("avro", "httpfs", "iceberg")  # iceberg needs the other two, so they are loaded first
WAIT_SECONDS = 30  # for work the server does after its answer; a bound against hanging, not a promise of speed
CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBPyConnection]:
    """DuckDB with the extensions of the installed wheels, loaded once; it never asks the network for one."""
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as connection:
        for name in EXTENSIONS:
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        yield connection


@contextmanager
def attached(engine: DuckDBPyConnection, name: str, endpoint: str, warehouse: str = "") -> Iterator[DuckDBPyConnection]:
    """A session in which the catalog at `endpoint` is known as `name`."""
    options = f"TYPE ICEBERG, ENDPOINT '{endpoint}', AUTHORIZATION_TYPE 'none'"
    with closing(engine.cursor()) as session:
        session.execute(f"ATTACH '{warehouse}' AS {name} ({options})")
        yield session
        session.execute(f"DETACH {name}")


@pytest.fixture
def duck(engine: DuckDBPyConnection, shared_server: RunningServer) -> Iterator[DuckDBPyConnection]:
    """A DuckDB session in which the server is attached as `lake`."""
    with attached(engine, "lake", shared_server.uri) as session:
        yield session


@pytest.fixture
def catalog(shared_server: RunningServer) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=shared_server.uri)) as opened:
        yield opened


@pytest.fixture
def schema(duck: DuckDBPyConnection) -> str:
    """A schema that DuckDB made and no other test knows."""
    name = f"duckdb_{uuid.uuid4().hex[:12]}"
    duck.execute(f"CREATE SCHEMA lake.{name}")
    return name


@pytest.fixture
def cities(duck: DuckDBPyConnection, schema: str) -> str:
    """A table of DuckDB's that holds Oslo and Bergen."""
    name = f"lake.{schema}.cities"
    duck.execute(f"CREATE TABLE {name} (id BIGINT, city VARCHAR)")
    duck.execute(f"INSERT INTO {name} VALUES (1, 'Oslo'), (2, 'Bergen')")
    return name


def contents(duck: DuckDBPyConnection, table: str) -> list[tuple[object, ...]]:
    return duck.execute(f"FROM {table} ORDER BY ALL").fetchall()


@pytest.mark.parametrize("root", ["", "/v1", "/iceberg", "/apis/iceberg", "/apis/iceberg/v1", "/api/catalog"])
def test_every_way_to_write_the_endpoint_reaches_the_same_catalog(
    shared_server: RunningServer, engine: DuckDBPyConnection, cities: str, root: str
) -> None:
    """DuckDB takes the address as ENDPOINT and wants the authorization named. MISSION: 000-04, 000-83, 003-01"""
    with attached(engine, "apicurio", shared_server.uri + root) as session:
        assert contents(session, cities.replace("lake.", "apicurio.")) == [(1, "Oslo"), (2, "Bergen")]


def test_the_statement_of_the_document_fails_in_duckdb_and_not_in_the_server(
    shared_server: RunningServer, engine: DuckDBPyConnection
) -> None:
    """Without a secret DuckDB refuses before it asks anybody. MISSION: 000-83"""
    with pytest.raises(duckdb.Error, match="AUTHORIZATION_TYPE"):
        engine.execute(f"ATTACH '{shared_server.uri}/apis/iceberg/v1' AS apicurio (TYPE ICEBERG)")


def test_the_warehouse_may_be_named(shared_server: RunningServer, engine: DuckDBPyConnection, cities: str) -> None:
    """MISSION: 000-11, 000-83"""
    with attached(engine, "named", shared_server.uri, warehouse="default") as session:
        assert contents(session, cities.replace("lake.", "named.")) == [(1, "Oslo"), (2, "Bergen")]


def test_rows_are_inserted_updated_and_deleted(duck: DuckDBPyConnection, cities: str) -> None:
    duck.execute(f"INSERT INTO {cities} VALUES (3, NULL), (4, 'Bodø')")
    duck.execute(f"UPDATE {cities} SET city = 'Tromsø' WHERE id = 3")
    duck.execute(f"DELETE FROM {cities} WHERE id = 1")

    assert contents(duck, cities) == [(2, "Bergen"), (3, "Tromsø"), (4, "Bodø")]


def test_rows_are_merged(duck: DuckDBPyConnection, cities: str) -> None:
    duck.execute(
        f"MERGE INTO {cities} t USING (VALUES (2, 'Bryggen'), (3, 'Tromsø')) s(id, city) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET city = s.city WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.city)"
    )

    assert contents(duck, cities) == [(1, "Oslo"), (2, "Bryggen"), (3, "Tromsø")]


def test_a_table_is_created_from_a_query(duck: DuckDBPyConnection, schema: str) -> None:
    duck.execute(f"CREATE TABLE lake.{schema}.squares AS SELECT i AS n, i * i AS square FROM range(100) r(i)")

    assert duck.execute(f"SELECT count(*), sum(square) FROM lake.{schema}.squares").fetchone() == (100, 328350)


def test_names_may_hold_spaces_slashes_and_other_letters(duck: DuckDBPyConnection, schema: str) -> None:
    name = f'lake."{schema} + ø"."t/ 1"'
    duck.execute(f'CREATE SCHEMA lake."{schema} + ø"')
    duck.execute(f"CREATE TABLE {name} (id BIGINT)")
    duck.execute(f"INSERT INTO {name} VALUES (4)")

    assert contents(duck, name) == [(4,)]


def test_a_nested_namespace_is_a_schema_with_dots(duck: DuckDBPyConnection, catalog: RestCatalog, schema: str) -> None:
    catalog.create_namespace((schema, "gold"))
    catalog.create_table((schema, "gold", "cities"), CITIES)
    duck.execute(f"INSERT INTO lake.\"{schema}.gold\".cities VALUES (1, 'Oslo')")

    assert catalog.load_table((schema, "gold", "cities")).scan().to_arrow().to_pylist() == [{"id": 1, "city": "Oslo"}]


def test_a_table_of_format_version_three_keeps_the_lineage_of_its_rows(duck: DuckDBPyConnection, schema: str) -> None:
    table = f"lake.{schema}.cities"
    duck.execute(f"CREATE TABLE {table} (id BIGINT, city VARCHAR) WITH ('format-version' = 3)")
    duck.execute(f"INSERT INTO {table} VALUES (1, 'Oslo'), (2, 'Bergen')")
    duck.execute(f"INSERT INTO {table} VALUES (3, 'Tromsø')")
    duck.execute(f"DELETE FROM {table} WHERE id = 1")
    duck.execute(f"UPDATE {table} SET city = 'Bryggen' WHERE id = 2")

    assert duck.execute(f"SELECT _row_id, id, city FROM {table} ORDER BY id").fetchall() == [
        (1, 2, "Bryggen"),
        (2, 3, "Tromsø"),
    ]


def test_columns_are_added_and_renamed(duck: DuckDBPyConnection, cities: str) -> None:
    duck.execute(f"ALTER TABLE {cities} ADD COLUMN height DOUBLE")
    duck.execute(f"ALTER TABLE {cities} RENAME COLUMN city TO town")
    duck.execute(f"INSERT INTO {cities} VALUES (3, 'Tromsø', 10.0)")

    assert duck.execute(f"SELECT town, height FROM {cities} ORDER BY id").fetchall() == [
        ("Oslo", None),
        ("Bergen", None),
        ("Tromsø", 10.0),
    ]


def test_one_transaction_writes_two_tables(duck: DuckDBPyConnection, schema: str, cities: str) -> None:
    """MISSION: 000-85, 003-10"""
    duck.execute(f"CREATE TABLE lake.{schema}.log (line VARCHAR)")
    duck.execute("BEGIN")
    duck.execute(f"INSERT INTO {cities} VALUES (3, 'Tromsø')")
    duck.execute(f"INSERT INTO lake.{schema}.log VALUES ('Tromsø came')")
    duck.execute("COMMIT")

    assert contents(duck, cities) == [(1, "Oslo"), (2, "Bergen"), (3, "Tromsø")]
    assert contents(duck, f"lake.{schema}.log") == [("Tromsø came",)]


def test_a_rolled_back_transaction_leaves_no_trace(duck: DuckDBPyConnection, cities: str) -> None:
    duck.execute("BEGIN")
    duck.execute(f"INSERT INTO {cities} VALUES (3, 'Tromsø')")
    duck.execute("ROLLBACK")

    assert contents(duck, cities) == [(1, "Oslo"), (2, "Bergen")]


def test_of_two_sessions_that_delete_the_same_row_one_is_refused(
    shared_server: RunningServer, engine: DuckDBPyConnection, duck: DuckDBPyConnection, cities: str
) -> None:
    """MISSION: 000-36"""
    with attached(engine, "other", shared_server.uri) as other:
        other.execute("BEGIN")
        other.execute(f"DELETE FROM {cities.replace('lake.', 'other.')} WHERE id = 1")
        duck.execute(f"UPDATE {cities} SET city = 'Kristiania' WHERE id = 1")
        with pytest.raises(duckdb.Error):
            other.execute("COMMIT")

    assert contents(duck, cities) == [(1, "Kristiania"), (2, "Bergen")]


def test_tables_and_schemas_are_dropped(
    duck: DuckDBPyConnection, catalog: RestCatalog, schema: str, cities: str
) -> None:
    duck.execute(f"DROP TABLE {cities}")
    assert catalog.list_tables(schema) == []

    duck.execute(f"DROP SCHEMA lake.{schema}")
    assert not catalog.namespace_exists(schema)


def test_a_missing_table_is_reported_as_missing(duck: DuckDBPyConnection, schema: str) -> None:
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        duck.execute(f"FROM lake.{schema}.absent")


def test_table_properties_are_set_and_removed(
    duck: DuckDBPyConnection, catalog: RestCatalog, schema: str, cities: str
) -> None:
    duck.execute(f"CALL set_iceberg_table_properties({cities}, {{'owner': 'ops', 'tier': 'gold'}})")
    duck.execute(f"CALL remove_iceberg_table_properties({cities}, ['tier'])")

    properties = catalog.load_table((schema, "cities")).properties
    assert properties["owner"] == "ops"
    assert "tier" not in properties


def test_duckdb_reads_what_pyiceberg_writes(duck: DuckDBPyConnection, catalog: RestCatalog, schema: str) -> None:
    """Partitioned, evolved, with deleted rows and an older snapshot. MISSION: 003-01"""
    columns = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "city", StringType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="city"))
    table = catalog.create_table((schema, "cities"), columns, partition_spec=spec)
    table.append(pa.Table.from_pylist([{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Bergen"}], schema=CITIES))
    first = table.current_snapshot().snapshot_id
    table.delete("id = 1")
    with table.update_schema() as update:
        update.add_column("note", StringType())
        update.rename_column("city", "town")

    assert contents(duck, f"lake.{schema}.cities") == [(2, "Bergen", None)]
    older = duck.execute(f"SELECT id FROM lake.{schema}.cities AT (VERSION => {first}) ORDER BY id")
    assert older.fetchall() == [(1,), (2,)]


def test_pyiceberg_reads_and_continues_what_duckdb_writes(
    duck: DuckDBPyConnection, catalog: RestCatalog, schema: str, cities: str
) -> None:
    """MISSION: 003-01"""
    duck.execute(f"DELETE FROM {cities} WHERE id = 1")
    table = catalog.load_table((schema, "cities"))
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "city": "Bergen"}]

    table.append(pa.table({"id": [3], "city": ["Tromsø"]}))
    duck.execute(f"INSERT INTO {cities} VALUES (4, 'Bodø')")

    assert contents(duck, cities) == [(2, "Bergen"), (3, "Tromsø"), (4, "Bodø")]
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 3, 4]


def test_a_purge_takes_data_and_delete_files_and_leaves_other_tables_alone(
    duck: DuckDBPyConnection, catalog: RestCatalog, schema: str, cities: str
) -> None:
    """MISSION: 002-18"""
    duck.execute(f"DELETE FROM {cities} WHERE id = 1")
    duck.execute(f"UPDATE {cities} SET city = 'Bryggen' WHERE id = 2")
    duck.execute(f"CREATE TABLE lake.{schema}.kept AS SELECT 1 AS id")
    folder = Path(catalog.load_table((schema, "cities")).location().removeprefix("file://"))
    assert len([file for file in folder.rglob("*") if file.is_file()]) > 10

    catalog.purge_table((schema, "cities"))

    deadline = time.monotonic() + WAIT_SECONDS
    while any(file.is_file() for file in folder.rglob("*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [file for file in folder.rglob("*") if file.is_file()] == []
    assert contents(duck, f"lake.{schema}.kept") == [(1,)]


def test_views_are_not_listed_as_tables(
    duck: DuckDBPyConnection, catalog: RestCatalog, schema: str, cities: str
) -> None:
    representation = ViewRepresentation(root=SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark"))
    version = ViewVersion(schema_id=0, representations=[representation], default_namespace=(schema,))
    catalog.create_view((schema, "ones"), pa.schema([("id", pa.int64())]), version)

    names = f"SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' AND schema_name = '{schema}'"
    assert duck.execute(names).fetchall() == [("cities",)]
