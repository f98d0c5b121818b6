"""How a schema becomes the SQL of a fingerprint, and an answer its value; no Spark."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak_spark.errors import CannotRun
from nunatak_spark.fingerprint import (
    RING,
    ColumnPrint,
    Fingerprint,
    canonical_expression,
    fingerprint_of,
    partition_name,
    plan,
)
from nunatak_spark.sql_text import quote_identifier


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [field(name, kind) for name, kind in fields.items()]}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def a_map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("byte", "cast(x as bigint)"),
        ("integer", "cast(x as bigint)"),
        ("long", "x"),
        ("float", "cast(x as double)"),
        ("double", "x"),
        ("decimal(9,2)", "xxhash64(x, 2)"),
        ("decimal(38, 10)", "if(abs(x) < 100000000BD, xxhash64(cast(x as decimal(18,10)), 10), xxhash64(x, 10))"),
        ("decimal(38,20)", "xxhash64(x, 20)"),
        ("string", "x"),
        ("string collate UTF8_LCASE", "cast(x as binary)"),
        ("varchar(10)", "x"),
        ("timestamp_ntz", "x"),
        ("binary", "x"),
        (struct(a="integer"), "xxhash64(isnull(x.`a`), cast(x.`a` as bigint))"),
        (struct(b="long", a="date"), "xxhash64(isnull(x.`a`), x.`a`, isnull(x.`b`), x.`b`)"),
        (array("long"), "xxhash64(size(x), transform(x, e0 -> xxhash64(e0)))"),
        (
            a_map("long", "long"),
            "xxhash64(size(x), array_sort(transform(map_entries(x), "
            "e0 -> xxhash64(isnull(e0.key), e0.key, isnull(e0.value), e0.value))))",
        ),
    ],
    ids=str,
)
def test_equal_values_of_a_type_have_one_form(kind: Any, expression: str) -> None:
    assert canonical_expression("x", kind, "x") == expression


def test_lambdas_inside_each_other_have_names_of_their_own() -> None:
    expression = canonical_expression("x", array(array(struct(a="long"))), "x")

    assert "transform(x, e0 -> " in expression
    assert "transform(e0, e1 -> " in expression
    assert "e1.`a`" in expression


@pytest.mark.parametrize(
    "kind", ["geometry(4326)", "object", {"type": "udt", "class": "x"}, array("hologram")], ids=str
)
def test_a_type_that_nobody_knows_is_refused_by_its_column(kind: Any) -> None:
    with pytest.raises(CannotRun, match="Column strange"):
        plan(struct(id="long", strange=kind))


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(CannotRun, match="without columns"):
        plan(struct())


def test_columns_count_by_name_and_not_by_place() -> None:
    assert plan(struct(a="long", b="string")) == plan(struct(b="string", a="long"))


def test_a_row_is_hashed_over_all_columns_and_each_column_alone() -> None:
    planned = plan(struct(a="long", b="string"))

    assert planned.hashes == (
        "xxhash64(`a`) as c0",
        "xxhash64(`b`) as c1",
        "`a` as n0",
        "`b` as n1",
    )
    assert planned.rows == ("c0", "c1", "n0", "n1", "xxhash64(c0, c1) as r")
    assert planned.sums == (
        "count(*) as n", "sum(r) as s",
        "sum(c0) as s0", "count(n0) as v0",
        "sum(c1) as s1", "count(n1) as v1",
    )  # fmt: skip


def test_nulls_inside_others_and_others_that_are_null_are_marked() -> None:
    planned = plan(struct(a=struct(x="long", y="long"), b=array("long")))

    assert planned.hashes[:2] == (
        "xxhash64(isnull(`a`), xxhash64(isnull(`a`.`x`), `a`.`x`, isnull(`a`.`y`), `a`.`y`)) as c0",
        "xxhash64(isnull(`b`), xxhash64(size(`b`), transform(`b`, e0 -> xxhash64(e0)))) as c1",
    )


def test_partitions_are_told_apart_as_text() -> None:
    planned = plan(struct(a="long"), ["a % 2", "`b`"])

    assert planned.keys == 2
    assert planned.hashes[:2] == ("cast(a % 2 as string) as k0", "cast(`b` as string) as k1")
    assert planned.rows[:2] == ("k0", "k1")


def test_a_name_with_backticks_stays_a_name() -> None:
    assert quote_identifier("a`b") == "`a``b`"
    assert plan(struct(**{"x`; drop": "long"})).hashes == ("xxhash64(`x``; drop`) as c0", "`x``; drop` as n0")


# Sums


HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)


def answered(hashes: list[int]) -> dict[str, Any]:
    """As Spark would answer for a table of one column: bigints that wrap around; sums over nothing are null."""
    wrapped = (sum(hashes) + RING // 2) % RING - RING // 2 if hashes else None
    return {"n": len(hashes), "s": wrapped, "s0": wrapped, "v0": len(hashes)}


@given(HASHES)
def test_a_sum_that_wrapped_around_is_printed_without_a_sign(hashes: list[int]) -> None:
    found = fingerprint_of(plan(struct(a="long")), answered(hashes))

    assert int(found.sum, 16) == sum(hashes) % RING
    assert found.columns["a"] == ColumnPrint("long", 0, found.sum)
    assert found.rows == len(hashes)


@given(HASHES, HASHES)
def test_fingerprints_of_parts_add_up_to_that_of_the_whole(left: list[int], right: list[int]) -> None:
    planned = plan(struct(a="long"))

    together = fingerprint_of(planned, answered(left)) + fingerprint_of(planned, answered(right))

    assert together == fingerprint_of(planned, answered(left + right))


def test_null_counts_add_up_too() -> None:
    half = Fingerprint(2, "a", {"x": ColumnPrint("long", 1, "b")})

    assert half + half == Fingerprint(4, "14", {"x": ColumnPrint("long", 2, "16")})


def test_no_two_partitions_have_one_name() -> None:
    values: list[tuple[str | None, str | None]] = [
        ("a", "b"), ("a/y=b", ""), ("a%2Fy=b", ""), (None, "b"), ("null", "b"), ("a", None), ("", ""),
    ]  # fmt: skip

    assert len({partition_name(["x", "y"], pair) for pair in values}) == len(values)
