"""What a store promises on every database server: round trips, races of several servers, lost connections, databases
of other clients. Each test runs on PostgreSQL and on MariaDB."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from nunatak.access.audit_rows import audit_row
from nunatak.database.records import AddJob, Change, SaveAnswer, StoredResponse
from nunatak.database.server_store import ServerStore
from nunatak.database.statements import read_migrations
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
from tests.support.database_servers import MariadbDatabase, PostgresDatabase, TestDatabase
from tests.support.found import await_true
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


@pytest.fixture(params=["postgres", "mariadb"])
def db(request: pytest.FixtureRequest) -> TestDatabase:
    """An empty database."""
    server = request.getfixturevalue(request.param)
    return PostgresDatabase(server) if request.param == "postgres" else MariadbDatabase(server)


@pytest.fixture
def store(db: TestDatabase, run: Run[Any]) -> Iterator[ServerStore]:
    opened = run(db.open())
    yield opened
    run(opened.close())


@pytest.fixture
def full(store: ServerStore, run: Run[Any]) -> ServerStore:
    """Namespace `ns` with the table `t`."""
    run(store.apply([create_namespace(), insert("t")]))
    return store


@pytest.fixture
def second(db: TestDatabase, full: ServerStore, run: Run[Any]) -> Iterator[ServerStore]:
    """Another server on the same database."""
    opened = run(db.open())
    yield opened
    run(opened.close())


async def pointer(store: Any, name: str = "t") -> str | None:
    found = await store.find_pointer(key(name), None)
    return None if found is None else found.metadata_location


# Round trips


def test_a_load_and_a_commit_are_one_round_trip_each(full: Any, db: TestDatabase, run: Run[Any]) -> None:
    async def count() -> list[int]:
        async with db.proxy() as proxy:
            store: Any = await db.through(proxy)
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

    # A new connection is prepared once, and on PostgreSQL a statement that is new to it.
    assert run(count())[2:] == [1] * 6


# Names and values


def test_names_that_differ_in_case_or_a_trailing_space_are_different(full: Any, run: Run[Any]) -> None:
    """The default of a database may fold all of them into one."""
    names = ["T", "t ", "ｔ", "t\N{COMBINING ACUTE ACCENT}"]
    run(full.apply([insert(name) for name in names]))

    text, _, _ = run(full.list_pointers(CATALOG, "ns", "TABLE", "", 100, "{"))
    assert text.count("{") == 5
    for name in names:
        assert run(pointer(full, name)) == insert(name).new.metadata_location
    shouted = insert("t", location="FILE:///w/ns/t").new
    with pytest.raises(PointerMoved):
        run(full.apply([move("t", shouted, stored("v2"))]))


@pytest.mark.parametrize(
    "name", ["it's", 'a"b', "back\\slash", "per%cent", "%(x)s", "semi;colon", "-- x", "/* */", "?", "`"]
)
def test_a_name_is_never_taken_for_sql(full: Any, run: Run[Any], name: str) -> None:
    run(full.apply([insert(name), update_namespace("ns", (), **{name: name})]))

    assert run(full.find_kind(key(name))) == "TABLE"
    assert run(full.find_namespace(CATALOG, "ns")) == {name: name}


def test_a_value_the_columns_cannot_hold_is_refused(full: Any, run: Run[Any]) -> None:
    for namespace in (create_namespace("p", long="x" * 1001), create_namespace("p" * 256)):
        with pytest.raises(BadRequest, match="cannot keep"):
            run(full.apply([namespace]))
    assert not run(full.namespace_exists(CATALOG, "p"))


# Several servers


def test_servers_that_start_together_migrate_once(db: TestDatabase, run: Run[Any]) -> None:
    async def start() -> list[list[str]]:
        return await asyncio.gather(*(db.migrate() for _ in range(5)))

    applied = run(start())

    assert sorted(name for names in applied for name in names) == [name for _, name, _ in read_migrations(db.dialect)]
    assert run(db.migrate()) == []


def test_all_databases_have_the_same_migrations_in_order(db: TestDatabase) -> None:
    assert [(number, name) for number, name, _ in read_migrations(db.dialect)] == [
        (number, name) for number, name, _ in read_migrations("sqlite")
    ]


def test_what_one_server_wrote_the_other_reads(full: Any, second: Any, run: Run[Any]) -> None:
    assert run(pointer(second)) == insert("t").new.metadata_location
    assert run(second.secret("page-token")) == run(full.secret("page-token"))


def test_of_many_on_two_servers_who_move_one_pointer_one_succeeds(full: Any, second: Any, run: Run[Any]) -> None:
    async def race() -> list[Any]:
        before = insert("t").new
        moves = [(full, second)[n % 2].apply([move("t", before, stored(f"v{n}"))]) for n in range(2, 22)]
        return await asyncio.gather(*moves, return_exceptions=True)

    outcomes = run(race())

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [PointerMoved] * 19


def test_of_many_on_two_servers_who_use_one_key_one_succeeds(full: Any, second: Any, run: Run[Any]) -> None:
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
    full: Any, second: Any, db: TestDatabase, run: Run[Any]
) -> None:
    """Rows are locked in one order, so there is no deadlock to be resolved; all or nothing holds for each."""
    run(full.apply([insert("u")]))
    deadlocks = run(db.execute(db.deadlocks))

    async def commit(store: Any, names: tuple[str, str], version: str) -> None:
        for number in range(15):
            pointers = {name: await pointer(store, name) for name in names}
            changes: list[Change] = []
            for name in names:
                new = stored(f"{version}-{number}", location=f"file:///w/ns/{name}")
                changes.append(move(name, stored().__class__(pointers[name] or "", "", "", None), new))
            with contextlib.suppress(PointerMoved):
                await store.apply(changes)

    async def race() -> None:
        await asyncio.gather(
            *(commit((full, second)[n % 2], ("t", "u") if n % 2 else ("u", "t"), f"w{n}") for n in range(6))
        )

    run(race())
    ends = [(run(pointer(full, name)) or "").rpartition("/")[2] for name in ("t", "u")]
    assert ends[0] == ends[1] != "v1.json"
    assert run(db.execute(db.deadlocks)) == deadlocks


async def held_back(db: TestDatabase, table: str, works: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Their outcomes, when all have looked and none has written before any may: writing to `table` waits."""
    async with db.table_lock(table):
        tasks = [asyncio.create_task(work) for work in works]
        await db.await_waiting(len(works))
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("drop_first", [False, True])
def test_a_table_is_created_or_its_namespace_dropped_but_not_both(
    full: Any, second: Any, db: TestDatabase, run: Run[Any], drop_first: bool
) -> None:
    run(full.apply([create_namespace("empty")]))
    works = [full.apply([insert("x", "empty")]), second.apply([drop_namespace("empty")])]

    outcomes = run(held_back(db, "iceberg_namespace_properties", works[::-1] if drop_first else works))

    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(failed) == 1
    assert isinstance(failed[0], NoSuchNamespace | NamespaceNotEmpty)
    assert run(full.namespace_exists(CATALOG, "empty")) == isinstance(failed[0], NamespaceNotEmpty)


