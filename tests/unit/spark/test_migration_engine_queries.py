"""What engines are asked, and when their answers count as the same; without any engine."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from nunatak_spark.migration.engine_queries import (
    DISTINCT_AT_MOST,
    DUCKDB,
    SPARK,
    ColumnMeasure,
    CountFilter,
    QueryColumn,
    SampleRows,
    answers_agree,
    choose_filters,
    choose_measures,
    choose_rows,
    columns_of,
    filters_sql,
    measures_sql,
    normalize_value,
    rows_sql,
)


def a_document(*fields: tuple[str, Any]) -> dict[str, Any]:
    listed = [{"id": n, "name": name, "required": False, "type": kind} for n, (name, kind) in enumerate(fields)]
    return {
        "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 3, "type": "struct", "fields": listed}],
        "current-schema-id": 3,
    }


def test_structs_are_taken_apart_and_each_type_has_its_kind() -> None:
    inner = {"type": "struct", "fields": [{"id": 9, "name": "lat", "required": False, "type": "double"}]}
    document = a_document(
        ("id", "long"),
        ("price", "decimal(9, 2)"),
        ("place", inner),
        ("tags", {"type": "list", "element-id": 7, "element": "string", "element-required": False}),
        ("raw", "fixed[16]"),
        ("shape", "geometry"),
    )

    assert [(column.name, column.kind) for column in columns_of(document)] == [
        ("id", "integer"),
        ("price", "decimal"),
        ("place.lat", "float"),
        ("tags", "list"),
        ("raw", "binary"),
        ("shape", "other"),
    ]


def test_a_wide_table_is_not_counted_apart_in_every_column() -> None:
    asked = choose_measures([QueryColumn((f"c{n}",), "integer") for n in range(30)])

    assert sum(one.of == "distinct" for one in asked) == DISTINCT_AT_MOST
    assert sum(one.of == "sum" for one in asked) == 30


def test_names_are_quoted_in_both_dialects() -> None:
    asked = [
        ColumnMeasure(QueryColumn(("a`b", "c'd"), "string"), "bytes"),
        ColumnMeasure(QueryColumn(('e"f',), "float"), "least"),
    ]

    spark, duckdb = measures_sql(asked, "t", SPARK), measures_sql(asked, "t", DUCKDB)

    assert "octet_length(`a``b`.`c'd`)" in spark
    assert 'CASE WHEN NOT isnan(`e"f`) THEN `e"f` END' in spark
    assert "strlen(struct_extract(\"a`b\", 'c''d'))" in duckdb
    assert '"e""f"' in duckdb


def test_whole_rows_are_seen_only_where_their_order_is_sure() -> None:
    key, city = QueryColumn(("id",), "integer"), QueryColumn(("city",), "string")
    tags = QueryColumn(("tags",), "list")
    answers: dict[str, str | None] = {
        "count of id": "7",
        "distinct of id": "7",
        "count of city": "7",
        "distinct of city": "2",
    }

    assert choose_rows([city, key, tags], answers, 7) == SampleRows((city, key, tags), (key,))
    assert choose_rows([city, tags], answers, 7) == SampleRows((city,), (city,))
    assert choose_rows([tags], answers, 7) is None


def test_a_key_with_nulls_is_no_key() -> None:
    key = QueryColumn(("id",), "integer")

    assert choose_rows([key], {"count of id": "6", "distinct of id": "6"}, 7) == SampleRows((key,), (key,))


def test_rows_are_sorted_with_nulls_first_in_both_dialects() -> None:
    asked = SampleRows((QueryColumn(("id",), "integer"),), (QueryColumn(("id",), "integer"),))

    assert rows_sql(asked, "t", SPARK) == "SELECT `id` AS v0 FROM t ORDER BY `id` ASC NULLS FIRST LIMIT 5"
    assert rows_sql(asked, "t", DUCKDB) == 'SELECT "id" AS v0 FROM t ORDER BY "id" ASC NULLS FIRST LIMIT 5'


def test_filters_lie_between_the_least_and_the_most() -> None:
    columns = [
        QueryColumn(("id",), "integer"),
        QueryColumn(("day",), "date"),
        QueryColumn(("city",), "string"),
        QueryColumn(("empty",), "integer"),
        QueryColumn(("place", "name"), "string"),
    ]
    answers: dict[str, str | None] = {
        "least of id": "-3",
        "most of id": "8",
        "least of day": "2026-01-01",
        "most of day": "2026-01-04",
        "least of city": "O'Hare\\",
        "most of city": "Å",
        "least of empty": None,
        "most of empty": None,
        "least of place.name": "a",
        "most of place.name": "b",
    }

    asked = choose_filters(columns, answers)

    assert [one.value for one in asked] == [2, date(2026, 1, 2), "O'Hare\\"]
    assert filters_sql(asked, "t", SPARK) == (
        "SELECT 0 AS i, count(*) AS n FROM t WHERE `id` <= 2"
        " UNION ALL SELECT 1 AS i, count(*) AS n FROM t WHERE `day` <= DATE '2026-01-02'"
        " UNION ALL SELECT 2 AS i, count(*) AS n FROM t WHERE `city` <= 'O\\'Hare\\\\'"
    )
    assert filters_sql([CountFilter(columns[2], "O'Hare\\")], "t", DUCKDB) == (
        "SELECT 0 AS i, count(*) AS n FROM t WHERE \"city\" <= 'O''Hare\\'"
    )


SAME = {
    "decimals of another scale": (Decimal("1.50"), Decimal("1.5")),
    "a whole decimal and an integer": (Decimal("100"), 100),
    "a large decimal": (Decimal("1E+3"), 1000),
    "zeros": (Decimal("0.00"), 0),
    "minus zero": (-0.0, 0.0),
    "not a number": (float("nan"), float("-nan")),
    "an instant in two zones": (
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
    ),
    "maps in another order": ([("a", 1), ("b", None)], [("b", None), ("a", 1)]),
    "structs in another order": ({"x": 1, "y": [1.0]}, {"y": [1.0], "x": 1}),
    "a uuid and its text": (UUID(int=5), str(UUID(int=5))),
}
OTHER = {
    "a decimal and a float": (Decimal("0.1"), 0.25),
    "null and its text in a list": ([None], ["null-ish"]),
    "order in a list": ([1, 2], [2, 1]),
    "an instant and a local time": (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)),
    "null and nothing": (None, ""),
    "bytes and their text": (b"a", "a"),
    "an empty list and null": ([], None),
}


@pytest.mark.parametrize("case", SAME)
def test_one_value_has_one_form(case: str) -> None:
    left, right = SAME[case]

    assert normalize_value(left) == normalize_value(right)


@pytest.mark.parametrize("case", OTHER)
def test_other_values_have_other_forms(case: str) -> None:
    left, right = OTHER[case]

    assert normalize_value(left) != normalize_value(right)


def test_only_sums_of_floats_may_differ_a_little() -> None:
    floats, decimals = QueryColumn(("f",), "float"), QueryColumn(("d",), "decimal")
    answers: dict[str, str | None] = {"count of f": "1000", "least of f": "-1.0", "most of f": "1.0"}

    assert answers_agree(ColumnMeasure(floats, "sum"), "0.30000000000000004", "0.3", answers)
    assert answers_agree(ColumnMeasure(floats, "sum"), "1e-13", "-2e-13", answers)  # what cancels out leaves a rest
    assert not answers_agree(ColumnMeasure(floats, "sum"), "0.3001", "0.3", answers)
    assert not answers_agree(ColumnMeasure(floats, "most"), "0.30000000000000004", "0.3", answers)
    assert not answers_agree(ColumnMeasure(decimals, "sum"), "0.30000000000000004", "0.3", answers)
    assert not answers_agree(ColumnMeasure(floats, "sum"), None, "0.0", answers)
