"""`nunatak migrate …` as people run it, also when it is killed in the middle; MISSION 003-67 to 003-71."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nunatak.client import Client
from nunatak_spark.migration.planning_rules import PlanOptions
from nunatak_spark.migration.sources.rest import rest_source
from tests.spark.migration.conftest import TARGET
from tests.spark.migration.moving import Move, states
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.spark import Installation
from tests.unit.cli.conftest import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 300  # some seconds on a quiet machine
MANY = 150  # tables: registering so many takes a second or so, in which the command is killed
FAST = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "--master", "local[1]")
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[RunningServer]:
    """The catalog that tables are moved from: any REST catalog would do, and this one starts in half a second."""
    with running_server(tmp_path / "old") as started:
        yield started


@contextlib.contextmanager
def command(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`nunatak migrate …` as a process of its own, ended with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "nunatak", "migrate", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.communicate()[0]}"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_migration_from_the_command_line(
    spark: "SparkSession", target: RunningServer, old: RunningServer, name: str, tmp_path: Path
) -> None:
    """MISSION: 003-67, 003-68, 003-70, 003-71"""
    state, page = str(tmp_path / "migration"), tmp_path / "report.html"
    common = ("--state", state, "--uri", target.uri, "--catalog", TARGET, "--progress", "none")
    with Client(old.uri) as client:
        client.create_namespace((name,), {})
        client.create_table((name, "cities"), {"schema": SCHEMA})
        client.create_view((name, "some"), a_view())

    listed = run_command("migrate", "inventory", "--rest", old.uri, "--as", name, *common)
    assert (listed.code, f"{name}:{name}.cities" in listed.out) == (0, True), listed
    planned = run_command("migrate", "plan", "--wave", "2", *common)
    assert "views are not moved" in planned.out
    assert run_command("migrate", "shadow", "--wave", "1", *common).code == 2
    assert "1 table done" in run_command("migrate", "shadow", "--wave", "2", *common).out
    assert run_command("migrate", "verify", *common).code == 0
    assert run_command("migrate", "cutover", f"{name}.*", *common).code == 0

    told = json.loads(run_command("migrate", "status", "--watch-source", "-o", "json", *common).out)
    assert {table["found"]["kind"]: table["state"] for table in told["tables"]} == {
        "iceberg": "done",
        "view": "planned",
    }
    assert told["late-writes"] == {}
    with Client(old.uri) as client:
        client.create_table((name, "cities"), {"schema": SCHEMA})  # somebody did not hear that it has moved
    late = run_command("migrate", "status", "--watch-source", *common)
    assert (late.code, "the source has a table of the old name again" in late.out) == (1, True)
    assert run_command("migrate", "report", "--state", state, "--to", str(page)).code == 0
    assert f"{name}.cities" in page.read_text("utf-8")

    with Client(old.uri) as client:
        client.drop_table((name, "cities"))
    assert run_command("migrate", "rollback", *common).code == 0
    with Client(old.uri) as client, Client(target.uri) as there:
        assert list(client.list_tables((name,))) == [(name, "cities")]
        assert list(there.list_tables((name,))) == []


def a_view() -> dict[str, object]:
    representation = {"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "default-namespace": [],
        "representations": [representation],
    }
    return {"schema": SCHEMA, "view-version": version, "properties": {}}


def test_a_shadow_that_was_killed_goes_on_where_it_was(
    target: RunningServer, old: RunningServer, name: str, tmp_path: Path
) -> None:
    common = ("--state", str(tmp_path / "migration"), "--uri", target.uri, "--progress", "none")
    with Client(old.uri) as client, Client(target.uri) as there:
        client.create_namespace((name,), {})
        for number in range(MANY):
            client.create_table((name, f"t{number}"), {"schema": SCHEMA})
        assert run_command("migrate", "inventory", "--rest", old.uri, "--as", name, *common).code == 0
        assert run_command("migrate", "plan", *common).code == 0

        def moved() -> int:
            return sum(1 for _ in there.list_tables((name,))) if (name,) in set(there.list_namespaces()) else 0

        with command("shadow", *common) as process:
            until(lambda: moved() > 0, process)
            old.process.send_signal(signal.SIGSTOP)  # it waits for an answer, and is not through before we look
            try:
                process.kill()
                process.wait()
            finally:
                old.process.send_signal(signal.SIGCONT)
        before = moved()
        assert 0 < before < MANY

        again = run_command("migrate", "shadow", *common)

        assert again.code == 0, again
        assert moved() == MANY
        rows = json.loads(run_command("migrate", "status", "-o", "json", *common).out)["tables"]
        assert {row["state"] for row in rows} == {"shadowed"}
        pointers = {row["found"]["name"][1]: row["source-pointer"] for row in rows}
        assert there.load_table((name, "t7"))["metadata-location"] == pointers["t7"]


@pytest.mark.slow
def test_a_cut_over_that_was_killed_after_it_froze_the_source_ends_with_the_next_one(
    spark: "SparkSession",
    installation: Installation,
    target: RunningServer,
    old: RunningServer,
    name: str,
    move: Move,
) -> None:
    source = rest_source(name, old.uri, None, {}, {})
    with Client(old.uri) as client:
        client.create_namespace((name,), {})
        client.create_table((name, "cities"), {"schema": SCHEMA})
        move.inventory(source)
        move.plan(PlanOptions())
        move.shadow()
        assert states(move.verify(("L0",))) == {f"{name}.cities": "verified"}

        jars = ",".join(map(str, installation.jars))
        arguments = ("--state", str(move.folder), "--uri", target.uri, "--progress", "none", *FAST)
        with command("cutover", *arguments, NUNATAK_SPARK_JARS=jars) as process:
            until(lambda: (name, "cities__moved") in set(client.list_tables((name,))), process)
            process.kill()
            process.wait()
        (left,) = move.whole().tables
        assert (left.state, left.frozen.how) == ("cutover", "renamed")

        assert states(move.cut_over()) == {f"{name}.cities": "done"}
        assert list(client.list_tables((name,))) == [(name, "cities__moved")]
        assert states(move.roll_back()) == {f"{name}.cities": "rolled-back"}
        assert list(client.list_tables((name,))) == [(name, "cities")]
