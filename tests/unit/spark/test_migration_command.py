"""`nunatak migrate …` before anything is asked: wrong usage, and which jars sources need."""

from pathlib import Path

import pytest

from nunatak.cli.migrate_run import Needs
from nunatak_spark.migration.sources.glue import glue_source
from nunatak_spark.migration.sources.jdbc import jdbc_source
from tests.unit.cli.conftest import run_command


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
