"""The outbox on every database: each change has its event, in its transaction; readers and the spool miss none."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from nunatak.access.audit_rows import audit_row
from nunatak.database import mariadb as mariadb_driver
from nunatak.database.bindings import key_values
from nunatak.database.postgres import open_store
from nunatak.database.records import AddEvent, AdoptPointer, Change, SaveAnswer, StoredResponse, Write
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.events.change_events import ChangeEvent
from nunatak.events.outbox import (
    LEASE_MS,
    OutboxLimits,
    ReaderMoved,
    deliver,
    events_after,
    hand_to_spool,
    number_events,
    release_spool,
    trim,
)
from nunatak.events.spool import Spool
from tests.backends.builders import create_namespace, delete, entry, insert, key, move, rename, stored
from tests.backends.conftest import Run
from tests.support import mariadb as mariadb_support

LIMITS = OutboxLimits(days=7, events=1000)
TABLES = [f"t{number}" for number in range(8)]
ADD = "INSERT INTO nunatak_outbox (event_id, type, principal, at_ms) VALUES ('late', 'test', 'ann', 1)"


async def events_of(store: Store, after: int = 0) -> list[ChangeEvent]:
    await number_events(store)
    return await events_after(store, after)


def ids(events: Sequence[ChangeEvent]) -> list[str]:
    return [event.event_id for event in events]


def test_each_kind_of_change_has_its_event(store: Store, run: Run[Any]) -> None:
    first, second = (stored(version, uuid="uuid-of-t", location="file:///w/ns/t") for version in ("v2", "v3"))
    made = insert("t", location="file:///w/ns/t")
    moved = move("t", made.new, first, line=entry("commit", snapshot_id=7, request_id="r-1", detail='{"tries":2}'))
    checked = move("t", first, second, check_overlap=True, places_changed=True)
    adopted = AdoptPointer(key("t"), second, entry("external"))
    renamed, dropped = rename(key("t"), key("u")), delete("u")
    applied: list[list[Change]] = [[create_namespace(), made], [moved], [checked]]
    for changes in applied:
        run(store.apply(changes))
    run(store.apply([Write("forget_pointer", key_values(key("t")))]))  # as if another client had made the table
    last: list[Change] = [adopted, renamed, dropped]
    for change in last:
        run(store.apply([change]))

    found = run(events_of(store))
    lines = [each.entry for each in (made, moved, checked, adopted, renamed, dropped)]
    assert [(event.event_id, event.type) for event in found] == [(each.commit_id, each.operation) for each in lines]
    assert [event.name for event in found] == ["t", "t", "t", "t", "t", "u"]
    assert {event.object_uuid for event in found} == {"uuid-of-t"}
    v1, v2, v3 = (each.metadata_location for each in (made.new, first, second))
    moves = [(None, v1), (v1, v2), (v2, v3), (None, v3), (v3, v3), (v3, None)]
    assert [(event.before, event.after) for event in found] == moves
    assert (found[1].snapshot_id, found[1].request_id, found[1].detail.tries) == (7, "r-1", 2)
    assert [event.position for event in found] == list(range(found[0].position, found[0].position + 6))


def test_an_audit_row_of_a_change_has_its_event_and_so_has_a_change_without_one(store: Store, run: Run[Any]) -> None:
    row = partial(audit_row, at_ms=5, principal="ann")
    granted = row(action="grant", securable="", detail={"to": "bob"}, origin='{"client":"curl"}')
    made = row(action="create-namespace", securable="default\x1fns.", namespace=("default", "ns"))
    finished = AddEvent("e-1", "finish", "default\x1f", "ann", "r-1", 5, '{"facts":{"state":"done"}}')
    run(store.apply([granted]))
    run(store.apply([create_namespace(), made]))
    run(store.apply([finished]))

    first, second, third = run(events_of(store))
    assert (first.type, first.securable, first.namespace, first.principal) == ("grant", "", None, "ann")
    assert (first.detail.audit, first.detail.origin) == ({"to": "bob"}, {"client": "curl"})
    assert (second.type, second.warehouse, second.namespace, second.name) == ("create-namespace", "default", "ns", None)
    assert (third.event_id, third.securable, third.detail.facts) == ("e-1", "default\x1f", {"state": "done"})
    assert len({*ids([first, second, third])}) == 3


def test_a_change_that_is_refused_has_no_event(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t"), insert("u")]))
    before = run(events_of(store))
    wrong = move("t", stored("other"), stored("v2", uuid="uuid-of-t", location="file:///w/ns/t"))
    right = move("u", insert("u").new, stored("v2", uuid="uuid-of-u", location="file:///w/ns/u"))
    kept = SaveAnswer("ann", "key", b"h", StoredResponse(200), 0, 10_000)
    run(store.apply([kept]))

    refused: list[list[Change]] = [[wrong], [right, wrong], [right, kept], [insert("t")], [rename(key("t"), key("u"))]]
    for changes in refused:
        with pytest.raises(CatalogError):
            run(store.apply(changes))

    assert run(events_of(store)) == before


def test_commits_that_are_sent_together_have_one_event_each(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), *(insert(name) for name in TABLES)]))
    last = run(events_of(store))[-1].position
    moves = [
        move(name, insert(name).new, stored("v2", uuid=f"uuid-of-{name}", location=f"file:///w/ns/{name}"))
        for name in TABLES
    ]

    async def together() -> None:
        await asyncio.gather(*(store.apply([each]) for each in moves))

    run(together())

    found = run(events_of(store, last))
    assert sorted(ids(found)) == sorted(each.entry.commit_id for each in moves)
    assert {(event.name, event.after) for event in found} == {
        (each.key.name, each.new.metadata_location) for each in moves
    }


# Positions on databases with several writers


@contextmanager
def held_open(kind: str, url: str) -> Iterator[Any]:
    """A transaction with the event `late`, which is committed when the returned function is called."""
    if kind == "mariadb":
        with mariadb_support.connect(url) as connection:
            connection.begin()
            connection.cursor().execute(ADD)
            yield connection.commit
        return
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))
        runner.run(connection.execute("BEGIN"))
        runner.run(connection.execute(ADD))
        yield lambda: runner.run(connection.execute("COMMIT"))
        runner.run(connection.close())


@pytest.fixture(params=["postgres", "mariadb"])
def shared(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A database that several servers may use: its kind and its address."""
    return request.param, request.getfixturevalue("database" if request.param == "postgres" else "mariadb_database")


