"""A new table's ids, format version and properties are the server's to choose."""

import pytest

from nunatak.errors import BadRequest, IllegalArgument, InvalidMetadata
from nunatak.iceberg.create import new_table
from nunatak.iceberg.table_metadata import TableMetadata
from tests.unit.iceberg.builders import (
    NOW_MS,
    UUID,
    Json,
    a_field,
    a_list,
    a_map,
    a_schema,
    a_spec,
    a_struct,
    a_table,
    an_order,
    default_order,
)


def create(
    schema: Json, spec: Json | None = None, order: Json | None = None, properties: dict[str, str] | None = None
) -> TableMetadata:
    return new_table(
        schema=schema,
        partition_spec=spec,
        sort_order=order,
        location="s3://bucket/table/",
        properties=properties or {},
        table_uuid=UUID,
        now_ms=NOW_MS,
    )


def test_field_ids_are_assigned_from_one_whatever_the_client_sent() -> None:
    table = create(a_schema(a_field(3, "id"), a_field(4, "data", "string")))

    assert [(field["id"], field["name"]) for field in table.current_schema["fields"]] == [(1, "id"), (2, "data")]
    assert table.last_column_id == 2


def test_a_structs_own_fields_are_numbered_before_what_is_nested_in_them() -> None:
    table = create(
        a_schema(
            a_field(11, "id"),
            a_field(12, "data", "string"),
            a_field(13, "list", a_list(21, "int")),
            a_field(14, "map", a_map(22, "string", 23, "double")),
            a_field(15, "struct", a_struct(a_field(24, "inner", "int"))),
        )
    )

    fields = {field["name"]: field for field in table.current_schema["fields"]}
    assert [field["id"] for field in fields.values()] == [1, 2, 3, 4, 5]
    assert fields["list"]["type"]["element-id"] == 6
    assert (fields["map"]["type"]["key-id"], fields["map"]["type"]["value-id"]) == (7, 8)
    assert fields["struct"]["type"]["fields"][0]["id"] == 9
    assert table.last_column_id == 9


def test_partitions_and_sort_orders_follow_their_columns_to_the_new_ids() -> None:
    schema = a_schema(a_field(30, "id"), a_field(40, "ts", "timestamptz"))

    table = create(
        schema, a_spec(("id", "identity", 30), ("day", "day", 40), first_field_id=2000), an_order(("year", 40))
    )

    assert [(field["source-id"], field["field-id"]) for field in table.default_spec["fields"]] == [(1, 1000), (2, 1001)]
    assert default_order(table) == an_order(("year", 2))
    assert (table.default_spec_id, table.last_partition_id, table.default_sort_order_id) == (0, 1001, 1)


def test_without_a_spec_and_an_order_the_table_is_unpartitioned_and_unsorted() -> None:
    table = a_table()

    assert table.partition_specs == ({"spec-id": 0, "fields": []},)
    assert table.sort_orders == ({"order-id": 0, "fields": []},)
    assert (table.last_partition_id, table.default_sort_order_id) == (999, 0)


def test_docs_required_flags_identifiers_defaults_and_unknown_fields_survive() -> None:
    schema = a_schema(
        a_field(7, "key", required=True, doc="the key 🔑"),
        a_field(8, "n", "int", required=True, initial_default=34, write_default=35, x_note={"kept": True}),
        identifier_field_ids=[7],
    )

    stored = create(schema, properties={"format-version": "3"}).current_schema

    assert stored == {
        "type": "struct",
        "schema-id": 0,
        "identifier-field-ids": [1],
        "fields": [
            a_field(1, "key", required=True, doc="the key 🔑"),
            a_field(2, "n", "int", required=True, initial_default=34, write_default=35, x_note={"kept": True}),
        ],
    }


def test_the_format_version_property_selects_the_version_and_reserved_properties_are_not_stored() -> None:
    properties = {"format-version": "3", "uuid": "x", "current-schema": "x", "color": "red"}

    table = create(a_schema(), properties=properties)

    assert table.format_version == 3
    assert table.properties == {"write.parquet.compression-codec": "zstd", "color": "red"}


def test_a_new_table_has_format_version_two_and_its_own_compression_wins() -> None:
    table = create(a_schema(), properties={"write.parquet.compression-codec": "gzip"})

    assert table.format_version == 2
    assert table.properties == {"write.parquet.compression-codec": "gzip"}
    assert table.location == "s3://bucket/table"
    assert (table.table_uuid, table.last_updated_ms, table.last_sequence_number) == (UUID, NOW_MS, 0)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"format-version": "4"}, "Unsupported format version: v4 (supported: v3)"),
        ({"format-version": "0"}, "Unsupported format version: v0 (supported: v3)"),
        ({"format-version": "two"}, 'Table property format-version must have integer value: "two"'),
        ({"format-version": "9" * 5000}, f'Table property format-version must have integer value: "{"9" * 100}"'),
        ({"commit.retry.num-retries": "x"}, "Table property commit.retry.num-retries must have integer value"),
        (
            {"commit.retry.num-retries": "-1"},
            "Table property commit.retry.num-retries must have non negative integer value",
        ),
        ({"encryption.key-id": "k"}, "Invalid properties for v2: [encryption.key-id]"),
    ],
)
def test_properties_that_cannot_work_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        create(a_schema(), properties=properties)
    assert refused.value.message == message


