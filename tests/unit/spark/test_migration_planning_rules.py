"""How tables get over: methods, names, waves, and what is refused."""

import pytest

from nunatak.cli.names import print_name
from nunatak_spark.migration.model import (
    InventoryTable,
    MigrationFinding,
    MigrationSource,
    MigrationTable,
    SourceColumn,
    TablePlan,
    display_name,
)
from nunatak_spark.migration.planning_rules import PlanOptions, matches, plan_migration

HIVE = MigrationSource(kind="hive", name="old", address="thrift://x")
JDBC = MigrationSource(kind="jdbc", name="db", address="jdbc:sqlite:x")
COLUMNS = (SourceColumn("id", "bigint"),)


def a_table(name: str = "sales.orders", source: str = "old", **more: object) -> MigrationTable:
    fields = {"kind": "iceberg", **more}
    return MigrationTable(found=InventoryTable(source=source, name=tuple(name.split(".")), **fields))  # type: ignore[arg-type]


def planned(*tables: MigrationTable, taken: tuple[tuple[str, ...], ...] = (), **wishes: object) -> dict[str, TablePlan]:
    return plan_migration(tables, [HIVE, JDBC], taken, PlanOptions(**wishes))  # type: ignore[arg-type]


def methods(plans: dict[str, TablePlan]) -> dict[str, str]:
    return {name: each.method for name, each in plans.items()}


@pytest.mark.parametrize(
    ("table", "method"),
    [
        (a_table(), "register"),
        (a_table(kind="hive", format="parquet", columns=COLUMNS), "add_files"),
        (a_table(kind="files", format="orc", columns=COLUMNS), "add_files"),
        (a_table(kind="files", format="csv", columns=COLUMNS), "copy"),
        (a_table(kind="hive", format="json", columns=COLUMNS), "copy"),
        (a_table(kind="hive", format="", columns=COLUMNS), "refused"),
        (a_table(kind="files", format="parquet"), "refused"),
        (a_table(kind="view"), "refused"),
        (a_table(risks=(MigrationFinding("unreadable", "no such file"),)), "refused"),
    ],
)
def test_the_kind_of_a_table_decides_how_it_moves(table: MigrationTable, method: str) -> None:
    assert methods(planned(table)) == {"old:sales.orders": method}


def test_partitions_that_lie_elsewhere_are_not_added_by_their_names_but_can_be_copied() -> None:
    risk = MigrationFinding("partition-elsewhere", "partition locations do not match partition names")
    table = a_table(kind="hive", format="parquet", columns=COLUMNS, risks=(risk,))

    assert planned(table)["old:sales.orders"].because.endswith("ask for a copy with --copy")
    assert methods(planned(table, copy=("sales.*",))) == {"old:sales.orders": "copy"}


def test_a_database_is_adopted_only_if_it_is_one_and_keeps_its_names() -> None:
    plans = planned(a_table(), a_table(source="db"), adopt=True, into=("new",))

    assert methods(plans) == {"old:sales.orders": "register", "db:sales.orders": "adopt"}
    assert plans["db:sales.orders"].target == ("sales", "orders")
    assert plans["old:sales.orders"].target == ("new", "sales", "orders")


def test_patterns_choose_by_name_and_by_source() -> None:
    tables = [a_table("sales.orders"), a_table("sales.old"), a_table("hr.people"), a_table("sales.x", source="db")]

    assert set(planned(*tables, include=("old:sales.*",), exclude=("*.old",))) == {"old:sales.orders"}
    assert set(planned(*tables, include=("*.people", "db:*"))) == {"old:hr.people", "db:sales.x"}


def test_a_printed_name_means_the_one_table_that_has_it() -> None:
    quoted = InventoryTable(source="old", name=("a.b", "t"), kind="iceberg")
    plain = InventoryTable(source="old", name=("a", "b", "t"), kind="iceberg")

    assert [matches(found, ['"a.b".t']) for found in (quoted, plain)] == [True, False]
    assert [matches(found, ['old:"a.b".t']) for found in (quoted, plain)] == [True, False]
    assert [matches(found, ["*.t"]) for found in (quoted, plain)] == [True, True]


@pytest.mark.parametrize("name", [("a", "b"), ("a.b", "c"), ('say "x"', "."), ("`", "ä"), ("a:b", "*")])
def test_names_are_printed_as_by_the_command_line(name: tuple[str, ...]) -> None:
    assert display_name(name) == print_name(name)


def test_the_longest_namespace_that_is_renamed_decides() -> None:
    tables = [a_table("a.b.t"), a_table("a.c.t"), a_table("t", kind="files", format="orc", columns=COLUMNS)]

    plans = planned(*tables, renamed={("a",): ("x",), ("a", "b"): ("y", "z")}, wave=3)

    assert {each.target for each in plans.values()} == {("y", "z", "t"), ("x", "c", "t"), ("old", "t")}
    assert {each.wave for each in plans.values()} == {3}


def test_two_tables_never_get_one_name_not_even_with_other_capitals() -> None:
    tables = [a_table("sales.orders"), a_table("Sales.Orders", source="db")]

    assert sorted(methods(planned(*tables)).values()) == ["refused", "register"]
    assert methods(planned(tables[0], taken=(("SALES", "orders"),))) == {"old:sales.orders": "refused"}


def test_what_is_at_the_target_is_not_planned_again_and_keeps_its_name() -> None:
    moved = MigrationTable(
        found=a_table().found,
        state="done",
        planned=TablePlan("register", ("sales", "orders")),
        target_pointer="file:/m.json",
    )
    other = a_table(source="db")

    assert methods(planned(moved, other, taken=(("sales", "orders"),))) == {"db:sales.orders": "refused"}


def test_a_table_that_was_begun_may_be_planned_under_the_name_it_has() -> None:
    begun = MigrationTable(found=a_table().found, state="planned", planned=TablePlan("register", ("sales", "orders")))

    assert methods(planned(begun, taken=(("sales", "orders"),))) == {"old:sales.orders": "register"}


def test_a_refusal_prints_a_target_as_it_can_be_typed() -> None:
    table = MigrationTable(found=InventoryTable(source="old", name=("a.b", "t"), kind="iceberg"))

    (refused,) = planned(table, taken=(("a.b", "t"),)).values()

    assert refused.because.startswith('the target has "a.b".t already')
