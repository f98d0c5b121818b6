"""What a target would refuse, as far as a plan can tell without asking it."""

import pytest

from nunatak_spark.migration.model import InventoryTable, SourceColumn, TablePlan
from nunatak_spark.migration.target_checks import (
    _unknown_columns,
    _unknown_format,
    allowed_locations_value,
    find_duplicate_tables,
)


def found(name: str, **more: object) -> InventoryTable:
    return InventoryTable(source="old", name=tuple(name.split(".")), kind="iceberg", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["interval day to second", "array<void>", "struct<a:int,b:uniontype<int,string>>"])
def test_a_type_that_iceberg_does_not_have_is_named_with_its_column(kind: str) -> None:
    table = found("a.t", columns=(SourceColumn("id", "bigint"), SourceColumn("odd", kind)))

    (reason,) = _unknown_columns(table)

    assert reason == f"its column odd is of the type {kind}, which Iceberg does not have"


@pytest.mark.parametrize("kind", ["bigint", "struct<nullable:int>", "map<string,array<decimal(9,2)>>", "timestamp_ntz"])
def test_other_types_are_taken(kind: str) -> None:
    assert list(_unknown_columns(found("a.t", columns=(SourceColumn("c", kind),)))) == []


@pytest.mark.parametrize(("version", "is_known"), [(1, True), (3, True), (4, False), (99, False)])
def test_a_format_of_the_future_is_refused(version: int, *, is_known: bool) -> None:
    reasons = list(_unknown_format(found("a.t", format_version=version), TablePlan("register", ("a", "t"))))

    assert bool(reasons) != is_known


def test_one_setting_for_all_tables_holds_each_folder_once() -> None:
    places = ["s3://lake/shop/orders", "s3://lake/shop/visits/", "s3a://lake/shop/eu/orders", "file:/srv/hr/people"]

    told = allowed_locations_value([found(f"a.t{number}", location=place) for number, place in enumerate(places)])

    assert told == "file:/srv/hr,s3://lake/shop"


def test_a_table_that_two_sources_hold_goes_over_once() -> None:
    register, copy = TablePlan("register", ("a", "t")), TablePlan("copy", ("a", "t"))
    one, other = found("a.t", uuid="1"), InventoryTable(source="new", name=("a", "t"), kind="iceberg", uuid="1")
    third = found("a.u", uuid="2")

    assert find_duplicate_tables([(one, register), (other, register), (third, register)]) == {"new:a.t": "old:a.t"}
    assert find_duplicate_tables([(one, register), (other, copy)]) == {}
    assert find_duplicate_tables([(one, register), (one, register)]) == {}
