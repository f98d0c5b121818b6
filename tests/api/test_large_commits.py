"""Large commits: worked out beside the event loop, and bounded in what they may hold."""

import asyncio
import gc
import gzip
import json
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nunatak.api import bodies
from nunatak.api.request_limits import InFlight
from nunatak.catalog import commits, publish
from nunatak.catalog.catalog import Caller
from nunatak.catalog.large_work import SENDER, SWITCH_SECONDS, LargeWork, short_switch_interval
from nunatak.catalog.pointers import key_of
from nunatak.iceberg import commit_request, create, table_metadata, updates, view_commit, view_metadata
from nunatak.iceberg.identifiers import Identifier
from tests.api.test_register_checks import REGISTER, REGISTER_VIEW, a_file
from tests.api.wire import a_commit, a_version, add_snapshot, identifier, ok, path_of, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog

MANY = {f"key{number}": "v" * 100 for number in range(400)}  # some 50 kB
WIDE = [{"id": number, "name": f"c{number}", "required": False, "type": "long"} for number in range(1, 400)]

Threads = Callable[..., set[bool]]


@pytest.fixture
def beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """Notes for a function whether it is called in the event loop's thread, False, or in another."""

    def watch(module: Any, name: str) -> set[bool]:
        seen: set[bool] = set()
        real = getattr(module, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            seen.add(threading.current_thread() is not threading.main_thread())
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, watched)
        return seen

    return watch


