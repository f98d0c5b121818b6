"""What a target would refuse, as far as a plan can tell without asking it."""

import pytest

from nunatak_spark.migration.model import Column, Found, Planned
from nunatak_spark.migration.target_checks import _unknown_columns, _unknown_format, missing_setting, same_tables


def found(name: str, **more: object) -> Found:
    return Found(source="old", name=tuple(name.split(".")), kind="iceberg", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["interval day to second", "array<void>", "struct<a:int,b:uniontype<int,string>>"])
def test_a_type_that_iceberg_does_not_have_is_named_with_its_column(kind: str) -> None:
    table = found("a.t", columns=(Column("id", "bigint"), Column("odd", kind)))

    (reason,) = _unknown_columns(table)

    assert reason == f"its column odd is of the type {kind}, which Iceberg does not have"


@pytest.mark.parametrize("kind", ["bigint", "struct<nullable:int>", "map<string,array<decimal(9,2)>>", "timestamp_ntz"])
def test_other_types_are_taken(kind: str) -> None:
    assert list(_unknown_columns(found("a.t", columns=(Column("c", kind),)))) == []


@pytest.mark.parametrize(("version", "is_known"), [(1, True), (3, True), (4, False), (99, False)])
def test_a_format_of_the_future_is_refused(version: int, *, is_known: bool) -> None:
    reasons = list(_unknown_format(found("a.t", format_version=version), Planned("register", ("a", "t"))))

    assert bool(reasons) != is_known


def test_one_setting_for_all_tables_holds_each_folder_once() -> None:
    places = ["s3://lake/shop/orders", "s3://lake/shop/visits/", "s3a://lake/shop/eu/orders", "file:/srv/hr/people"]

    told = missing_setting([found(f"a.t{number}", location=place) for number, place in enumerate(places)])

    assert told == "file:/srv/hr,s3://lake/shop"


def test_a_table_that_two_sources_hold_goes_over_once() -> None:
    register, copy = Planned("register", ("a", "t")), Planned("copy", ("a", "t"))
    one, other = found("a.t", uuid="1"), Found(source="new", name=("a", "t"), kind="iceberg", uuid="1")
    third = found("a.u", uuid="2")

    assert same_tables([(one, register), (other, register), (third, register)]) == {"new:a.t": "old:a.t"}
    assert same_tables([(one, register), (other, copy)]) == {}
    assert same_tables([(one, register), (one, register)]) == {}
