"""`nunatak migrate …` where no Spark is needed: wrong usage, what cannot be read, how names are printed, and jars."""

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import msgspec
import pytest

import nunatak_spark.migration
from nunatak_spark.cli.migrate_run import Needs
from nunatak_spark.errors import CannotRun, UnsupportedPyspark
from nunatak_spark.installation import import_pyspark
from nunatak_spark.migration.migration_run import translate_source_errors
from nunatak_spark.migration.model import InventoryTable, Method, MigrationSource, MigrationTable, State, TablePlan
from nunatak_spark.migration.source_files import read_document
from nunatak_spark.migration.sources.folder import folder_source
from nunatak_spark.migration.sources.glue import glue_source
from nunatak_spark.migration.sources.jdbc import jdbc_source
from nunatak_spark.migration.sources.rest import rest_source
from nunatak_spark.migration.state import open_folder_state
from tests.unit.cli.conftest import run_command

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:1"  # where nothing listens
STEPS = ["shadow", "verify", "cutover", "rollback", "retire"]
STATE = Path("nunatak-migration")  # where commands look unless told


def a_table(
    *name: str,
    state: State = "shadowed",
    method: Method = "adopt",
    wave: int = 1,
    because: str = "",
    source: str = "db",
) -> MigrationTable:
    found = InventoryTable(source=source, name=name, kind="iceberg")
    return MigrationTable(found=found, state=state, planned=TablePlan(method, name, wave, because))


def a_migration(*tables: MigrationTable, source: MigrationSource | None = None) -> None:
    """Tables that are adopted need neither Spark nor a target to be rolled back."""
    with open_folder_state(STATE, "inventory", create=True) as folder:
        folder.keep_target(NOBODY, "")
        folder.save_source(source or jdbc_source("db", "jdbc:sqlite:x", None, {}))
        for table in tables:
            folder.save_table(table)


def states() -> dict[str, str]:
    with open_folder_state(STATE, "status") as folder:
        return {".".join(table.found.name): table.state for table in folder.list_tables()}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Name one source"),
        (("--hive", "thrift://x", "--folder", "/srv"), "Name one source"),
        (("--rest", "http://x", "--header", "Authorization=Bearer 1"), "NUNATAK_SOURCE_TOKEN"),
        (("--rest", "http://x", "--header", "novalue"), "write KEY=VALUE"),
        (("--folder", "/srv", "--read", "header"), "write KEY=VALUE"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    outcome = run_command("migrate", "inventory", *arguments)

    assert outcome.code == 2
    assert said in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "a.b", "spark_catalog"])
def test_a_name_that_spark_cannot_use_is_refused(name: str) -> None:
    outcome = run_command("migrate", "inventory", "--folder", "/srv", "--as", name)

    assert outcome.code == 1
    assert "cannot name a catalog in Spark" in outcome.err


@pytest.mark.parametrize("step", ["plan", "shadow", "verify", "cutover", "rollback", "status", "permissions", "report"])
def test_a_step_without_an_inventory_says_how_to_begin(step: str, tmp_path: Path) -> None:
    outcome = run_command("migrate", step)

    assert outcome.code == 1
    assert "Begin with `nunatak migrate inventory`" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_sources_bring_the_jars_that_they_need() -> None:
    known = [jdbc_source("a", "jdbc:postgresql://h/db", None, {}), glue_source("g", None, "eu-west-1", None, {})]

    assert Needs.of(known, {}, ()) == Needs(("postgresql",), ("aws",))
    assert Needs.of([], {"jdbc": "sqlite:/srv/c.db", "glue": False}, ("gcp",)) == Needs(("sqlite",), ("gcp",))
    assert Needs.of([], {"jdbc": "jdbc:oracle:thin:@h", "glue": True}, ("aws",)) == Needs((), ("aws",))


# Which tables


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (("shop.orderz",), "No table that is planned is called 'shop.orderz'. Did you mean shop.orders?"),
        (("db:shop.orderz",), "Did you mean db:shop.orders?"),
        (("shop.orders", "nothing.*"), "No table that is planned is called 'nothing.*'.\n"),
        (("--wave", "77"), "No table is planned for wave 77; the waves are: 1, 2."),
        (("shop.orders", "--wave", "2"), "called 'shop.orders'. db:shop.orders moves in wave 1."),
        (("shop.seen",), "db:shop.seen was refused: views are not moved."),
        (("shop.new",), "db:shop.new is in the inventory but not planned; run `nunatak migrate plan`."),
    ],
)
def test_a_step_refuses_what_means_no_planned_table_before_it_does_anything(
    step: str, chosen: tuple[str, ...], said: str
) -> None:
    a_migration(
        a_table("shop", "orders"),
        a_table("hr", "people", wave=2),
        a_table("shop", "seen", state="planned", method="refused", because="views are not moved"),
        MigrationTable(found=InventoryTable(source="db", name=("shop", "new"), kind="iceberg")),
    )
    before = states()

    outcome = run_command("migrate", step, *chosen)

    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""
    assert states() == before