def test_of_tables_whose_folders_touch_one_is_created(full: Any, second: Any, db: TestDatabase, run: Run[Any]) -> None:
    places = ["file:///w/deep", "file:///w/deep/er", "file:///w/deep/er/still", "file:///w/deep"]
    creates = [(full, second)[n % 2].apply([insert(f"n{n}", location=place)]) for n, place in enumerate(places)]

    outcomes = run(held_back(db, "nunatak_heads", creates))

    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [BadRequest] * 3


def test_of_many_who_create_one_namespace_one_succeeds(full: Any, second: Any, db: TestDatabase, run: Run[Any]) -> None:
    creates = [(full, second)[n % 2].apply([create_namespace("new", number=str(n))]) for n in range(6)]

    outcomes = run(held_back(db, "iceberg_namespace_properties", creates))

    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [AlreadyExists] * 5
    winner = next(number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Exception))
    assert run(full.find_namespace(CATALOG, "new")) == {"number": str(winner)}


def row_lock(name: str) -> str:
    where = f"catalog_name = 'default' AND table_namespace = 'ns' AND table_name = '{name}'"
    return f"SELECT 1 FROM iceberg_tables WHERE {where} FOR UPDATE"


def test_a_commit_that_loses_a_deadlock_is_tried_again(db: TestDatabase, run: Run[Any]) -> None:
    """Another client locks two tables in another order than we do, and has more at stake: the database undoes us.

    MISSION: 004-17
    """
    settings = {}
    if db.dialect == "postgres":  # whoever looks first is undone
        run(db.execute(f"ALTER DATABASE {db.name} SET deadlock_timeout = '50ms'"))
        settings = {"deadlock_timeout": "10s"}
    store = run(db.open())
    run(store.apply([create_namespace(), insert("t"), insert("u")]))
    changes = [move(each, insert(each).new, stored("v2", location=f"file:///w/ns/{each}")) for each in "tu"]

    async def meet() -> list[object]:
        async with db.foreign(**settings) as theirs:
            if db.dialect == "mariadb":  # whoever has written less is undone
                await theirs.execute("INSERT INTO nunatak_reports SELECT seq, '', '', '', 0, '' FROM seq_1_to_500")
            await theirs.execute(row_lock("u"))
            ours = asyncio.create_task(store.apply(changes))
            if db.dialect == "mariadb":
                await db.await_waiting()
            else:
                await asyncio.sleep(0.03)  # waits for a lock, and has not looked for deadlocks yet
            await theirs.execute(row_lock("t"))  # given only because we were undone
            assert not ours.done()
            await theirs.rollback()
        return await ours

    assert run(meet()) == [None, None]
    assert run(pointer(store)) == "file:///w/ns/t/metadata/v2.json"
    run(store.close())


