"""What a commit costs grows with its updates and its table, not with their product. Instructions are counted."""

import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import msgspec
import pytest

from nunatak.iceberg import updates, view_commit
from nunatak.iceberg.commit_request import (
    AddEncryptionKey,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AddViewVersion,
    AssignUuid,
    RemoveEncryptionKey,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetCurrentSnapshot,
    SetCurrentViewVersion,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    Update,
    UpgradeFormatVersion,
)
from nunatak.iceberg.entries import Entries
from nunatak.iceberg.table_metadata import TableMetadata, decode, encode
from nunatak.iceberg.view_metadata import ViewMetadata
from tests.unit.iceberg.builders import NOW_MS, UUID, a_field, a_schema, a_snapshot, a_spec, a_table, an_order

pytestmark = pytest.mark.slow

COUNTED = 50  # updates, and as many things that the table has already; then twice as many of both
TIMED = 250
MOST_GROWTH = 2.5  # of the cost when both are doubled; a product would make it 4

Json = dict[str, Any]
Given = tuple[TableMetadata, Sequence[Update]]


def _applied(base: TableMetadata, changes: Sequence[Update]) -> TableMetadata:
    return updates.apply_all(changes, base, base_location="file:/w/t/metadata/1.json", now_ms=NOW_MS + 10_000_000)


def _read_again(table: TableMetadata) -> TableMetadata:
    """As a server finds it that has not seen it before: nothing about it is remembered."""
    return decode(encode(table))


def _schema(number: int) -> Json:
    return a_schema(a_field(1, "id", required=True), a_field(number + 2, f"column{number}"))


def _statistics(number: int) -> Json:
    return {
        "snapshot-id": number,
        "statistics-path": f"s3://bucket/table/metadata/{number}.puffin",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }


def _key(number: int) -> Json:
    return {"key-id": f"key{number}", "encrypted-key-metadata": "aaaa"}


def _spec(number: int) -> Json:
    return a_spec((f"part{number}", f"bucket[{number + 1}]", 1), first_field_id=None)


def _with_schemas(count: int) -> TableMetadata:
    return _read_again(_applied(a_table(3), [AddSchema(_schema(number)) for number in range(count)]))


def _with_specs(count: int) -> TableMetadata:
    return _read_again(_applied(_with_schemas(count), [AddSpec(_spec(number)) for number in range(count)]))


def _with_orders(count: int) -> TableMetadata:
    orders = [AddSortOrder(an_order((f"bucket[{number + 1}]", 1))) for number in range(count)]
    return _read_again(_applied(a_table(3), orders))


def _with_snapshots(count: int) -> TableMetadata:
    """Each with a tag and statistics, and once current."""
    added: list[Update] = []
    for number in range(1, count + 1):
        added += [
            AddSnapshot(a_snapshot(number)),
            SetSnapshotRef(f"tag{number}", number, "tag"),
            SetStatistics(_statistics(number)),
            SetPartitionStatistics(_statistics(number)),
        ]
    table = _applied(a_table(2), [*added, SetSnapshotRef("main", count, "branch")])
    log = Entries.of({"timestamp-ms": NOW_MS + number, "snapshot-id": number} for number in range(1, count + 1))
    return _read_again(msgspec.structs.replace(table, snapshot_log=log))


def _with_keys(count: int) -> TableMetadata:
    return _read_again(_applied(a_table(3), [AddEncryptionKey(_key(number)) for number in range(count)]))


def _with_properties(count: int) -> TableMetadata:
    properties: dict[str, Any] = {f"property{number}": "value" for number in range(count)}
    return a_table(2, **properties)


def _new_snapshots(count: int, first: int) -> list[Update]:
    return [AddSnapshot(a_snapshot(number)) for number in range(first, first + count)]


