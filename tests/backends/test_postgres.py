"""What is special about PostgreSQL: round trips, races of several servers, lost connections, databases of others."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from nunatak.database import postgres_connections
from nunatak.database.postgres import PostgresStore, migrate_url, open_store
from nunatak.database.records import AddJob, Change, SaveAnswer, StoredResponse
from nunatak.database.statements import number_parameters, read_migrations, read_statements
from nunatak.database.store import PointerMoved
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    InternalError,
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
)
from tests.backends.conftest import Run
from tests.support.found import await_true
from tests.support.postgres import PostgresServer, execute
from tests.support.postgres_proxy import Cut, PostgresProxy, Wanted, is_bind, is_query, postgres_proxy

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
def store(database: str, run: Run[Any]) -> Iterator[PostgresStore]:
    opened = run(open_store(database))
    yield opened
    run(opened.close())


@pytest.fixture
def full(store: PostgresStore, run: Run[Any]) -> PostgresStore:
    """Namespace `ns` with the table `t`."""
    run(store.apply([create_namespace(), insert("t")]))
    return store


@pytest.fixture
def second(database: str, full: PostgresStore, run: Run[Any]) -> Iterator[PostgresStore]:
    """Another server on the same database."""
    opened = run(open_store(database))
    yield opened
    run(opened.close())


async def pointer(store: PostgresStore, name: str = "t") -> str | None:
    head = await store.find_pointer(key(name), None)
    return None if head is None else head.metadata_location


# Statements


def test_every_statement_can_be_prepared(full: PostgresStore, database: str, run: Run[Any]) -> None:
    async def prepare() -> list[str]:
        connection = await asyncpg.connect(database)
        refused = []
        for name, sql in read_statements("postgres").items():
            try:
                await connection.prepare(number_parameters(sql)[0])
            except asyncpg.PostgresError as error:
                refused.append(f"{name}: {error}")
        await connection.close()
        return refused

    assert run(prepare()) == []


def test_names_of_parameters_become_numbers_and_casts_stay() -> None:
    assert number_parameters("SELECT :a::text, :b, ':' || :a WHERE x = :b::int[]") == (
        "SELECT $1::text, $2, ':' || $1 WHERE x = $2::int[]",
        ("a", "b"),
    )


# Round trips


async def through(proxy: PostgresProxy, database: str) -> PostgresStore:
    name = urlsplit(database).path
    return await open_store(f"postgresql://postgres@127.0.0.1:{proxy.port}{name}?sslmode=disable", pool_size=2)


def test_a_load_and_a_commit_are_one_round_trip_each(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any]
) -> None:
    async def count() -> list[int]:
        async with postgres_proxy(postgres.port) as proxy:
            store = await through(proxy, database)
            versions = [insert("t").new, *(stored(f"v{number}") for number in range(2, 6))]
            key_kept = SaveAnswer("ann", "k", b"h", StoredResponse(200, metadata_location="x"), 0, 10)
            extra: list[list[Change]] = [[], [], [AddJob("delete-files", b"{}")], [key_kept]]
            seen = []
            for number, more in enumerate(extra):
                before = proxy.round_trips
                await store.find_pointer(key("t"), None)
                loaded = proxy.round_trips
                await store.apply([move("t", versions[number], versions[number + 1]), *more])
                seen += [loaded - before, proxy.round_trips - loaded]
            await store.close()
            return seen

    # A statement that is new to the connection is described once before.
    assert run(count())[2:] == [1] * 6


# Several servers


def test_servers_that_start_together_migrate_once(database: str, run: Run[Any]) -> None:
    async def start() -> list[list[str]]:
        return await asyncio.gather(*(migrate_url(database) for _ in range(5)))

    applied = run(start())

    assert sorted(name for names in applied for name in names) == [name for _, name, _ in read_migrations("postgres")]
    assert run(migrate_url(database)) == []


def test_both_databases_have_the_same_migrations_in_order() -> None:
    assert [(number, name) for number, name, _ in read_migrations("postgres")] == [
        (number, name) for number, name, _ in read_migrations("sqlite")
    ]


def test_a_migration_that_fails_leaves_the_database_as_it_was_and_no_lock(database: str, run: Run[Any]) -> None:
    run(execute(database, "CREATE TABLE nunatak_heads (in_the_way TEXT)"))

    with pytest.raises(InternalError, match="nunatak_heads"):
        run(open_store(database))

    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert run(execute(database, tables)) == [("nunatak_heads",)]
    assert run(execute(database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == [(0,)]
    run(execute(database, "DROP TABLE nunatak_heads"))
    run(run(open_store(database)).close())


def test_what_one_server_wrote_the_other_reads(full: PostgresStore, second: PostgresStore, run: Run[Any]) -> None:
    assert run(pointer(second)) == insert("t").new.metadata_location
    assert run(second.secret("page-token")) == run(full.secret("page-token"))


def test_of_many_on_two_servers_who_move_one_pointer_one_succeeds(
    full: PostgresStore, second: PostgresStore, run: Run[Any]
) -> None:
    async def race() -> list[Any]:
        before = insert("t").new
        moves = [(full, second)[n % 2].apply([move("t", before, stored(f"v{n}"))]) for n in range(2, 22)]
        return await asyncio.gather(*moves, return_exceptions=True)

    outcomes = run(race())

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [PointerMoved] * 19


def test_commits_to_several_tables_in_any_order_do_not_hinder_each_other(
    full: PostgresStore, second: PostgresStore, run: Run[Any]
) -> None:
    """Rows are locked in one order, so there is no deadlock to be resolved; all or nothing holds for each."""
    run(full.apply([insert("u")]))

    async def commit(store: PostgresStore, names: tuple[str, str], version: str) -> None:
        for number in range(15):
            heads = {name: await pointer(store, name) for name in names}
            changes = []
            for name in names:
                new = stored(f"{version}-{number}", location=f"file:///w/ns/{name}")
                before = stored().__class__(heads[name] or "", "", "", None)
                changes.append(move(name, before, new))
            try:
                await store.apply(changes)
            except PointerMoved:
                continue

    async def race() -> None:
        await asyncio.gather(
            *(commit((full, second)[n % 2], ("t", "u") if n % 2 else ("u", "t"), f"w{n}") for n in range(6))
        )

    run(race())
    ends = [(run(pointer(full, name)) or "").rpartition("/")[2] for name in ("t", "u")]
    assert ends[0] == ends[1] != "v1.json"
    statistics = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    url = full._connections._url
    assert run(execute(url, statistics)) == [(0,)]


async def held_back(database: str, table: str, works: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Their outcomes, when all have looked and none has written before any may: writing to `table` waits."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    holder = await asyncpg.connect(database)
    try:
        async with holder.transaction():
            await holder.execute(f"LOCK TABLE {table} IN SHARE MODE")
            tasks = [asyncio.create_task(work) for work in works]
            for _ in range(500):
                if await execute(database, waiting) == [(len(works),)]:  # in a transaction it would not change
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("somebody did not wait")
    finally:
        await holder.close()
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("drop_first", [False, True])
def test_a_table_is_created_or_its_namespace_dropped_but_not_both(
    full: PostgresStore, second: PostgresStore, database: str, run: Run[Any], drop_first: bool
) -> None:
    run(full.apply([create_namespace("empty")]))
    works = [full.apply([insert("x", "empty")]), second.apply([drop_namespace("empty")])]

    outcomes = run(held_back(database, "iceberg_namespace_properties", works[::-1] if drop_first else works))

    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(failed) == 1
    assert isinstance(failed[0], NoSuchNamespace | NamespaceNotEmpty)
    assert run(full.namespace_exists(CATALOG, "empty")) == isinstance(failed[0], NamespaceNotEmpty)


def test_of_tables_whose_folders_touch_one_is_created(
    full: PostgresStore, second: PostgresStore, database: str, run: Run[Any]
) -> None:
    places = ["file:///w/deep", "file:///w/deep/er", "file:///w/deep/er/still", "file:///w/deep"]
    creates = [(full, second)[n % 2].apply([insert(f"n{n}", location=place)]) for n, place in enumerate(places)]

    outcomes = run(held_back(database, "nunatak_heads", creates))

    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [BadRequest] * 3


def test_of_many_who_create_one_namespace_one_succeeds(
    full: PostgresStore, second: PostgresStore, database: str, run: Run[Any]
) -> None:
    creates = [(full, second)[n % 2].apply([create_namespace("new", number=str(n))]) for n in range(6)]

    outcomes = run(held_back(database, "iceberg_namespace_properties", creates))

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [AlreadyExists] * 5
    winner = next(number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Exception))
    assert run(full.find_namespace(CATALOG, "new")) == {"number": str(winner)}


def test_a_commit_that_loses_a_deadlock_is_tried_again(full: PostgresStore, database: str, run: Run[Any]) -> None:
    """Another client locks two tables in another order than we do; the database undoes one of us."""
    name = urlsplit(database).path[1:]
    run(execute(database, f"ALTER DATABASE {name} SET deadlock_timeout = '50ms'"))
    store = run(open_store(database))
    run(store.apply([insert("u")]))

    async def meet() -> list[object]:
        theirs = await asyncpg.connect(database, server_settings={"deadlock_timeout": "10s"})
        lock = "SELECT 1 FROM iceberg_tables WHERE table_name = $1 FOR UPDATE"
        async with theirs.transaction():
            await theirs.fetch(lock, "u")
            changes = [move(each, insert(each).new, stored("v2", location=f"file:///w/ns/{each}")) for each in "tu"]
            ours = asyncio.create_task(store.apply(changes))
            await asyncio.sleep(0.03)
            await theirs.fetch(lock, "t")  # given only because we were undone
            assert not ours.done()
        await theirs.close()
        return await ours

    assert run(meet()) == [None, None]
    assert run(pointer(store)) == "file:///w/ns/t/metadata/v2.json"
    run(store.close())


@pytest.mark.parametrize(
    ("setting", "theirs", "ours"),
    [
        ("default_transaction_isolation", "serializable", "read committed"),
        ("synchronous_commit", "off", "on"),
        ("tcp_keepalives_idle", "7200", "60"),
    ],
)
def test_what_correctness_rests_on_is_set_whatever_the_default(
    database: str, run: Run[Any], setting: str, theirs: str, ours: str
) -> None:
    name = urlsplit(database).path[1:]
    run(execute(database, f"ALTER DATABASE {name} SET {setting} = '{theirs}'"))
    store = run(open_store(database))

    async def found() -> object:
        session = await store._connections.take()
        try:
            return await session.connection.fetchval(f"SHOW {setting}")
        finally:
            store._connections.give_back(session)

    assert run(found()) == ours
    run(store.close())


def test_a_reader_waits_for_a_connection_and_is_told_when_none_becomes_free(
    database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run(open_store(database, pool_size=1))

    async def hold() -> None:
        session = await store._connections.take()
        waiting = asyncio.create_task(store.find_kind(key("no")))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        store._connections.give_back(session)
        assert await waiting is None
        monkeypatch.setattr(postgres_connections, "WAIT_SECONDS", 0.01)
        session = await store._connections.take()
        with pytest.raises(ServiceUnavailable, match="busy"):
            await store.find_kind(key("no"))
        store._connections.give_back(session)
        assert await store.find_kind(key("no")) is None

    run(hold())
    run(store.close())


# Other clients of the same tables


@pytest.mark.parametrize("kind", ["insert", "rename"])
def test_a_name_that_another_client_takes_at_the_same_time_is_taken(
    full: PostgresStore, database: str, run: Run[Any], kind: str
) -> None:
    """It knows nothing of our locks; the constraint decides."""

    async def race() -> list[Any]:
        theirs = await asyncpg.connect(database)
        transaction = theirs.transaction()
        await transaction.start()
        await theirs.execute("INSERT INTO iceberg_tables VALUES ('default', 'ns', 'x', 'file:///x', NULL, 'TABLE')")
        change = insert("x") if kind == "insert" else rename(key("t"), key("x"))
        ours = asyncio.create_task(full.apply([change]))
        await asyncio.sleep(0.1)
        assert not ours.done()
        await transaction.commit()
        await theirs.close()
        return await asyncio.gather(ours, return_exceptions=True)

    (outcome,) = run(race())

    assert isinstance(outcome, AlreadyExists)
    assert outcome.message == "Table already exists: ns.x"
    assert run(pointer(full, "x")) == "file:///x"


def test_a_name_under_which_a_dropped_table_is_still_remembered_can_be_renamed_to(
    full: PostgresStore, database: str, run: Run[Any]
) -> None:
    run(full.apply([insert("u")]))
    run(execute(database, "DELETE FROM iceberg_tables WHERE table_name = 'u'"))

    run(full.apply([rename(key("t"), key("u"))]))

    assert run(pointer(full, "u")) == insert("t").new.metadata_location


def test_a_commit_of_another_client_is_not_overwritten(full: PostgresStore, database: str, run: Run[Any]) -> None:
    run(execute(database, "UPDATE iceberg_tables SET metadata_location = 'file:///theirs' WHERE table_name = 't'"))

    with pytest.raises(PointerMoved):
        run(full.apply([move("t", insert("t").new, stored("v2"))]))
    head = run(full.find_pointer(key("t"), None))
    assert (head.metadata_location, head.content) == ("file:///theirs", None)


@pytest.mark.parametrize("script", [JDBC_V0, JDBC_V1], ids=["before views", "with views"])
def test_a_jdbc_catalog_is_taken_over_in_place(database: str, run: Run[Any], script: str) -> None:
    """Its columns are ordered by the database's locale, in which `a` comes before `B` and `-` hardly counts."""
    run(execute(database, script))
    columns = "catalog_name, table_namespace, table_name, metadata_location"
    names = ["a", "B", "a-b", "ab", "_"]
    for name in names:
        values = f"('default', 'db.sub', '{name}', 'file:///x/{name}')"
        run(execute(database, f"INSERT INTO iceberg_tables ({columns}) VALUES {values}"))
    run(execute(database, "INSERT INTO iceberg_namespace_properties VALUES ('default', 'db-x', 'owner', 'ann')"))

    store = run(open_store(database))

    assert run(store.list_namespaces(CATALOG, "", "", 10)) == (["db-x", "db"], None)
    assert run(store.list_namespaces(CATALOG, "db", "", 10)) == (["db.sub"], None)
    assert run(store.find_namespace(CATALOG, "db-x")) == {"owner": "ann"}
    text, last, more = run(store.list_pointers(CATALOG, "db.sub", "TABLE", "", 3, "{"))
    assert text == ",".join(f'{{"{name}"}}' for name in sorted(names)[:3])
    assert (last, more) == (sorted(names)[2], True)
    run(store.apply([insert("v", "db-x", kind="VIEW"), delete("a", "db.sub")]))
    kinds = run(execute(database, "SELECT DISTINCT iceberg_type FROM iceberg_tables ORDER BY 1 NULLS FIRST"))
    assert kinds == [(None,), ("VIEW",)]
    run(store.close())


