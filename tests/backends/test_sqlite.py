"""What is special about the SQLite file: its lock, settings and migrations, and the files of others it takes over."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from nunatak.database.migration_runner import MigrationFailed
from nunatak.database.sqlite import DatabaseInUse, SqliteStore, migrate, migrate_file
from nunatak.database.sqlite_writer import Writer
from nunatak.database.statements import read_migrations, read_statements
from nunatak.errors import ServiceUnavailable
from tests.api.wire import a_commit, ok, path_of, set_properties
from tests.backends.builders import CATALOG, create_namespace, insert, key, rename
from tests.backends.conftest import Run
from tests.support.catalogs.local import LocalCatalog

# As Iceberg's JdbcCatalog creates them: before views, and with them.
JDBC_V0 = """
CREATE TABLE iceberg_tables(catalog_name VARCHAR(255) NOT NULL,table_namespace VARCHAR(255) NOT NULL,
 table_name VARCHAR(255) NOT NULL,metadata_location VARCHAR(1000),previous_metadata_location VARCHAR(1000),
 PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE iceberg_namespace_properties(catalog_name VARCHAR(255) NOT NULL,namespace VARCHAR(255) NOT NULL,
 property_key VARCHAR(255),property_value VARCHAR(1000),PRIMARY KEY (catalog_name, namespace, property_key));
"""
JDBC_V1 = JDBC_V0.replace(
    "previous_metadata_location VARCHAR(1000),", "previous_metadata_location VARCHAR(1000),iceberg_type VARCHAR(5),"
)


def rows(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(sql, values).fetchall()


def schema_of(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2")


def test_a_second_server_on_the_same_file_refuses_to_start(tmp_path: Path, run: Run[Any]) -> None:
    """One writer by a file lock. MISSION: 004-18"""
    path = tmp_path / "catalog.db"
    store = SqliteStore(path)

    with pytest.raises(DatabaseInUse, match="another server already works on"):
        SqliteStore(path)
    with pytest.raises(DatabaseInUse):
        migrate_file(path)
    beside = SqliteStore(path, exclusive=False)  # for reading
    run(beside.close())
    run(store.close())
    run(SqliteStore(path).close())  # the lock went with its holder


def test_what_was_applied_is_there_after_a_restart(tmp_path: Path, run: Run[Any]) -> None:
    path = tmp_path / "catalog.db"
    store = SqliteStore(path)
    secret = run(store.secret("s"))
    run(store.apply([create_namespace(), insert("t")]))
    head = run(store.find_pointer(key("t"), None))
    run(store.close())

    again = SqliteStore(path)
    assert run(again.find_pointer(key("t"), None)) == head
    assert run(again.secret("s")) == secret
    run(again.close())


def test_every_connection_is_set_to_lose_nothing(
    tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less than FULL a power cut takes acknowledged commits."""
    opened: list[apsw.Connection] = []
    connect = apsw.Connection

    def remembered(*arguments: Any, **options: Any) -> apsw.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(apsw, "Connection", remembered)
    store = SqliteStore(tmp_path / "catalog.db")

    assert len(opened) == 2
    for connection in opened:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        assert connection.execute("PRAGMA synchronous").fetchall() == [(2,)]
        assert connection.execute("PRAGMA mmap_size").fetchall() == [(0,)]
    run(store.close())


def test_a_library_with_the_log_bug_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "SQLITE_VERSION_NUMBER", 3_040_001)

    with pytest.raises(RuntimeError, match="can corrupt its log"):
        SqliteStore(tmp_path / "catalog.db")


def test_migrations_are_applied_once(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"

    assert migrate_file(path) == [name for _, name, _ in read_migrations()]
    schema = schema_of(path)
    assert migrate_file(path) == []
    assert schema_of(path) == schema


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _, _ in read_migrations()] == list(range(1, len(read_migrations()) + 1))


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    rows(path, "CREATE TABLE nunatak_heads (in_the_way TEXT)")
    schema = schema_of(path)

    with pytest.raises(MigrationFailed, match="nunatak_heads"), closing(apsw.Connection(str(path))) as connection:
        migrate(connection)

    assert schema_of(path) == schema


class _Anything(dict[str, object]):
    """A value for whatever a statement asks for by name."""

    def __missing__(self, name: str) -> object:
        return 1


def explained(path: Path, name: str, how: str) -> list[tuple[Any, ...]]:
    """What SQLite makes of a statement, on a connection prepared like the writer's."""
    migrate_file(path)
    sql = read_statements()[name]
    with closing(apsw.Connection(str(path))) as connection:
        Writer(connection, read_statements(), {})
        return connection.execute(f"{how} {sql}", _Anything()).fetchall()


QUERIES = {name: sql for name, sql in read_statements().items() if sql and not sql.startswith("CREATE")}


@pytest.mark.parametrize("name", QUERIES)
def test_every_statement_can_be_prepared(tmp_path: Path, name: str) -> None:
    assert explained(tmp_path / "catalog.db", name, "EXPLAIN")