# How many updates of one kind meet as many things of that kind.
UPDATES: dict[type, Callable[[int], Given]] = {
    AssignUuid: lambda n: (a_table(), [AssignUuid(UUID)] * n),
    UpgradeFormatVersion: lambda n: (a_table(), [UpgradeFormatVersion(2)] * n),
    AddSchema: lambda n: (_with_schemas(n), [AddSchema(_schema(n + number)) for number in range(n)]),
    SetCurrentSchema: lambda n: (_with_specs(n), [SetCurrentSchema(number) for number in range(1, n)]),
    RemoveSchemas: lambda n: (_with_schemas(n), [RemoveSchemas([number]) for number in range(1, n)]),
    AddSpec: lambda n: (_with_specs(n), [AddSpec(_spec(n + number)) for number in range(n)]),
    SetDefaultSpec: lambda n: (_with_specs(n), [SetDefaultSpec(number) for number in range(1, n)]),
    RemovePartitionSpecs: lambda n: (_with_specs(n), [RemovePartitionSpecs([number]) for number in range(1, n)]),
    AddSortOrder: lambda n: (
        _with_orders(n),
        [AddSortOrder(an_order((f"bucket[{n + number + 1}]", 1))) for number in range(n)],
    ),
    SetDefaultSortOrder: lambda n: (_with_orders(n), [SetDefaultSortOrder(number) for number in range(1, n)]),
    AddSnapshot: lambda n: (_with_snapshots(n), _new_snapshots(n, n + 1)),
    SetSnapshotRef: lambda n: (
        _with_snapshots(n),
        [SetSnapshotRef(f"branch{number}", number, "branch") for number in range(1, n + 1)],
    ),
    SetCurrentSnapshot: lambda n: (_with_snapshots(n), [SetCurrentSnapshot(number) for number in range(1, n + 1)]),
    RemoveSnapshots: lambda n: (_with_snapshots(n), [RemoveSnapshots([number]) for number in range(1, n)]),
    RemoveSnapshotRef: lambda n: (_with_snapshots(n), [RemoveSnapshotRef(f"tag{number}") for number in range(n)]),
    SetLocation: lambda n: (a_table(), [SetLocation(f"s3://bucket/table{number}") for number in range(n)]),
    SetProperties: lambda n: (_with_properties(n), [SetProperties({f"new{number}": "value"}) for number in range(n)]),
    RemoveProperties: lambda n: (_with_properties(n), [RemoveProperties([f"property{number}"]) for number in range(n)]),
    SetStatistics: lambda n: (_with_snapshots(n), [SetStatistics(_statistics(number)) for number in range(2 * n)]),
    RemoveStatistics: lambda n: (_with_snapshots(n), [RemoveStatistics(number) for number in range(n)]),
    SetPartitionStatistics: lambda n: (
        _with_snapshots(n),
        [SetPartitionStatistics(_statistics(number)) for number in range(2 * n)],
    ),
    RemovePartitionStatistics: lambda n: (
        _with_snapshots(n),
        [RemovePartitionStatistics(number) for number in range(n)],
    ),
    AddEncryptionKey: lambda n: (_with_keys(n), [AddEncryptionKey(_key(n + number)) for number in range(n)]),
    RemoveEncryptionKey: lambda n: (_with_keys(n), [RemoveEncryptionKey(f"key{number}") for number in range(n)]),
}
# Kinds that take turns: what one of them prepares must survive the other.
MIXED: dict[str, Callable[[int], Given]] = {
    "schemas added and removed": lambda n: (
        _with_schemas(n),
        [
            update
            for number in range(1, n)
            for update in (AddSchema(_schema(n + number)), RemoveSchemas([number]), AddSchema(_schema(number)))
        ],
    ),
    "specs added and removed, and schemas changed": lambda n: (
        _with_specs(n),
        [
            update
            for number in range(1, n)
            for update in (
                AddSpec(_spec(n + number)),
                RemovePartitionSpecs([number]),
                SetCurrentSchema(number % 2),
            )
        ],
    ),
    "snapshots added and removed": lambda n: (
        _with_snapshots(n),
        [
            update
            for number in range(1, n)
            for update in (
                AddSnapshot(a_snapshot(n + number)),
                RemoveSnapshots([number]),
                SetProperties({"a": str(number)}),
            )
        ],
    ),
    "the same snapshots after a commit of them was refused": lambda n: (
        _base_of_a_refused_commit(n),
        _new_snapshots(n, n + 1),
    ),
    "references to snapshots that go": lambda n: (
        _with_snapshots(n),
        [
            update
            for number in range(1, n)
            for update in (SetSnapshotRef(f"new{number}", n, "tag"), RemoveSnapshots([number]))
        ],
    ),
    "a schema of many identifier fields in one struct": lambda n: (a_table(), [AddSchema(_identified(n))]),
    "a schema of many columns": lambda n: (
        a_table(),
        [AddSchema(a_schema(*(a_field(number, f"c{number}") for number in range(1, n + 1))))],
    ),
}


def _base_of_a_refused_commit(count: int) -> TableMetadata:
    base = _with_snapshots(count)
    _applied(base, _new_snapshots(count, count + 1))  # and nobody uses the result
    return base


