"""Lookups and commits that go to PostgreSQL together: in few round trips, each with an outcome of its own."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from nunatak.database.postgres import BATCH_SETTINGS, PostgresStore, open_store
from nunatak.database.records import AddJob, Change, MovePointer, Pointer, SaveAnswer, Stored, StoredResponse
from nunatak.database.store import KeyTaken, PointerMoved
from nunatak.errors import BadRequest, NoSuchTable, OutcomeUnknown, ServiceUnavailable
from tests.backends.builders import create_namespace, insert, key, move, stored
from tests.backends.conftest import Run
from tests.support.found import await_true
from tests.support.postgres import PostgresServer, execute
from tests.support.postgres_proxy import Cut, PostgresProxy, Wanted, is_bind, postgres_proxy

TABLES = [f"t{number:02}" for number in range(50)]


@pytest.fixture
def store(database: str, run: Run[Any]) -> Iterator[PostgresStore]:
    """Namespace `ns` with the fifty tables."""
    opened = run(open_store(database))
    run(opened.apply([create_namespace(), *(insert(name) for name in TABLES)]))
    yield opened
    run(opened.close())


def version(name: str, number: int) -> Stored:
    return stored(f"v{number}", uuid=f"uuid-of-{name}", location=f"file:///w/ns/{name}", content=f"{number}".encode())


def commit(name: str, number: int = 2) -> MovePointer:
    """From the version before to this one; the first is the one the table was created with."""
    return move(name, version(name, number - 1), version(name, number))


def answer_kept(name: str) -> SaveAnswer:
    return SaveAnswer("ann", f"key-{name}", b"h", StoredResponse(200, metadata_location=f"of-{name}"), 0, 10_000)


async def at_once(store: PostgresStore, commits: Sequence[Sequence[Change]]) -> list[Any]:
    return await asyncio.gather(*(store.apply(changes) for changes in commits), return_exceptions=True)


async def versions(store: PostgresStore, names: Sequence[str]) -> list[str]:
    heads = await asyncio.gather(*(store.find_pointer(key(name), None) for name in names))
    return [head.metadata_location.rpartition("/")[2].removesuffix(".json") if head else "none" for head in heads]


async def through(proxy: PostgresProxy, database: str) -> PostgresStore:
    """A store behind the proxy whose connections know the statements, which costs a round trip once."""
    name = urlsplit(database).path
    opened = await open_store(f"postgresql://postgres@127.0.0.1:{proxy.port}{name}?sslmode=disable", pool_size=3)
    for _ in range(2):
        await asyncio.gather(*(opened.find_pointer(key(each), None) for each in ("no", "not")))
        await opened.find_pointer(key("no"), None)
        await at_once(opened, [[commit("no")], [commit("not")]])
        await at_once(opened, [[commit("no")]])
    return opened


# Round trips


def test_fifty_loads_at_once_are_two_round_trips(
    store: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any]
) -> None:
    """The first does not wait for company, the others go together. The same table may be asked for twice."""

    async def count() -> tuple[int, list[Pointer | None]]:
        async with postgres_proxy(postgres.port) as proxy:
            other = await through(proxy, database)
            before = proxy.round_trips
            asked = [*TABLES[:47], TABLES[0], "no", "not"]
            heads = await asyncio.gather(*(other.find_pointer(key(name), None) for name in asked))
            trips = proxy.round_trips - before
            await other.close()
            return trips, heads

    trips, heads = run(count())

    assert trips == 2
    expected: list[Pointer | None] = [
        Pointer(insert(name).new.metadata_location, "TABLE", b"{}", 1) for name in TABLES[:47]
    ]
    assert heads == [*expected, expected[0], None, None]


def test_a_lookup_among_others_gets_the_bytes_unless_it_knows_them(store: PostgresStore, run: Run[Any]) -> None:
    known = insert(TABLES[0]).new.metadata_location

    async def look() -> list[Pointer | None]:
        return await asyncio.gather(*(store.find_pointer(key(TABLES[0]), each) for each in (known, None, "old")))

    assert [head and head.content for head in run(look())] == [None, b"{}", b"{}"]


def test_fifty_commits_at_once_are_one_round_trip_and_all_is_written(
    store: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any]
) -> None:
    commits: list[list[Change]] = [[commit(name)] for name in TABLES]
    commits[3].append(AddJob("delete-files", b"three"))
    commits[4] += [answer_kept("four"), AddJob("delete-files", b"four"), AddJob("delete-files", b"more")]

    async def count() -> tuple[int, list[Any]]:
        async with postgres_proxy(postgres.port) as proxy:
            other = await through(proxy, database)
            before = proxy.round_trips
            outcomes = await at_once(other, commits)
            trips = proxy.round_trips - before
            await other.close()
            return trips, outcomes

    trips, outcomes = run(count())

    assert trips == 1
    assert outcomes == [[None] * len(changes) for changes in commits]
    assert run(versions(store, TABLES)) == ["v2"] * 50
    heads = [run(store.find_pointer(key(name), None)) for name in TABLES[:2]]
    assert [head.content for head in heads] == [b"2", b"2"]
    lines = "SELECT commit_id, table_name, previous_metadata_location FROM nunatak_commits WHERE operation = 'commit'"
    moves = [changes[0] for changes in commits]
    assert sorted(run(execute(database, lines))) == sorted(
        (each.entry.commit_id, each.key.name, each.expected) for each in moves if isinstance(each, MovePointer)
    )
    jobs = run(execute(database, "SELECT payload FROM nunatak_jobs"))
    assert sorted(jobs) == [(b"four",), (b"more",), (b"three",)]
    assert run(store.find_answer("ann", "key-four", 1)).answer.metadata_location == "of-four"


# Winners and losers


def test_of_commits_that_go_together_each_has_its_own_outcome(
    store: PostgresStore, database: str, run: Run[Any]
) -> None:
    """The rows of exactly the winners are written."""
    run(store.apply([commit("t01")]))
    commits: list[list[Change]] = [
        [commit("t00"), answer_kept("t00"), AddJob("delete-files", b"t00")],
        [commit("t01"), answer_kept("t01"), AddJob("delete-files", b"t01")],  # moved on already
        [commit("gone"), answer_kept("gone")],
        [commit("t02")],
    ]

    outcomes = run(at_once(store, commits))

    assert outcomes[0] == [None, None, None]
    assert outcomes[3] == [None]
    assert [type(outcome) for outcome in outcomes[1:3]] == [PointerMoved, NoSuchTable]
    assert outcomes[2].message == "Table does not exist: ns.gone"
    assert run(versions(store, ["t00", "t01", "t02"])) == ["v2"] * 3
    assert run(execute(database, "SELECT idempotency_key FROM nunatak_idempotency")) == [("key-t00",)]
    assert run(execute(database, "SELECT payload FROM nunatak_jobs")) == [(b"t00",)]
    logged = "SELECT table_name FROM nunatak_commits WHERE operation = 'commit' ORDER BY sequence"
    assert sorted(run(execute(database, logged))) == [("t00",), ("t01",), ("t02",)]


def test_of_commits_to_one_table_at_once_one_wins_whoever_else_is_there(store: PostgresStore, run: Run[Any]) -> None:
    rivals = [move("t00", version("t00", 1), version("t00", number)) for number in range(2, 8)]

    *outcomes, beside = run(at_once(store, [*([rival] for rival in rivals), [commit("t01")]]))

    assert beside == [None]
    winner = outcomes.index([None])
    assert [type(outcome) for outcome in outcomes if outcome != [None]] == [PointerMoved] * 5
    assert run(versions(store, ["t00", "t01"])) == [f"v{winner + 2}", "v2"]


def test_of_commits_with_one_key_at_once_one_wins_and_the_others_change_nothing(
    store: PostgresStore, run: Run[Any]
) -> None:
    commits: list[list[Change]] = [[commit(name), answer_kept("same")] for name in TABLES[:3]]

    outcomes = run(at_once(store, commits))

    winner = outcomes.index([None, None])
    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [KeyTaken, KeyTaken]
    assert run(versions(store, TABLES[:3])) == ["v2" if number == winner else "v1" for number in range(3)]


def test_a_key_that_is_taken_refuses_only_its_own_commit(store: PostgresStore, run: Run[Any]) -> None:
    run(store.apply([commit("t00"), answer_kept("k")]))

    outcomes = run(at_once(store, [[commit("t01"), answer_kept("k")], [commit("t02"), answer_kept("l")]]))

    assert isinstance(outcomes[0], KeyTaken)
    assert outcomes[1] == [None, None]
    assert run(versions(store, ["t01", "t02"])) == ["v1", "v2"]


def test_what_the_database_cannot_keep_refuses_only_its_own_commit(store: PostgresStore, run: Run[Any]) -> None:
    far = move("t00", version("t00", 1), stored("x" * 1001))

    outcomes = run(at_once(store, [[far], [commit("t01")], [commit("t02")]]))

    assert isinstance(outcomes[0], BadRequest)
    assert outcomes[1:] == [[None], [None]]


def test_a_name_the_database_cannot_read_refuses_only_its_own_lookup(store: PostgresStore, run: Run[Any]) -> None:
    async def look() -> list[Any]:
        names = ["t00", "nul\0", "t01"]
        return await asyncio.gather(*(store.find_pointer(key(name), None) for name in names), return_exceptions=True)

    outcomes = run(look())

    assert isinstance(outcomes[1], BadRequest)
    assert all(isinstance(outcomes[number], Pointer) for number in (0, 2))


def test_a_table_that_another_client_holds_delays_only_its_own_commit(
    store: PostgresStore, database: str, run: Run[Any]
) -> None:
    async def hold() -> list[Any]:
        theirs = await asyncpg.connect(database)
        async with theirs.transaction():
            await theirs.execute("SELECT 1 FROM iceberg_tables WHERE table_name IN ('t00', 't09') FOR UPDATE")
            together = [asyncio.create_task(store.apply([commit(name)])) for name in TABLES[:9]]
            assert await asyncio.gather(*together[1:]) == [[None]] * 8
            alone = asyncio.create_task(store.apply([commit("t09")]))
            for number in range(3, 20):  # longer than a batch waits for a lock
                assert await store.apply([commit("t01", number)]) == [None]
                await asyncio.sleep(0.01)
            assert not together[0].done()
            assert not alone.done()
        await theirs.close()
        return [await together[0], await alone]

    assert run(hold()) == [[None], [None]]
    assert run(versions(store, ["t00", "t09"])) == ["v2", "v2"]


def test_servers_that_commit_to_the_same_tables_in_any_order_do_not_hinder_each_other(
    store: PostgresStore, database: str, run: Run[Any]
) -> None:
    """Of two commits to one version one wins; no deadlock has to be resolved for it."""
    second = run(open_store(database))
    names = TABLES[:20]

    async def meet() -> list[int]:
        won = []
        for number in range(2, 7):
            first, other = await asyncio.gather(
                at_once(store, [[commit(name, number)] for name in names]),
                at_once(second, [[commit(name, number)] for name in reversed(names)]),
            )
            won += [sum(each == [None] for each in pair) for pair in zip(first, reversed(other), strict=True)]
        return won

    assert run(meet()) == [1] * 100
    assert run(versions(store, names)) == ["v6"] * 20
    for each in (store, second):
        run(each.close())  # a session counts its deadlocks for others to see when it ends
    statistics = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert run(execute(database, statistics)) == [(0,)]


def test_a_look_at_losers_that_fails_takes_nothing_back_from_winners(
    store: PostgresStore, database: str, run: Run[Any]
) -> None:
    """The winners are committed by then, so nobody may carry them out again and find that they have lost."""
    run(store.apply([commit("t01")]))
    slow = """
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN WHILE NOT pg_try_advisory_xact_lock(7) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NULL; END $$;
        CREATE TRIGGER slow AFTER INSERT ON nunatak_commits FOR EACH STATEMENT EXECUTE FUNCTION slow();
    """
    run(execute(database, slow))
    of_us = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"

    async def meet() -> list[Any]:
        theirs, gate = await asyncpg.connect(database), await asyncpg.connect(database)
        await gate.execute("SELECT pg_advisory_lock(7)")
        together = asyncio.create_task(at_once(store, [[commit(name)] for name in TABLES[:3]]))
        await until_one(database, f"{of_us} AND wait_event = 'PgSleep'")
        async with theirs.transaction():  # given when our statement ends, before we ask after those it left
            locking = asyncio.create_task(theirs.execute("LOCK TABLE iceberg_tables IN ACCESS EXCLUSIVE MODE"))
            await until_one(database, f"{of_us} AND wait_event_type = 'Lock'")
            await gate.close()
            await locking
            async with asyncio.timeout(60):
                while store.counts["retry"] == 0:  # noqa: ASYNC110 - it is only counted
                    await asyncio.sleep(0.01)
        await theirs.close()
        return await together

    outcomes = run(meet())

    assert outcomes[0] == outcomes[2] == [None]
    assert isinstance(outcomes[1], PointerMoved)
    assert store.counts["retry"] == 1


async def until_one(database: str, counted: str) -> None:
    """Ask, outside of every transaction, until the count is one."""
    async with asyncio.timeout(60):
        while await execute(database, counted) != [(1,)]:  # noqa: ASYNC110 - a database tells nobody
            await asyncio.sleep(0.01)


# What the database undoes is tried again


def undo_first(code: str, times: int, table: str) -> str:
    """The database refuses the first so many writes to a table with this SQLSTATE; a sequence is not undone."""
    return f"""
        CREATE SEQUENCE undone;
        CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('undone') <= {times} THEN RAISE EXCEPTION 'undone' USING ERRCODE = '{code}'; END IF;
          RETURN NEW;
        END $$;
        CREATE TRIGGER undo BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION undo();
    """


@pytest.mark.parametrize("code", ["40001", "40P01"])
@pytest.mark.parametrize("names", [["t00"], ["t00", "t01", "t02"]], ids=["alone", "together"])
def test_commits_that_the_database_undoes_are_tried_again(
    store: PostgresStore, database: str, run: Run[Any], code: str, names: list[str]
) -> None:
    """MISSION: 004-16"""
    run(execute(database, undo_first(code, 4, "nunatak_commits")))
    before = store.counts["retry"]

    assert run(at_once(store, [[commit(name)] for name in names])) == [[None]] * len(names)

    assert run(versions(store, names)) == ["v2"] * len(names)
    assert store.counts["retry"] > before


def test_a_change_that_is_undone_again_and_again_is_given_up(
    store: PostgresStore, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.database.server_store.MAX_PAUSE_SECONDS", 0.001)
    run(execute(database, undo_first("40001", 1000, "nunatak_commits")))

    outcomes = run(at_once(store, [[commit(name)] for name in TABLES[:2]]))

    assert [type(outcome) for outcome in outcomes] == [ServiceUnavailable] * 2
    assert run(versions(store, TABLES[:2])) == ["v1", "v1"]


def test_commits_that_lose_a_deadlock_together_are_tried_again(
    store: PostgresStore, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transaction holds the key of one and wants the table of another; the database undoes us."""
    monkeypatch.setitem(BATCH_SETTINGS, "lock_timeout", "10s")
    run(execute(database, f"ALTER DATABASE {urlsplit(database).path[1:]} SET deadlock_timeout = '500ms'"))
    ours = run(open_store(database))
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def meet() -> list[Any]:
        theirs = await asyncpg.connect(database, server_settings={"deadlock_timeout": "10s"})
        async with theirs.transaction():
            await theirs.execute("INSERT INTO nunatak_idempotency VALUES ('ann', 'key-k', 'h', 200, NULL, NULL, 10000)")
            together = asyncio.create_task(at_once(ours, [[commit("t00")], [commit("t01"), answer_kept("k")]]))
            await until_one(database, blocked)
            await theirs.execute("UPDATE iceberg_tables SET iceberg_type = 'TABLE' WHERE table_name = 't00'")
            await theirs.execute("DELETE FROM nunatak_idempotency")
        await theirs.close()
        return await together

    assert run(meet()) == [[None], [None, None]]
    run(ours.close())  # a session counts its deadlocks for others to see when it ends
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert run(execute(database, deadlocks)) == [(1,)]