def test_a_value_the_columns_cannot_hold_is_refused(full: PostgresStore, run: Run[Any]) -> None:
    for namespace in (create_namespace("p", long="x" * 1001), create_namespace("p", nul="\0")):
        with pytest.raises(BadRequest, match="cannot keep"):
            run(full.apply([namespace]))
    assert not run(full.namespace_exists(CATALOG, "p"))
    with pytest.raises(BadRequest, match="cannot keep"):
        run(full.find_kind(key("\0")))


# Lost connections

COMMIT = is_query("COMMIT")


async def cut_once(
    postgres: PostgresServer, database: str, changes: list[Change], wanted: Wanted, moment: Cut
) -> list[object]:
    """What the change is answered with when the connection is cut there; the next one is whole."""
    async with postgres_proxy(postgres.port) as proxy:
        store = await through(proxy, database)
        # What the change needs is known to the connection, so that its values are the next to be sent.
        with pytest.raises(PointerMoved):
            await store.apply([move("t", stored("nowhere"), stored("no"))])
        await store.find_kind(key("t"))
        proxy.cut_at_next(wanted, moment)
        try:
            return await store.apply(changes)
        finally:
            assert proxy.cuts == 1
            await store.close()


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_commit_whose_connection_is_cut_happens_once_and_is_answered(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], moment: Cut
) -> None:
    change = move("t", insert("t").new, stored("v2"))

    assert run(cut_once(postgres, database, [change], is_bind, moment)) == [None]

    assert run(pointer(full)) == stored("v2").metadata_location
    logged = "SELECT count(*) FROM nunatak_commits WHERE commit_id = $1"
    assert run(execute(database, logged, change.entry.commit_id)) == [(1,)]


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_drop_whose_connection_is_cut_at_its_commit_happens_once_and_is_answered(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], moment: Cut
) -> None:
    new = insert("t").new

    answered = run(cut_once(postgres, database, [delete("t", purge=True)], COMMIT, moment))

    assert answered == [(new.metadata_location, new.location, new.table_uuid)]
    assert run(pointer(full)) is None
    assert run(execute(database, "SELECT count(*) FROM nunatak_jobs")) == [(1,)]


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_namespace_whose_connection_is_cut_at_its_commit_is_created_once(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], moment: Cut
) -> None:
    """No line of the log tells of it; the server knows what became of the transaction."""
    assert run(cut_once(postgres, database, [create_namespace("n", a="b")], COMMIT, moment)) == [None]

    assert run(full.find_namespace(CATALOG, "n")) == {"a": "b"}