def a_large_table(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    for start in (1, 1001):
        added = [add_snapshot(number, sequence=number) for number in range(start, start + 990)]
        ok(catalog.commit("ns", "t", a_commit(*added, set_branch(start + 989))))


def test_a_small_commit_is_worked_out_at_once(catalog: LocalCatalog, beside_the_loop: Threads) -> None:
    catalog.table("ns", "t")
    seen = beside_the_loop(updates, "apply_all")

    ok(catalog.commit("ns", "t", a_commit(set_properties(a="b"))))

    assert seen == {False}


def test_a_large_commit_is_decoded_and_worked_out_beside_the_event_loop(
    catalog: LocalCatalog, beside_the_loop: Threads
) -> None:
    catalog.table("ns", "t")
    decoded, applied = beside_the_loop(commit_request, "decode_commit"), beside_the_loop(updates, "apply_all")

    ok(catalog.commit("ns", "t", a_commit(set_properties(**MANY))))

    assert decoded == applied == {True}


def test_a_large_transaction_too(catalog: LocalCatalog, beside_the_loop: Threads) -> None:
    catalog.table("ns", "t")
    applied = beside_the_loop(updates, "apply_all")
    changes = [{"identifier": identifier("ns", "t"), "requirements": [], "updates": [set_properties(**MANY)]}]

    assert catalog.call("POST", "/v1/transactions/commit", {"table-changes": changes}).status == 204

    assert applied == {True}


def test_a_small_commit_that_goes_through_all_of_a_large_table_is_worked_out_beside_the_event_loop(
    catalog: LocalCatalog, beside_the_loop: Threads
) -> None:
    a_large_table(catalog)
    applied = beside_the_loop(updates, "apply_all")

    ok(catalog.commit("ns", "t", a_commit({"action": "remove-snapshots", "snapshot-ids": [1]})))
    assert applied == {True}

    applied.clear()
    ok(catalog.commit("ns", "t", a_commit(add_snapshot(5000, sequence=5000), set_branch(5000))))
    assert applied == {False}, "an append costs the same however large the table is"


def test_large_metadata_is_read_beside_the_event_loop(catalog: LocalCatalog, beside_the_loop: Threads) -> None:
    a_large_table(catalog)
    catalog.app.catalog.cache.forget(next(iter(catalog.app.catalog.cache._entries)))
    read = beside_the_loop(table_metadata, "decode")

    ok(catalog.call("GET", path_of("ns", "tables", "t") + "?snapshots=refs"))

    assert read == {True}


def test_a_wide_table_is_made_beside_the_event_loop(catalog: LocalCatalog, beside_the_loop: Threads) -> None:
    made = beside_the_loop(create, "new_table")

    catalog.table("ns", "t", schema={"type": "struct", "fields": WIDE})

    assert made == {True}


def test_a_large_commit_to_a_view_is_worked_out_beside_the_event_loop(
    catalog: LocalCatalog, beside_the_loop: Threads
) -> None:
    catalog.view("ns", "v")
    decoded, applied = beside_the_loop(view_commit, "decode_commit"), beside_the_loop(view_commit, "apply_all")

    ok(catalog.call("POST", path_of("ns", "views", "v"), a_commit(set_properties(**MANY))))

    assert decoded == applied == {True}


def test_what_is_registered_is_read_beside_the_event_loop(catalog: LocalCatalog, beside_the_loop: Threads) -> None:
    catalog.table("ns", "t")
    request = a_file(catalog)
    read = beside_the_loop(table_metadata, "decode")

    ok(catalog.call("POST", REGISTER, request))

    assert read == {True}


def test_a_registered_view_too(catalog: LocalCatalog, beside_the_loop: Threads) -> None:
    catalog.view("ns", "v")
    request = a_file(catalog, "views")
    read = beside_the_loop(view_metadata, "decode")

    ok(catalog.call("POST", REGISTER_VIEW, request))

    assert read == {True}


def test_others_get_their_turn_between_the_tables_of_a_transaction(catalog: LocalCatalog) -> None:
    """While the tables are planned, from memory or from the database, and while their new versions are made."""
    location = catalog.table("ns", "t")["metadata"]["location"]
    add = add_snapshot(1)
    add["snapshot"]["manifest-list"] = f"{location}/metadata/snap-1.avro"
    request = commit_request.decode_commit(json.dumps(a_commit(add)).encode())
    server = catalog.app.catalog
    warehouse = server.warehouse("")
    commit = commits.table_commit(Identifier(("ns",), "t"), [request])
    count = 10 * publish.AT_ONCE
    keys, wanted = [key_of(warehouse, commit.identifier)] * count, [commit] * count

    async def turns_of_others(work: Coroutine[Any, Any, Any]) -> int:
        turns, done = 0, asyncio.Event()

        async def other() -> None:
            nonlocal turns
            while not done.is_set():
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(other())
        result = await work
        done.set()
        await task
        assert result
        return turns

    caller = Caller()
    planned = catalog.run(commits._plan_all(server, warehouse, caller, keys, wanted, is_transaction=True))
    for work in (
        commits._plan_from_cache(server, warehouse, caller, keys, wanted),
        commits._plan_all(server, warehouse, caller, keys, wanted, is_transaction=True),
        publish._new_versions(server, planned),
    ):
        assert catalog.run(turns_of_others(work)) >= 10


# Bounds


def a_change(name: str, **more: Any) -> dict[str, Any]:
    return {"identifier": identifier("ns", name), "requirements": [], "updates": [], **more}


SPEC_0 = {"type": "assert-default-spec-id", "default-spec-id": 0}
REMOVE = {"action": "remove-properties", "removals": ["a"]}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([a_change("t", requirements=[SPEC_0] * 1001)], "Too many requirements: 1001"),
        ([a_change("t", updates=[REMOVE] * 1001)], "Too many updates: 1001"),
        ([a_change("t", updates=[REMOVE] * 501)] * 2, "Too many updates: 1002"),
        ([a_change("t")] * 101, "Too many changes of ns.t: 101"),
        ([a_change(f"t{number}") for number in range(1001)], "Too many tables: 1001"),
    ],
)
def test_a_transaction_is_bounded(catalog: LocalCatalog, changes: list[dict[str, Any]], text: str) -> None:
    catalog.table("ns", "t")
    before = catalog.state()

    answer = catalog.call("POST", "/v1/transactions/commit", {"table-changes": changes})

    assert answer.status == 400
    assert text in answer.body.decode()
    assert catalog.state() == before
    assert catalog.app.catalog.spool is not None
    assert len(catalog.app.catalog.spool._waiting) <= 2, "no event for each of its tables"