# Whatever is not asked for every request or every page may look at every row.
RARE = {
    "trim_reports",
    *("end_reader_leases", "oldest_events"),  # the second reads in the order of the key up to its limit
    *("all_members", "disabled_principals", "list_warehouses"),  # of administrators
    *("count_catalog", "tables_without_bytes", "count_pointers"),  # of backups
    *("keys_after", "points_at"),  # of fsck
    "audit_of_action",  # of verifying the seals
    "unknown_pointers",  # so many pointers and no more, of a subquery
}


ONE_ROW = "SCAN nunatak_policy"


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - RARE))
def test_what_is_asked_often_is_answered_by_an_index(tmp_path: Path, name: str) -> None:
    plan = [row[3] for row in explained(tmp_path / "catalog.db", name, "EXPLAIN QUERY PLAN")]

    scans = [line for line in plan if line.startswith(("SCAN iceberg", "SCAN nunatak", "SCAN t", "SCAN h"))]
    assert [line for line in scans if line != ONE_ROW] == []


def test_a_statement_is_compiled_once_whatever_values_it_is_given(tmp_path: Path, run: Run[Any]) -> None:
    """SQLite would compile most of them anew for each value, which takes several times as long as carrying them out."""
    store = SqliteStore(tmp_path / "catalog.db")
    compiled: list[object] = []

    def look_on(*what: object) -> int:
        compiled.append(what)
        return apsw.SQLITE_OK

    def ask(name: str) -> None:
        run(store.apply([create_namespace(name), insert("t", name)]))
        run(store.list_pointers(CATALOG, name, "TABLE", "", 10, "{"))
        run(store.list_namespaces(CATALOG, "", name, 10))
        run(store.find_namespace(CATALOG, name))
        run(store.inspect_pointer(key("t", name)))
        run(store.keys_after(key("t", name), 10))
        run(store.search_names(CATALOG, name, None, ("", name), 10))

    for connection in (store._reader, store._writer._connection):
        connection.authorizer = look_on  # asked whenever a statement is compiled
    ask("a")
    assert compiled
    compiled.clear()

    ask("b")

    assert compiled == []
    run(store.close())


def test_a_file_that_is_locked_for_long_is_answered_as_busy_and_nothing_is_lost(
    tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.database.sqlite_writer.BUSY_MS", 20)
    path = tmp_path / "catalog.db"
    store = SqliteStore(path)
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(ServiceUnavailable):
        run(store.apply([create_namespace()]))
    assert not run(store.namespace_exists(CATALOG, "ns"))  # reads go on
    holder.execute("ROLLBACK")
    run(store.apply([create_namespace()]))
    assert run(store.namespace_exists(CATALOG, "ns"))
    holder.close()
    run(store.close())


def test_a_caller_that_goes_away_does_not_take_its_change_back(tmp_path: Path, run: Run[Any]) -> None:
    path = tmp_path / "catalog.db"
    store = SqliteStore(path)
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")

    async def leave() -> None:
        waiting = asyncio.create_task(store.apply([create_namespace()]))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        holder.execute("ROLLBACK")
        await store.apply([])

    run(leave())
    assert run(store.namespace_exists(CATALOG, "ns"))
    holder.close()
    run(store.close())


def test_a_closed_store_refuses_changes(tmp_path: Path, run: Run[Any]) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    run(store.close())

    with pytest.raises(ServiceUnavailable, match="stopping"):
        run(store.apply([create_namespace()]))
    assert not any(thread.name == "sqlite-writer" for thread in threading.enumerate())


# Files that other catalogs made


@pytest.mark.parametrize("script", [JDBC_V0, JDBC_V1], ids=["before views", "with views"])
def test_a_jdbc_catalog_is_taken_over_in_place(tmp_path: Path, script: str) -> None:
    data = tmp_path / "data"
    source = LocalCatalog(tmp_path / "source", {"NUNATAK_ALLOWED_LOCATIONS": f"file://{tmp_path}"})
    source.namespace("ns")
    made = source.table("ns", "t", location=f"file://{data}/warehouse/t")
    source.close()
    data.mkdir(exist_ok=True)
    path = data / "nunatak.db"
    rows(path, script)
    columns = "catalog_name, table_namespace, table_name, metadata_location"
    rows(
        path, f"INSERT INTO iceberg_tables ({columns}) VALUES ('default', 'db.sub', 't', ?)", made["metadata-location"]
    )
    rows(path, "INSERT INTO iceberg_namespace_properties VALUES ('default', 'only', 'owner', 'ann')")

    catalog = LocalCatalog(data)
    try:
        assert ok(catalog.call("GET", "/v1/namespaces"))["namespaces"] == [["db"], ["only"]]
        assert ok(catalog.call("GET", "/v1/namespaces?parent=db"))["namespaces"] == [["db", "sub"]]
        assert ok(catalog.call("GET", path_of("only")))["properties"]["owner"] == "ann"
        listed = ok(catalog.call("GET", path_of(["db", "sub"], "tables")))["identifiers"]
        assert listed == [{"namespace": ["db", "sub"], "name": "t"}]
        path_to_table = path_of(["db", "sub"], "tables", "t")
        assert ok(catalog.call("GET", path_to_table))["metadata"] == made["metadata"]
        changed = ok(catalog.call("POST", path_to_table, a_commit(set_properties(a="b"))))
        catalog.view("only", "v")
    finally:
        catalog.close()
    read = rows(path, "SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE table_name = 't'")
    assert read == [(changed["metadata-location"], made["metadata-location"])]
    assert rows(path, "SELECT iceberg_type FROM iceberg_tables ORDER BY table_name") == [(None,), ("VIEW",)]


def test_a_pyiceberg_catalog_is_taken_over_in_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "warehouse").mkdir(parents=True)
    uri = f"sqlite:///{data}/nunatak.db"
    with closing(SqlCatalog("default", uri=uri, warehouse=f"file://{data}/warehouse")) as theirs:
        theirs.create_namespace(("db", "sub"), {"owner": "ann"})
        theirs.create_table(("db", "sub", "t"), Schema(NestedField(1, "id", LongType(), required=True)))

    catalog = LocalCatalog(data)
    try:
        table = ok(catalog.call("GET", path_of(["db", "sub"], "tables", "t")))
        assert table["metadata"]["schemas"][0]["fields"][0]["name"] == "id"
        assert ok(catalog.call("GET", path_of(["db", "sub"])))["properties"]["owner"] == "ann"
        ok(catalog.call("POST", path_of(["db", "sub"], "tables", "t"), a_commit(set_properties(by="us"))))
        catalog.namespace("ours")
        catalog.table("ours", "t2")
    finally:
        catalog.close()
    with closing(SqlCatalog("default", uri=uri, warehouse=f"file://{data}/warehouse")) as theirs:
        assert theirs.load_table(("db", "sub", "t")).properties["by"] == "us"
        assert theirs.list_tables("ours") == [("ours", "t2")]


