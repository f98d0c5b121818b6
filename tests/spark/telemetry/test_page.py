"""The page about telemetry: its commands run as they stand there, and its statements ask views that exist."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nunatak_spark.telemetry.views import BY_NAME
from tests.support.server import ROOT, RunningServer
from tests.support.spark import Installation

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "how-to" / "see-what-happens.md").read_text("utf-8")
COMMAND = re.compile(r"^```bash spark\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATEMENTS = re.compile(r"^```sql view\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPOOLED_SECONDS = 60  # ten are promised; a starved machine gets time


def run(command: str, server: RunningServer, installation: Installation, folder: Path) -> str:
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NUNATAK_URI": server.uri,
        "NUNATAK_DATA": str(server.data),
        "NUNATAK_SPARK_JARS": str(installation.jars[0]),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_the_commands_of_the_page_run_in_order(
    environment: None, installation: Installation, server: RunningServer, tmp_path: Path
) -> None:
    ingest, report = COMMAND.findall(PAGE)
    run("nunatak namespace create shop", server, installation, tmp_path)
    deadline = time.monotonic() + SPOOLED_SECONDS
    while not list((server.data / "spool").rglob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)

    told = run(ingest, server, installation, tmp_path)
    run(report, server, installation, tmp_path)

    assert json.loads(told)["lines"]["events"] >= 1  # more if what the job itself does is spooled in time
    shown = (tmp_path / "report.html").read_text("utf-8")
    assert "<h1>Catalog report: " in shown
    assert re.search(r"system\.events \([1-9]\d* rows\)", shown)


def test_the_page_names_every_view() -> None:
    (statements,) = STATEMENTS.findall(PAGE)

    assert set(re.findall(r"lake\.system\.(\w+)", statements)) == set(BY_NAME)