# Lost connections


async def cut_together(
    postgres: PostgresServer, database: str, commits: list[list[Change]], moment: Cut, wanted: Wanted = is_bind
) -> tuple[list[Any], int]:
    """Outcomes when the connection is cut, if not said otherwise at the one statement of all, and how often it was."""
    async with postgres_proxy(postgres.port) as proxy:
        other = await through(proxy, database)
        proxy.cut_at_next(wanted, moment)
        outcomes = await at_once(other, commits)
        await other.close()
        return outcomes, proxy.cuts


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_when_the_connection_of_many_commits_is_cut_each_is_resolved_by_its_own_id(
    store: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], moment: Cut
) -> None:
    """Each is answered with what became of it; those that had lost are told so."""
    run(store.apply([commit("t05")]))
    commits: list[list[Change]] = [[commit(name), answer_kept(name)] for name in TABLES[:10]]
    commits.append([commit("gone")])

    outcomes, cuts = run(cut_together(postgres, database, commits, moment))

    assert cuts == 1
    assert isinstance(outcomes.pop(), NoSuchTable)
    assert isinstance(outcomes.pop(5), PointerMoved)
    assert outcomes == [[None, None]] * 9
    assert run(versions(store, TABLES[:10])) == ["v2"] * 10
    logged = "SELECT table_name, count(*) FROM nunatak_commits WHERE operation = 'commit' GROUP BY 1 ORDER BY 1"
    assert run(execute(database, logged)) == [(name, 1) for name in TABLES[:10]]
    assert run(execute(database, "SELECT count(*) FROM nunatak_idempotency")) == [(9,)]


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_a_connection_cut_while_losers_are_looked_after_takes_nothing_back(
    store: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], moment: Cut
) -> None:
    """The winners are committed by then: they must never be refused."""
    run(store.apply([commit("t01")]))
    binds = itertools.count(1)

    def second_bind(kind: bytes, body: bytes) -> bool:
        return is_bind(kind, body) and next(binds) == 2

    commits: list[list[Change]] = [[commit(name)] for name in TABLES[:3]]
    outcomes, cuts = run(cut_together(postgres, database, commits, moment, second_bind))

    assert cuts == 1
    assert outcomes[0] == outcomes[2] == [None]
    assert isinstance(outcomes[1], PointerMoved)


