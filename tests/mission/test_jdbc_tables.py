"""The database file is a JDBC catalog: its tables, their keys, and what a commit writes there."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.mission.wire import created, send
from tests.support.catalogs.process import RunningServer

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}


@pytest.fixture
def database(catalog: RunningServer) -> Iterator[sqlite3.Connection]:
    """The server's database, opened by another program for reading."""
    with closing(sqlite3.connect(f"file:{catalog.data}/nunatak.db?mode=ro", uri=True)) as connection:
        yield connection


def columns(database: sqlite3.Connection, table: str) -> tuple[list[str], list[str]]:
    """The names of all columns, and of those that make the key."""
    described = database.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    return [name for name, _ in described], [
        name for name, position in sorted(described, key=lambda row: row[1]) if position
    ]


@pytest.mark.parametrize(
    ("table", "expected", "key"),
    [
        (
            "iceberg_tables",
            ["catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location"],
            ["catalog_name", "table_namespace", "table_name"],
        ),
        (
            "iceberg_namespace_properties",
            ["catalog_name", "namespace", "property_key", "property_value"],
            ["catalog_name", "namespace", "property_key"],
        ),
        (
            "iceberg_table_properties",
            ["catalog_name", "table_namespace", "table_name", "property_key", "property_value"],
            ["catalog_name", "table_namespace", "table_name", "property_key"],
        ),
    ],
)
def test_the_three_tables_are_made_at_the_first_start(
    database: sqlite3.Connection, table: str, expected: list[str], key: list[str]
) -> None:
    """MISSION: 004-03, 004-04, 004-05, 004-07"""
    found, found_key = columns(database, table)

    assert found[: len(expected)] == expected
    assert found_key == key


def test_a_table_is_one_row_and_a_commit_moves_its_pointer(
    catalog: RunningServer, database: sqlite3.Connection
) -> None:
    """MISSION: 003-02, 003-21, 003-22, 004-04, 004-09, 004-13"""
    for namespace in (["analytics"], ["analytics", "sales"]):
        created(send(catalog, "POST", "/v1/namespaces", {"namespace": namespace}))
    table = "/v1/namespaces/analytics%1Fsales/tables/orders"
    body = {"name": "orders", "schema": SCHEMA}
    first = created(send(catalog, "POST", "/v1/namespaces/analytics%1Fsales/tables", body))["metadata-location"]

    def row() -> tuple[str | None, ...]:
        query = (
            "SELECT catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location "
            "FROM iceberg_tables WHERE table_name = 'orders'"
        )
        (found,) = database.execute(query).fetchall()
        return tuple(found)

    assert row() == ("default", "analytics.sales", "orders", first, None)

    updates = [{"action": "set-properties", "updates": {"owner": "ops"}}]
    second = created(send(catalog, "POST", table, {"requirements": [], "updates": updates}))["metadata-location"]
    assert second != first
    assert row() == ("default", "analytics.sales", "orders", second, first)
    assert all(Path(location.removeprefix("file://")).is_file() for location in (first, second))

    stale = {"requirements": [{"type": "assert-current-schema-id", "current-schema-id": 9}], "updates": updates}
    assert send(catalog, "POST", table, stale).error == (409, "CommitFailedException")
    assert row() == ("default", "analytics.sales", "orders", second, first)


def test_namespace_properties_are_rows(catalog: RunningServer, database: sqlite3.Connection) -> None:
    """MISSION: 004-07"""
    body = {"namespace": ["analytics"], "properties": {"owner": "data-team", "format": "parquet"}}
    created(send(catalog, "POST", "/v1/namespaces", body))

    query = (
        "SELECT property_key, property_value FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?"
    )
    rows = dict(database.execute(query, ("default", "analytics")).fetchall())

    assert rows.items() >= {"owner": "data-team", "format": "parquet"}.items()


def test_tables_lie_below_the_warehouse_by_namespace(catalog: RunningServer) -> None:
    """The plain folder is a setting: tests/api/test_plain_locations.py."""
    created(send(catalog, "POST", "/v1/namespaces", {"namespace": ["analytics"]}))
    body = {"name": "orders", "schema": SCHEMA}
    metadata = created(send(catalog, "POST", "/v1/namespaces/analytics/tables", body))["metadata"]

    folder = f"analytics/orders-{metadata['table-uuid']}"
    assert metadata["location"] == f"{(catalog.data / 'warehouse').as_uri()}/{folder}"
