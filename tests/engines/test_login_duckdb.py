"""DuckDB against a server that asks who you are: secrets, tokens that end, and what each may do."""

import itertools
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from tests.support.catalogs.principals import Login, outlive_token
from tests.support.catalogs.process import RunningServer

EXTENSIONS = ("avro", "httpfs", "iceberg")  # iceberg needs the other two, so they are loaded first
NAMES = itertools.count(1)
OSLO, BERGEN, BODO = (1, "Oslo"), (2, "Bergen"), (3, "Bodø")


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBPyConnection]:
    """DuckDB with the extensions of the installed wheels, loaded once; it never asks the network for one."""
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as connection:
        for name in EXTENSIONS:
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        yield connection


class Lake:
    """One attached catalog; `lake.` in a statement stands for its name."""

    def __init__(self, session: DuckDBPyConnection, name: str) -> None:
        self._session = session
        self.name = name

    def __call__(self, statement: str) -> list[tuple[object, ...]]:
        return self._session.execute(statement.replace("lake.", f"{self.name}.")).fetchall()

    def contents(self, table: str) -> list[tuple[object, ...]]:
        return self(f"FROM {table} ORDER BY ALL")


@contextmanager
def attached(engine: DuckDBPyConnection, server: RunningServer, options: str) -> Iterator[Lake]:
    name = f"lake_{next(NAMES)}"
    with closing(engine.cursor()) as session:
        session.execute(f"ATTACH '' AS {name} (TYPE iceberg, ENDPOINT '{server.uri}', {options})")
        yield Lake(session, name)
        session.execute(f"DETACH {name}")


@contextmanager
def logged_in(engine: DuckDBPyConnection, server: RunningServer, login: Login) -> Iterator[Lake]:
    """As the manual says: a secret with client id and secret, by which the catalog is attached."""
    client_id, client_secret = login.client
    secret = f"secret_{next(NAMES)}"
    engine.execute(
        f"CREATE SECRET {secret} (TYPE iceberg, CLIENT_ID '{client_id}', CLIENT_SECRET '{client_secret}', "
        f"OAUTH2_SERVER_URI '{server.token_uri}')"
    )
    with attached(engine, server, f"SECRET {secret}") as lake:
        yield lake
    engine.execute(f"DROP SECRET {secret}")


def a_name(what: str) -> str:
    return f"{what}_{uuid.uuid4().hex[:12]}"


def create_cities(lake: Lake) -> str:
    """A table that holds Oslo and Bergen, in a schema of its own."""
    schema = a_name("duckdb")
    lake(f"CREATE SCHEMA lake.{schema}")
    lake(f"CREATE TABLE lake.{schema}.cities (id BIGINT, city VARCHAR)")
    lake(f"INSERT INTO lake.{schema}.cities VALUES (1, 'Oslo'), (2, 'Bergen')")
    return schema


@pytest.fixture
def writer(secured: RunningServer) -> Login:
    return secured.principal(a_name("writer"), warehouse="WRITE")


@pytest.fixture
def lake(engine: DuckDBPyConnection, secured: RunningServer, writer: Login) -> Iterator[Lake]:
    with logged_in(engine, secured, writer) as opened:
        yield opened


@pytest.fixture
def schema(lake: Lake) -> str:
    return create_cities(lake)


# Logging in


def walk_through(lake: Lake) -> None:
    schema = create_cities(lake)
    lake(f"UPDATE lake.{schema}.cities SET city = 'Bryggen' WHERE id = 2")
    lake(f"DELETE FROM lake.{schema}.cities WHERE id = 1")
    lake(f"ALTER TABLE lake.{schema}.cities ADD COLUMN height DOUBLE")
    lake(f"CREATE TABLE lake.{schema}.copied AS FROM lake.{schema}.cities")

    assert lake.contents(f"lake.{schema}.copied") == [(2, "Bryggen", None)]
    lake(f"DROP TABLE lake.{schema}.cities")
    lake(f"DROP TABLE lake.{schema}.copied")
    lake(f"DROP SCHEMA lake.{schema}")


