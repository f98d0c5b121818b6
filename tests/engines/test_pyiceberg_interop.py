"""PyIceberg's SqlCatalog and Nunatak on one SQLite file: each sees, and safely continues, what the other did."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.types import LongType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tests.support.catalogs.process import RunningServer, running_server

CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])
NO_RETRIES = {"commit.retry.num-retries": "0"}


def open_file(data: Path, name: str = "default") -> SqlCatalog:
    """The catalog `name` in the server's database file, opened beside the server."""
    return SqlCatalog(name, uri=f"sqlite:///{data}/nunatak.db", warehouse=(data / "warehouse").as_uri())


@pytest.fixture
def rest(shared_server: RunningServer) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=shared_server.uri)) as opened:
        yield opened


@pytest.fixture
def sql(shared_server: RunningServer) -> Iterator[SqlCatalog]:
    with closing(open_file(shared_server.data)) as opened:
        yield opened


@pytest.fixture
def namespace(rest: RestCatalog) -> str:
    name = f"interop_{uuid.uuid4().hex[:12]}"
    rest.create_namespace(name, {"owner": "data-team"})
    return name


def rows(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "city": f"city {number}"} for number in numbers], schema=CITIES)


def numbers(catalog: Catalog, name: tuple[str, ...]) -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


def test_sqlcatalog_sees_what_nunatak_made(rest: RestCatalog, sql: SqlCatalog, namespace: str) -> None:
    """SqlCatalog reads the database itself, without a service. MISSION: 004-02, 004-04, 004-05, 004-07, 004-23"""
    rest.create_namespace((namespace, "gold"))
    made = rest.create_table((namespace, "gold", "cities"), CITIES, properties={"owner": "ops"})
    made.append(rows(1, 2))

    assert (namespace,) in sql.list_namespaces()
    assert sql.load_namespace_properties(namespace)["owner"] == "data-team"
    assert sql.list_namespaces(namespace) == [(namespace, "gold")]
    assert sql.list_tables((namespace, "gold")) == [(namespace, "gold", "cities")]
    seen = sql.load_table((namespace, "gold", "cities"))
    assert seen.metadata == rest.load_table(made.name()).metadata
    assert numbers(sql, made.name()) == [1, 2]


