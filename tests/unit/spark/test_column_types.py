"""Types as people read them, and which changes of type keep every value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak_spark.column_types import Type, ddl_type, format_type, keeps_values, parse_type

SIMPLE = ("integer", "long", "decimal(9,2)", "string", "timestamp_ntz", "time(6)", "interval day to second", "char(3)")
NAMES = st.text(min_size=1, max_size=6)


def struct(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element}


def a_map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value}


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(array),
        st.tuples(inner, inner).map(lambda both: a_map(*both)),
        st.dictionaries(NAMES, inner, max_size=3).map(lambda fields: struct(**fields)),
    )


TYPES = st.recursive(st.sampled_from(SIMPLE), nested, max_leaves=6)


def test_a_type_is_printed_as_people_write_it() -> None:
    kind = struct(a=array("integer"), m=a_map("string", struct(x="long")), **{"b c": "date"})

    assert format_type(kind) == "struct<a: array<integer>, m: map<string, struct<x: long>>, `b c`: date>"


@given(TYPES)
def test_what_was_printed_is_read_back(kind: Type) -> None:
    assert parse_type(format_type(kind)) == kind


@given(TYPES)
def test_a_type_keeps_its_own_values(kind: Type) -> None:
    assert keeps_values(kind, kind)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("byte", "integer"),
        ("short", "long"),
        ("integer", "long"),
        ("float", "double"),
        ("decimal(9,2)", "decimal(38,2)"),
        ("char(3)", "string"),
        ("varchar(3)", "string"),
        (struct(a="integer", b="long"), struct(b="long", a="long")),
        (array(a_map("integer", struct(x="float"))), array(a_map("long", struct(x="double")))),
    ],
    ids=str,
)
def test_a_wider_type_keeps_the_values_and_the_narrower_one_does_not(left: Type, right: Type) -> None:
    assert keeps_values(left, right)
    assert left == right or not keeps_values(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("timestamp", "long"),
        ("timestamp", "timestamp_ntz"),
        ("timestamp_ntz", "timestamp"),
        ("date", "timestamp"),
        ("date", "timestamp_ntz"),
        ("date", "integer"),
        ("string", "binary"),
        ("binary", "string"),
        ("integer", "double"),
        ("long", "decimal(20,0)"),
        ("decimal(9,2)", "decimal(10,3)"),
        ("time(3)", "time(6)"),
        ("void", "integer"),
        ("variant", "string"),
        (struct(a="long"), struct(b="long")),
        (struct(a="long"), struct(A="long")),
        (struct(a="long"), struct(a="long", b="long")),
        (struct(a="long"), "long"),
        (array("long"), a_map("long", "long")),
        (array("timestamp"), array("long")),
    ],
    ids=str,
)
def test_other_changes_do_not_keep_the_values(left: Type, right: Type) -> None:
    assert not keeps_values(left, right)


def test_a_type_is_written_as_sql_takes_it() -> None:
    kind = struct(a=array("integer"), m=a_map("long", struct(**{"x`y": "short"})), d="decimal(9,2)")

    assert ddl_type(kind) == "struct<a:array<int>,m:map<bigint,struct<`x``y`:smallint>>,d:decimal(9,2)>"
