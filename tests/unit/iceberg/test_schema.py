"""Which schemas are sound, which format version each needs, and when two are the same."""

import pytest

from nunatak.errors import BadRequest, IllegalArgument, InvalidMetadata
from nunatak.iceberg import schema as schema_module
from nunatak.iceberg.schema import MAX_TYPE_DEPTH, content_digest, parse_schema
from nunatak.iceberg.transforms import can_transform, canonical_transform
from nunatak.iceberg.types import canonical_type
from tests.unit.iceberg.builders import Json, a_field, a_list, a_map, a_schema, a_struct, check_schema


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("LONG", "long"),
        ("decimal(9,2)", "decimal(9, 2)"),
        ("Decimal( 38 , 0 )", "decimal(38, 0)"),
        ("fixed[ 16 ]", "fixed[16]"),
        ("geometry", "geometry"),
        ("geometry( OGC:CRS84 )", "geometry"),
        ("geometry(srid:3857)", "geometry(srid:3857)"),
        ("Geography(srid:4326, Karney)", "geography(srid:4326, karney)"),
        ("geography(OGC:CRS84, vincenty)", "geography(OGC:CRS84, vincenty)"),
        ("timestamptz_ns", "timestamptz_ns"),
    ],
)
def test_types_are_stored_in_the_spelling_the_reference_writes(sent: str, stored: str) -> None:
    assert canonical_type(sent) == stored
    assert canonical_type(stored) == stored


@pytest.mark.parametrize(
    "type_", ["", "integer", "decimal(39, 2)", "decimal(1)", "fixed[-1]", "fixed[99999999999]", "geography(a, b)"]
)
def test_a_type_nobody_knows_is_refused(type_: str) -> None:
    with pytest.raises(IllegalArgument):
        canonical_type(type_)


@pytest.mark.parametrize("type_", ["variant", "unknown", "timestamp_ns", "timestamptz_ns", "geometry", "geography"])
def test_types_of_v3_are_not_supported_before_v3(type_: str) -> None:
    schema = a_schema(a_field(1, "outer", a_struct(a_field(2, "data", type_))))

    check_schema(schema, 3)
    for version in (1, 2):
        with pytest.raises(InvalidMetadata) as refused:
            check_schema(schema, version)
        assert refused.value.message == (
            f"Invalid schema for v{version}:\n- Invalid type for outer.data: {type_} is not supported until v3"
        )


def test_every_problem_of_a_schema_is_named_in_the_order_of_the_field_ids() -> None:
    schema = a_schema(a_field(2, "b", "variant"), a_field(1, "a", "int", initial_default=3))

    with pytest.raises(InvalidMetadata) as refused:
        check_schema(schema, 2)

    assert refused.value.message == (
        "Invalid schema for v2:\n"
        "- Invalid initial default for a: non-null default (3) is not supported until v3\n"
        "- Invalid type for b: variant is not supported until v3"
    )


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("boolean", True),
        ("int", -5),
        ("long", 2**40),
        ("float", 1.5),
        ("double", 1),
        ("decimal(9, 2)", "14.20"),
        ("string", "text"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("date", "2026-11-16"),
        ("time", "22:31:08.123456"),
        ("timestamp", "2026-11-16T22:31:08.123456"),
        ("timestamptz", "2026-11-16T22:31:08.123456+00:00"),
        ("timestamp_ns", "2026-11-16T22:31:08.123456789"),
        ("timestamptz_ns", "2026-11-16T22:31:08.123456789+00:00"),
        ("fixed[2]", "0aFF"),
        ("binary", "00"),
    ],
)
def test_a_default_is_a_single_value_of_its_type(type_: str, value: object) -> None:
    check_schema(a_schema(a_field(1, "x", type_, initial_default=value, write_default=value)), 3)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("boolean", 1),
        ("int", True),
        ("int", 2**31),
        ("long", 1.5),
        ("float", "1"),
        ("decimal(9, 2)", "14.2"),
        ("decimal(9, 2)", "NaN"),
        ("string", 3),
        ("uuid", "f79c3e09"),
        ("date", "16.11.2026"),
        ("timestamp", "2026-11-16T22:31:08+00:00"),
        ("timestamptz", "2026-11-16T22:31:08+01:00"),
        ("timestamptz", "2026-11-16T22:31:08"),
        ("fixed[2]", "00"),
        ("binary", "0"),
        ("variant", {}),
        ("unknown", 1),
    ],
)
def test_a_default_of_another_type_is_refused(type_: str, value: object) -> None:
    with pytest.raises(IllegalArgument, match="Cannot parse default as a"):
        check_schema(a_schema(a_field(1, "x", type_, write_default=value)), 3)