def test_a_secret_with_client_id_and_secret_lets_duckdb_work(lake: Lake) -> None:
    """A table from a query is staged: its location is the server's, though the commit names it. MISSION: 000-83"""
    walk_through(lake)


def test_the_client_may_be_named_where_the_catalog_is_attached(
    engine: DuckDBPyConnection, secured: RunningServer, writer: Login
) -> None:
    """Without an address for tokens DuckDB asks at the catalog's own."""
    client_id, client_secret = writer.client
    with attached(engine, secured, f"CLIENT_ID '{client_id}', CLIENT_SECRET '{client_secret}'") as lake:
        walk_through(lake)


def test_a_token_lets_duckdb_work(engine: DuckDBPyConnection, secured: RunningServer, writer: Login) -> None:
    with attached(engine, secured, f"TOKEN '{secured.token(writer)}'") as lake:
        walk_through(lake)


def test_an_api_key_lets_duckdb_work(engine: DuckDBPyConnection, secured: RunningServer, writer: Login) -> None:
    with attached(engine, secured, f"TOKEN '{writer.api_key}'") as lake:
        walk_through(lake)


def test_a_wrong_secret_is_refused_by_its_reason(
    engine: DuckDBPyConnection, secured: RunningServer, writer: Login
) -> None:
    with (
        pytest.raises(duckdb.Error, match="invalid_client - Unknown client or wrong secret"),
        attached(engine, secured, f"CLIENT_ID '{writer.client[0]}', CLIENT_SECRET 'guessed'"),
    ):
        pass


def test_nobody_is_let_in_without_credentials(engine: DuckDBPyConnection, secured: RunningServer) -> None:
    with pytest.raises(duckdb.Error, match="401"), attached(engine, secured, "AUTHORIZATION_TYPE 'none'"):
        pass


# Tokens that end


def test_work_goes_on_after_the_token_has_ended(engine: DuckDBPyConnection, hurried: RunningServer) -> None:
    """Between statements and within a transaction."""
    with logged_in(engine, hurried, hurried.principal(a_name("writer"), warehouse="WRITE")) as lake:
        table = f"lake.{create_cities(lake)}.cities"
        issued = hurried.tokens_issued()

        lake("BEGIN")
        lake(f"INSERT INTO {table} VALUES (3, 'Bodø')")
        outlive_token()
        lake("COMMIT")
        outlive_token()
        lake(f"DELETE FROM {table} WHERE id = 1")

        assert lake.contents(table) == [BERGEN, BODO]
        assert hurried.tokens_issued() - issued >= 2


def test_work_goes_on_after_all_tokens_were_taken_away(secured: RunningServer, lake: Lake, schema: str) -> None:
    """DuckDB does not know that its token is worth nothing: the 401 makes it ask for another one."""
    turned_away = secured.turned_away()
    secured.end_all_tokens()
    lake(f"INSERT INTO lake.{schema}.cities VALUES (3, 'Bodø')")

    assert lake.contents(f"lake.{schema}.cities") == [OSLO, BERGEN, BODO]
    assert secured.turned_away() > turned_away


def test_a_token_that_cannot_be_replaced_ends_with_its_reason(
    engine: DuckDBPyConnection, hurried: RunningServer
) -> None:
    writer = hurried.principal(a_name("writer"), warehouse="WRITE")
    with logged_in(engine, hurried, writer) as lake:
        schema = create_cities(lake)
    with attached(engine, hurried, f"TOKEN '{hurried.token(writer)}'") as lake:
        outlive_token()
        with pytest.raises(duckdb.Error, match="The access token has expired"):
            lake(f"FROM lake.{schema}.cities")


# What each may do


