"""How a schema becomes the SQL of a fingerprint, and an answer its value; no Spark."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak_spark.errors import CannotRun
from nunatak_spark.fingerprint import (
    PIECES,
    ColumnPrint,
    Fingerprint,
    canonical,
    fingerprint_of,
    partition_name,
    plan,
    printed_type,
    quoted,
)


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
        ("float", "case when x = 0 then 0D else cast(x as double) end"),
        ("double", "case when x = 0 then 0D else cast(x as double) end"),
        ("decimal(9,2)", "cast(x as decimal(38,2))"),
        ("decimal(38, 10)", "cast(x as decimal(38,10))"),
        ("string", "cast(x as binary)"),
        ("string collate UTF8_LCASE", "cast(x as binary)"),
        ("varchar(10)", "cast(x as binary)"),
        ("variant", "cast(to_json(x) as binary), cast(schema_of_variant(x) as binary)"),
        ("timestamp_ntz", "x"),
        ("binary", "x"),
        (struct(a="integer"), "xxhash64(isnull(x.`a`), cast(x.`a` as bigint))"),
        (array("long"), "xxhash64(size(x), transform(x, e0 -> xxhash64(isnull(e0), e0)))"),
        (
            a_map("long", "long"),
            "xxhash64(size(x), array_sort(transform(map_entries(x), "
            "e0 -> xxhash64(isnull(e0.key), e0.key, isnull(e0.value), e0.value))))",
        ),
    ],
    ids=str,
)
def test_equal_values_of_a_type_have_one_form(kind: Any, expression: str) -> None:
    assert canonical("x", kind, "x") == expression


def test_lambdas_inside_each_other_have_names_of_their_own() -> None:
    expression = canonical("x", array(array(struct(a="long"))), "x")

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
        "xxhash64(isnull(`a`), `a`) as c0",
        "xxhash64(isnull(`b`), cast(`b` as binary)) as c1",
        "isnull(`a`) as n0",
        "isnull(`b`) as n1",
    )
    assert planned.rows == ("c0", "c1", "n0", "n1", "xxhash64(c0, c1) as r")
    assert planned.sums[0] == "count(*) as n"
    assert len(planned.sums) == 1 + 3 + 2 * 4


def test_partitions_are_told_apart_as_text() -> None:
    planned = plan(struct(a="long"), ["a % 2", "`b`"])

    assert planned.keys == 2
    assert planned.hashes[:2] == ("cast(a % 2 as string) as k0", "cast(`b` as string) as k1")
    assert planned.rows[:2] == ("k0", "k1")


def test_a_name_with_backticks_stays_a_name() -> None:
    assert quoted("a`b") == "`a``b`"
    assert "isnull(`x``; drop`)" in plan(struct(**{"x`; drop": "long"})).hashes[-1]


def test_a_type_is_printed_as_people_write_it() -> None:
    kind = struct(a=array("integer"), m=a_map("string", struct(x="long")))

    assert printed_type(kind) == "struct<a: array<integer>, m: map<string, struct<x: long>>>"


# Sums


def test_the_pieces_of_a_hash_are_all_of_it() -> None:
    assert sum(bits for _, bits in PIECES) == 64
    covered = sorted(bit for shift, bits in PIECES for bit in range(shift, shift + bits))
    assert covered == list(range(64))


def test_sums_do_not_overflow_for_a_trillion_rows() -> None:
    assert all(10**12 * (2**bits - 1) < 2**63 for _, bits in PIECES)


HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=20)


def answered(hashes: list[int]) -> dict[str, Any]:
    """As Spark would answer for a table of one column; sums over nothing are null."""

    def pieces(name: str) -> dict[str, int | None]:
        return {
            f"{name}_{shift}": sum(one >> shift & 2**bits - 1 for one in hashes) if hashes else None
            for shift, bits in PIECES
        }

    return {"n": len(hashes), "z0": 0, **pieces("r"), **pieces("c0")}


@given(HASHES)
def test_pieces_add_up_to_the_exact_sum(hashes: list[int]) -> None:
    found = fingerprint_of(plan(struct(a="long")), answered(hashes))

    assert int(found.sum, 16) == sum(hashes)
    assert int(found.columns["a"].sum, 16) == sum(hashes)
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