def test_a_nested_type_has_no_default() -> None:
    with pytest.raises(IllegalArgument) as refused:
        check_schema(a_schema(a_field(1, "s", a_struct(a_field(2, "x", "int")), write_default={"2": 1})), 3)
    assert refused.value.message == 'Invalid default value for struct<2: x: optional int>: {"2":1} (must be null)'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([a_field(1, "a"), a_field(2, "a")], "Invalid schema: multiple fields for name a: 1 and 2"),
        ([a_field(1, "a"), a_field(1, "b")], "Multiple entries with same key: 1=b and 1=a"),
        ([a_field(1, "a", a_list(1, "int"))], "Multiple entries with same key: 1=a and 1=a.element"),
        (
            [a_field(1, "a.b"), a_field(2, "a", a_struct(a_field(3, "b")))],
            "Invalid schema: multiple fields for name a.b: 1 and 3",
        ),
        ([a_field(1, "a", "unknown", required=True)], "Cannot create required field with unknown type: a"),
        ([{"id": 1, "name": "a", "type": "int"}], "Cannot parse missing boolean: required"),
        ([a_field(2**31, "a")], "Cannot parse to an integer value: id: 2147483648"),
        ([a_field(True, "a")], "Cannot parse to an integer value: id: true"),
        ([a_field(1, "a", doc=4)], "Cannot parse to a string value: doc: 4"),
        ([a_field(1, "a", {"type": "set"})], 'Cannot parse type from json: {"type":"set"}'),
        ([7], "Cannot parse struct field from non-object: 7"),
    ],
)
def test_a_schema_that_is_not_sound_is_refused(fields: list[Json], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_schema({"type": "struct", "fields": fields}, 3)
    assert refused.value.message == message


@pytest.mark.parametrize(
    "schema",
    [None, 3, "int", [], {}, {"type": "struct"}, {"type": "struct", "fields": {}}, {"type": "list"}, {"fields": []}],
)
def test_what_is_not_a_struct_is_not_a_schema(schema: object) -> None:
    with pytest.raises(IllegalArgument):
        check_schema(schema, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "field_id", "message"),
    [
        (a_field(1, "k"), 1, "Cannot add field k as an identifier field: not a required field"),
        (
            a_field(1, "k", "double", required=True),
            1,
            "Cannot add field k as an identifier field: must not be float or double field",
        ),
        (a_field(1, "k", required=True), 9, "Cannot add fieldId 9 as an identifier field: field does not exist"),
        (
            a_field(1, "s", a_struct(a_field(2, "k", "int", required=True))),
            2,
            "Cannot add field k as an identifier field: must not be nested in an optional field "
            "1: s: optional struct<2: k: required int>",
        ),
        (
            a_field(1, "l", a_list(2, "int"), required=True),
            2,
            "Cannot add field element as an identifier field: must not be nested in 1: l: required list<int>",
        ),
        (
            a_field(1, "m", a_map(2, "string", 3, "int"), required=True),
            1,
            "Cannot add field m as an identifier field: not a primitive type field",
        ),
    ],
)
def test_an_identifier_is_a_required_primitive_in_required_structs(field: Json, field_id: int, message: str) -> None:
    with pytest.raises(IllegalArgument) as refused:
        check_schema(a_schema(field, identifier_field_ids=[field_id]), 2)
    assert refused.value.message == message


