"""What each operation costs, counted: statements, transactions, files and parses. Nothing here is timed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apsw
import pytest

from nunatak.iceberg import table_metadata, view_metadata
from tests.api.wire import (
    Answer,
    a_commit,
    a_table,
    a_view,
    add_snapshot,
    done,
    identifier,
    ok,
    path_of,
    rename,
    set_branch,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")


@dataclass
class Cost:
    """How much happened meanwhile."""

    reads: int = 0
    transactions: int = 0
    groups: int = 0
    object_reads: int = 0
    object_writes: int = 0
    object_deletes: int = 0
    parses: int = 0


class Meter:
    def __init__(self, catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self._catalog = catalog
        self._parses = 0
        for module in (table_metadata, view_metadata):
            monkeypatch.setattr(module, "decode", self._counting(module.decode))

    def _counting(self, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(data: Any) -> Any:
            self._parses += 1
            return decode(data)

        return counted

    def _now(self) -> list[int]:
        database, files = self._catalog.store.counts, self._catalog.app.catalog.objects.local.counts
        return [
            *(database[name] for name in ("read", "transaction", "group")),
            *(files[name] for name in ("read", "write", "delete")),
            self._parses,
        ]

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        before, cost = self._now(), Cost()
        yield cost
        now = [after - start for after, start in zip(self._now(), before, strict=True)]
        (cost.reads, cost.transactions, cost.groups, cost.object_reads, cost.object_writes, cost.object_deletes,
         cost.parses) = now  # fmt: skip


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    ok(catalog.call("POST", T, a_commit(add_snapshot(1), set_branch(1))))
    return catalog


@pytest.fixture
def meter(full: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> Meter:
    return Meter(full, monkeypatch)


READ = Cost(reads=1)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("path", [T, V], ids=["table", "view"])
def test_a_load_is_one_statement_and_no_file_and_no_parse(
    full: LocalCatalog, meter: Meter, path: str, cold: bool
) -> None:
    if cold:
        full.restart()

    for _ in range(2):
        with meter.measured() as cost:
            answer = full.call("GET", path)
        assert answer.status == 200
        assert cost == READ


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("path", [T, V], ids=["table", "view"])
def test_a_304_is_one_statement_and_no_file_and_no_parse(
    full: LocalCatalog, meter: Meter, path: str, cold: bool
) -> None:
    etag = full.call("GET", path).headers["etag"]
    if cold:
        full.restart()

    with meter.measured() as cost:
        answer = full.call("GET", path, headers={"If-None-Match": etag})

    assert answer.status == 304
    assert cost == READ


def test_a_load_of_refs_parses_once_and_then_never(full: LocalCatalog, meter: Meter) -> None:
    full.restart()

    costs = []
    for _ in range(3):
        with meter.measured() as cost:
            ok(full.call("GET", f"{T}?snapshots=refs"))
        costs.append(cost)

    assert costs == [Cost(reads=1, parses=1), READ, READ]


@pytest.mark.parametrize("path", [T, V, path_of("ns")], ids=["table", "view", "namespace"])
def test_a_head_is_one_statement(full: LocalCatalog, meter: Meter, path: str) -> None:
    full.restart()

    with meter.measured() as cost:
        assert full.call("HEAD", path).status == 204

    assert cost == READ


@pytest.mark.parametrize("kind", ["tables", "views"])
def test_a_list_asks_whether_anything_changed_and_reads_only_then(full: LocalCatalog, meter: Meter, kind: str) -> None:
    """A list that is empty also asks whether the namespace is there, a full page whether another follows."""
    full.namespace("empty")
    for path, first, again in (
        (path_of("ns", kind), 2, 1),
        (path_of("ns", kind) + "?pageSize=1", 3, 1),
        (path_of("ns", kind) + "?pageSize=2", 2, 1),
        (path_of("empty", kind), 3, 2),
    ):
        for reads in (first, again):
            with meter.measured() as cost:
                ok(full.call("GET", path))
            assert cost == Cost(reads=reads), path


def test_a_page_of_tables_costs_its_rows_however_many_follow(full: LocalCatalog) -> None:
    """Counted by SQLite itself, in steps of its virtual machine."""
    steps: list[int] = []
    full.store._reader.trace_v2(
        apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
    )

    def cost_of_a_page() -> int:
        steps.clear()
        assert len(ok(full.call("GET", path_of("ns", "tables") + "?pageSize=5"))["identifiers"]) == 5
        return sum(steps)

    for number in range(10):
        full.table("ns", f"n{number:03d}")
    few = cost_of_a_page()
    for number in range(10, 100):
        full.table("ns", f"n{number:03d}")

    assert 0 < cost_of_a_page() <= few


def test_a_page_of_namespaces_costs_its_rows_whatever_lies_below(full: LocalCatalog, meter: Meter) -> None:
    for number in range(5):
        for child in range(10):
            full.namespace(f"n{number}", f"c{child}", "deep")

    with meter.measured() as cost:
        assert len(ok(full.call("GET", "/v1/namespaces?pageSize=3"))["namespaces"]) == 3

    assert cost.reads <= 3 * 3 + 1  # the child, the step over what lies below it, and whether it was listed
    assert cost.transactions == cost.object_reads == cost.parses == 0


def test_a_warm_commit_is_one_transaction_one_file_and_no_parse(full: LocalCatalog, meter: Meter) -> None:
    for number in range(3):
        with meter.measured() as cost:
            ok(full.call("POST", T, a_commit(set_properties(number=str(number)))))
        assert cost.reads <= 2
        assert (cost.transactions, cost.groups) == (1, 1)
        assert (cost.object_reads, cost.object_writes, cost.object_deletes) == (0, 1, 0)
        assert cost.parses == 0


def test_a_cold_commit_parses_once_and_reads_no_file(full: LocalCatalog, meter: Meter) -> None:
    full.restart()

    with meter.measured() as cost:
        ok(full.call("POST", T, a_commit(set_properties(a="b"))))

    assert cost.reads <= 2
    assert (cost.transactions, cost.groups) == (1, 1)
    assert (cost.object_reads, cost.object_writes) == (0, 1)
    assert cost.parses == 1


def test_a_commit_with_a_key_costs_one_statement_more(full: LocalCatalog, meter: Meter) -> None:
    key = {"Idempotency-Key": "01890a5d-ac96-774b-bcce-b302099a8057"}

    with meter.measured() as cost:
        ok(full.call("POST", T, a_commit(set_properties(a="b")), key))

    assert cost.reads <= 3
    assert (cost.transactions, cost.groups, cost.object_writes) == (1, 1, 1)


def test_a_view_commit_is_one_transaction_and_one_file(full: LocalCatalog, meter: Meter) -> None:
    with meter.measured() as cost:
        ok(full.call("POST", V, a_commit(set_properties(a="b"))))

    assert cost.reads <= 2
    assert (cost.transactions, cost.object_reads, cost.object_writes, cost.parses) == (1, 0, 1, 0)


def test_a_refused_commit_writes_nothing(full: LocalCatalog, meter: Meter) -> None:
    with meter.measured() as cost:
        assert full.call("POST", T, a_commit(requires=[{"type": "assert-create"}])).status == 409

    assert (cost.transactions, cost.object_reads, cost.object_writes, cost.parses) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [(path_of("ns", "tables"), a_table("new")), (path_of("ns", "views"), a_view("new"))],
    ids=["table", "view"],
)
def test_a_create_is_one_transaction_and_one_file(full: LocalCatalog, meter: Meter, path: str, body: Any) -> None:
    with meter.measured() as cost:
        ok(full.call("POST", path, body))

    assert (cost.transactions, cost.groups) == (1, 1)
    assert (cost.object_reads, cost.object_writes, cost.parses) == (0, 1, 0)


def test_a_load_after_a_create_or_commit_needs_no_parse(full: LocalCatalog, meter: Meter) -> None:
    full.table("ns", "new")
    with meter.measured() as cost:
        full.load("ns", "new")
    assert cost == READ


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", T, None),
        ("DELETE", V, None),
        ("POST", "/v1/tables/rename", {"source": identifier("ns", "t"), "destination": identifier("ns", "moved")}),
        ("POST", "/v1/views/rename", {"source": identifier("ns", "v"), "destination": identifier("ns", "moved")}),
    ],
    ids=["drop table", "drop view", "rename table", "rename view"],
)
def test_a_drop_or_rename_is_one_transaction_and_no_file(
    full: LocalCatalog, meter: Meter, method: str, path: str, body: Any
) -> None:
    full.restart()

    with meter.measured() as cost:
        done(full.call(method, path, body))

    assert cost == Cost(transactions=1, groups=1)


def test_a_transaction_over_many_tables_is_one_transaction(full: LocalCatalog, meter: Meter) -> None:
    names = [f"n{number}" for number in range(8)]
    for name in names:
        full.table("ns", name)
    changes = [a_commit(set_properties(a="b")) | {"identifier": identifier("ns", name)} for name in names]

    with meter.measured() as cost:
        done(full.call("POST", "/v1/transactions/commit", {"table-changes": changes}))

    assert (cost.transactions, cost.groups, cost.object_writes, cost.object_reads, cost.parses) == (1, 1, 8, 0, 0)


# Group commit


def at_once(catalog: LocalCatalog, requests: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """All requests, with the database held back until every one of them waits for it."""
    expected = catalog.store.counts["transaction"] + len(requests)
    holder = apsw.Connection(str(catalog.data / "nunatak.db"))
    holder.execute("BEGIN IMMEDIATE")

    async def release() -> None:
        for _ in range(5000):
            if catalog.store.counts["transaction"] == expected:
                break
            await asyncio.sleep(0.001)
        holder.execute("ROLLBACK")

    async def together() -> list[Answer]:
        released = asyncio.create_task(release())
        answers = await asyncio.gather(*requests)
        await released
        return answers

    try:
        return catalog.run(together())
    finally:
        holder.close()


def test_commits_that_wait_at_the_same_time_share_database_commits(full: LocalCatalog, meter: Meter) -> None:
    names = [f"n{number}" for number in range(64)]
    for name in names:
        full.table("ns", name)
    commit = a_commit(set_properties(a="b"))

    with meter.measured() as cost:
        answers = at_once(full, [full.request("POST", path_of("ns", "tables", name), commit) for name in names])

    assert {answer.status for answer in answers} == {200}
    assert cost.transactions == 64
    assert cost.groups <= 2  # whoever was first, and all that came while it was held back
    for name in names:
        assert full.load("ns", name)["metadata"]["properties"]["a"] == "b"


def test_one_that_fails_inside_a_group_leaves_the_others_applied(full: LocalCatalog, meter: Meter) -> None:
    """Renames onto a taken name are refused by the database itself, between commits that are fine."""
    names = [f"n{number:02d}" for number in range(28)]
    unlucky = set(names[::7])
    for name in (*names, *(f"taken-{name}" for name in unlucky)):
        full.table("ns", name)

    def request(name: str) -> Coroutine[Any, Any, Answer]:
        if name in unlucky:
            body = rename(identifier("ns", name), identifier("ns", f"taken-{name}"))
            return full.request("POST", "/v1/tables/rename", body)
        return full.request("POST", path_of("ns", "tables", name), a_commit(set_properties(a="b")))

    with meter.measured() as cost:
        answers = at_once(full, [request(name) for name in names])

    statuses = dict(zip(names, (answer.status for answer in answers), strict=True))
    assert statuses == {name: 409 if name in unlucky else 200 for name in names}
    assert cost.groups <= 2
    for name in names:
        assert ("a" in full.load("ns", name)["metadata"]["properties"]) == (name not in unlucky)


def test_a_commit_rewrites_no_index_of_what_stays(catalog: LocalCatalog) -> None:
    """SQLite rewrites an index if a statement names its column, changed or not: two pages more each time."""
    catalog.table("ns", "t")

    frames = []
    for number in range(1, 9):
        before = log_frames(catalog)
        ok(catalog.commit("ns", "t", a_commit(set_properties(number=str(number)))))
        frames.append(log_frames(catalog) - before)

    # Of iceberg_tables, nunatak_heads, nunatak_commits and its index, and nunatak_outbox, which has no index.
    assert min(frames) <= 5, frames


def log_frames(catalog: LocalCatalog) -> int:
    """Pages that were written to the write-ahead log and not yet moved into the database."""
    (log,) = catalog.data.glob("*-wal")
    return (log.stat().st_size - 32) // (24 + 4096)
