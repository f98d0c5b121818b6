"""`nunatak connect`: what it prints is what works; the snippets that can run here are run against a real server."""

import shutil
import subprocess
import sys
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import duckdb
import pytest

from nunatak.connect import ENGINES
from tests.support.server import RunningServer
from tests.unit.cli.conftest import Run, run_command


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("warehouse", [None, "lakehouse_1"])
def test_every_engine_is_given_the_address_and_the_warehouse(engine: str, warehouse: str | None) -> None:
    chosen = () if warehouse is None else ("--warehouse", warehouse)

    printed = run_command("connect", engine, *chosen, NUNATAK_URI="http://catalog.example:9/").out

    assert "http://catalog.example:9" in printed
    assert "http://catalog.example:9//" not in printed
    assert ("lakehouse_1" in printed) == (warehouse is not None)


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    outcome = run_command("connect", "oracle")

    assert outcome.code == 2
    assert "'pyiceberg'" in outcome.err


def test_the_lines_for_pyiceberg_run(run: Run, shared_server: RunningServer, namespace: str) -> None:
    """000-81, 003-63: two properties are enough."""
    script = run_command("connect", "pyiceberg", "--uri", shared_server.uri).out

    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert namespace in printed


def test_the_lines_for_curl_run(shared_server: RunningServer, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    config, listing, creation = run_command("connect", "curl", "--uri", shared_server.uri).out.splitlines()

    def shell(line: str) -> str:
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert '"endpoints"' in shell(config)
    shell(creation)
    assert '["demo"]' in shell(listing).replace(" ", "")


def test_the_lines_for_duckdb_run(shared_server: RunningServer, run: Run, namespace: str) -> None:
    """000-83"""
    run("table", "create", f"{namespace}.t", "--column", "id:long")
    lines = run_command("connect", "duckdb", "--uri", shared_server.uri).out
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as connection:
        # The extension comes from its wheel, so the two lines that would download it are left out.
        for name in ("avro", "httpfs", "iceberg"):
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        shown = connection.execute(lines.removeprefix("INSTALL iceberg;\nLOAD iceberg;\n")).fetchall()

    assert ("lake", namespace, "t") in [row[:3] for row in shown]