def test_readers_share_a_bounded_number_of_connections(db: TestDatabase, run: Run[Any]) -> None:
    store = run(db.open(pool_size=3))

    async def read() -> None:
        await asyncio.gather(*(store.find_pointer(key("no"), None) for _ in range(60)))
        await asyncio.gather(*(store.find_kind(key("no")) for _ in range(60)))

    run(read())

    assert store.counts["connection limit"] == 3
    await_true("three are left", lambda: 0 < len(run(db.sessions())) <= 3)
    run(store.close())
    await_true("the server saw all of them leave", lambda: run(db.sessions()) == [])


def test_a_reader_waits_for_a_connection_and_is_told_when_none_becomes_free(
    db: TestDatabase, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run(db.open(pool_size=1))

    async def hold() -> None:
        async with db.busy_connection(store):
            waiting = asyncio.create_task(store.find_kind(key("no")))
            await asyncio.sleep(0.05)
            assert not waiting.done()
        assert await waiting is None
        monkeypatch.setattr(db.connections, "WAIT_SECONDS", 0.01)
        async with db.busy_connection(store):
            with pytest.raises(ServiceUnavailable, match="busy"):
                await store.find_kind(key("no"))
        assert await store.find_kind(key("no")) is None

    run(hold())
    run(store.close())


def test_a_reader_that_goes_away_leaves_its_answer_to_nobody_else(db: TestDatabase, run: Run[Any]) -> None:
    """One connection: whoever comes next must not be given what was asked before."""
    store = run(db.open(pool_size=1))
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
    full: Any, db: TestDatabase, run: Run[Any], kind: str
) -> None:
    """It knows nothing of our locks; the constraint decides."""

    async def race() -> Any:
        async with db.foreign() as theirs:
            await theirs.execute("INSERT INTO iceberg_tables VALUES ('default', 'ns', 'x', 'file:///x', NULL, 'TABLE')")
            change = insert("x") if kind == "insert" else rename(key("t"), key("x"))
            ours = asyncio.create_task(full.apply([change]))
            await db.await_waiting()
            assert not ours.done()
            await theirs.commit()
        return (await asyncio.gather(ours, return_exceptions=True))[0]

    outcome = run(race())

    assert isinstance(outcome, AlreadyExists)
    assert outcome.message == "Table already exists: ns.x"
    assert run(pointer(full, "x")) == "file:///x"