def test_nunatak_serves_what_sqlcatalog_made_and_commits_on_top(
    rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    """MISSION: 004-25"""
    sql.create_namespace((namespace, "own"), {"owner": "sql"})
    made = sql.create_table((namespace, "own", "cities"), CITIES, properties={"owner": "sql"})
    made.append(rows(1))

    assert rest.load_namespace_properties((namespace, "own"))["owner"] == "sql"
    assert rest.list_namespaces(namespace) == [(namespace, "own")]
    assert rest.list_tables((namespace, "own")) == [(namespace, "own", "cities")]
    served = rest.load_table(made.name())
    assert served.metadata == made.metadata
    served.append(rows(2))
    with served.update_schema() as update:
        update.add_column("height", LongType())

    assert numbers(sql, made.name()) == [1, 2]
    assert [field.name for field in sql.load_table(made.name()).schema().fields] == ["id", "city", "height"]


def test_a_commit_of_either_side_is_seen_by_the_other_at_once(
    rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    """MISSION: 004-09, 004-13"""
    name = (namespace, "cities")
    rest.create_table(name, CITIES)
    for number in range(0, 6, 2):
        rest.load_table(name).append(rows(number))
        assert numbers(sql, name) == list(range(number + 1))
        sql.load_table(name).append(rows(number + 1))
        assert numbers(rest, name) == list(range(number + 2))

    assert rest.load_table(name).metadata_location == sql.load_table(name).metadata_location
    assert len(rest.load_table(name).snapshots()) == 6


def test_a_cached_answer_is_not_confirmed_after_a_commit_from_outside(
    shared_server: RunningServer, rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    rest.create_table((namespace, "cities"), CITIES)
    url = f"{shared_server.uri}/v1/namespaces/{namespace}/tables/cities"
    first = requests.get(url, timeout=30)
    assert requests.get(url, headers={"If-None-Match": first.headers["ETag"]}, timeout=30).status_code == 304

    sql.load_table((namespace, "cities")).append(rows(1))

    second = requests.get(url, headers={"If-None-Match": first.headers["ETag"]}, timeout=30)
    assert second.status_code == 200
    assert second.json()["metadata-location"] == sql.load_table((namespace, "cities")).metadata_location
    assert requests.get(url, headers={"If-None-Match": second.headers["ETag"]}, timeout=30).status_code == 304


@pytest.mark.parametrize("winner", ["rest", "sql"])
def test_of_two_interleaved_appends_the_loser_gets_a_conflict(
    rest: RestCatalog, sql: SqlCatalog, namespace: str, winner: str
) -> None:
    """MISSION: 000-36, 003-22, 004-12, 004-14, 004-15"""
    name = (namespace, "cities")
    rest.create_table(name, CITIES, properties=NO_RETRIES).append(rows(1))
    first, second = (rest.load_table(name), sql.load_table(name))
    if winner == "sql":
        first, second = second, first

    first.append(rows(2))
    with pytest.raises(CommitFailedException):
        second.append(rows(3))

    assert numbers(rest, name) == numbers(sql, name) == [1, 2]
    second.refresh().append(rows(3))
    assert numbers(rest, name) == numbers(sql, name) == [1, 2, 3]


def test_writers_of_both_kinds_at_once_lose_nothing(
    shared_server: RunningServer, rest: RestCatalog, namespace: str
) -> None:
    """MISSION: 000-36, 004-14, 004-18"""
    appends = 4
    patience = {"commit.retry.num-retries": "60", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "200"}
    name = (namespace, "cities")
    rest.create_table(name, CITIES, properties=patience)
    openers: list[Callable[[], Catalog]] = [
        lambda: RestCatalog("lake", uri=shared_server.uri),
        lambda: open_file(shared_server.data),
        lambda: RestCatalog("lake", uri=shared_server.uri),
        lambda: open_file(shared_server.data),
    ]
    failures: list[Exception] = []
    start = threading.Barrier(len(openers))

    def write(writer: int) -> None:
        try:
            with closing(openers[writer]()) as own:
                table = own.load_table(name)
                start.wait(30)
                for number in range(appends):
                    table.append(rows(writer * appends + number))
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(len(openers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert failures == []
    assert numbers(rest, name) == list(range(len(openers) * appends))
    assert len(rest.load_table(name).snapshots()) == len(openers) * appends


def test_renames_and_drops_of_either_side_are_seen_by_the_other(
    rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    rest.create_table((namespace, "a"), CITIES).append(rows(1))
    sql.rename_table((namespace, "a"), (namespace, "b"))
    assert rest.list_tables(namespace) == [(namespace, "b")]
    assert numbers(rest, (namespace, "b")) == [1]

    rest.rename_table((namespace, "b"), (namespace, "c"))
    assert numbers(sql, (namespace, "c")) == [1]

    sql.drop_table((namespace, "c"))
    with pytest.raises(NoSuchTableError):
        rest.load_table((namespace, "c"))

    sql.create_table((namespace, "c"), CITIES)
    rest.drop_table((namespace, "c"))
    assert not sql.table_exists((namespace, "c"))


def test_a_table_dropped_and_made_again_outside_is_served_as_the_new_one(
    rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    name = (namespace, "cities")
    old: Table = rest.create_table(name, CITIES, properties=NO_RETRIES)
    old.append(rows(1))
    sql.drop_table(name)
    new = sql.create_table(name, CITIES, location=f"{old.location()}-again")

    assert rest.load_table(name).metadata.table_uuid == new.metadata.table_uuid
    assert numbers(rest, name) == []
    with pytest.raises(CommitFailedException):
        old.append(rows(2))


def test_each_side_refuses_a_name_that_the_other_has_taken(rest: RestCatalog, sql: SqlCatalog, namespace: str) -> None:
    rest.create_table((namespace, "mine"), CITIES)
    with pytest.raises(TableAlreadyExistsError):
        sql.create_table(
            (namespace, "mine"), CITIES, location=f"{rest.load_table((namespace, 'mine')).location()}-other"
        )

    sql.create_table((namespace, "yours"), CITIES)
    with pytest.raises(TableAlreadyExistsError):
        rest.create_table((namespace, "yours"), CITIES)
    with pytest.raises(NamespaceNotEmptyError):
        rest.drop_namespace(namespace)


def test_namespace_properties_are_shared(rest: RestCatalog, sql: SqlCatalog, namespace: str) -> None:
    """MISSION: 004-07"""
    sql.update_namespace_properties(namespace, removals={"owner"}, updates={"format": "parquet"})
    properties = rest.load_namespace_properties(namespace)
    assert properties["format"] == "parquet"
    assert "owner" not in properties

    rest.update_namespace_properties(namespace, updates={"format": "orc"})
    assert sql.load_namespace_properties(namespace)["format"] == "orc"


def test_a_namespace_that_nunatak_made_without_properties_exists_for_sqlcatalog(
    rest: RestCatalog, sql: SqlCatalog
) -> None:
    name = f"interop_{uuid.uuid4().hex[:12]}"
    rest.create_namespace(name)

    assert sql.namespace_exists(name)
    assert (name,) in sql.list_namespaces()
    sql.drop_namespace(name)
    assert not rest.namespace_exists(name)


def test_views_are_no_tables_for_sqlcatalog(rest: RestCatalog, sql: SqlCatalog, namespace: str) -> None:
    representation = ViewRepresentation(
        root=SQLViewRepresentation(type="sql", sql="SELECT 1 AS id, 'x' AS city", dialect="spark")
    )
    version = ViewVersion(version_id=1, schema_id=0, representations=[representation], default_namespace=(namespace,))
    rest.create_view((namespace, "some"), CITIES, version)

    assert sql.list_tables(namespace) == []
    with pytest.raises(NoSuchTableError):
        sql.load_table((namespace, "some"))


def test_another_catalog_in_the_same_file_stays_apart(
    shared_server: RunningServer, rest: RestCatalog, sql: SqlCatalog, namespace: str
) -> None:
    """MISSION: 004-06"""
    with closing(open_file(shared_server.data, "staging")) as staging:
        staging.create_namespace(f"{namespace}_staging")
        staging.create_table((f"{namespace}_staging", "cities"), CITIES)
        assert staging.list_tables(namespace + "_staging") == [(f"{namespace}_staging", "cities")]
        assert (namespace,) not in staging.list_namespaces()

    assert not rest.namespace_exists(f"{namespace}_staging")
    assert not rest.table_exists((f"{namespace}_staging", "cities"))


def test_a_sqlcatalog_becomes_a_rest_catalog_in_place(tmp_path: Path) -> None:
    """The database existed before Nunatak; only the client's configuration changes. MISSION: 004-03, 004-25"""
    data = tmp_path / "nunatak-data"
    (data / "warehouse").mkdir(parents=True)
    with closing(open_file(data)) as before:
        before.create_namespace("sales", {"owner": "data-team"})
        before.create_table(("sales", "cities"), CITIES).append(rows(1))

    with running_server(data) as server, closing(RestCatalog("lake", uri=server.uri)) as rest:
        assert rest.list_namespaces() == [("sales",)]
        assert rest.load_namespace_properties("sales")["owner"] == "data-team"
        rest.load_table(("sales", "cities")).append(rows(2))

    with closing(open_file(data)) as after:
        assert numbers(after, ("sales", "cities")) == [1, 2]