def test_commits_that_nobody_can_be_asked_about_are_unknown_each(
    store: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.database.server_store.RESOLVE_SECONDS", 0.2)

    async def lose() -> list[Any]:
        async with postgres_proxy(postgres.port) as proxy:
            other = await through(proxy, database)
            proxy.upstream_port = 1
            proxy.cut_at_next(is_bind, Cut.AFTER)
            outcomes = await at_once(other, [[commit(name)] for name in TABLES[:3]])
            await other.close()
            return outcomes

    assert [type(outcome) for outcome in run(lose())] == [OutcomeUnknown] * 3
    assert run(versions(store, TABLES[:3])) == ["v2"] * 3


def test_lookups_whose_connection_is_cut_are_asked_again(
    store: PostgresStore, postgres: PostgresServer, database: str, run: Run[Any]
) -> None:
    async def look() -> list[str]:
        async with postgres_proxy(postgres.port) as proxy:
            other = await through(proxy, database)
            proxy.cut_at_next(is_bind, Cut.AFTER)
            found = await versions(other, TABLES)
            await other.close()
            assert proxy.cuts == 1
            return found

    assert run(look()) == ["v1"] * 50


# Coming and going


def test_a_caller_that_goes_away_before_its_commit_is_sent_does_not_take_it_back(
    store: PostgresStore, run: Run[Any]
) -> None:
    async def leave() -> None:
        tasks = [asyncio.create_task(store.apply([commit(name)])) for name in TABLES[:3]]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()

    run(leave())
    # A closed store still reads, on a new connection.
    assert run(versions(store, TABLES[:3])) == ["v2"] * 3


def test_large_metadata_goes_alone(store: PostgresStore, run: Run[Any]) -> None:
    before = store.counts["commit member"]
    large = stored("v2", location="file:///w/ns/t00", content=b"x" * 300_000)

    assert run(at_once(store, [[move("t00", version("t00", 1), large)], [commit("t01")]])) == [[None], [None]]

    assert store.counts["commit member"] - before == 1
    head = run(store.find_pointer(key("t00"), None))
    assert len(head.content) == 300_000


def test_connections_are_bounded_and_counted(database: str, run: Run[Any]) -> None:
    store = run(open_store(database, pool_size=5))
    run(store.apply([create_namespace(), insert("t")]))

    async def crowd() -> None:
        reads = [store.find_kind(key("t")) for _ in range(30)] + [store.find_pointer(key("t"), None) for _ in range(30)]
        changes = [store.apply([AddJob("delete-files", b"{}")]) for _ in range(10)]
        moving = [store.apply([move("no", stored("x"), stored("y"))]) for _ in range(10)]
        tasks = [asyncio.ensure_future(each) for each in (*reads, *changes, *moving)]
        await asyncio.sleep(0.001)
        assert store.counts["connection awaited"] > 0
        assert 0 < store.counts["connection in use"] <= 5
        await asyncio.gather(*tasks, return_exceptions=True)

    run(crowd())

    counted = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nunatak'"
    )
    idle = store.counts["connection idle"]
    assert idle <= 5
    await_true("the server has no session but these", lambda: run(execute(database, counted)) == [(idle,)])
    assert store.counts["connection in use"] == store.counts["connection awaited"] == 0
    assert store.counts["connection limit"] == 5
    run(store.close())