@pytest.mark.parametrize("step", STEPS)
def test_a_step_before_the_plan_says_what_to_do_first(step: str) -> None:
    a_migration(MigrationTable(found=InventoryTable(source="db", name=("shop", "orders"), kind="iceberg")))

    outcome = run_command("migrate", step)

    assert outcome.code == 1
    assert outcome.err == "Error: No table is planned\nHint: Run `nunatak migrate plan` first.\n"


def test_what_was_done_before_can_be_asked_for_again() -> None:
    a_migration(a_table("shop", "orders"), a_table("hr", "people"))

    first = run_command("migrate", "rollback", "shop.orders")
    again = run_command("migrate", "rollback", "shop.orders")
    rest = run_command("migrate", "rollback", "*")

    assert (first.code, again.code, rest.code) == (0, 0, 0)
    assert first.out.endswith("\n1 table done, 0 failed.\n")
    assert again.out.endswith("\n0 tables done, 0 failed.\n")
    assert states() == {"shop.orders": "rolled-back", "hr.people": "rolled-back"}


@pytest.mark.parametrize("chosen", [(), ("shop.orders",), ("--wave", "1")])
@pytest.mark.parametrize(
    ("step", "state", "why"),
    [
        ("cutover", "planned", "it is not at the target; run `nunatak migrate shadow`"),
        ("cutover", "shadowed", "it is not verified; run `nunatak migrate verify`"),
        ("cutover", "rolled-back", "it was rolled back; run `nunatak migrate shadow`"),
        ("retire", "verified", "it is not cut over; run `nunatak migrate cutover`"),
    ],
)
def test_a_step_that_a_table_is_not_ready_for_fails_and_says_why(
    step: str, state: State, why: str, chosen: tuple[str, ...]
) -> None:
    a_migration(a_table("shop", "orders", state=state))

    outcome = run_command("migrate", step, *chosen)

    assert outcome.code == 1
    assert f"db:shop.orders is not ready: {why}\n" in outcome.out
    assert outcome.out.endswith("\n0 tables done, 1 failed.\n")
    assert states() == {"shop.orders": state}


@pytest.mark.parametrize(
    ("step", "state", "why"),
    [
        ("verify", "planned", "it is not at the target; run `nunatak migrate shadow`"),
        ("rollback", "retired", "its source is retired and cannot be rolled back"),
    ],
)
def test_a_named_table_that_is_not_ready_fails_every_step(step: str, state: State, why: str) -> None:
    a_migration(a_table("shop", "orders", state=state))

    named = run_command("migrate", step, "shop.orders", "-o", "json")
    unnamed = run_command("migrate", step)

    assert (named.code, unnamed.code) == (1, 0)
    assert json.loads(named.out)["not-ready"] == [{"table": "db:shop.orders", "because": why}]


def test_why_a_table_is_not_ready_includes_what_went_wrong_before() -> None:
    table = msgspec.structs.replace(a_table("shop", "orders"), problem="L2: two rows differ", failed_at="verify")
    a_migration(table)

    outcome = run_command("migrate", "cutover")

    assert outcome.code == 1
    assert "run `nunatak migrate verify` (verify: L2: two rows differ)" in outcome.out
    assert "1 shadowed, 1 with a problem" in run_command("migrate", "status").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--include", "nomatch.*"), "--include 'nomatch.*' matches none of the 2 inventoried tables.\n"),
        (("--include", "shop.*", "--include", "hr.peple"), "'hr.peple' matches none of the 2 inventoried tables. Did"),
        (("--include", "shop.*", "--exclude", "*"), "--exclude leaves none of the 2 inventoried tables"),
        (("--map", "a..b=c"), "'a..b' is not a name"),
    ],
)
def test_a_plan_for_no_table_is_refused(arguments: tuple[str, ...], said: str) -> None:
    a_migration(a_table("shop", "orders"), a_table("hr", "people"))

    outcome = run_command("migrate", "plan", *arguments)

    assert outcome.code == 2
    assert said in outcome.err


def test_a_plan_of_an_empty_inventory_says_so() -> None:
    a_migration()

    outcome = run_command("migrate", "plan", "--include", "shop.*")

    assert outcome.code == 1
    assert outcome.err.startswith("Error: The inventory is empty: no source holds a table\nHint: ")


# How they are printed


def test_names_with_dots_are_printed_as_they_can_be_typed() -> None:
    a_migration(a_table("shop", "a.b", "t"), a_table("shop", "a", "b", "t"))

    shown = run_command("migrate", "status").out
    outcome = run_command("migrate", "rollback", 'db:shop."a.b".t')

    assert ' db:shop."a.b".t ' in shown
    assert ' shop."a.b".t ' in shown  # the target's name
    assert "`" not in shown
    assert outcome.code == 0
    with open_folder_state(STATE, "status") as folder:
        assert {table.found.name: table.state for table in folder.list_tables()} == {
            ("shop", "a.b", "t"): "rolled-back",
            ("shop", "a", "b", "t"): "shadowed",
        }


