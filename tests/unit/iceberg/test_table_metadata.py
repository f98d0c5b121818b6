"""Metadata files of every format version are read, filled in where old writers left gaps, and written back."""

import json

import msgspec
import pytest

from nunatak.errors import InvalidMetadata
from nunatak.iceberg.table_metadata import TableMetadata, decode, encode
from tests.unit.iceberg.builders import NOW_MS, UUID, Json, a_field, a_schema, a_table, append, commit, set_ref, update

A_V1_FILE_FROM_LONG_AGO: Json = {
    "format-version": 1,
    "location": "s3://bucket/old/",
    "last-updated-ms": NOW_MS,
    "last-column-id": 3,
    "schema": {"type": "struct", "fields": a_schema()["fields"]},
    "partition-spec": [{"name": "day", "transform": "day", "source-id": 3}],
    "properties": {"owner": "somebody"},
    "current-snapshot-id": 7,
    "snapshots": [{"snapshot-id": 7, "timestamp-ms": NOW_MS, "manifests": ["s3://bucket/old/m.avro"]}],
}


def read(file: Json) -> TableMetadata:
    return decode(json.dumps(file).encode())


def written(table: TableMetadata) -> Json:
    result: Json = json.loads(encode(table))
    return result


def test_a_v1_file_from_long_ago_is_filled_in() -> None:
    table = read(A_V1_FILE_FROM_LONG_AGO)

    assert table.location == "s3://bucket/old"
    assert (table.current_schema_id, table.schemas[0]["schema-id"], table.last_sequence_number) == (0, 0, 0)
    assert table.default_spec == {
        "spec-id": 0,
        "fields": [{"name": "day", "transform": "day", "source-id": 3, "field-id": 1000}],
    }
    assert (table.last_partition_id, table.sort_orders) == (1000, ({"order-id": 0, "fields": []},))
    assert table.refs == {"main": {"snapshot-id": 7, "type": "branch"}}
    assert table.statistics == ()
    assert table.snapshot_log == ()
    assert table.metadata_log == ()


def test_a_table_that_never_had_a_uuid_gets_the_same_one_every_time() -> None:
    one, again = read(A_V1_FILE_FROM_LONG_AGO), read(A_V1_FILE_FROM_LONG_AGO)

    assert len(one.table_uuid) == 36
    assert one.table_uuid == again.table_uuid
    assert commit(one, [update("set-location", location="s3://elsewhere")]).table_uuid == one.table_uuid


def test_old_tables_can_be_committed_to_and_upgraded() -> None:
    table = read(A_V1_FILE_FROM_LONG_AGO)

    table = commit(table, [update("upgrade-format-version", format_version=2)], now_ms=NOW_MS)
    table = commit(table, append(table, 8), now_ms=NOW_MS)

    assert (table.last_sequence_number, table.current_snapshot_id) == (1, 8)
    assert table.snapshots[0] == A_V1_FILE_FROM_LONG_AGO["snapshots"][0]
    assert decode(encode(table)) == table


def test_v1_is_written_for_old_readers_too() -> None:
    file = written(a_table(1, snapshots=1))

    assert file["schema"] == file["schemas"][0]
    assert file["partition-spec"] == []
    assert "last-sequence-number" not in file
    assert "next-row-id" not in file


@pytest.mark.parametrize(("version", "none"), [(1, -1), (2, -1), (3, None)])
def test_no_current_snapshot_is_minus_one_before_v3_and_null_since(version: int, none: int | None) -> None:
    assert written(a_table(version))["current-snapshot-id"] == none
    for spelling in (-1, None):
        file = written(a_table(version)) | {"current-snapshot-id": spelling}
        assert read(file).current_snapshot_id is None
    file.pop("current-snapshot-id")
    assert read(file).current_snapshot_id is None