def _identified(count: int) -> Json:
    inner = [a_field(number, f"c{number}", required=True) for number in range(2, count + 2)]
    outer = a_field(1, "outer", {"type": "struct", "fields": inner}, required=True)
    return a_schema(outer, identifier_field_ids=list(range(2, count + 2)))


def _view_version(number: int) -> Json:
    return {
        "version-id": number + 1,
        "schema-id": 0,
        "timestamp-ms": NOW_MS,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": f"select {number}", "dialect": "spark"}],
    }


def _view(count: int) -> ViewMetadata:
    view = view_commit.new_view(
        schema=_schema(0),
        view_version=_view_version(0),
        location="s3://bucket/view",
        properties={"version.history.num-entries": str(count), **{f"property{each}": "value" for each in range(count)}},
        view_uuid=UUID,
        now_ms=NOW_MS,
    )
    added = [view_commit.AddSchema(_schema(number)) for number in range(1, count)]
    versions = [view_commit.AddViewVersion(_view_version(number)) for number in range(1, count)]
    return view_commit.apply_all([*added, *versions], view, now_ms=NOW_MS)


# By name and not by class: some have the names of a table's updates.
VIEW_UPDATES: dict[str, Callable[[int], Sequence[view_commit.ViewUpdate]]] = {
    "AssignUUID": lambda n: [view_commit.AssignUUID(UUID)] * n,
    "UpgradeFormatVersion": lambda n: [view_commit.UpgradeFormatVersion(1)] * n,
    "AddSchema": lambda n: [view_commit.AddSchema(_schema(n + number)) for number in range(n)],
    "SetLocation": lambda n: [view_commit.SetLocation(f"s3://bucket/view{number}") for number in range(n)],
    "SetProperties": lambda n: [view_commit.SetProperties({f"new{number}": "value"}) for number in range(n)],
    "RemoveProperties": lambda n: [view_commit.RemoveProperties([f"property{number}"]) for number in range(n)],
    "AddViewVersion": lambda n: [view_commit.AddViewVersion(_view_version(n + number)) for number in range(n)],
    "SetCurrentViewVersion": lambda n: [view_commit.SetCurrentViewVersion(number) for number in range(1, n)],
}


def _table_work(build: Callable[[int], Given], count: int) -> Callable[[], object]:
    base, changes = build(count)
    return lambda: _applied(base, changes)


def _view_work(build: Callable[[int], Sequence[view_commit.ViewUpdate]], count: int) -> Callable[[], object]:
    base, changes = _view(count), build(count)
    return lambda: view_commit.apply_all(changes, base, now_ms=NOW_MS)


def _instructions(work: Callable[[], object]) -> int:
    """How many instructions of Python's machine it takes; the same each time."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _seconds(make: Callable[[int], Callable[[], object]], count: int) -> float:
    """The least CPU time of some tries, each on a table that was not seen before."""
    tries = []
    for _ in range(3):
        work = make(count)
        begun = time.thread_time()
        work()
        tries.append(time.thread_time() - begun)
    return min(tries)


ALL: dict[str, Callable[[int], Callable[[], object]]] = {
    **{kind.__name__: (lambda n, b=build: _table_work(b, n)) for kind, build in UPDATES.items()},  # type: ignore[misc]
    **{name: (lambda n, b=build: _table_work(b, n)) for name, build in MIXED.items()},  # type: ignore[misc]
    **{f"view {name}": (lambda n, b=build: _view_work(b, n)) for name, build in VIEW_UPDATES.items()},  # type: ignore[misc]
}


def test_every_update_has_a_row() -> None:
    for_views = {AddViewVersion, SetCurrentViewVersion}
    assert {*UPDATES, *for_views} == set(Update.__args__)
    assert set(VIEW_UPDATES) == {each.__name__ for each in view_commit.ViewUpdate.__args__}


@pytest.mark.parametrize("name", ALL)
def test_twice_the_updates_on_twice_the_table_take_twice_the_instructions(name: str) -> None:
    once, twice = _instructions(ALL[name](COUNTED)), _instructions(ALL[name](2 * COUNTED))

    assert once > COUNTED or "many" in name
    assert twice <= MOST_GROWTH * once


@pytest.mark.parametrize("name", ALL)
def test_what_is_copied_in_one_instruction_is_not_copied_for_each_update(name: str) -> None:
    """Eight times as much takes eight times as long, not 64 times; four of them are left for a busy machine."""
    once, more = _seconds(ALL[name], TIMED), _seconds(ALL[name], 8 * TIMED)

    assert more <= 32 * max(once, 0.001)