def test_a_name_under_which_a_dropped_table_is_still_remembered_can_be_renamed_to(
    full: Any, db: TestDatabase, run: Run[Any]
) -> None:
    run(full.apply([insert("u")]))
    run(db.execute("DELETE FROM iceberg_tables WHERE table_name = 'u'"))

    run(full.apply([rename(key("t"), key("u"))]))

    assert run(pointer(full, "u")) == insert("t").new.metadata_location


def test_a_row_without_a_pointer_is_in_nobodys_way(full: Any, db: TestDatabase, run: Run[Any]) -> None:
    run(db.execute("INSERT INTO iceberg_tables VALUES ('default', 'ns', 'x', NULL, NULL, NULL)"))

    assert run(pointer(full, "x")) is None
    run(full.apply([insert("x")]))
    assert run(pointer(full, "x")) == insert("x").new.metadata_location


def test_a_commit_of_another_client_is_not_overwritten(full: Any, db: TestDatabase, run: Run[Any]) -> None:
    run(db.execute("UPDATE iceberg_tables SET metadata_location = 'file:///theirs' WHERE table_name = 't'"))

    with pytest.raises(PointerMoved):
        run(full.apply([move("t", insert("t").new, stored("v2"))]))
    found = run(full.find_pointer(key("t"), None))
    assert (found.metadata_location, found.content) == ("file:///theirs", None)


@pytest.mark.parametrize("script", [JDBC_V0, JDBC_V1], ids=["before views", "with views"])
def test_a_jdbc_catalog_is_taken_over_in_place(db: TestDatabase, run: Run[Any], script: str) -> None:
    """Its columns are ordered by the database's default, in which `a` comes before `B` or is the same as `A`."""
    for defaults in db.defaults:
        take_over(db.another(), run, defaults, script)


def take_over(db: TestDatabase, run: Run[Any], defaults: str, script: str) -> None:
    run(db.execute(defaults.format(name=db.name) + script))
    columns = "catalog_name, table_namespace, table_name, metadata_location"
    names = ["a", "B", "a-b", "ab", "_", "é"]
    for each in names:
        values = f"('default', 'db.sub', '{each}', 'file:///x/{each}')"
        run(db.execute(f"INSERT INTO iceberg_tables ({columns}) VALUES {values}"))
    run(db.execute("INSERT INTO iceberg_namespace_properties VALUES ('default', 'db-x', 'owner', 'ann')"))

    store = run(db.open())

    assert run(store.list_namespaces(CATALOG, "", "", 10)) == (["db-x", "db"], None)
    assert run(store.list_namespaces(CATALOG, "db", "", 10)) == (["db.sub"], None)
    assert run(store.find_namespace(CATALOG, "db-x")) == {"owner": "ann"}
    text, last, more = run(store.list_pointers(CATALOG, "db.sub", "TABLE", "", 3, "{"))
    assert text == ",".join(f'{{"{each}"}}' for each in sorted(names)[:3])
    assert (last, more) == (sorted(names)[2], True)
    assert run(store.find_kind(key("é", "db.sub"))) == "TABLE"
    run(store.apply([insert("A", "db.sub"), insert("v", "db-x", kind="VIEW"), delete("a", "db.sub")]))
    kinds = {kind for (kind,) in run(db.execute("SELECT DISTINCT iceberg_type FROM iceberg_tables"))}
    assert kinds == {None, "TABLE", "VIEW"}
    run(store.close())


