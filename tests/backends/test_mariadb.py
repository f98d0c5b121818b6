"""What is special about MariaDB: round trips, races of several servers, lost connections, databases of others."""

import asyncio
import contextlib
import re
import subprocess
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pymysql
import pytest

from nunatak.access.audit_rows import audit_row
from nunatak.database import mariadb_connections
from nunatak.database.mariadb import MariadbStore, migrate_url, open_store
from nunatak.database.mariadb_connections import BYTE_ORDER, MariadbSession, Unsuitable, read_url
from nunatak.database.migration_runner import MigrationInterrupted
from nunatak.database.records import AddJob, Change, SaveAnswer, StoredResponse
from nunatak.database.statements import in_named_style, read_migrations, read_statements
from nunatak.database.store import KeyTaken, PointerMoved
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    NamespaceNotEmpty,
    NoSuchNamespace,
    OutcomeUnknown,
    ServiceUnavailable,
)
from tests.backends.builders import (
    CATALOG,
    create_namespace,
    delete,
    drop_namespace,
    insert,
    key,
    move,
    rename,
    stored,
    update_namespace,
)
from tests.backends.conftest import Run
from tests.support.found import await_true
from tests.support.mariadb import PASSWORD, USER, MariadbServer, connect, running_mariadb
from tests.support.mariadb_proxy import MariadbProxy, Wanted, ends_with, holds, mariadb_proxy
from tests.support.postgres_proxy import Cut

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


@pytest.fixture
def database(mariadb_database: str) -> str:
    return mariadb_database


@pytest.fixture
def store(database: str, run: Run[Any]) -> Iterator[MariadbStore]:
    opened = run(open_store(database))
    yield opened
    run(opened.close())


@pytest.fixture
def full(store: MariadbStore, run: Run[Any]) -> MariadbStore:
    """Namespace `ns` with the table `t`."""
    run(store.apply([create_namespace(), insert("t")]))
    return store


@pytest.fixture
def second(database: str, full: MariadbStore, run: Run[Any]) -> Iterator[MariadbStore]:
    """Another server on the same database."""
    opened = run(open_store(database))
    yield opened
    run(opened.close())


async def pointer(store: MariadbStore, name: str = "t") -> str | None:
    head = await store.find_pointer(key(name), None)
    return None if head is None else head.metadata_location


# Statements


NOT_FOR_MARIADB = {"count_catalog"}  # no backup


def test_every_statement_that_is_used_can_be_prepared(
    store: MariadbStore, mariadb: MariadbServer, database: str
) -> None:
    refused = {}
    for name, sql in read_statements("mariadb").items():
        if not sql:
            continue
        text = re.sub(r":\w+", "?", re.sub(r"IN :\w+", "IN (?)", sql.rstrip(";"))).replace("'", "''")
        mode = f"SET sql_mode = '{mariadb_connections.SQL_MODE}'"
        try:
            mariadb.execute(f"{mode}; PREPARE it FROM '{text}'", url=database)
        except pymysql.MySQLError as error:
            refused[name] = str(error)

    assert set(refused) == NOT_FOR_MARIADB, refused


def test_names_of_parameters_become_the_drivers_and_percents_stay() -> None:
    assert in_named_style("SELECT :a, 5 % :b, @x := :a WHERE c = 'd:e';") == (
        "SELECT %(a)s, 5 %% %(b)s, @x := %(a)s WHERE c = 'd:e'",
        ("a", "b"),
    )


# Names


def test_names_that_differ_in_case_or_a_trailing_space_are_different(full: MariadbStore, run: Run[Any]) -> None:
    """The database's default would fold all of them into one."""
    names = ["T", "t ", "t\0", "ｔ", "t\N{COMBINING ACUTE ACCENT}"]
    run(full.apply([insert(name) for name in names]))

    text, _, _ = run(full.list_pointers(CATALOG, "ns", "TABLE", "", 100, "{"))
    assert text.count("{") == 6
    for name in names:
        assert run(pointer(full, name)) == insert(name).new.metadata_location
    shouted = insert("t", location="FILE:///w/ns/t").new
    with pytest.raises(PointerMoved):
        run(full.apply([move("t", shouted, stored("v2"))]))


@pytest.mark.parametrize(
    "name", ["it's", 'a"b', "back\\slash", "per%cent", "%(x)s", "semi;colon", "-- x", "/* */", "?", "`"]
)
def test_a_name_is_never_taken_for_sql(full: MariadbStore, run: Run[Any], name: str) -> None:
    run(full.apply([insert(name), update_namespace("ns", **{name: name})]))

    assert run(full.find_kind(key(name))) == "TABLE"
    assert run(full.find_namespace(CATALOG, "ns")) == {name: name}


def test_a_value_the_columns_cannot_hold_is_refused(full: MariadbStore, run: Run[Any]) -> None:
    with pytest.raises(BadRequest, match="cannot keep"):
        run(full.apply([create_namespace("p", long="x" * 1001)]))
    with pytest.raises(BadRequest, match="cannot keep"):
        run(full.apply([create_namespace("p" * 256)]))
    assert not run(full.namespace_exists(CATALOG, "p"))


