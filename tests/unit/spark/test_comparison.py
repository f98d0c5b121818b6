"""What two fingerprints say about two tables."""

import msgspec

from nunatak_spark.comparison import Difference, PartitionDifferences, TypeChange, compare, compare_partitions
from nunatak_spark.fingerprint import ColumnPrint, Fingerprint


def a_print(rows: int = 3, total: str = "f", **columns: tuple[str, int, str]) -> Fingerprint:
    chosen = columns or {"id": ("long", 0, "1"), "city": ("string", 1, "2")}
    return Fingerprint(rows, total, {name: ColumnPrint(*column) for name, column in chosen.items()})


def test_equal_tables_have_no_difference() -> None:
    difference = compare(a_print(), a_print())

    assert difference == Difference(3, 3)
    assert difference.same_data
    assert list(difference.sentences()) == []


def test_a_changed_value_names_its_column_though_the_counts_are_equal() -> None:
    difference = compare(a_print(), a_print(total="e", id=("long", 0, "1"), city=("string", 1, "3")))

    assert difference.changed == ("city",)
    assert not difference.same_data
    assert not difference.rows_paired_differently
    assert list(difference.sentences()) == ["values differ in: city"]


def test_a_null_that_became_a_value_is_a_change() -> None:
    assert compare(a_print(), a_print(id=("long", 0, "1"), city=("string", 0, "2"))).changed == ("city",)


def test_values_that_moved_between_rows_are_seen_though_every_column_is_equal() -> None:
    difference = compare(a_print(), a_print(total="e"))

    assert difference.changed == ()
    assert difference.rows_paired_differently
    assert not difference.same_data


def test_missing_and_new_columns_are_named() -> None:
    difference = compare(a_print(), a_print(id=("long", 0, "1"), town=("string", 1, "2")))

    assert (difference.only_left, difference.only_right) == (("city",), ("town",))
    assert not difference.same_data


def test_a_widened_column_is_told_but_is_no_difference_of_the_data() -> None:
    difference = compare(a_print(id=("integer", 0, "1")), a_print(id=("long", 0, "1")))

    assert difference.retyped == (TypeChange("id", "integer", "long"),)
    assert difference.same_data
    assert list(difference.sentences()) == ["id was integer and is long"]


def test_a_type_that_does_not_keep_the_values_is_a_difference_although_the_sums_are_equal() -> None:
    difference = compare(a_print(at=("timestamp", 0, "1")), a_print(at=("long", 0, "1")))

    assert difference.other_types == (TypeChange("at", "timestamp", "long"),)
    assert not difference.same_data
    assert list(difference.sentences()) == ["at was timestamp and is long, which does not keep the values"]


def test_other_counts_are_a_difference() -> None:
    difference = compare(a_print(), a_print(rows=4))

    assert not difference.same_data
    assert list(difference.sentences()) == ["3 rows became 4"]


def test_partitions_are_named_that_are_missing_new_or_changed() -> None:
    left = {"day=1": a_print(), "day=2": a_print(), "day=3": a_print()}
    right = {"day=1": a_print(), "day=2": a_print(total="e"), "day=4": a_print()}

    found = compare_partitions(left, right)

    assert (found.only_left, found.only_right, list(found.changed)) == (("day=3",), ("day=4",), ["day=2"])
    assert not found.same_data
    assert compare_partitions(left, left) == PartitionDifferences()


def test_fingerprints_and_differences_survive_json() -> None:
    difference = compare(a_print(), a_print(rows=4, id=("integer", 0, "9")))

    for value in (a_print(), difference, compare_partitions({"a": a_print()}, {"b": a_print()})):
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
