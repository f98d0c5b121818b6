"""The program that runs jobs, as a process of its own with a Spark of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from nunatak_spark.runner import DONE, FAILED
from tests.support.catalogs.process import ROOT, RunningServer
from tests.support.spark import Installation

pytestmark = pytest.mark.slow

DOCTOR_SECONDS = 180
FAST = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
RUN_SECONDS = 300


def run_job(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nunatak_spark", "run", *arguments, *FAST, "--master", "local[1]"]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.parametrize("fail", [False, True], ids=["works", "fails"])
def test_a_job_runs_from_the_command_line_and_its_secret_is_on_no_other(
    environment: None, installation: Installation, secured: RunningServer, tmp_path: Path, fail: bool
) -> None:
    writer = secured.principal(f"runner_{uuid4().hex[:8]}", warehouse="WRITE")
    spec = {"namespace": f"probe_{uuid4().hex[:8]}", "fail": fail}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    report = tmp_path / "report.json"

    ended = run_job(
        *("--job", "tests.spark.probing:probe", "--spec", str(tmp_path / "spec.json"), "--report", str(report)),
        *("--uri", secured.uri, "--progress", "json"),
        NUNATAK_CREDENTIAL=writer.credential,
        NUNATAK_SPARK_JARS=",".join(map(str, installation.jars)),
    )

    steps = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith('{"text"')]
    assert steps[:2] == [{"text": "writing", "done": 0, "total": 2}, {"text": "reading", "done": 1, "total": 2}]
    assert ended.stdout == ""
    if fail:
        assert ended.returncode == FAILED
        assert "The job failed: [TABLE_OR_VIEW_NOT_FOUND]" in ended.stderr
        assert not report.exists()
        return
    assert ended.returncode == DONE, ended.stderr
    found = json.loads(report.read_text())
    assert (found["ok"], found["rows"]) == (True, 7)
    (java,) = [line for line in found["command-lines"] if "java" in line]
    assert secured.uri in java
    assert writer.client[1] not in java


def test_a_check_up_of_a_machine_in_order_finds_nothing(
    environment: None, installation: Installation, server: RunningServer
) -> None:
    """With Spark started, which then asks the catalog itself."""
    subprocess.run([sys.executable, "-m", "nunatak", "namespace", "create", "demo", "--uri", server.uri], check=True)

    ended = subprocess.run(
        [sys.executable, "-m", "nunatak", "spark", "doctor", "--start", "-o", "json", "--uri", server.uri],
        capture_output=True,
        text=True,
        timeout=DOCTOR_SECONDS,
        check=False,
        env={**os.environ, "NUNATAK_SPARK_JARS": str(installation.jars[0])},
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    checks = json.loads(ended.stdout)
    assert {check["state"] for check in checks} == {"ok"}
    assert checks[-1]["found"] == "Spark lists 1 namespaces in lake"