# Lost connections


async def cut_once(db: TestDatabase, changes: list[Change], wanted: Any, moment: Cut) -> list[object]:
    """What the change is answered with when the connection is cut there; the next one is whole."""
    async with db.proxy() as proxy:
        store: Any = await db.through(proxy)
        # What the change needs is known to the connection, so that its values are the next to be sent.
        with pytest.raises(PointerMoved):
            await store.apply([move("t", stored("nowhere"), stored("no"))])
        await store.find_kind(key("t"))
        proxy.cut_at_next(wanted, moment)
        try:
            answered: list[object] = await store.apply(changes)
            return answered
        finally:
            assert proxy.cuts == 1
            await store.close()


every_cut = pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)


@every_cut
def test_a_commit_whose_connection_is_cut_happens_once_and_is_answered(
    full: Any, db: TestDatabase, run: Run[Any], moment: Cut
) -> None:
    change = move("t", insert("t").new, stored("v2"))

    assert run(cut_once(db, [change], db.plain_commit, moment)) == [None]

    assert run(pointer(full)) == stored("v2").metadata_location
    logged = f"SELECT count(*) FROM nunatak_commits WHERE commit_id = {db.placeholder}"
    assert run(db.execute(logged, change.entry.commit_id)) == [(1,)]


@every_cut
def test_a_drop_whose_connection_is_cut_at_its_commit_happens_once_and_is_answered(
    full: Any, db: TestDatabase, run: Run[Any], moment: Cut
) -> None:
    new = insert("t").new

    answered = run(cut_once(db, [delete("t", purge=True)], db.commit, moment))

    assert answered == [(new.metadata_location, new.location, new.table_uuid)]
    assert run(pointer(full)) is None
    assert run(db.execute("SELECT count(*) FROM nunatak_jobs")) == [(1,)]


@every_cut
def test_a_namespace_whose_connection_is_cut_at_its_commit_is_created_once(
    full: Any, db: TestDatabase, run: Run[Any], moment: Cut
) -> None:
    """No line of the log tells of it: PostgreSQL knows the transaction, on MariaDB it leaves a row of its own."""
    assert run(cut_once(db, [create_namespace("n", a="b")], db.commit, moment)) == [None]

    assert run(full.find_namespace(CATALOG, "n")) == {"a": "b"}


@every_cut
def test_an_update_whose_connection_is_cut_at_its_commit_is_audited_once(
    full: Any, db: TestDatabase, run: Run[Any], moment: Cut
) -> None:
    """Doing it twice would do no harm, but say twice that it was done."""
    row = audit_row(at_ms=1, principal="ann", action="update-namespace", securable="default\x1fns.")

    assert run(cut_once(db, [update_namespace("ns", a="b"), row], db.commit, moment)) == [None, 1]

    assert run(db.execute("SELECT count(*) FROM nunatak_audit")) == [(1,)]


@every_cut
def test_a_key_whose_connection_is_cut_at_its_commit_is_not_taken_by_itself(
    full: Any, db: TestDatabase, run: Run[Any], moment: Cut
) -> None:
    changes: list[Change] = [update_namespace("ns", a="b"), SaveAnswer("ann", "k", b"h", StoredResponse(200), 0, 100)]

    assert run(cut_once(db, changes, db.commit, moment)) == [None, None]

    assert run(full.find_answer("ann", "k", 0)).request_hash == b"h"


@every_cut
def test_a_connection_cut_before_the_commit_is_tried_again(
    full: Any, db: TestDatabase, run: Run[Any], moment: Cut
) -> None:
    """A server that noticed nothing still holds the locks of what it was told so far."""
    run(cut_once(db, [insert("u")], db.insert, moment))

    assert run(pointer(full, "u")) == insert("u").new.metadata_location


