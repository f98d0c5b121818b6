"""`nunatak report` where it cannot work: it says so before Spark is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nunatak.cli.main import root
from nunatak_spark import sessions

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(sessions, "find_installation", started)
    monkeypatch.chdir(tmp_path)
    for name in ("NUNATAK_URI", "NUNATAK_DATA", "NUNATAK_SPOOL_LOCATION", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["report", *arguments])


def test_a_spool_that_is_not_there_is_told_with_what_to_name(tmp_path: Path) -> None:
    ended = run("ingest", "--data", str(tmp_path / "elsewhere"))

    assert ended.exit_code == 2
    assert "elsewhere/spool is not there: name the server's data folder with --data" in ended.output


def test_without_telemetry_there_is_nothing_to_ingest() -> None:
    ended = run("ingest", "--spool-location", "off")

    assert ended.exit_code == 2
    assert "spool_location is off" in ended.output


@pytest.mark.parametrize("arguments", [("ingest", "--spool", "/tmp", "--uri", NOBODY), ("--uri", NOBODY)])
def test_a_server_that_nobody_reaches_costs_no_start_of_spark(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)

    assert ended.exit_code == 3, ended.output
    assert not Path("nunatak-report.html").exists()