def test_a_reader_reads_and_is_refused_everything_else(
    engine: DuckDBPyConnection, secured: RunningServer, lake: Lake, schema: str
) -> None:
    """DuckDB shows our message with the privilege that is missing. MISSION: 000-78"""
    reader = secured.principal(a_name("reader"), **{schema: "READ"})
    with logged_in(engine, secured, reader) as mine:
        assert mine.contents(f"lake.{schema}.cities") == [OSLO, BERGEN]

        for privilege, statement in (
            ("TABLE_WRITE", f"INSERT INTO lake.{schema}.cities VALUES (3, 'Bodø')"),
            ("TABLE_WRITE", f"DELETE FROM lake.{schema}.cities WHERE id = 1"),
            ("TABLE_CREATE", f"CREATE TABLE lake.{schema}.own (id BIGINT)"),
            ("TABLE_CREATE", f"CREATE TABLE lake.{schema}.own AS SELECT 1 AS id"),
            ("TABLE_DROP", f"DROP TABLE lake.{schema}.cities"),
            ("NS_CREATE", f"CREATE SCHEMA lake.{a_name('own')}"),
        ):
            with pytest.raises(duckdb.Error, match=f"{reader.name} lacks {privilege}"):
                mine(statement)

    assert lake.contents(f"lake.{schema}.cities") == [OSLO, BERGEN]


def test_whoever_was_granted_nothing_finds_nothing(
    engine: DuckDBPyConnection, secured: RunningServer, schema: str
) -> None:
    """Neither tables nor namespaces are shown."""
    stranger = secured.principal(a_name("stranger"))
    with (
        logged_in(engine, secured, stranger) as lake,
        pytest.raises(duckdb.CatalogException, match="does not exist"),
    ):
        lake(f"FROM lake.{schema}.cities")


def test_lists_hold_only_what_the_caller_sees(
    engine: DuckDBPyConnection, secured: RunningServer, lake: Lake, schema: str
) -> None:
    lake(f"CREATE TABLE lake.{schema}.hidden (id BIGINT)")
    lake(f"CREATE SCHEMA lake.{a_name('elsewhere')}")
    guest = secured.principal(a_name("guest"))
    secured.grant_on(guest.name, f"table:default/{schema}/cities", "READ")

    with logged_in(engine, secured, guest) as mine:
        shown = mine(f"SELECT schema, name FROM (SHOW ALL TABLES) WHERE database = '{mine.name}'")
        assert shown == [(schema, "cities")]
        assert mine.contents(f"lake.{schema}.cities") == [OSLO, BERGEN]


def test_the_creator_may_drop_a_table_and_another_writer_may_not(
    engine: DuckDBPyConnection, secured: RunningServer, lake: Lake, schema: str
) -> None:
    with logged_in(engine, secured, secured.principal(a_name("writer"), warehouse="WRITE")) as other:
        other(f"INSERT INTO lake.{schema}.cities VALUES (3, 'Bodø')")
        with pytest.raises(duckdb.Error, match="lacks TABLE_DROP"):
            other(f"DROP TABLE lake.{schema}.cities")

    assert lake.contents(f"lake.{schema}.cities") == [OSLO, BERGEN, BODO]
    lake(f"DROP TABLE lake.{schema}.cities")
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        lake.contents(f"lake.{schema}.cities")


def test_one_transaction_needs_the_right_on_every_table(
    engine: DuckDBPyConnection, secured: RunningServer, lake: Lake, schema: str
) -> None:
    """One table is granted and one is not: neither changes. MISSION: 000-85"""
    lake(f"CREATE TABLE lake.{schema}.log (line VARCHAR)")
    clerk = secured.principal(a_name("clerk"), **{schema: "READ"})
    secured.grant_on(clerk.name, f"table:default/{schema}/cities", "TABLE_WRITE")

    with logged_in(engine, secured, clerk) as mine:
        mine("BEGIN")
        mine(f"INSERT INTO lake.{schema}.cities VALUES (3, 'Bodø')")
        mine(f"INSERT INTO lake.{schema}.log VALUES ('Bodø came')")
        with pytest.raises(duckdb.Error, match=f"lacks TABLE_WRITE on table:default/{schema}/log"):
            mine("COMMIT")
        assert mine.contents(f"lake.{schema}.cities") == [OSLO, BERGEN]

        mine(f"INSERT INTO lake.{schema}.cities VALUES (3, 'Bodø')")

    assert lake.contents(f"lake.{schema}.cities") == [OSLO, BERGEN, BODO]
    assert lake.contents(f"lake.{schema}.log") == []