def test_a_commit_that_nobody_can_be_asked_about_is_unknown(
    full: Any, db: TestDatabase, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.database.server_store.RESOLVE_SECONDS", 0.2)

    async def lose() -> None:
        async with db.proxy() as proxy:
            store: Any = await db.through(proxy)
            await store.apply([create_namespace("warm")])
            upstream, proxy.upstream_port = proxy.upstream_port, 1
            proxy.cut_at_next(db.commit, Cut.AFTER)
            with pytest.raises(OutcomeUnknown):
                await store.apply([delete("t")])
            with pytest.raises(ServiceUnavailable):  # before anything was sent
                await store.apply([create_namespace("later")])
            proxy.upstream_port = upstream
            assert await pointer(store) is None
            assert not await store.namespace_exists(CATALOG, "later")
            await store.close()

    run(lose())


def test_a_caller_that_goes_away_does_not_take_its_change_back(full: Any, db: TestDatabase, run: Run[Any]) -> None:
    async def leave() -> None:
        async with db.foreign() as holder:
            await holder.execute(row_lock("t"))
            waiting = asyncio.create_task(full.apply([move("t", insert("t").new, stored("v2"))]))
            await db.await_waiting()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await holder.rollback()
        await full.close()  # waits for what was begun

    run(leave())
    assert run(db.execute("SELECT metadata_location FROM iceberg_tables")) == [(stored("v2").metadata_location,)]


def test_sessions_that_the_server_ended_are_replaced(full: Any, db: TestDatabase, run: Run[Any]) -> None:
    async def end_all() -> None:
        await asyncio.gather(*(full.find_kind(key("t")) for _ in range(5)))
        for session in await db.sessions():
            await db.end(session)

    for _ in range(3):
        run(end_all())
        assert run(full.find_kind(key("t"))) == "TABLE"
        run(end_all())
        run(full.apply([AddJob("delete-files", b"{}")]))
    assert run(db.execute("SELECT count(*) FROM nunatak_jobs")) == [(3,)]


def test_a_crash_of_the_server_among_commits_loses_none_that_was_answered_and_doubles_none(
    full: Any, db: TestDatabase, run: Run[Any], monkeypatch: pytest.MonkeyPatch
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
        await asyncio.to_thread(db.crash)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(db.start)
        over.set()
        return await asyncio.gather(*writers)

    assert all(count > 10 for count in run(crash()))
    logged = [row[0] for row in run(db.execute("SELECT commit_id FROM nunatak_commits"))]
    assert len(answered) >= 40 + 44
    assert set(answered) <= set(logged)
    assert not set(refused) & set(logged)


def test_a_database_that_became_read_only_is_left_as_it_is(full: Any, db: TestDatabase, run: Run[Any]) -> None:
    """What a server says while committing is not believed at once: whether it happened is looked up."""
    refused: list[list[Change]] = [[move("t", insert("t").new, stored("v2"))], [create_namespace("n")], [delete("t")]]
    with db.read_only():
        for changes in refused:
            with pytest.raises(ServiceUnavailable, match="read-only"):
                run(full.apply(changes))
        assert run(pointer(full)) == insert("t").new.metadata_location
        assert not run(full.namespace_exists(CATALOG, "n"))
    run(full.apply([move("t", insert("t").new, stored("v2"))]))


# Addresses


def test_a_closed_store_refuses_changes(db: TestDatabase, run: Run[Any]) -> None:
    store = run(db.open())
    run(store.close())

    with pytest.raises(ServiceUnavailable, match="stopping"):
        run(store.apply([create_namespace()]))
    await_true("the server saw every session leave", lambda: run(db.sessions()) == [])


def test_a_server_that_is_not_there_is_said_to_be_unreachable(db: TestDatabase, run: Run[Any]) -> None:
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        run(db.open(db.unreachable))
