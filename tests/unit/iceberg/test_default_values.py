"""Which defaults a column may have, and how they are stored.

The oracle is SingleValueParser of the reference, 1.11.0 on Java 17: each row of READ and REFUSED was handed to its
`fromJson`, and what READ says is stored is what `toJson` made of it.
"""

import json
from typing import Any

import pytest

from nunatak.errors import IllegalArgument
from nunatak.iceberg.default_values import canonical_default
from nunatak.iceberg.schema import content_digest, parse_schema
from nunatak.iceberg.table_metadata import decode, encode
from tests.unit.iceberg.builders import Json, a_field, a_list, a_map, a_schema, a_struct, a_table, commit, update

DAY = "2024-01-01T"

READ: list[tuple[str, Any, Any]] = [
    ("boolean", True, True),
    ("boolean", False, False),
    ("int", 2**31 - 1, 2**31 - 1),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("long", -(2**63), -(2**63)),
    ("float", 1.0, 1.0),
    ("float", 3.4028235e38, 3.4028235e38),
    ("double", 1e39, 1e39),
    ("double", 0.1, 0.1),
    ("decimal(9, 2)", "1.00", "1.00"),
    ("decimal(9, 2)", "-1.00", "-1.00"),
    ("decimal(9, 2)", "+1.00", "1.00"),
    ("decimal(9, 2)", "-0.00", "0.00"),
    ("decimal(9, 2)", ".25", "0.25"),
    ("decimal(9, 2)", "00001.00", "1.00"),
    ("decimal(9, 2)", "100e-2", "1.00"),
    ("decimal(9, 2)", "1.e-2", "0.01"),
    ("decimal(9, 2)", "1e-00000000002", "0.01"),
    ("decimal(9, 2)", "1.0000E+2", "100.00"),
    ("decimal(9, 0)", "1.", "1"),
    ("decimal(38, 10)", "1e-10", "0.0000000001"),
    ("string", "", ""),
    ("string", "1", "1"),
    ("uuid", "F79C3E09-677C-4BBD-A479-3F349CB785E7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("fixed[2]", "0aFF", "0AFF"),
    ("fixed[0]", "", ""),
    ("binary", "0aFF", "0AFF"),
    ("binary", "", ""),
    ("date", "2024-02-29", "2024-02-29"),
    ("date", "0000-02-29", "0000-02-29"),
    ("date", "-0001-01-01", "-0001-01-01"),
    ("date", "-0004-02-29", "-0004-02-29"),
    ("date", "-000000001-01-01", "-0001-01-01"),
    ("date", "9999-12-31", "9999-12-31"),
    ("date", "+10000-01-01", "+10000-01-01"),
    ("date", "+12024-01-01", "+12024-01-01"),
    ("date", "+02024-01-01", "2024-01-01"),
    ("date", "+00000-01-01", "0000-01-01"),
    ("date", "+5881580-07-11", "+5881580-07-11"),
    ("date", "-5877641-06-23", "-5877641-06-23"),
    ("time", "10:11:12", "10:11:12"),
    ("time", "10:11", "10:11:00"),
    ("time", "10:11:12.", "10:11:12"),
    ("time", "10:11:12.000", "10:11:12"),
    ("time", "10:11:10.10", "10:11:10.1"),
    ("time", "23:59:59.999999999", "23:59:59.999999"),
    ("timestamp", DAY + "10:11:12", DAY + "10:11:12"),
    ("timestamp", "2024-01-01t10:11", DAY + "10:11:00"),
    ("timestamp", DAY + "10:11:12.123456789", DAY + "10:11:12.123456"),
    ("timestamp", "1969-12-31T23:59:59.9999999", "1970-01-01T00:00:00"),
    ("timestamp", "1677-09-21T00:12:43.145224192", "1677-09-21T00:12:43.145225"),
    ("timestamp", "-0001-01-01T00:00:00", "-0001-01-01T00:00:00"),
    ("timestamp", "+294247-01-10T04:00:54.7758079", "+294247-01-10T04:00:54.775807"),
    ("timestamp", "-290308-12-21T19:59:05.224192", "-290308-12-21T19:59:05.224192"),
    ("timestamp", "-290308-12-21T19:59:05.2241919", "-290308-12-21T19:59:05.224192"),
    ("timestamptz", DAY + "10:11:12+00:00", DAY + "10:11:12+00:00"),
    ("timestamptz", DAY + "10:11:12-00:00", DAY + "10:11:12+00:00"),
    ("timestamptz", DAY + "10:11:12+00:00:00", DAY + "10:11:12+00:00"),
    ("timestamptz", DAY + "10:11Z", DAY + "10:11:00+00:00"),
    ("timestamptz", DAY + "10:11:12.5z", DAY + "10:11:12.5+00:00"),
    ("timestamptz", "-0001-12-31T23:59:59.9999999Z", "0000-01-01T00:00:00+00:00"),
    ("timestamp_ns", DAY + "10:11:12.123456789", DAY + "10:11:12.123456789"),
    ("timestamp_ns", "2262-04-11T23:47:16.854775807", "2262-04-11T23:47:16.854775807"),
    ("timestamp_ns", "1677-09-21T00:12:43.145224192", "1677-09-21T00:12:43.145224192"),
    ("timestamptz_ns", "1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.9999999+00:00"),
]

REFUSED: dict[str, tuple[Any, ...]] = {
    "boolean": ("true", 1, 0),
    "int": (2**31, -(2**31) - 1, 1.0, "1", True),
    "long": (2**63, -(2**63) - 1, 10**400, 1.0, "1", True),
    "float": ("1.0", "NaN", True, 10**400),
    "double": ("1.0", "NaN", True, 10**400),
    "decimal(9, 2)": (
        *(1, 1.0, "1", "1.0", "1.000", "1e2", "1.", "", "-", ".", "NaN", "Infinity", " 1.00", "1.00 ", "1_0.00"),
        *("1,00", "1..00", "1.00f", "1.00e", "1e-2.0", "0x1.00", "--1.00", "1e+-2", "1e-2147483647", "1e-99999999999"),
    ),
    "string": (1, 1.5, True, {}, []),
    "uuid": (
        *("f79c3e09", "f79c3e09677c4bbda4793f349cb785e7", "{f79c3e09-677c-4bbd-a479-3f349cb785e7}"),
        *("f79c3e09-677c-4bbd-a479-3f349cb785eg", "f79c3e09-677c-4bbd-a479-3f349cb785e7 "),
    ),
    "fixed[2]": ("", "0a", "0aff0", "0aff00", "0x0a", "zz00", " 0aff", 1),
    "binary": ("0", "0x0a", "zz", "0a ff", "٠٠", 1),
    "date": (
        *(19723, "", "today", "20240101", "2024-W01-1", "2024-001", "2024-1-1", "24-01-01", "999-01-01", "-999-01-01"),
        *("+2024-01-01", "12024-01-01", "-0000-01-01", "-00000-01-01", "+1000000000-01-01", "+00000002024-01-01"),
        *("2023-02-29", "1900-02-29", "-0001-02-29", "2024-04-31", "2024-13-01", "2024-01-00", "2024-01", "2024/01/01"),
        *(" 2024-01-01", "2024-01-01\n", "2024-01-01Z", "2024-01-01T00:00:00", "٢٠٢٤-01-01"),
    ),
    "time": (
        *(
            1,
            "",
            "10",
            "1:11",
            "10:1",
            "10:11:1",
            "101112",
            "T10:11",
            "10:11.5",
            "-01:00",
            "24:00",
            "24:00:00",
            "10:60",
        ),
        *("23:59:60", "10:11:12Z", "10:11:12+00:00", "10:11:12,123", "10:11:12 ", "10:11:12.1234567890"),
    ),
    "timestamp": (
        *(1, "2024-01-01", DAY, DAY + "10", "2024-01-01 10:11:12", "20240101T101112", "2024-02-30T00:00:00"),
        *(DAY + time for time in ("10:11:12Z", "24:00", "23:59:60", "10:11:12,5", "10:11:12.1234567891")),
        *("+294247-01-10T04:00:54.775808", "-290308-12-21T19:59:05.224191", "+999999999-12-31T23:59:59"),
    ),
    "timestamptz": (
        *(1, "Z", "+00:00", "2024-01-01+00:00", "2024-01-01 10:11:12+00:00", DAY + "10:11:12"),
        *(DAY + "10:11:12" + zone for zone in ("+00", "+0000", "+0:00", " +00:00", "UTC", "[UTC]", "Z+00:00")),
        *(DAY + "10:11:12" + zone for zone in ("+01:00", "-05:00", "+00:00:01", "+00:0000")),
    ),
    "timestamp_ns": ("2262-04-11T23:47:16.854775808", "1677-09-21T00:12:43.145224191", "0000-01-01T00:00:00"),
    "timestamptz_ns": ("9999-12-31T23:59:59Z", DAY + "10:11:12+01:00", DAY + "10:11:12"),
    "geometry": ("POINT (1 2)",),
    "unknown": (1, "x"),
    "variant": (1, {}),
}


@pytest.mark.parametrize(("type_", "sent", "stored"), READ)
def test_what_the_reference_reads_is_stored_as_it_writes_it(type_: str, sent: object, stored: object) -> None:
    assert canonical_default(type_, sent) == stored
    assert canonical_default(type_, stored) == stored


@pytest.mark.parametrize(("type_", "value"), [(type_, value) for type_, values in REFUSED.items() for value in values])
def test_what_the_reference_cannot_read_is_refused(type_: str, value: object) -> None:
    with pytest.raises(IllegalArgument) as refused:
        canonical_default(type_, value)
    assert refused.value.message.startswith(f"Cannot parse default as a {type_} value: ")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("float", 1e39),  # read as infinity, which it then writes as a text that it cannot read
        ("float", 3.4028236e38),
        ("date", "+5881580-07-12"),  # one day more than 32 bits hold: read as -5877641-06-23
        ("date", "-5877641-06-22"),
        ("uuid", "f79c3e0-9677c-4bbd-a479-3f349cb785e7"),  # read as 0f79c3e0-677c-4bbd-a479-3f349cb785e7
        ("uuid", "+79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("binary", "ﬀ"),  # one letter, read as FF
        ("decimal(9, 2)", "١.٠٠"),
        ("timestamptz", DAY + "10:11:12+00:00[Europe/Berlin]"),
    ],
)
def test_what_the_reference_reads_by_accident_is_refused(type_: str, value: object) -> None:
    with pytest.raises(IllegalArgument):
        canonical_default(type_, value)


