"""`nunatak report` where it cannot work: it says so before Spark is started."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from nunatak.cli.main import root
from nunatak_spark import spark_session
from nunatak_spark.cli import maintain, report, run_jobs
from nunatak_spark.errors import CannotRun
from tests.support.catalogs.process import RunningServer

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_session, "find_installation", started)
    monkeypatch.chdir(tmp_path)
    for name in ("NUNATAK_URI", "NUNATAK_DATA", "NUNATAK_SPOOL_LOCATION", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["report", *arguments])


def test_a_spool_that_is_not_there_is_told_with_what_to_name(tmp_path: Path) -> None:
    ended = run("ingest", "--data", str(tmp_path / "elsewhere"))

    assert ended.exit_code == 2
    assert "elsewhere/spool does not exist: name the server's data folder with --data" in ended.output


def test_without_telemetry_there_is_nothing_to_ingest() -> None:
    ended = run("ingest", "--spool-location", "off")

    assert ended.exit_code == 2
    assert "spool_location is off" in ended.output


@pytest.mark.parametrize("arguments", [("ingest", "--spool", "/tmp", "--uri", NOBODY), ("--uri", NOBODY)])
def test_a_server_that_nobody_reaches_costs_no_start_of_spark(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)

    assert ended.exit_code == 3, ended.output
    assert not Path("nunatak-report.html").exists()


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


SPARK_OPTIONS = {"--catalog", "--master", "--remote", "--conf", "--bundle"}


def test_report_takes_the_same_options_of_spark_as_the_other_commands() -> None:
    assert options_of(maintain.maintain) >= SPARK_OPTIONS
    assert options_of(report.report) >= SPARK_OPTIONS
    assert options_of(report.ingest) >= SPARK_OPTIONS


@pytest.mark.parametrize("command", [(), ("ingest", "--spool", ".")])
def test_where_spark_runs_and_what_it_is_told_reaches_the_session(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    asked: dict[str, Any] = {}

    def session(uri: str, **wanted: Any) -> None:
        asked.update(wanted, uri=uri)
        raise CannotRun("No Spark today", fix="Wait.")

    monkeypatch.setattr(run_jobs, "session", session)
    where = ("--catalog", "mine", "--remote", "sc://h:1", "--conf", "a=b", "--bundle", "aws", "--uri", server.uri)

    ended = run(*command, *where)

    assert (ended.exit_code, "No Spark today" in ended.output) == (1, True), ended.output
    wanted = {"catalog": "mine", "remote": "sc://h:1", "config": {"a": "b"}, "bundles": ("aws",), "uri": server.uri}
    assert {name: asked[name] for name in wanted} == wanted