def test_metrics_can_only_be_configured_for_columns_that_exist() -> None:
    create(a_schema(), properties={"write.metadata.metrics.column.data": "full"})

    with pytest.raises(InvalidMetadata, match="could not find column nope"):
        create(a_schema(), properties={"write.metadata.metrics.column.nope": "full"})


def test_a_v2_table_cannot_have_a_variant_column() -> None:
    with pytest.raises(InvalidMetadata) as refused:
        create(a_schema(a_field(1, "data", "variant")))

    assert refused.value.message == "Invalid schema for v2:\n- Invalid type for data: variant is not supported until v3"
    create(a_schema(a_field(1, "data", "variant")), properties={"format-version": "3"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (a_spec(("p", "identity", 99)), "Cannot find source column for partition field: 1000: p: identity(99)"),
        (a_spec(("p", "void", 99)), "Cannot find source column for partition field: 1000: p: void(99)"),
        (a_spec(("p", "hour", 2)), "Invalid source type string for transform: hour"),
        (a_spec(("p", "bucket[0]", 1)), "Invalid number of buckets: 0 (must be > 0)"),
        (
            a_spec(("data", "identity", 1)),
            "Cannot create identity partition sourced from different field in schema: data",
        ),
        (a_spec(("", "identity", 1)), "Cannot use empty partition name: "),
        (a_spec(("p", "identity", 1), ("p", "day", 3)), "Cannot use partition name more than once: p"),
        (
            {"fields": [{"name": "a", "transform": "identity", "source-id": 1, "field-id": 1000}]}
            | {
                "fields": a_spec(("a", "identity", 1))["fields"]
                + a_spec(("b", "day", 3), first_field_id=None)["fields"]
            },
            "Cannot parse spec with missing field IDs: 1 missing of 2 fields.",
        ),
    ],
)
def test_a_spec_that_does_not_fit_the_schema_is_refused(spec: Json, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        create(a_schema(), spec)
    assert refused.value.message == message


def test_partitions_come_from_primitive_columns_that_are_not_inside_lists() -> None:
    schema = a_schema(
        a_field(1, "l", a_list(2, a_struct(a_field(3, "x", "int")))),
        a_field(4, "s", a_struct(a_field(5, "y", "int"))),
    )

    assert create(schema, a_spec(("y", "identity", 5))).default_spec["fields"][0]["source-id"] == 5
    with pytest.raises(InvalidMetadata, match="Invalid partition field parent: list<struct<3: x: optional int>>"):
        create(schema, a_spec(("x", "identity", 3)))
    with pytest.raises(
        InvalidMetadata, match="Cannot partition by non-primitive source field: struct<5: y: optional int>"
    ):
        create(schema, a_spec(("s", "identity", 4)))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (an_order(("identity", 99)), "Cannot find source column for sort field: identity(99) ASC NULLS FIRST"),
        (an_order(("year", 1)), "Invalid source type long for transform: year"),
        (an_order(("identity", 1), order_id=0), "Sort order ID 0 is reserved for unsorted order"),
        (an_order(order_id=3), "Unsorted order ID must be 0"),
    ],
)
def test_an_order_that_does_not_fit_the_schema_is_refused(order: Json, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        create(a_schema(), None, order)
    assert refused.value.message == message


@pytest.mark.parametrize("transform", ["x[2147483648]", "void[99999999999]", "bucket[2147483648]"])
def test_a_width_that_is_no_int_is_refused_whatever_it_is_of(transform: str) -> None:
    """Java reads the number before it looks at the name."""
    with pytest.raises(IllegalArgument) as refused:
        a_table(spec=a_spec(("p", transform, 1)))
    assert refused.value.message == f"Invalid transform, not an integer: {transform}"
    assert a_table(spec=a_spec(("p", "x[2147483647]", 1))).default_spec["fields"][0]["transform"] == "x[2147483647]"


def test_a_transform_nobody_knows_yet_is_kept_as_it_is() -> None:
    table = create(a_schema(), a_spec(("z", "zorder(2)", 1)))

    assert table.default_spec["fields"][0]["transform"] == "zorder(2)"


def test_an_empty_location_is_refused() -> None:
    with pytest.raises(IllegalArgument, match="path must not be null or empty"):
        new_table(
            schema=a_schema(),
            partition_spec=None,
            sort_order=None,
            location="",
            properties={},
            table_uuid=UUID,
            now_ms=NOW_MS,
        )
