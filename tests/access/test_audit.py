"""The audit trail: what is noted is written once, what is changed leaves its row, and all of it can be searched."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nunatak.access import securables
from nunatak.access.audit_rows import ALLOWED, DENIED, audit_row, origin_text
from nunatak.database.records import CommitEntry, CreateNamespace, InsertPointer, Key, Stored
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from nunatak.events import audit_trail
from nunatak.events.audit_buffer import AuditBuffer, run_audit
from nunatak.events.audit_trail import Filter, Position, TrailRecord, line_of, search
from nunatak.events.metrics import Metrics
from tests.api.wire import Answer, a_commit, a_table, set_properties
from tests.backends.conftest import Run
from tests.support.catalogs.local import LocalCatalog

ALL = Filter()
HOUR_MS = 3_600_000
TABLE = securables.entry("wh", ("sales", "eu"), "orders")
ORIGIN = origin_text("10.0.0.1", ["analyst"], "spark/3.5")


def at(moment: int = 1_000) -> Callable[[], int]:
    return lambda: moment


def noted(buffer: AuditBuffer, times: int = 1, **different: Any) -> None:
    what = {"principal": "ann", "action": "loadTable", "securable": TABLE, "outcome": ALLOWED, "origin": ORIGIN}
    for number in range(times):
        buffer.note(**{**what, "request_id": f"r{number}", **different})


async def everything(store: Store, wanted: Filter = ALL, *, newest_first: bool = False) -> list[TrailRecord]:
    """Page by page, three records each."""
    records: list[TrailRecord] = []
    position: Position | None = None
    for _ in range(1000):
        page, position = await search(store, wanted, newest_first=newest_first, position=position, limit=3)
        records += page
        if position is None:
            return records
    raise AssertionError("the search does not end")


# What is noted


def test_what_happens_again_before_a_flush_is_one_row_of_the_first_time(store: Store, run: Run[Any]) -> None:
    clock = itertools.count(1_000)
    buffer = AuditBuffer(lambda: next(clock))
    noted(buffer, 3)
    noted(buffer, outcome=DENIED)

    run(buffer.flush(store))
    run(buffer.flush(store))  # nothing is left

    allowed, denied = run(everything(store))
    assert allowed == TrailRecord(
        "audit", allowed.sequence, 1_000, "ann", "loadTable", TABLE, ALLOWED, None, 3, "r0", ORIGIN
    )
    assert (denied.outcome, denied.repeats, denied.at_ms) == (DENIED, 1, 1_001)


def test_what_is_noted_between_two_flushes_has_its_own_row(store: Store, run: Run[Any]) -> None:
    buffer = AuditBuffer(at())
    noted(buffer, 2)
    run(buffer.flush(store))
    noted(buffer)
    run(buffer.flush(store))

    assert [record.repeats for record in run(everything(store))] == [2, 1]


def test_names_that_no_database_could_keep_are_noted_nevertheless(store: Store, run: Run[Any]) -> None:
    """Whoever is denied may have asked for anything."""
    buffer = AuditBuffer(at())
    noted(buffer, securable=securables.namespace("wh", ("a\0b", "c" * 4_000)), action="a\\u0000b", outcome=DENIED)
    noted(buffer, request_id="r" * 5_000, origin=origin_text("::1", [], "x" * 70_000))

    run(buffer.flush(store))

    cut, long = run(everything(store))
    assert cut.securable.startswith("wh\x1fa\ufffdb.c")
    assert (len(long.request_id or ""), len(long.origin or "")) == (200, 200 + len('{"address":"::1","client":""}'))


def test_what_is_too_much_is_dropped_and_counted(tmp_path: Path, run: Run[Any]) -> None:
    store, buffer = SqliteStore(tmp_path / "catalog.db"), AuditBuffer(at(), most_rows=2)
    metrics = Metrics(dict, dict, lambda: 0, lambda: 0, lambda: buffer.dropped)
    for name in ("a", "b", "c", "a", "d"):
        noted(buffer, principal=name)

    run(buffer.flush(store))

    assert [(record.principal, record.repeats) for record in run(everything(store))] == [("a", 2), ("b", 1)]
    assert b"\nnunatak_audit_dropped_total 2.0\n" in metrics.page()
    run(store.close())


def test_what_cannot_be_written_now_is_written_later_once(tmp_path: Path, run: Run[Any]) -> None:
    stopped, store = SqliteStore(tmp_path / "stopped.db"), SqliteStore(tmp_path / "catalog.db")
    run(stopped.close())
    buffer = AuditBuffer(at(), most_rows=2)
    noted(buffer, 2)
    noted(buffer, principal="bob")

    run(buffer.flush(stopped))
    noted(buffer)  # the same again, and one for which there is no room
    noted(buffer, principal="cid")
    run(buffer.flush(store))

    assert [(record.principal, record.repeats) for record in run(everything(store))] == [("ann", 3), ("bob", 1)]
    assert buffer.dropped == 1
    run(store.close())


def test_a_server_that_stops_writes_what_was_noted(tmp_path: Path, run: Run[Any]) -> None:
    store, buffer = SqliteStore(tmp_path / "catalog.db"), AuditBuffer(at())

    async def work() -> None:
        duty = asyncio.create_task(run_audit(buffer, store))
        await asyncio.sleep(0)
        noted(buffer)
        duty.cancel()
        await asyncio.gather(duty, return_exceptions=True)

    run(work())
    assert len(run(everything(store))) == 1
    run(store.close())


# Searching


def a_commit_at(number: int, at_ms: int, name: str, principal: str = "ann") -> InsertPointer:
    new = Stored(f"file:///w/{name}/v1.json", f"uuid-{name}", f"file:///w/{name}", b"{}")
    line = CommitEntry(f"c{number}", "create-table", principal, at_ms, request_id=f"q{number}", origin=ORIGIN)
    return InsertPointer(Key("wh", "sales", name), "TABLE", new, line, f"sales.{name}", "sales")


async def filled(store: Store, clock_ahead_ms: int = 0) -> list[str]:
    """Commits and audit rows in turn, a second apart; every other row is of a server whose clock is ahead."""
    await store.apply([CreateNamespace("wh", "sales", (), {}, "sales")])
    expected = []
    for number in range(10):
        at_ms = HOUR_MS * 10 + number * 2_000
        await store.apply([a_commit_at(number, at_ms, f"t{number}", "ann" if number % 2 else "bob")])
        securable = securables.namespace("wh" if number % 3 else "other", ("sales",))
        later = at_ms + 1_000 + (clock_ahead_ms if number % 2 else 0)
        outcome = ALLOWED if number % 2 else DENIED
        row = audit_row(at_ms=later, principal="cid", action="drop", securable=securable, outcome=outcome)
        await store.apply([row])
        expected += [f"commits {number + 1}", f"audit {number + 1}"]
    return expected


def names(records: list[TrailRecord]) -> list[str]:
    return [f"{record.table} {record.sequence}" for record in records]


def test_both_tables_are_read_as_one_by_time_in_either_direction(store: Store, run: Run[Any]) -> None:
    expected = run(filled(store))

    assert names(run(everything(store))) == expected
    assert names(run(everything(store, newest_first=True))) == expected[::-1]


@pytest.mark.parametrize("newest_first", [True, False])
def test_little_is_read_for_one_page_and_still_everything_is_found(
    tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    monkeypatch.setattr(audit_trail, "PAGE", 2)
    monkeypatch.setattr(audit_trail, "MAX_ROWS_READ", 2)
    store = SqliteStore(tmp_path / "catalog.db")
    expected = run(filled(store))

    assert sorted(names(run(everything(store, newest_first=newest_first)))) == sorted(expected)
    rare = run(everything(store, Filter(request_id="q3"), newest_first=newest_first))
    assert names(rare) == ["commits 4"]
    run(store.close())


FILTERS: dict[str, tuple[Filter, Callable[[TrailRecord], bool]]] = {
    "principal": (Filter(principal="bob"), lambda record: record.principal == "bob"),
    "action": (Filter(action="drop"), lambda record: record.table == "audit"),
    "outcome": (Filter(outcome=DENIED), lambda record: record.table == "audit" and record.sequence % 2 == 1),
    "request": (Filter(request_id="q7"), lambda record: (record.table, record.sequence) == ("commits", 8)),
    "warehouse": (
        Filter(securable=securables.warehouse("other")),
        lambda record: record.table == "audit" and record.sequence % 3 == 1,
    ),
    "namespace": (
        Filter(securable=securables.namespace("wh", ("sales",))),
        lambda record: record.table == "commits" or record.sequence % 3 != 1,
    ),
    "table and not those that begin like it": (
        Filter(securable=securables.entry("wh", ("sales",), "t1")),
        lambda record: (record.table, record.sequence) == ("commits", 2),
    ),
    "nothing": (Filter(securable=securables.namespace("wh", ("sale",))), lambda record: False),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_what_it_says_and_no_more(tmp_path: Path, run: Run[Any], name: str) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    run(filled(store))
    wanted, expected = FILTERS[name]

    assert run(everything(store, wanted)) == [record for record in run(everything(store)) if expected(record)]
    run(store.close())


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("clock_ahead_ms", [0, 5_000, 300_000])
def test_a_time_span_finds_every_record_in_it_although_clocks_differ(
    store: Store, run: Run[Any], clock_ahead_ms: int, newest_first: bool
) -> None:
    run(filled(store, clock_ahead_ms))
    start = HOUR_MS * 10
    spans = [(None, start + 7_000), (start + 7_000, None), (start + 4_000, start + 11_000), (0, 1), (start * 2, None)]
    found = run(everything(store))

    for since_ms, until_ms in spans:
        span = Filter(since_ms=since_ms, until_ms=until_ms)
        expected = [record for record in found if (since_ms or 0) <= record.at_ms < (until_ms or start * 9)]
        assert set(names(run(everything(store, span, newest_first=newest_first)))) == set(names(expected)), span


def test_a_span_of_time_reads_only_rows_around_it(
    tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_trail, "PAGE", 10)
    store = SqliteStore(tmp_path / "catalog.db")
    rows = [audit_row(at_ms=number * HOUR_MS, principal="ann", action="x", securable="") for number in range(1, 1_001)]
    run(store.apply(rows))
    before = store.counts["read"]

    found = run(everything(store, Filter(since_ms=500 * HOUR_MS, until_ms=502 * HOUR_MS)))

    assert [record.sequence for record in found] == [500, 501]
    assert store.counts["read"] - before < 30  # of a thousand rows, by tens
    run(store.close())


# What changes leave


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    catalog = LocalCatalog(tmp_path / "data")
    yield catalog
    catalog.close()


def trail_of(catalog: LocalCatalog) -> list[dict[str, Any]]:
    return [json.loads(line_of(record)) for record in catalog.run(everything(catalog.store))]


def told(catalog: LocalCatalog) -> list[tuple[str, str]]:
    return [(record["action"], record["securable"]) for record in trail_of(catalog)]


def test_every_change_leaves_one_record_and_a_refused_one_leaves_none(catalog: LocalCatalog) -> None:
    def call(status: int, *request: Any) -> Answer:
        answer = catalog.call(*request)
        assert answer.status == status, answer
        return answer

    call(200, "POST", "/v1/namespaces", {"namespace": ["a", "b.c"], "properties": {"owner": "s3cret"}})
    call(409, "POST", "/v1/namespaces", {"namespace": ["a", "b.c"]})
    call(200, "POST", "/v1/namespaces/a/properties", {"updates": {"color": "red"}, "removals": ["gone"]})
    call(422, "POST", "/v1/namespaces/a/properties", {"updates": {"x": "1"}, "removals": ["x"]})
    call(200, "POST", "/v1/namespaces/a/tables", a_table("t"))
    call(200, "POST", "/v1/namespaces/a/tables/t", a_commit(set_properties(x="1")))
    call(409, "DELETE", "/v1/namespaces/a")
    call(204, "DELETE", "/v1/namespaces/a/tables/t")
    call(404, "DELETE", "/v1/namespaces/a/tables/t")
    call(204, "DELETE", "/v1/namespaces/a%1Fb.c")
    call(204, "DELETE", "/v1/namespaces/a")

    assert told(catalog) == [
        ("create-namespace", "namespace:default/a/b.c"),
        ("update-namespace", "namespace:default/a"),
        ("create-table", "table:default/a/t"),
        ("commit-table", "table:default/a/t"),
        ("drop-table", "table:default/a/t"),
        ("drop-namespace", "namespace:default/a/b.c"),
        ("drop-namespace", "namespace:default/a"),
    ]
    created, updated, *_ = trail_of(catalog)
    assert (created["detail"], updated["detail"]) == ({"set": ["owner"]}, {"set": ["color"], "removed": ["gone"]})
    assert "s3cret" not in json.dumps(trail_of(catalog))


def test_a_request_that_is_sent_again_with_its_key_is_recorded_once(catalog: LocalCatalog) -> None:
    key = {"Idempotency-Key": str(uuid4()), "X-Request-ID": "first"}
    body = {"namespace": ["ns"]}

    answers = [catalog.call("POST", "/v1/namespaces", body, key) for _ in range(3)]
    answers += catalog.together(*(catalog.request("POST", "/v1/namespaces", body, key) for _ in range(3)))

    assert {answer.status for answer in answers} == {200}
    assert [(record["action"], record["request_id"]) for record in trail_of(catalog)] == [("create-namespace", "first")]


def test_a_record_says_where_the_request_came_from() -> None:
    row = (
        1,
        1_000,
        "ann",
        "commit-table",
        "wh",
        "a.b",
        "t",
        "q1",
        ORIGIN,
        "c1",
        "u1",
        "file:///v1",
        None,
        7,
        b"\x01\xff",
    )

    line = json.loads(line_of(audit_trail.commit_record(row)))

    assert line == {
        "time": "1970-01-01T00:00:01.000Z",
        "record": "commits",
        "sequence": 1,
        "principal": "ann",
        "action": "commit-table",
        "securable": "table:wh/a/b/t",
        "outcome": "allowed",
        "repeats": 1,
        "request_id": "q1",
        "roles": ["analyst"],
        "address": "10.0.0.1",
        "agent": "spark/3.5",
        "detail": {
            "commit_id": "c1",
            "table_uuid": "u1",
            "metadata_location": "file:///v1",
            "snapshot_id": "7",
            "request_hash": "01ff",
        },
    }