async def opened(kind: str, url: str) -> Store:
    return await (open_store(url) if kind == "postgres" else mariadb_driver.open_store(url))


def test_an_event_that_is_committed_late_is_not_skipped(shared: tuple[str, str], run: Run[Any]) -> None:
    """Its number in the table is lower than those that readers have passed by then."""
    kind, url = shared
    store = run(opened(kind, url))
    run(store.apply([create_namespace()]))

    with held_open(kind, url) as commit:
        run(store.apply([insert("t")]))
        run(store.apply([insert("u")]))
        before = run(events_of(store))
        assert [event.name for event in before] == ["t", "u"], "an open transaction delays nobody"
        commit()
        late = run(events_of(store, before[-1].position))

    assert ids(late) == ["late"]
    assert ids(run(events_of(store))) == [*ids(before), "late"]
    run(store.close())


def test_servers_that_number_at_the_same_time_give_each_position_once(shared: tuple[str, str], run: Run[Any]) -> None:
    kind, url = shared
    stores = [run(opened(kind, url)) for _ in range(3)]

    async def change(number: int) -> None:
        for round_number in range(10):
            event = AddEvent(f"{number}-{round_number}", "test", "", "ann", None, 5)
            await stores[number].apply([event])
            await number_events(stores[number])

    async def all_at_once() -> None:
        await asyncio.gather(*(change(number) for number in range(3)))
        await number_events(stores[0])

    run(all_at_once())

    found = run(events_after(stores[0], 0))
    assert [event.position for event in found] == list(range(1, 31))
    assert len(set(ids(found))) == 30
    for store in stores:
        run(store.close())