# What cannot be read


def own_errors() -> list[type[Exception]]:
    """Every class of errors that the modules of a migration define."""
    modules = pkgutil.walk_packages(nunatak_spark.migration.__path__, "nunatak_spark.migration.")
    values = [value for module in modules for value in vars(importlib.import_module(module.name)).values()]
    errors = {value for value in values if isinstance(value, type) and issubclass(value, Exception)}
    return sorted((one for one in errors if one.__module__.startswith("nunatak_spark.migration")), key=str)


@pytest.mark.parametrize("kind", [*own_errors(), OSError, RuntimeError], ids=lambda kind: kind.__qualname__)
def test_a_source_that_cannot_be_asked_is_named_with_its_address(kind: type[Exception]) -> None:
    error = kind.__new__(kind, "it hung up")
    error.args = ("it hung up",)

    with pytest.raises(CannotRun) as raised, translate_source_errors(folder_source("old", "/srv", None, {})):
        raise error

    assert raised.value.problem == "The source old cannot be read: it hung up"
    assert raised.value.fix == "Look at its address: /srv"


def test_a_source_that_is_not_there_is_one_line_and_a_hint() -> None:
    outcome = run_command("migrate", "inventory", "--folder", "/nope", "--as", "x")

    assert outcome.code == 1
    assert (
        outcome.err == "Error: The source x cannot be read: /nope is not a folder\nHint: Look at its address: /nope\n"
    )


def test_a_source_that_went_away_after_the_cut_over_is_one_line_and_a_hint() -> None:
    found = InventoryTable(source="old", name=("t",), kind="files", location="/nope/t")
    over = MigrationTable(found=found, state="done", planned=TablePlan("copy", ("old", "t")))
    a_migration(over, source=folder_source("old", "/nope", None, {}))

    outcome = run_command("migrate", "status", "--watch-source")

    assert outcome.code == 1
    assert (
        outcome.err
        == "Error: The source old cannot be read: /nope/t is not a folder\nHint: Look at its address: /nope\n"
    )


def test_a_rest_source_that_does_not_answer_is_not_taken_for_the_target() -> None:
    outcome = run_command("migrate", "inventory", "--rest", NOBODY, "--as", "x")

    assert outcome.code == 3
    assert f"the source does not answer at {NOBODY}" in outcome.err
    assert "--rest" in outcome.err
    assert "nunatak serve" not in outcome.err
    assert "--uri" not in outcome.err


def test_a_step_that_cannot_reach_its_source_names_the_source() -> None:
    a_migration(
        a_table("shop", "orders", state="planned", method="register"), source=rest_source("db", NOBODY, None, {}, {})
    )

    outcome = run_command("migrate", "shadow", "--progress", "none")

    assert outcome.code == 1
    assert f"the source does not answer at {NOBODY}" in outcome.out
    assert outcome.out.endswith("\n0 tables done, 1 failed.\n")


def test_without_pyspark_a_database_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    outcome = run_command("migrate", "inventory", "--jdbc", "sqlite:///x.db", "--as", "x")

    assert outcome.code == 1
    assert outcome.err.startswith("Error: pyspark is not installed")
    assert "Hint: pip install 'nunatak[spark]'" in outcome.err


def test_without_pyspark_a_file_elsewhere_is_not_called_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(UnsupportedPyspark):
        read_document(lambda: import_pyspark("pyspark.sql").SparkSession, "s3://bucket/metadata.json")


def test_a_report_without_jinja2_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    a_migration(a_table("shop", "orders"))
    monkeypatch.setitem(sys.modules, "jinja2", None)

    outcome = run_command("migrate", "report", "--to", "page.html")

    assert outcome.code == 1
    assert outcome.err == (
        "Error: jinja2 is not installed, and is needed for the HTML report\nHint: pip install 'nunatak[migration]'\n"
    )


def test_a_report_that_cannot_be_written_is_one_line() -> None:
    a_migration(a_table("shop", "orders"))

    outcome = run_command("migrate", "report", "--to", "/nope/page.json")

    assert outcome.code == 1
    assert outcome.err == "Error: /nope/page.json: No such file or directory\n"


def test_a_folder_that_holds_something_else_is_one_line_and_a_hint() -> None:
    STATE.mkdir()
    (STATE / "migration.sqlite").write_text("this is not a database, and longer than its header would be " * 9)

    outcome = run_command("migrate", "status")

    assert outcome.code == 1
    assert outcome.err.startswith(f"Error: {STATE / 'migration.sqlite'} cannot be read or written: ")