def test_a_commit_to_a_view_is_bounded(catalog: LocalCatalog) -> None:
    catalog.view("ns", "v")
    versions = [
        {"action": "add-view-version", "view-version": a_version(f"SELECT {number}", number)} for number in range(1001)
    ]

    answer = catalog.call("POST", path_of("ns", "views", "v"), a_commit(*versions))

    assert answer.status == 400
    assert b"Too many updates: 1001" in answer.body


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({f"k{number}": "v" for number in range(1001)}, "Too many properties: 1001"),
        ({"k": "v" * 32 * 1024}, "larger than 32768 bytes"),
        ({"s3.secret-access-key": "x"}, "the name suggests a secret"),
        ({"": "x"}, "its key is empty"),
    ],
    ids=["too many", "too large", "a secret", "no key"],
)
@pytest.mark.parametrize("kind", ["tables", "views"])
def test_a_register_takes_the_properties_that_a_commit_takes(
    catalog: LocalCatalog, kind: str, properties: dict[str, str], text: str
) -> None:
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    request = a_file(catalog, kind, properties=properties)

    answer = catalog.call("POST", REGISTER if kind == "tables" else REGISTER_VIEW, request)

    assert answer.status == 400
    assert text in answer.body.decode()


def test_who_sends_many_large_requests_does_not_stand_before_others_in_the_queue() -> None:
    """Five works of one sender and then one of another: the other waits for one of them, not for all."""

    async def order() -> list[str]:
        work, done = LargeWork(), list[str]()

        async def send(sender: str) -> None:
            SENDER.set(sender)
            await work.run(done.append, sender)

        await asyncio.gather(*(asyncio.create_task(send(sender)) for sender in ["many"] * 5 + ["one"]))
        return done

    assert asyncio.run(order()).index("one") <= 1


def test_a_request_takes_its_turn_as_its_sender(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.table("ns", "t")
    seen: list[str] = []
    real = updates.apply_all

    def watched(*arguments: Any, **named: Any) -> Any:
        seen.append(threading.current_thread().name)
        return real(*arguments, **named)

    monkeypatch.setattr(updates, "apply_all", watched)

    ok(catalog.commit("ns", "t", a_commit(set_properties(**MANY))))

    assert [name.rpartition("_")[0] for name in seen] == ["large-work"]
    assert catalog.app.catalog.large_work._sender_locks == {}


def test_a_large_work_leaves_the_interpreter_as_it_was() -> None:
    """Threads that are switched more often cost every commit; that is only for as long as a large work lasts."""
    before, during = (sys.getswitchinterval(), gc.isenabled()), []

    def look() -> None:
        during.append((sys.getswitchinterval(), gc.isenabled()))

    asyncio.run(LargeWork().run(look))

    assert during == [(SWITCH_SECONDS, False)]
    assert (sys.getswitchinterval(), gc.isenabled()) == before


def test_two_large_works_that_overlap_leave_the_interpreter_as_it_was() -> None:
    """The one that began first ends first: the other must not restore what it found."""
    before = sys.getswitchinterval(), gc.isenabled()
    first, second = short_switch_interval(), short_switch_interval()

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    between = sys.getswitchinterval(), gc.isenabled()
    second.__exit__(None, None, None)

    assert between == (SWITCH_SECONDS, False)
    assert (sys.getswitchinterval(), gc.isenabled()) == before


def test_a_large_body_is_unpacked_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's default would add 5 ms to each step of every other request while a body is unpacked."""
    seen: list[float] = []
    monkeypatch.setattr(bodies, "check_json", lambda body: seen.append(sys.getswitchinterval()))
    packed = gzip.compress(b"[" + b" " * bodies.LARGE_BYTES + b"]")
    body = bodies.Body(packed, {b"content-encoding": b"gzip"}, bodies.BodyRoom(1 << 30, 1 << 30), InFlight(10), 1 << 20)

    asyncio.run(body.read())

    assert seen == [SWITCH_SECONDS]