def test_a_connection_cut_before_the_commit_is_tried_again(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any]
) -> None:
    new = insert("u").new

    run(cut_once(postgres, database, [insert("u")], is_bind, Cut.AFTER))

    assert run(pointer(full, "u")) == new.metadata_location


def test_a_commit_that_nobody_can_be_asked_about_is_unknown(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.database.server_store.RESOLVE_SECONDS", 0.2)

    async def lose() -> None:
        async with postgres_proxy(postgres.port) as proxy:
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
    full: PostgresStore, database: str, run: Run[Any]
) -> None:
    async def leave() -> None:
        holder = await asyncpg.connect(database)
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("SELECT 1 FROM iceberg_tables FOR UPDATE")
        waiting = asyncio.create_task(full.apply([move("t", insert("t").new, stored("v2"))]))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await transaction.rollback()
        await holder.close()
        await full.close()  # waits for what was begun

    run(leave())
    assert run(execute(database, "SELECT metadata_location FROM iceberg_tables")) == [(stored("v2").metadata_location,)]


def test_sessions_that_the_server_ended_are_replaced(full: PostgresStore, database: str, run: Run[Any]) -> None:
    async def end_all() -> None:
        await asyncio.gather(*(full.find_kind(key("t")) for _ in range(5)))
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nunatak'"
        await execute(database, ended)

    for _ in range(3):
        run(end_all())
        assert run(full.find_kind(key("t"))) == "TABLE"
        run(end_all())
        run(full.apply([AddJob("delete-files", b"{}")]))


def test_a_crash_of_the_server_among_commits_loses_none_that_was_answered_and_doubles_none(
    full: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
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
        await asyncio.to_thread(postgres.stop_at_once)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(postgres.start)
        over.set()
        return await asyncio.gather(*writers)

    assert all(count > 10 for count in run(crash()))
    logged = [row[0] for row in run(execute(database, "SELECT commit_id FROM nunatak_commits"))]
    assert len(answered) >= 40 + 44
    assert set(answered) <= set(logged)
    assert not set(refused) & set(logged)


def test_a_closed_store_refuses_changes(database: str, run: Run[Any]) -> None:
    store = run(open_store(database))
    run(store.close())

    with pytest.raises(ServiceUnavailable, match="stopping"):
        run(store.apply([create_namespace()]))
    there = "SELECT pid FROM pg_stat_activity WHERE application_name = 'nunatak' AND datname = current_database()"
    await_true("the server saw every session leave", lambda: run(execute(database, there)) == [])


def test_a_server_that_is_not_there_is_said_to_be_unreachable(run: Run[Any]) -> None:
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        run(open_store("postgresql://nobody@127.0.0.1:1/nothing"))