def test_other_catalogs_in_the_same_file_are_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = data / "nunatak.db"
    rows(path, JDBC_V1)
    rows(path, "INSERT INTO iceberg_tables VALUES ('theirs', 'db', 't', 'file:///x', NULL, 'TABLE')")
    rows(path, "INSERT INTO iceberg_namespace_properties VALUES ('theirs', 'db', 'exists', 'true')")

    catalog = LocalCatalog(data)
    try:
        assert ok(catalog.call("GET", "/v1/namespaces"))["namespaces"] == []
        catalog.namespace("db")
        assert ok(catalog.call("GET", path_of("db", "tables")))["identifiers"] == []
        assert catalog.call("DELETE", path_of("db")).status == 204
    finally:
        catalog.close()
    assert rows(path, "SELECT * FROM iceberg_tables") == [("theirs", "db", "t", "file:///x", None, "TABLE")]
    assert rows(path, "SELECT catalog_name FROM iceberg_namespace_properties") == [("theirs",)]


def test_a_row_without_a_pointer_is_no_table(tmp_path: Path) -> None:
    """The column may be NULL; whatever client left such a row, the name is free."""
    catalog = LocalCatalog(tmp_path / "data")
    try:
        catalog.namespace("ns")
        catalog.rows("INSERT INTO iceberg_tables VALUES ('default', 'ns', 't', NULL, NULL, 'TABLE')")
        table = path_of("ns", "tables", "t")

        assert catalog.call("GET", table).error[:2] == (404, "NoSuchTableException")
        assert catalog.call("HEAD", table).status == 404
        assert catalog.table("ns", "t") == catalog.load("ns", "t")
        assert ok(catalog.call("GET", path_of("ns", "tables")))["identifiers"] == [{"namespace": ["ns"], "name": "t"}]
    finally:
        catalog.close()


def test_a_rename_onto_the_name_of_a_table_another_client_dropped_succeeds(tmp_path: Path) -> None:
    """What is remembered about the dropped table must not stand in the way."""

    async def scene() -> None:
        store = SqliteStore(tmp_path / "nunatak.db")
        try:
            await store.apply([create_namespace(), insert("old"), insert("new")])
            rows(tmp_path / "nunatak.db", "DELETE FROM iceberg_tables WHERE table_name = 'old'")
            await store.apply([rename(key("new"), key("old"))])
            assert await store.find_kind(key("old")) == "TABLE"
            assert await store.find_kind(key("new")) is None
        finally:
            await store.close()

    asyncio.run(scene())


def test_a_reader_migrates_a_file_only_while_no_server_works_on_it(tmp_path: Path, run: Run[Any]) -> None:
    path = tmp_path / "catalog.db"
    server = SqliteStore(path)
    with closing(apsw.Connection(str(path))) as older:
        older.execute("DELETE FROM nunatak_migrations WHERE number = 2; ALTER TABLE nunatak_jobs DROP COLUMN leased_by")

    with pytest.raises(DatabaseInUse):
        SqliteStore(path, exclusive=False)
    run(server.close())
    run(SqliteStore(path, exclusive=False).close())
    run(SqliteStore(path).close())