@pytest.mark.parametrize("type_", ["float", "double"])
@pytest.mark.parametrize(
    ("sent", "stored"),
    [(1, "1.0"), (0, "0.0"), (-7, "-7.0"), (2**53 + 1, "9007199254740992.0"), (10**22, "1e22")],
)
def test_an_integer_is_stored_as_the_nearest_floating_point_number(type_: str, sent: int, stored: str) -> None:
    """The reference refuses it, but some writers print 1.0 as 1; stored as 1, no Java client could load the table."""
    column = a_field(1, "x", type_, initial_default=sent, write_default=sent)

    created = encode(a_table(format_version=3, schema=a_schema(column)))
    added = encode(commit(a_table(format_version=3), [update("add-schema", schema=a_schema(column | {"id": 4}))]))

    for stored_bytes in (created, added):
        assert f'"initial-default":{stored},"write-default":{stored}'.encode() in stored_bytes


@pytest.mark.parametrize("digits", [39, 400])
def test_an_integer_beyond_a_float_is_refused(digits: int) -> None:
    with pytest.raises(IllegalArgument, match="Cannot parse default as a float value: 1000"):
        parse_schema(a_schema(a_field(1, "x", "float", write_default=10**digits)))


def test_the_defaults_of_nested_fields_are_stored_in_the_same_spelling() -> None:
    def holding(field_id: int) -> Json:
        return a_struct(a_field(field_id, "x", "double", initial_default=1))

    schema = a_schema(
        a_field(1, "in_struct", holding(10)),
        a_field(2, "in_list", a_list(20, holding(21))),
        a_field(3, "in_map", a_map(30, "string", 31, holding(32))),
    )

    assert json.dumps(parse_schema(schema).json).count('"initial-default": 1.0') == 3


def test_a_default_in_another_spelling_does_not_make_another_schema() -> None:
    one = parse_schema(a_schema(a_field(1, "x", "timestamptz", write_default="2024-01-01T10:11Z")))
    other = parse_schema(a_schema(a_field(1, "x", "timestamptz", write_default="2024-01-01T10:11:00+00:00")))

    assert content_digest(one) == content_digest(other)


def test_a_table_that_was_stored_with_an_integer_can_be_read() -> None:
    """Earlier servers stored the default as it was sent."""
    stored = encode(a_table(format_version=3, schema=a_schema(a_field(1, "x", "double", initial_default=1.0))))

    assert decode(stored.replace(b'"initial-default":1.0', b'"initial-default":1'))