def test_the_fields_are_written_in_the_order_of_the_reference() -> None:
    assert list(written(a_table(2))) == [
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "current-schema-id",
        "schemas",
        "default-spec-id",
        "partition-specs",
        "last-partition-id",
        "default-sort-order-id",
        "sort-orders",
        "properties",
        "current-snapshot-id",
        "refs",
        "snapshots",
        "statistics",
        "partition-statistics",
        "snapshot-log",
        "metadata-log",
    ]
    key = {"key-id": "k", "encrypted-key-metadata": "YQ=="}
    v3 = commit(a_table(3), [update("add-encryption-key", encryption_key=key)])
    assert list(written(v3))[14:17] == ["current-snapshot-id", "next-row-id", "encryption-keys"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_we_do_not_know_survives_at_every_level(version: int) -> None:
    file = written(commit(a_table(version, snapshots=2), [set_ref(1, "t", "tag")]))
    stranger = {"x-new": {"deep": [1, None, {"é": 1.5}]}}
    file |= stranger
    file["schemas"][0] |= stranger
    file["schemas"][0]["fields"][0] |= stranger
    file["partition-specs"][0] |= stranger
    file["sort-orders"][0] |= stranger
    file["snapshots"][1] |= stranger
    file["refs"]["t"] |= stranger
    file["snapshot-log"][0] |= stranger
    file["metadata-log"][0] |= stranger

    table = read(file)
    assert table.unknown == stranger
    if version == 1:
        file["schema"] = file["schemas"][0]
    assert written(table) == file

    changed = written(commit(table, [update("set-properties", updates={"a": "b"})]))
    assert {key for key in changed if changed[key] != file[key]} == {"properties", "last-updated-ms", "metadata-log"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format-version": 4}, "Cannot read unsupported version 4"),
        ({"format-version": 0}, "Cannot read unsupported version 0"),
        ({"format-version": "2"}, "Cannot parse table metadata: Expected `int`, got `str` - at `$.format-version`"),
        ({"table-uuid": None}, "UUID is required in format v2"),
        ({"location": None}, "Cannot parse table metadata: Expected `str`, got `null` - at `$.location`"),
        ({"location": ""}, "path must not be null or empty"),
        ({"last-sequence-number": None}, "last-sequence-number must exist in format v2"),
        ({"schemas": None}, "schemas must exist in format v2"),
        ({"schemas": []}, "Cannot find schema with current-schema-id=0 from schemas"),
        ({"schemas": [a_schema(), a_schema()]}, "Invalid table metadata: schemas share an id"),
        ({"schemas": [a_schema(a_field(1, "a", "wat"))]}, "Cannot parse type string to primitive: wat"),
        ({"current-schema-id": 5}, "Cannot find schema with current-schema-id=5 from schemas"),
        ({"current-schema-id": None}, "Cannot parse missing int: current-schema-id"),
        ({"partition-specs": None}, "partition-specs must exist in format v2"),
        ({"default-spec-id": 5}, "Cannot find partition spec with default-spec-id=5 from partition-specs"),
        ({"last-partition-id": None}, "last-partition-id must exist in format v2"),
        ({"sort-orders": None}, "sort-orders must exist in format v2"),
        ({"sort-orders": []}, "Sort orders cannot be null or empty"),
        ({"default-sort-order-id": 5}, "Cannot find sort order with default-sort-order-id=5 from sort-orders"),
        ({"current-snapshot-id": 99}, "Invalid table metadata: Cannot find current version"),
        ({"current-snapshot-id": -1}, "Current snapshot is not set, but main branch exists"),
        ({"current-snapshot-id": 1}, "Current snapshot ID does not match main branch (1 != 2)"),
        (
            {"refs": {"b": {"snapshot-id": 9, "type": "branch"}}},
            "Snapshot for reference b does not exist in the existing snapshots list",
        ),
        ({"refs": {"b": {"snapshot-id": 1, "type": "x"}}}, "Invalid snapshot ref type: x"),
        (
            {"snapshots": [{"snapshot-id": 2, "timestamp-ms": 1}, {"snapshot-id": 2, "timestamp-ms": 1}]},
            "Invalid table metadata: snapshots share an id",
        ),
        ({"properties": {"a": 1}}, "Cannot parse table metadata: Expected `str`, got `int` - at `$.properties[...]`"),
    ],
)
def test_a_broken_file_is_refused_and_says_what_is_wrong(change: Json, message: str) -> None:
    with pytest.raises(InvalidMetadata) as refused:
        read(written(a_table(snapshots=2)) | change)
    assert refused.value.message == message


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"x":' * 100_000])
def test_what_is_no_metadata_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetadata):
        decode(data)


def test_a_v3_file_must_say_where_its_rows_end() -> None:
    file = written(a_table(3))
    del file["next-row-id"]

    with pytest.raises(InvalidMetadata, match="Cannot parse missing long: next-row-id"):
        read(file)


def test_numbers_keep_all_their_digits() -> None:
    snapshot_id = 2**63 - 1
    table = a_table()

    file = msgspec.json.decode(encode(commit(table, append(table, 1)))) | {"x-big": 10**30}
    file["snapshots"][0]["snapshot-id"] = file["current-snapshot-id"] = snapshot_id
    file["refs"]["main"]["snapshot-id"] = file["snapshot-log"][0]["snapshot-id"] = snapshot_id

    again = decode(encode(read(file)))
    assert (again.current_snapshot_id, again.unknown["x-big"]) == (snapshot_id, 10**30)
    assert again.table_uuid == UUID
