"""PyIceberg as a second opinion: it reads what we write, and sees the same table in it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata as PyIcebergMetadata
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV1

from nunatak.iceberg.table_metadata import TableMetadata, decode, encode
from tests.unit.iceberg import strategies
from tests.unit.iceberg.builders import (
    Json,
    a_creation,
    a_field,
    a_list,
    a_map,
    a_schema,
    a_spec,
    a_struct,
    a_table,
    an_order,
    append,
    commit,
    set_ref,
    update,
    versions_of,
)

EVERY_TYPE = a_schema(
    *(a_field(number, f"c{number}", type_) for number, type_ in enumerate(strategies.PRIMITIVES, 1)),
    a_field(20, "s", a_struct(a_field(21, "x", "int", required=True, doc="inside"))),
    a_field(22, "l", a_list(23, a_struct(a_field(24, "y", "string")))),
    a_field(25, "m", a_map(26, "string", 27, a_list(28, "double"))),
)


def read_by_pyiceberg(table: TableMetadata) -> PyIcebergMetadata:
    return TableMetadataUtil.parse_raw(encode(table).decode())


def assert_agrees(table: TableMetadata) -> None:
    theirs = read_by_pyiceberg(table)
    assert theirs.format_version == table.format_version
    assert str(theirs.table_uuid) == table.table_uuid
    assert theirs.location == table.location
    assert theirs.last_updated_ms == table.last_updated_ms
    assert theirs.last_column_id == table.last_column_id
    assert theirs.current_schema_id == table.current_schema_id
    assert [schema.schema_id for schema in theirs.schemas] == [schema["schema-id"] for schema in table.schemas]
    assert theirs.schema().highest_field_id <= table.last_column_id
    assert theirs.default_spec_id == table.default_spec_id
    assert [spec.spec_id for spec in theirs.partition_specs] == [spec["spec-id"] for spec in table.partition_specs]
    assert theirs.last_partition_id is not None
    if table.format_version == 1:  # PyIceberg counts those of the specs that are left, whatever the metadata say
        assert theirs.last_partition_id <= table.last_partition_id
    else:
        assert theirs.last_partition_id == table.last_partition_id
    assert theirs.default_sort_order_id == table.default_sort_order_id
    assert theirs.properties == table.properties
    assert theirs.current_snapshot_id == table.current_snapshot_id
    assert [each.snapshot_id for each in theirs.snapshots] == [each["snapshot-id"] for each in table.snapshots]
    assert {name: ref.snapshot_id for name, ref in theirs.refs.items()} == {
        name: ref["snapshot-id"] for name, ref in table.refs.items()
    }
    assert [entry.snapshot_id for entry in theirs.snapshot_log] == [e["snapshot-id"] for e in table.snapshot_log]
    assert [e.metadata_file for e in theirs.metadata_log] == [e["metadata-file"] for e in table.metadata_log]
    assert len(theirs.statistics) == len(table.statistics)
    if not isinstance(theirs, TableMetadataV1):
        assert theirs.last_sequence_number == table.last_sequence_number


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_with_everything(version: int) -> None:
    table = a_table(version, schema=EVERY_TYPE, spec=a_spec(("d", "day", 9)), order=an_order(("bucket[4]", 2)))
    assert_agrees(table)
    for number in (1, 2, 3):
        table = commit(table, append(table, number))
    statistics = {
        "snapshot-id": 2,
        "statistics-path": "s3://bucket/stats.puffin",
        "file-size-in-bytes": 10,
        "file-footer-size-in-bytes": 2,
        "blob-metadata": [
            {"type": "apache-datasketches-theta-v1", "snapshot-id": 2, "sequence-number": 2, "fields": [1]}
        ],
    }
    table = commit(
        table, [set_ref(1, "release", "tag", max_ref_age_ms=9), set_ref(2, "audit", min_snapshots_to_keep=2)]
    )
    table = commit(table, [update("set-statistics", statistics=statistics)])

    assert_agrees(table)
    assert_agrees(commit(table, [update("remove-snapshots", snapshot_ids=[1])]))
    assert_agrees(commit(table, [update("remove-snapshot-ref", ref_name="main")]))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_created_by_commit(version: int) -> None:
    assert_agrees(commit(None, a_creation(version), location=None))


@pytest.mark.parametrize("version", [1, 2])  # it does not write v3 yet
def test_we_read_what_pyiceberg_writes(version: int) -> None:
    ours = a_table(version, schema=EVERY_TYPE, snapshots=2)

    again = decode(read_by_pyiceberg(ours).model_dump_json().encode())

    assert (again.table_uuid, again.current_snapshot_id, again.last_column_id) == (
        ours.table_uuid,
        ours.current_snapshot_id,
        ours.last_column_id,
    )
    assert again.refs.keys() == ours.refs.keys()
    assert_agrees(commit(again, append(again, 3)))


@given(st.sampled_from([1, 2, 3]), st.lists(st.lists(strategies.updates, min_size=1, max_size=3), max_size=6))
@settings(max_examples=40, deadline=None)
def test_whatever_is_committed(version: int, history: list[list[Json]]) -> None:
    for table in versions_of(a_table(version, snapshots=1), history):
        assert_agrees(table)