def test_bytes_that_do_not_fit_into_a_packet_are_left_to_the_file(
    database: str, mariadb: MariadbServer, run: Run[Any]
) -> None:
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        store = run(open_store(database))
        run(store.apply([create_namespace(), insert("t")]))
        fits, does_not = stored("v2", content=b"x" * 400_000), stored("v3", content=b"x" * 600_000)
        run(store.apply([move("t", insert("t").new, fits)]))
        assert run(store.find_pointer(key("t"), None)).content == fits.content
        run(store.apply([move("t", fits, does_not)]))
        assert run(store.find_pointer(key("t"), None)).content is None
        many = {f"p{number}": "x" * 999 for number in range(2000)}
        run(store.apply([create_namespace("many", **many)]))  # in several packets
        assert run(store.find_namespace(CATALOG, "many")) == many
        with pytest.raises(BadRequest, match="max_allowed_packet"):
            run(store.apply([AddJob("delete-files", b"x" * 600_000)]))
        run(store.close())
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = DEFAULT")


def test_children_of_a_namespace_with_many_descendants_take_few_round_trips(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    rows = ",".join(f"('default', 'big.n{number}', 'exists', 'true')" for number in range(5000))
    mariadb.execute(f"INSERT INTO iceberg_namespace_properties VALUES {rows}", url=database)

    async def count() -> tuple[Any, int]:
        async with mariadb_proxy(mariadb.port) as proxy:
            store = await through(proxy, database)
            await store.find_kind(key("t"))
            before = proxy.round_trips
            children = await store.list_namespaces(CATALOG, "", "", 100)
            trips = proxy.round_trips - before
            await store.close()
            return children, trips

    assert run(count()) == ((["big", "ns"], None), 2)


# Round trips


async def through(proxy: MariadbProxy, database: str) -> MariadbStore:
    name = urlsplit(database).path
    return await open_store(f"mariadb://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{proxy.port}{name}", pool_size=2)


def test_a_load_and_a_commit_are_one_round_trip_each(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    async def count() -> list[int]:
        async with mariadb_proxy(mariadb.port) as proxy:
            store = await through(proxy, database)
            await store.find_kind(key("t"))
            versions = [insert("t").new, *(stored(f"v{number}") for number in range(2, 5))]
            key_kept = SaveAnswer("ann", "k", b"h", StoredResponse(200, metadata_location="x"), 0, 10)
            extra: list[list[Change]] = [[], [AddJob("delete-files", b"{}")], [key_kept]]
            seen = []
            for number, more in enumerate(extra):
                before = proxy.round_trips
                await store.find_pointer(key("t"), None)
                loaded = proxy.round_trips
                await store.apply([move("t", versions[number], versions[number + 1]), *more])
                seen += [loaded - before, proxy.round_trips - loaded]
            await store.close()
            return seen

    assert run(count()) == [1] * 6


# One statement at a time


HOSTILE_TEXTS = (
    "'; DROP TABLE iceberg_tables; -- ",
    "\\'; DROP TABLE iceberg_tables; -- ",
    'a"b`c\\',
    "x\x1ay",
    "日本'\\語;",
)


def test_a_second_statement_is_refused(full: MariadbStore, run: Run[Any]) -> None:
    def twice(session: MariadbSession) -> object:
        return session.statement("SELECT 1; SELECT 2")

    def after_a_batch(session: MariadbSession) -> object:
        session.batch([("begin_transaction", {}), ("commit_transaction", {})])
        return session.statement("SELECT 1; SELECT 2")

    def after_a_batch_that_failed(session: MariadbSession) -> object:
        with pytest.raises(pymysql.Error):
            session.script("SELECT 1; SELECT nothing; SELECT 3")
        return session.statement("SELECT 1; SELECT 2")

    for attempt in (twice, after_a_batch, after_a_batch_that_failed):
        with pytest.raises(pymysql.err.ProgrammingError, match="syntax"):
            run(full._connections.call(attempt))


def test_a_session_is_of_use_after_a_batch_that_failed(full: MariadbStore, run: Run[Any]) -> None:
    def failed_and_asked(session: MariadbSession) -> object:
        with pytest.raises(pymysql.Error):
            session.script("SELECT 1; SELECT nothing; SELECT 3")
        return session.statement("SELECT 4").rows

    assert run(full._connections.call(failed_and_asked)) == ((4,),)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_text_that_could_end_a_literal_is_sent_as_digits(full: MariadbStore, run: Run[Any], text: str) -> None:
    def sent(session: MariadbSession) -> bytes:
        return session._text("save_secret", {"name": text, "value": b"x"})

    statement = run(full._connections.call(sent))
    assert text.encode().hex().encode() in statement
    assert statement.count(b"'") == 4, "no literal has a quote inside it"

    run(full.apply([create_namespace(text, key=text)]))
    assert run(full.find_namespace(CATALOG, text)) == {"key": text}
    assert run(full.list_namespaces(CATALOG, "", "", 100))[0].count(text) == 1
    assert run(full.find_kind(key("t"))) == "TABLE", "it is still there"


# Several servers


def test_servers_that_start_together_migrate_once(database: str, run: Run[Any]) -> None:
    async def start() -> list[list[str]]:
        return await asyncio.gather(*(migrate_url(database) for _ in range(5)))

    applied = run(start())

    assert sorted(applied, key=len) == [[]] * 4 + [[name for _, name, _ in read_migrations("mariadb")]]
    assert run(migrate_url(database)) == []


def test_all_databases_have_the_same_migrations_in_order() -> None:
    assert [(number, name) for number, name, _ in read_migrations("mariadb")] == [
        (number, name) for number, name, _ in read_migrations("sqlite")
    ]


def test_a_migration_that_was_interrupted_anywhere_is_carried_on(mariadb: MariadbServer, run: Run[Any]) -> None:
    """Definitions cannot be undone here; so every one of them may be run again."""
    steps = [step for _, _, sql in read_migrations("mariadb") for step in sql.split(";\n") if step.strip()]
    for count in range(len(steps)):
        database = mariadb.new_database()
        if count:
            mariadb.execute(";\n".join(steps[:count]), url=database)
        store = run(open_store(database))
        run(store.apply([create_namespace(), insert("t")]))
        assert run(pointer(store)) == insert("t").new.metadata_location
        run(store.close())


def test_a_migration_that_is_not_allowed_says_so_and_keeps_no_lock(mariadb: MariadbServer, run: Run[Any]) -> None:
    database = mariadb.url("else_where")
    mariadb.execute(f"CREATE DATABASE else_where; GRANT SELECT, CREATE, INSERT ON else_where.* TO {USER}@localhost")

    with pytest.raises(MigrationInterrupted, match=r"0001_catalog could not be finished.*ALTER"):
        run(open_store(database))

    mariadb.execute(f"GRANT ALL ON else_where.* TO {USER}@localhost")
    run(run(open_store(database)).close())


def test_a_migration_gives_way_to_whoever_holds_a_table_and_comes_again(
    mariadb: MariadbServer, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb_connections, "LOCK_SECONDS", 1)
    monkeypatch.setattr("nunatak.database.migration_runner.PAUSE_SECONDS", 0.1)
    mariadb.execute(JDBC_V1, url=database)

    async def meet() -> list[str]:
        with contextlib.closing(connect(database, autocommit=False)) as theirs:
            theirs.cursor().execute("SELECT * FROM iceberg_tables")  # and their transaction is not over
            ours = asyncio.create_task(migrate_url(database))
            await asyncio.wait([ours], timeout=1.5)
            assert not ours.done()
        return await ours

    assert run(meet()) == [name for _, name, _ in read_migrations("mariadb")]


def test_what_one_server_wrote_the_other_reads(full: MariadbStore, second: MariadbStore, run: Run[Any]) -> None:
    assert run(pointer(second)) == insert("t").new.metadata_location
    assert run(second.secret("page-token")) == run(full.secret("page-token"))


def test_of_many_on_two_servers_who_move_one_pointer_one_succeeds(
    full: MariadbStore, second: MariadbStore, run: Run[Any]
) -> None:
    async def race() -> list[Any]:
        before = insert("t").new
        moves = [(full, second)[n % 2].apply([move("t", before, stored(f"v{n}"))]) for n in range(2, 22)]
        return await asyncio.gather(*moves, return_exceptions=True)

    outcomes = run(race())

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [PointerMoved] * 19


def test_of_many_on_two_servers_who_use_one_key_one_succeeds(
    full: MariadbStore, second: MariadbStore, run: Run[Any]
) -> None:
    """Each moves a table of its own, so that only the key is fought for; the losers change nothing."""
    names = [f"n{number}" for number in range(8)]
    run(full.apply([insert(name) for name in names]))

    async def race() -> list[Any]:
        saved = [SaveAnswer("ann", "k", name.encode(), StoredResponse(204), 0, 100) for name in names]
        moves = [move(name, insert(name).new, stored("v2", location=f"file:///w/ns/{name}")) for name in names]
        works = [(full, second)[n % 2].apply([moves[n], saved[n]]) for n in range(8)]
        return await asyncio.gather(*works, return_exceptions=True)

    outcomes = run(race())

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [KeyTaken] * 7
    moved = [name for name in names if (run(pointer(full, name)) or "").endswith("v2.json")]
    assert [run(full.find_answer("ann", "k", 0)).request_hash.decode()] == moved


def test_commits_to_several_tables_in_any_order_do_not_hinder_each_other(
    full: MariadbStore, second: MariadbStore, mariadb: MariadbServer, run: Run[Any]
) -> None:
    """Rows are locked in one order, so there is no deadlock to be resolved; all or nothing holds for each."""
    run(full.apply([insert("u")]))
    deadlocks = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"
    before = mariadb.execute(deadlocks)

    async def commit(store: MariadbStore, names: tuple[str, str], version: str) -> None:
        for number in range(15):
            heads = {name: await pointer(store, name) for name in names}
            changes = []
            for name in names:
                new = stored(f"{version}-{number}", location=f"file:///w/ns/{name}")
                changes.append(move(name, stored().__class__(heads[name] or "", "", "", None), new))
            with contextlib.suppress(PointerMoved):
                await store.apply(changes)

    async def race() -> None:
        await asyncio.gather(
            *(commit((full, second)[n % 2], ("t", "u") if n % 2 else ("u", "t"), f"w{n}") for n in range(6))
        )

    run(race())
    ends = [(run(pointer(full, name)) or "").rpartition("/")[2] for name in ("t", "u")]
    assert ends[0] == ends[1] != "v1.json"
    assert mariadb.execute(deadlocks) == before


MAX_CHECKS = 200
LOOK_SECONDS = 0.15  # the server makes its list of transactions anew only if nobody looked for a tenth


async def held_back(
    mariadb: MariadbServer, database: str, table: str, works: list[Coroutine[Any, Any, Any]]
) -> list[Any]:
    """Their outcomes, when all have looked and none has written before any may: writing to `table` waits."""
    waiting = (
        "SELECT (SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%')"
        " + (SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT')"
    )
    with contextlib.closing(connect(database)) as holder:
        holder.query(f"LOCK TABLES {table} READ")
        tasks = [asyncio.create_task(work) for work in works]
        for _ in range(MAX_CHECKS):
            if await asyncio.to_thread(mariadb.execute, waiting) == [(len(works),)]:
                break
            await asyncio.sleep(LOOK_SECONDS)
        else:
            raise AssertionError("somebody did not wait")
        holder.query("UNLOCK TABLES")
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("drop_first", [False, True])
def test_a_table_is_created_or_its_namespace_dropped_but_not_both(
    full: MariadbStore, second: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], drop_first: bool
) -> None:
    run(full.apply([create_namespace("empty")]))
    works = [full.apply([insert("x", "empty")]), second.apply([drop_namespace("empty")])]

    outcomes = run(held_back(mariadb, database, "iceberg_namespace_properties", works[::-1] if drop_first else works))

    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(failed) == 1
    assert isinstance(failed[0], NoSuchNamespace | NamespaceNotEmpty)
    assert run(full.namespace_exists(CATALOG, "empty")) == isinstance(failed[0], NamespaceNotEmpty)


def test_of_tables_whose_folders_touch_one_is_created(
    full: MariadbStore, second: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    places = ["file:///w/deep", "file:///w/deep/er", "file:///w/deep/er/still", "file:///w/deep"]
    creates = [(full, second)[n % 2].apply([insert(f"n{n}", location=place)]) for n, place in enumerate(places)]

    outcomes = run(held_back(mariadb, database, "nunatak_heads", creates))

    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [BadRequest] * 3


def test_of_many_who_create_one_namespace_one_succeeds(
    full: MariadbStore, second: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    creates = [(full, second)[n % 2].apply([create_namespace("new", number=str(n))]) for n in range(6)]

    outcomes = run(held_back(mariadb, database, "iceberg_namespace_properties", creates))

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [AlreadyExists] * 5
    winner = next(number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Exception))
    assert run(full.find_namespace(CATALOG, "new")) == {"number": str(winner)}


LOCK_ROW = (
    "SELECT 1 FROM iceberg_tables"
    " WHERE catalog_name = 'default' AND table_namespace = 'ns' AND table_name = %s FOR UPDATE"
)


def test_a_commit_that_loses_a_deadlock_is_tried_again(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    """Another client locks two tables in another order than we do, and has more at stake: the database undoes us.

    MISSION: 004-17
    """
    run(full.apply([insert("u")]))

    async def meet() -> list[object]:
        with contextlib.closing(connect(database, autocommit=False)) as theirs:
            cursor = theirs.cursor()
            cursor.execute("INSERT INTO nunatak_reports SELECT seq, '', '', '', 0, '' FROM seq_1_to_500")
            cursor.execute(LOCK_ROW, ("u",))
            changes = [move(each, insert(each).new, stored("v2", location=f"file:///w/ns/{each}")) for each in "tu"]
            ours = asyncio.create_task(full.apply(changes))
            await until_somebody_waits(mariadb)
            await asyncio.to_thread(cursor.execute, LOCK_ROW, ("t",))  # given only because we were undone
            assert not ours.done()
            theirs.rollback()
        return await ours

    assert run(meet()) == [None, None]
    assert run(pointer(full)) == "file:///w/ns/t/metadata/v2.json"


async def until_somebody_waits(mariadb: MariadbServer) -> None:
    waiting = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    for _ in range(MAX_CHECKS):
        if (await asyncio.to_thread(mariadb.execute, waiting))[0][0]:
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError("nobody waited")


def test_a_commit_that_waits_too_long_for_a_lock_is_tried_again_and_then_refused(
    database: str, mariadb: MariadbServer, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb_connections, "LOCK_SECONDS", 1)
    store = run(open_store(database))
    run(store.apply([create_namespace(), insert("t")]))
    change = move("t", insert("t").new, stored("v2"))

    async def meet(release_seconds: float) -> Any:
        with contextlib.closing(connect(database, autocommit=False)) as theirs:
            theirs.cursor().execute(LOCK_ROW, ("t",))
            ours = asyncio.create_task(store.apply([change]))
            await asyncio.wait([ours], timeout=release_seconds)
            theirs.rollback()
        return (await asyncio.gather(ours, return_exceptions=True))[0]

    monkeypatch.setattr("nunatak.database.server_store.TRIES", 1)
    assert isinstance(run(meet(30)), ServiceUnavailable)
    assert run(pointer(store)) == insert("t").new.metadata_location
    monkeypatch.setattr("nunatak.database.server_store.TRIES", 10)
    assert run(meet(1.5)) == [None]
    assert run(pointer(store)) == stored("v2").metadata_location
    run(store.close())


@pytest.mark.parametrize(
    ("variable", "theirs", "ours"),
    [
        ("tx_isolation", "SERIALIZABLE", "READ-COMMITTED"),
        ("sql_mode", "NO_BACKSLASH_ESCAPES", mariadb_connections.SQL_MODE),
        ("autocommit", "0", 1),
        ("collation_connection", "utf8mb4_general_ci", BYTE_ORDER["MariaDB"]),
    ],
)
def test_what_correctness_rests_on_is_set_whatever_the_default(
    database: str, mariadb: MariadbServer, run: Run[Any], variable: str, theirs: str, ours: object
) -> None:
    before = mariadb.execute(f"SELECT @@global.{variable}")[0][0]
    mariadb.execute(f"SET GLOBAL {variable} = %s", int(theirs) if theirs.isdigit() else theirs)
    try:
        store = run(open_store(database))

        found = run(store._connections.call(lambda session: session.statement(f"SELECT @@{variable}").rows[0][0]))

        if variable == "sql_mode":
            assert set(found.split(",")) == set(str(ours).split(","))
        else:
            assert found == ours
        run(store.apply([create_namespace("it's\\")]))
        run(store.close())
    finally:
        mariadb.execute(f"SET GLOBAL {variable} = %s", before)


def test_a_server_that_may_forget_commits_is_refused(database: str, mariadb: MariadbServer, run: Run[Any]) -> None:
    mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        with pytest.raises(Unsuitable, match="innodb_flush_log_at_trx_commit is 2, set it to 1"):
            run(open_store(database))
    finally:
        mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


def test_readers_share_a_bounded_number_of_connections(database: str, mariadb: MariadbServer, run: Run[Any]) -> None:
    store = run(open_store(database, pool_size=3))

    async def read() -> None:
        await asyncio.gather(*(store.find_pointer(key("no"), None) for _ in range(60)))

    run(read())

    assert store.counts["connection limit"] == 3
    await_true("three are left", lambda: 0 < len(sessions(mariadb, database)) <= 3)
    run(store.close())
    await_true("the server saw all of them leave", lambda: sessions(mariadb, database) == [])


def sessions(mariadb: MariadbServer, database: str) -> list[int]:
    of = "SELECT id FROM information_schema.processlist WHERE user = %s AND db = %s"
    return [row[0] for row in mariadb.execute(of, USER, urlsplit(database).path[1:])]


def test_a_reader_waits_for_a_connection_and_is_told_when_none_becomes_free(
    database: str, mariadb: MariadbServer, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run(open_store(database, pool_size=1))

    async def hold() -> None:
        let_go = threading.Event()
        busy = asyncio.create_task(store._connections.call(lambda _: let_go.wait(60)))
        waiting = asyncio.create_task(store.find_kind(key("no")))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        let_go.set()
        assert await waiting is None
        assert await busy

        monkeypatch.setattr(mariadb_connections, "WAIT_SECONDS", 0.01)
        let_go.clear()
        busy = asyncio.create_task(store._connections.call(lambda _: let_go.wait(60)))
        await asyncio.sleep(0.05)
        with pytest.raises(ServiceUnavailable, match="busy"):
            await store.find_kind(key("no"))
        let_go.set()
        assert await busy
        assert await store.find_kind(key("no")) is None

    run(hold())
    run(store.close())


def test_a_reader_that_goes_away_leaves_its_answer_to_nobody_else(database: str, run: Run[Any]) -> None:
    """One connection: whoever comes next must not be given what was asked before."""
    store = run(open_store(database, pool_size=1))
    run(store.apply([create_namespace(), *(insert(f"n{number}") for number in range(5))]))

    async def leave_and_ask() -> None:
        for number in range(40):
            leaving = asyncio.create_task(store.find_pointer(key(f"n{number % 5}"), None))
            await asyncio.sleep(0.0002 * (number % 7))
            leaving.cancel()
            assert await pointer(store, "n4") == insert("n4").new.metadata_location

    run(leave_and_ask())
    run(store.close())


# Other clients of the same tables


@pytest.mark.parametrize("kind", ["insert", "rename"])
def test_a_name_that_another_client_takes_at_the_same_time_is_taken(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], kind: str
) -> None:
    """It knows nothing of our locks; the constraint decides."""

    async def race() -> list[Any]:
        with contextlib.closing(connect(database, autocommit=False)) as theirs:
            theirs.query("INSERT INTO iceberg_tables VALUES ('default', 'ns', 'x', 'file:///x', NULL, 'TABLE')")
            change = insert("x") if kind == "insert" else rename(key("t"), key("x"))
            ours = asyncio.create_task(full.apply([change]))
            await until_somebody_waits(mariadb)
            assert not ours.done()
            theirs.commit()
        return await asyncio.gather(ours, return_exceptions=True)

    (outcome,) = run(race())

    assert isinstance(outcome, AlreadyExists)
    assert outcome.message == "Table already exists: ns.x"
    assert run(pointer(full, "x")) == "file:///x"


def test_a_name_under_which_a_dropped_table_is_still_remembered_can_be_renamed_to(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    run(full.apply([insert("u")]))
    mariadb.execute("DELETE FROM iceberg_tables WHERE table_name = 'u'", url=database)

    run(full.apply([rename(key("t"), key("u"))]))

    assert run(pointer(full, "u")) == insert("t").new.metadata_location


def test_a_row_without_a_pointer_is_in_nobodys_way(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    mariadb.execute("INSERT INTO iceberg_tables VALUES ('default', 'ns', 'x', NULL, NULL, NULL)", url=database)

    assert run(pointer(full, "x")) is None
    run(full.apply([insert("x")]))
    assert run(pointer(full, "x")) == insert("x").new.metadata_location


def test_a_commit_of_another_client_is_not_overwritten(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    theirs = "UPDATE iceberg_tables SET metadata_location = 'file:///theirs' WHERE table_name = 't'"
    mariadb.execute(theirs, url=database)

    with pytest.raises(PointerMoved):
        run(full.apply([move("t", insert("t").new, stored("v2"))]))
    head = run(full.find_pointer(key("t"), None))
    assert (head.metadata_location, head.content) == ("file:///theirs", None)


@pytest.mark.parametrize(
    ("engine", "default"),
    [("InnoDB", "utf8mb4_general_ci"), ("InnoDB", "latin1_swedish_ci"), ("Aria", "latin1_swedish_ci")],
)
@pytest.mark.parametrize("script", [JDBC_V0, JDBC_V1], ids=["before views", "with views"])
def test_a_jdbc_catalog_is_taken_over_in_place(
    mariadb: MariadbServer, run: Run[Any], script: str, engine: str, default: str
) -> None:
    """Its columns are ordered by the database's default, in which `a` and `A` are the same."""
    database = mariadb.new_database()
    name = urlsplit(database).path[1:]
    mariadb.execute(f"ALTER DATABASE {name} CHARACTER SET {default.partition('_')[0]} COLLATE {default}")
    mariadb.execute(f"SET default_storage_engine = {engine}; {script}", url=database)
    columns = "catalog_name, table_namespace, table_name, metadata_location"
    names = ["a", "B", "a-b", "ab", "_", "é"]
    for each in names:
        values = f"('default', 'db.sub', '{each}', 'file:///x/{each}')"
        mariadb.execute(f"INSERT INTO iceberg_tables ({columns}) VALUES {values}", url=database)
    mariadb.execute("INSERT INTO iceberg_namespace_properties VALUES ('default', 'db-x', 'owner', 'ann')", url=database)

    store = run(open_store(database))

    assert run(store.list_namespaces(CATALOG, "", "", 10)) == (["db-x", "db"], None)
    assert run(store.list_namespaces(CATALOG, "db", "", 10)) == (["db.sub"], None)
    assert run(store.find_namespace(CATALOG, "db-x")) == {"owner": "ann"}
    text, last, more = run(store.list_pointers(CATALOG, "db.sub", "TABLE", "", 3, "{"))
    assert text == ",".join(f'{{"{each}"}}' for each in sorted(names)[:3])
    assert (last, more) == (sorted(names)[2], True)
    assert run(store.find_kind(key("é", "db.sub"))) == "TABLE"
    run(store.apply([insert("A", "db.sub"), insert("v", "db-x", kind="VIEW"), delete("a", "db.sub")]))
    kinds = mariadb.execute("SELECT DISTINCT iceberg_type FROM iceberg_tables ORDER BY 1", url=database)
    assert kinds == [(None,), ("TABLE",), ("VIEW",)]
    run(store.close())


# Lost connections

COMMIT = ends_with("COMMIT")


async def cut_once(
    mariadb: MariadbServer, database: str, changes: list[Change], wanted: Wanted, moment: Cut
) -> list[object]:
    """What the change is answered with when the connection is cut there; the next one is whole."""
    async with mariadb_proxy(mariadb.port) as proxy:
        store = await through(proxy, database)
        proxy.cut_at_next(wanted, moment)
        try:
            return await store.apply(changes)
        finally:
            assert proxy.cuts == 1
            await store.close()


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_commit_whose_connection_is_cut_happens_once_and_is_answered(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], moment: Cut
) -> None:
    change = move("t", insert("t").new, stored("v2"))

    assert run(cut_once(mariadb, database, [change], COMMIT, moment)) == [None]

    assert run(pointer(full)) == stored("v2").metadata_location
    logged = "SELECT count(*) FROM nunatak_commits WHERE commit_id = %s"
    assert mariadb.execute(logged, change.entry.commit_id, url=database) == [(1,)]


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_drop_whose_connection_is_cut_at_its_commit_happens_once_and_is_answered(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], moment: Cut
) -> None:
    new = insert("t").new

    answered = run(cut_once(mariadb, database, [delete("t", purge=True)], COMMIT, moment))

    assert answered == [(new.metadata_location, new.location, new.table_uuid)]
    assert run(pointer(full)) is None
    assert mariadb.execute("SELECT count(*) FROM nunatak_jobs", url=database) == [(1,)]


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_namespace_whose_connection_is_cut_at_its_commit_is_created_once(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], moment: Cut
) -> None:
    """No line of the log tells of it; the transaction left a note that it happened."""
    assert run(cut_once(mariadb, database, [create_namespace("n", a="b")], COMMIT, moment)) == [None]

    assert run(full.find_namespace(CATALOG, "n")) == {"a": "b"}


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_an_update_whose_connection_is_cut_at_its_commit_is_audited_once(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], moment: Cut
) -> None:
    """Doing it twice would do no harm, but say twice that it was done."""
    row = audit_row(at_ms=1, principal="ann", action="update-namespace", securable="default\x1fns.")

    assert run(cut_once(mariadb, database, [update_namespace("ns", a="b"), row], COMMIT, moment)) == [None, 1]

    assert mariadb.execute("SELECT count(*) FROM nunatak_audit", url=database) == [(1,)]


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_key_whose_connection_is_cut_at_its_commit_is_not_taken_by_itself(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], moment: Cut
) -> None:
    changes: list[Change] = [update_namespace("ns", a="b"), SaveAnswer("ann", "k", b"h", StoredResponse(200), 0, 100)]

    assert run(cut_once(mariadb, database, changes, COMMIT, moment)) == [None, None]

    assert run(full.find_answer("ann", "k", 0)).request_hash == b"h"


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_connection_cut_before_the_commit_is_tried_again(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], moment: Cut
) -> None:
    """A server that noticed nothing still holds the locks of what it was told so far."""
    run(cut_once(mariadb, database, [insert("u")], holds("INSERT INTO iceberg_tables"), moment))

    assert run(pointer(full, "u")) == insert("u").new.metadata_location