def test_events_that_another_server_numbers_in_between_keep_their_positions(
    shared: tuple[str, str], run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = (run(opened(*shared)) for _ in range(2))
    add(slow, run, "a", "b")
    real = slow.rows

    async def rows(statement: str, values: Any) -> Any:
        found = await real(statement, values)
        if statement == "unnumbered_events":
            await number_events(fast)
        return found

    monkeypatch.setattr(slow, "rows", rows)
    run(number_events(slow))

    assert [(event.event_id, event.position) for event in run(events_after(fast, 0))] == [("a", 1), ("b", 2)]
    for store in (slow, fast):
        run(store.close())


# The spool


class Spooled:
    """Servers with a spool each, on one store, and a clock that they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1_000_000

    def spool(self, server: str) -> Spool:
        return Spool(self.folder / server, server, self.now_ms, 1 << 30)

    def now_ms(self) -> int:
        return self.now

    def events(self, server: str = "*") -> list[str]:
        files = sorted(self.folder.glob(f"{server}/*/*/*.jsonl"))
        return [json.loads(line)["event_id"] for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def spooled(tmp_path: Path) -> Spooled:
    return Spooled(tmp_path / "spools")


def add(store: Store, run: Run[Any], *names: str, at_ms: int = 5) -> None:
    for name in names:
        run(store.apply([AddEvent(name, "test", "", "ann", None, at_ms)]))


def test_each_event_goes_to_one_spool_once(store: Store, run: Run[Any], spooled: Spooled) -> None:
    one, two = spooled.spool("one"), spooled.spool("two")
    add(store, run, "a", "b")
    run(deliver(store, one, "one", spooled.now_ms))
    add(store, run, "c")

    run(deliver(store, two, "two", spooled.now_ms))
    assert spooled.events("two") == [], "the other server has the lease"
    run(deliver(store, one, "one", spooled.now_ms))
    run(deliver(store, one, "one", spooled.now_ms))
    assert spooled.events("one") == ["a", "b", "c"]

    add(store, run, "d")
    spooled.now += LEASE_MS + 1
    run(deliver(store, two, "two", spooled.now_ms))
    add(store, run, "e")
    run(deliver(store, one, "one", spooled.now_ms))
    assert spooled.events("two") == ["d"]
    run(release_spool(store, "two"))
    run(deliver(store, one, "one", spooled.now_ms))
    assert spooled.events() == ["a", "b", "c", "e", "d"], "e by the server that took over when the lease was ended"


def test_a_crash_between_the_file_and_the_note_hands_the_same_ids_over_again(
    store: Store, run: Run[Any], spooled: Spooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, run, "a", "b")
    real = store.apply

    async def crashing(changes: Any) -> list[object]:
        if any(isinstance(each, Write) and each.statement == "move_leased_reader" for each in changes):
            raise ReaderMoved("the server is gone")
        return await real(changes)

    monkeypatch.setattr(store, "apply", crashing)
    run(deliver(store, spooled.spool("one"), "one", spooled.now_ms))
    monkeypatch.undo()
    spooled.now += LEASE_MS + 1
    run(deliver(store, spooled.spool("two"), "two", spooled.now_ms))

    assert (spooled.events("one"), spooled.events("two")) == (["a", "b"], ["a", "b"])


def test_many_events_are_read_in_pages(
    store: Store, run: Run[Any], spooled: Spooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak.events.outbox.PAGE", 3)
    monkeypatch.setattr("nunatak.events.outbox.FILE_EVENTS", 6)
    names = [f"e{number:02}" for number in range(20)]
    run(store.apply([AddEvent(name, "test", "", "ann", None, 5) for name in names]))

    run(deliver(store, spooled.spool("one"), "one", spooled.now_ms))

    assert spooled.events() == names
    assert len(list(spooled.folder.rglob("*.jsonl"))) == 4


# Retention


def test_old_events_and_those_beyond_the_limit_are_deleted_and_the_newest_stays(store: Store, run: Run[Any]) -> None:
    day = 86_400_000
    add(store, run, "old", at_ms=day)
    add(store, run, "a", "b", "c", at_ms=9 * day)
    run(number_events(store))

    assert run(trim(store, None, 10 * day, LIMITS)) == 1
    assert ids(run(events_of(store))) == ["a", "b", "c"]
    assert run(trim(store, None, 10 * day, OutboxLimits(days=7, events=2))) == 1
    assert ids(run(events_of(store))) == ["b", "c"]
    assert run(trim(store, None, 99 * day, LIMITS)) == 1
    (last,) = run(events_of(store))
    assert run(trim(store, None, 99 * day, LIMITS)) == 0
    add(store, run, "d")
    assert [event.position for event in run(events_of(store))] == [last.position, last.position + 1]


def test_an_event_without_position_is_never_deleted(shared: tuple[str, str], run: Run[Any]) -> None:
    store = run(opened(*shared))
    add(store, run, "a", "b")
    run(number_events(store))
    add(store, run, "c")

    assert run(trim(store, None, 1 << 50, OutboxLimits(1, 1))) == 1
    assert ids(run(events_of(store))) == ["b", "c"]
    run(store.close())


def test_events_deleted_before_the_spool_got_them_are_counted(store: Store, run: Run[Any], spooled: Spooled) -> None:
    spool = spooled.spool("one")
    add(store, run, "a", "b")
    run(deliver(store, spool, "one", spooled.now_ms))
    add(store, run, "c", "d", "e")
    run(number_events(store))

    run(trim(store, spool, 1 << 50, LIMITS))

    assert spool.dropped == 2
    run(hand_to_spool(store, spool, "one", spooled.now_ms))
    assert spooled.events() == ["a", "b", "e"]
