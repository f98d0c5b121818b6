"""What holds for every table and every commit, tried with random ones."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nunatak.errors import BadRequest, Conflict, InvalidMetadata
from nunatak.iceberg import requirements, updates
from nunatak.iceberg.commit_request import decode_commit, decode_transaction
from nunatak.iceberg.create import new_table
from nunatak.iceberg.schema import parse_schema
from nunatak.iceberg.table_metadata import TableMetadata, decode, encode, only_referenced_snapshots
from tests.unit.iceberg import strategies
from tests.unit.iceberg.builders import (
    NOW_MS,
    UUID,
    Json,
    a_creation,
    a_field,
    a_schema,
    a_spec,
    a_struct,
    a_table,
    an_order,
    check_schema,
    commit,
    default_order,
    requirement,
    set_ref,
    update,
    versions_of,
)

versions = st.sampled_from([1, 2, 3])
histories = st.lists(st.lists(strategies.updates, min_size=1, max_size=4), max_size=8)


@given(versions, histories, strategies.unknown_fields)
@settings(max_examples=60, deadline=None)
def test_what_is_written_reads_back_the_same(version: int, history: list[list[Json]], unknown: Json) -> None:
    file = json.loads(encode(a_table(version, snapshots=1))) | unknown
    for table in versions_of(decode(json.dumps(file).encode()), history):
        data = encode(table)
        again = decode(data)

        assert again == table
        assert encode(again) == data
        assert again.unknown == unknown


@given(versions, histories)
@settings(max_examples=60, deadline=None)
def test_a_commit_never_mutates_its_base(version: int, history: list[list[Json]]) -> None:
    base = a_table(version, snapshots=2)
    for table in versions_of(base, history):
        before = copy.deepcopy(table)
        for _ in versions_of(table, history):
            pass
        assert table == before
        assert [table.find_snapshot(each["snapshot-id"]) for each in before.snapshots] == list(before.snapshots)


@given(versions, histories)
@settings(max_examples=60, deadline=None)
def test_nothing_that_only_grows_ever_shrinks(version: int, history: list[list[Json]]) -> None:
    before = a_table(version, snapshots=1)
    for after in versions_of(before, history):
        if after is before:
            continue
        assert after.last_updated_ms > before.last_updated_ms
        assert after.last_column_id >= before.last_column_id
        assert after.last_partition_id >= before.last_partition_id
        assert after.last_sequence_number >= before.last_sequence_number
        assert after.next_row_id >= before.next_row_id
        assert after.format_version >= before.format_version
        before = after


@given(versions, histories)
@settings(max_examples=60, deadline=None)
def test_no_id_ever_means_two_things_while_nothing_is_removed(version: int, history: list[list[Json]]) -> None:
    """Once the highest id is removed it may be given again, as in the reference."""
    growing = [[change for change in changes if not change["action"].startswith("remove-")] for changes in history]
    meant: dict[tuple[str, int], Any] = {}
    for table in versions_of(a_table(version, snapshots=1), growing):
        seen = [(("snapshot", each["snapshot-id"]), each) for each in table.snapshots]
        seen += [(("schema", each["schema-id"]), each["fields"]) for each in table.schemas]
        seen += [(("spec", each["spec-id"]), each["fields"]) for each in table.partition_specs]
        seen += [(("order", each["order-id"]), each["fields"]) for each in table.sort_orders]
        assert len(dict(seen)) == len(seen)
        for key, value in seen:
            assert meant.setdefault(key, value) == value


@given(versions, histories)
@settings(max_examples=60, deadline=None)
def test_every_reference_points_at_a_snapshot_and_every_default_at_something(
    version: int, history: list[list[Json]]
) -> None:
    for table in versions_of(a_table(version, snapshots=1), history):
        assert all(table.find_snapshot(ref["snapshot-id"]) for ref in table.refs.values())
        main = table.refs.get("main")
        assert table.current_snapshot_id == (main["snapshot-id"] if main else None)
        assert table.current_schema
        assert table.default_spec
        assert default_order(table)
        assert max(parse_schema(table.current_schema).fields, default=0) <= table.last_column_id
        small = only_referenced_snapshots(table)
        assert {each["snapshot-id"] for each in small.snapshots} == {ref["snapshot-id"] for ref in table.refs.values()}
        times = [entry["timestamp-ms"] for entry in table.snapshot_log]
        assert all(later >= earlier - 60_000 for earlier, later in pairwise(times))


@given(strategies.schemas(), versions)
@settings(max_examples=60, deadline=None)
def test_fresh_ids_are_one_to_n_and_everything_else_survives(schema: Json, version: int) -> None:
    before = copy.deepcopy(schema)
    try:
        table = new_table(
            schema=schema,
            partition_spec=None,
            sort_order=None,
            location="s3://bucket/t",
            properties={"format-version": str(version)},
            table_uuid=UUID,
            now_ms=NOW_MS,
        )
    except InvalidMetadata:
        assume(False)
    assert schema == before
    fresh, sent = parse_schema(table.current_schema), parse_schema(schema)
    assert sorted(fresh.fields) == list(range(1, len(sent.fields) + 1))
    assert {field.full_name for field in fresh.fields.values()} == {field.full_name for field in sent.fields.values()}
    assert table.last_column_id == len(sent.fields)
    assert _without_ids(table.current_schema) == _without_ids(sent.json)
    assert decode(encode(table)) == table


def _without_ids(json_: Any) -> Any:
    if isinstance(json_, dict):
        return {key: _without_ids(value) for key, value in json_.items() if key != "id" and not key.endswith("-id")}
    return [_without_ids(each) for each in json_] if isinstance(json_, list) else json_


# Malformed requests

VALID_REQUESTS: list[Json] = [
    {"requirements": [requirement("assert-create")], "updates": a_creation(3)},
    {
        "identifier": {"namespace": ["a"], "name": "t"},
        "requirements": [
            requirement("assert-table-uuid", uuid=UUID),
            requirement("assert-ref-snapshot-id", ref="main", snapshot_id=2),
            requirement("assert-last-assigned-field-id", last_assigned_field_id=3),
        ],
        "updates": [
            update(
                "add-schema",
                schema=a_schema(
                    a_field(1, "id", required=True),
                    a_field(3, "ts", "timestamptz"),
                    a_field(7, "s", a_struct(a_field(8, "x", "decimal(9, 2)", initial_default="1.00"))),
                    identifier_field_ids=[1],
                ),
            ),
            update("set-current-schema", schema_id=-1),
            update("add-spec", spec=a_spec(("day", "day", 3), ("b", "bucket[4]", 1))),
            update("set-default-spec", spec_id=-1),
            update("add-sort-order", sort_order=an_order(("truncate[3]", 1))),
            update("set-default-sort-order", sort_order_id=-1),
            update(
                "add-snapshot",
                snapshot={
                    "snapshot-id": 9,
                    "parent-snapshot-id": 2,
                    "sequence-number": 3,
                    "timestamp-ms": NOW_MS,
                    "manifest-list": "x",
                    "summary": {"operation": "append", "added-files": "1"},
                    "first-row-id": 20,
                    "added-rows": 5,
                    "schema-id": 1,
                },
            ),
            set_ref(9, min_snapshots_to_keep=1, max_ref_age_ms=5),
            update(
                "set-statistics",
                statistics={
                    "snapshot-id": 9,
                    "statistics-path": "p",
                    "file-size-in-bytes": 1,
                    "file-footer-size-in-bytes": 1,
                    "blob-metadata": [{"type": "t", "snapshot-id": 9, "sequence-number": 1, "fields": [1]}],
                },
            ),
            update("add-encryption-key", encryption_key={"key-id": "k", "encrypted-key-metadata": "YQ=="}),
            update("remove-snapshots", snapshot_ids=[1]),
            update("remove-schemas", schema_ids=[5]),
            update("set-properties", updates={"write.metadata.previous-versions-max": "3"}),
        ],
    },
]


def _places(json_: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(json_, dict):
        for key in json_:
            yield from _places(json_[key], (*place, key))
    elif isinstance(json_, list):
        for index, each in enumerate(json_):
            yield from _places(each, (*place, index))


def _mutated(json_: Any, place: tuple[Any, ...], value: Any, *, drop: bool) -> Any:
    if not place:
        return value
    result = copy.deepcopy(json_)
    inner = result
    for step in place[:-1]:
        inner = inner[step]
    if drop:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return result


ODD_NUMBERS = [-1, 0, 1.0, True, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**40]
ODD_OTHERS: list[Any] = [None, "", "main", "variant", "bucket[0]", "a" * 300, {}, [], [{}], [[]], {"type": "struct"}]
odd_values = strategies.any_json | st.sampled_from([*ODD_NUMBERS, *ODD_OTHERS])


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_malformed_commit_is_refused_and_never_a_crash(data: st.DataObject) -> None:
    request: Any = data.draw(st.sampled_from(VALID_REQUESTS))
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(_places(request))))
        request = _mutated(request, place, data.draw(odd_values), drop=data.draw(st.booleans()))
    version = data.draw(st.sampled_from([None, 1, 2, 3]))
    base = None if version is None else _base(version)
    body = json.dumps(request).encode()
    with suppress(BadRequest, Conflict):
        changed = commit_bytes(base, body)
        assert decode(encode(changed)) == changed
    with suppress(BadRequest):
        decode_transaction(json.dumps({"table-changes": [request]}).encode())
    with suppress(BadRequest):
        decode_transaction(body)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_malformed_file_is_refused_and_never_a_crash(data: st.DataObject) -> None:
    version = data.draw(versions)
    file: Any = json.loads(encode(_base(version)))
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(_places(file))))
        file = _mutated(file, place, data.draw(odd_values), drop=data.draw(st.booleans()))
    try:
        table = decode(json.dumps(file).encode())
        assert decode(encode(table)) == table
    except InvalidMetadata:
        return
    for request in VALID_REQUESTS:
        with suppress(BadRequest, Conflict):
            changed = commit_bytes(table, json.dumps(request | {"requirements": []}).encode())
            assert decode(encode(changed)) == changed


@given(odd_values, odd_values, odd_values, strategies.any_json)
@settings(max_examples=100, deadline=None)
def test_a_malformed_creation_is_refused_and_never_a_crash(schema: Any, spec: Any, order: Any, field: Any) -> None:
    a_type = {"id": 1, "name": "a", "required": True, "type": field}
    for sent in (schema, {"type": "struct", "fields": [field]}, {"type": "struct", "fields": [a_type]}, a_schema()):
        with suppress(BadRequest):
            check_schema(sent, 2)
        with suppress(BadRequest):
            new_table(
                schema=sent,
                partition_spec=spec,
                sort_order=order,
                location="s3://bucket/t",
                properties={},
                table_uuid=UUID,
                now_ms=NOW_MS,
            )


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    for read, error in ((decode_commit, BadRequest), (decode_transaction, BadRequest), (decode, InvalidMetadata)):
        with suppress(error):
            read(data)


def _base(version: int) -> TableMetadata:
    return commit(
        a_table(version, spec=a_spec(("id", "identity", 1)), order=an_order(("identity", 2)), snapshots=2),
        [set_ref(1, "release", "tag")],
    )


def commit_bytes(base: TableMetadata | None, body: bytes) -> TableMetadata:
    request = decode_commit(body)
    requirements.check_all(request.requirements, base)
    return updates.apply_all(request.updates, base, base_location="s3://bucket/base", now_ms=NOW_MS)