def test_a_commit_that_nobody_can_be_asked_about_is_unknown(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.database.server_store.RESOLVE_SECONDS", 0.2)

    async def lose() -> None:
        async with mariadb_proxy(mariadb.port) as proxy:
            store = await through(proxy, database)
            await store.apply([create_namespace("warm")])
            upstream, proxy.upstream_port = proxy.upstream_port, 1
            proxy.cut_at_next(COMMIT, Cut.AFTER)
            with pytest.raises(OutcomeUnknown):
                await store.apply([delete("t")])
            with pytest.raises(ServiceUnavailable):  # before anything was sent
                await store.apply([create_namespace("later")])
            proxy.upstream_port = upstream
            assert await pointer(store) is None
            assert not await store.namespace_exists(CATALOG, "later")
            await store.close()

    run(lose())


def test_a_caller_that_goes_away_does_not_take_its_change_back(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    async def leave() -> None:
        with contextlib.closing(connect(database, autocommit=False)) as holder:
            holder.cursor().execute(LOCK_ROW, ("t",))
            waiting = asyncio.create_task(full.apply([move("t", insert("t").new, stored("v2"))]))
            await until_somebody_waits(mariadb)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            holder.rollback()
        await full.close()  # waits for what was begun

    run(leave())
    pointers = mariadb.execute("SELECT metadata_location FROM iceberg_tables", url=database)
    assert pointers == [(stored("v2").metadata_location,)]


def test_sessions_that_the_server_ended_are_replaced(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any]
) -> None:
    async def end_all() -> None:
        await asyncio.gather(*(full.find_kind(key("t")) for _ in range(5)))
        for number in sessions(mariadb, database):
            mariadb.execute(f"KILL {number}")

    for _ in range(3):
        run(end_all())
        assert run(full.find_kind(key("t"))) == "TABLE"
        run(end_all())
        run(full.apply([AddJob("delete-files", b"{}")]))
    assert mariadb.execute("SELECT count(*) FROM nunatak_jobs", url=database) == [(3,)]


def test_a_crash_of_the_server_among_commits_loses_none_that_was_answered_and_doubles_none(
    full: MariadbStore, mariadb: MariadbServer, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those on their way are asked after when it is back; one that was refused as unavailable did not happen."""
    monkeypatch.setattr("nunatak.database.server_store.RESOLVE_SECONDS", 60)  # time for a starved machine
    run(full.apply([insert(f"w{number}") for number in range(4)]))
    answered: list[str] = []
    refused: list[str] = []
    begun, over = asyncio.Event(), asyncio.Event()

    async def commit_on_and_on(name: str) -> int:
        before, after_crash = insert(name).new, 0
        for number in range(2, 100_000):
            change = move(name, before, stored(f"v{number}", location=f"file:///w/ns/{name}"))
            try:
                await full.apply([change])
                answered.append(change.entry.commit_id)
                before, after_crash = change.new, after_crash + over.is_set()
                if len(answered) == 40:
                    begun.set()
            except ServiceUnavailable:
                refused.append(change.entry.commit_id)
                await asyncio.sleep(0.02)
            if after_crash > 10:
                break
        return after_crash

    async def crash() -> list[int]:
        writers = [asyncio.create_task(commit_on_and_on(f"w{number}")) for number in range(4)]
        await begun.wait()
        await asyncio.to_thread(mariadb.kill)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(mariadb.start)
        over.set()
        return await asyncio.gather(*writers)

    assert all(count > 10 for count in run(crash()))
    logged = [row[0] for row in mariadb.execute("SELECT commit_id FROM nunatak_commits", url=database)]
    assert len(answered) >= 40 + 44
    assert set(answered) <= set(logged)
    assert not set(refused) & set(logged)


def test_a_database_that_became_read_only_is_left_as_it_is(
    full: MariadbStore, mariadb: MariadbServer, run: Run[Any]
) -> None:
    """What a server says while committing is not believed at once: whether it happened is looked up."""
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        for changes in ([move("t", insert("t").new, stored("v2"))], [create_namespace("n")], [delete("t")]):
            with pytest.raises(ServiceUnavailable, match="read-only"):
                run(full.apply(changes))
        assert run(pointer(full)) == insert("t").new.metadata_location
        assert not run(full.namespace_exists(CATALOG, "n"))
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")
    run(full.apply([move("t", insert("t").new, stored("v2"))]))


# Addresses


def test_a_closed_store_refuses_changes(database: str, run: Run[Any]) -> None:
    store = run(open_store(database))
    run(store.close())

    with pytest.raises(ServiceUnavailable, match="stopping"):
        run(store.apply([create_namespace()]))


def test_a_server_that_is_not_there_is_said_to_be_unreachable(run: Run[Any]) -> None:
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        run(open_store("mariadb://nobody@127.0.0.1:1/nothing"))


@pytest.mark.parametrize("part", ["wrong-password", "no-database"])
def test_an_address_that_leads_nowhere_is_said_to_be_wrong(
    database: str, run: Run[Any], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = database.replace(quote(PASSWORD, safe=""), "secret") if part == "wrong-password" else f"{database}0"

    with pytest.raises(Unsuitable, match="MariaDB refused the connection") as raised:
        run(open_store(wrong))
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mariadb://user@host", "must name a user and a database"),
        ("mariadb://host/name", "must name a user and a database"),
        ("mariadb://user@host/name?sslca=x", "not known: sslca"),
        ("mariadb://user@host/name?ssl=maybe", "ssl=maybe"),
        ("mariadb://user@host/name?ssl_ca=/nowhere", "cannot be read"),
    ],
)
def test_an_address_that_is_wrong_is_refused(url: str, problem: str) -> None:
    with pytest.raises(Unsuitable, match=problem):
        read_url(url)


def test_another_machine_must_prove_who_it_is_unless_told_otherwise() -> None:
    assert read_url("mysql://user@127.0.0.1/name")["ssl_disabled"]
    assert read_url("mysql://user@host/name?unix_socket=/run/socket")["ssl_disabled"]
    assert read_url("mysql://user@host/name?ssl=off")["ssl_disabled"]
    assert read_url("mysql://user@host/name")["ssl"].check_hostname
    assert not read_url("mysql://user@host/name?ssl=required")["ssl"].check_hostname


@pytest.fixture(scope="module")
def strict_server(mariadb: MariadbServer) -> Iterator[tuple[MariadbServer, Path]]:
    """A server with a binary log and a certificate for 127.0.0.1; and the certificate."""
    with tempfile.TemporaryDirectory(prefix="nunatak-certificate-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server has a user of its own
        certificate, private = folder / "certificate.pem", folder / "private.pem"
        request = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=nunatak test",
        ]
        request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(private), "-out", str(certificate)]
        subprocess.run(request, check=True, capture_output=True)
        private.chmod(0o644)
        with running_mariadb("log-bin=log", "sync-binlog=1", f"ssl-cert={certificate}", f"ssl-key={private}") as server:
            yield server, certificate


@pytest.mark.parametrize(
    ("variable", "wrong", "right"), [("sync_binlog", 0, 1), ("binlog_format", "STATEMENT", "MIXED")]
)
def test_a_binary_log_that_could_not_bring_back_a_commit_is_refused(
    strict_server: tuple[MariadbServer, Path], run: Run[Any], variable: str, wrong: object, right: object
) -> None:
    server, _ = strict_server
    database = server.new_database()
    server.execute(f"SET GLOBAL {variable} = %s", wrong)
    try:
        with pytest.raises(Unsuitable, match=f"set (it to|{variable})"):
            run(open_store(database))
    finally:
        server.execute(f"SET GLOBAL {variable} = %s", right)
    store = run(open_store(database))
    run(store.apply([create_namespace(), insert("t")]))
    run(store.apply([move("t", insert("t").new, stored("v2"))]))
    run(store.close())


def test_a_certificate_is_verified_when_asked_for(strict_server: tuple[MariadbServer, Path], run: Run[Any]) -> None:
    server, certificate = strict_server
    database = server.new_database()

    for option in (f"ssl=verify&ssl_ca={certificate}", "ssl=required"):
        store = run(open_store(f"{database}?{option}"))
        cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
        assert run(store._connections.call(lambda session: session.statement(cipher).rows[0][1]))  # noqa: B023
        run(store.close())
    for url in (
        f"{database}?ssl=verify",
        f"{database.replace('127.0.0.1', 'localhost')}?ssl=verify&ssl_ca={certificate}",
    ):
        with pytest.raises(ServiceUnavailable, match=r"Cannot connect to MariaDB.*certificate"):
            run(open_store(url))