def test_types_nested_too_deeply_are_refused_and_not_a_crash() -> None:
    def nested(depth: int) -> str | Json:
        type_: str | Json = "int"
        for level in range(depth):
            type_ = a_list(level + 2, type_)
        return type_

    check_schema(a_schema(a_field(1, "deep", nested(MAX_TYPE_DEPTH - 1))), 2)
    for depth in (MAX_TYPE_DEPTH + 1, 300, 800):
        with pytest.raises(IllegalArgument, match="nested more than"):
            check_schema(a_schema(a_field(1, "deep", nested(depth))), 2)


def test_columns_are_found_by_short_names_too() -> None:
    schema = parse_schema(
        a_schema(
            a_field(1, "l", a_list(2, a_struct(a_field(3, "x", "int")))),
            a_field(4, "m", a_map(5, "string", 6, a_struct(a_field(7, "y", "int")))),
        )
    )

    sought = ("l.element.x", "l.x", "m.key", "m.value", "m.value.y", "m.y")
    names = {name: found.id for name in sought if (found := schema.find_field(name))}
    assert names == {"l.element.x": 3, "l.x": 3, "m.key": 5, "m.value": 6, "m.value.y": 7, "m.y": 7}
    assert schema.highest_field_id == 7


def test_schemas_are_the_same_if_only_their_ids_spelling_or_unknown_fields_differ() -> None:
    one = parse_schema(a_schema(a_field(1, "a", "decimal(9,2)", doc=None), schema_id=0))
    other = parse_schema(a_schema(a_field(1, "a", "DECIMAL(9, 2)", x_note=1), schema_id=7))
    documented = parse_schema(a_schema(a_field(1, "a", "decimal(9, 2)", doc="d")))

    assert content_digest(one) == content_digest(other)
    assert content_digest(one) != content_digest(documented)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [("IDENTITY", "identity"), ("Bucket[016]", "bucket[16]"), ("truncate[3]", "truncate[3]"), ("Zorder", "Zorder")],
)
def test_transforms_are_stored_in_the_spelling_the_reference_writes(sent: str, stored: str) -> None:
    assert canonical_transform(sent) == stored


@pytest.mark.parametrize(
    ("transform", "fits", "does_not_fit"),
    [
        ("identity", "uuid", "geometry"),
        ("bucket[4]", "decimal(9, 2)", "float"),
        ("truncate[4]", "string", "timestamptz"),
        ("year", "date", "time"),
        ("hour", "timestamp_ns", "date"),
    ],
)
def test_a_transform_has_its_source_types(transform: str, fits: str, does_not_fit: str) -> None:
    assert can_transform(transform, fits)
    assert not can_transform(transform, does_not_fit)
    assert can_transform("a-transform-of-the-future", does_not_fit)


def test_a_long_name_is_not_repeated_for_thousands_of_fields_inside_it() -> None:
    inner = [a_field(number, f"c{number}") for number in range(2, 100)]
    around = a_field(1, "n" * 1_000_000, {"type": "struct", "fields": inner})

    with pytest.raises(IllegalArgument, match="full names of its fields"):
        parse_schema(a_schema(around))


def test_long_names_side_by_side_are_read() -> None:
    assert len(parse_schema(a_schema(a_field(1, "n" * 1_000_000), a_field(2, "m" * 1_000_000))).fields) == 2


def test_a_new_schema_has_a_bounded_number_of_fields_and_an_old_one_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_module, "MAX_FIELDS", 2)
    wide = a_schema(a_field(1, "a"), a_field(2, "b"), a_field(3, "c"))

    assert len(parse_schema(wide).fields) == 3
    with pytest.raises(IllegalArgument, match="at most 2 are allowed"):
        check_schema(wide, 2)
