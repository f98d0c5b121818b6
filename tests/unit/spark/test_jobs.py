"""Jobs by name, their specifications as JSON, and how the runner ends; none of this starts Spark."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nunatak_spark.comparison_jobs import CompareSpec, FingerprintSpec
from nunatak_spark.errors import InvalidSpec
from nunatak_spark.jobs import JOBS, Progress, ProgressStep, Report, Spec, find_job, parse_spec, run
from nunatak_spark.runner import CANNOT_RUN, DONE, WRONG_USAGE, main
from tests.support.sql_session import Session


class GreetSpec(Spec, frozen=True, kw_only=True):
    name: str
    times: int = 1


class GreetReport(Report, frozen=True, kw_only=True):
    greeting: str


def greet(spark: Any, spec: GreetSpec, progress: Progress) -> GreetReport:
    """A job that needs no Spark."""
    for n in range(spec.times):
        progress(ProgressStep("greeting", n + 1, spec.times))
    return GreetReport(greeting=f"Hello {spec.name}", ok=spec.name != "nobody")


@pytest.mark.parametrize("name", JOBS)
def test_every_registered_job_exists(name: str) -> None:
    assert issubclass(find_job(name).spec, Spec)


def test_anybodys_job_is_found_by_its_place() -> None:
    assert find_job(f"{__name__}:greet").spec is GreetSpec


@pytest.mark.parametrize(
    "name", ["vacuum", "no.such.module:job", f"{__name__}:nothing", "json:loads", f"{__name__}:JOBS"]
)
def test_what_is_no_job_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec):
        find_job(name)


def test_a_specification_is_json() -> None:
    spec = parse_spec(find_job("fingerprint"), '{"table": "lake.a.b", "snapshot-id": 7, "by": ["day"]}')

    assert spec == FingerprintSpec(table="lake.a.b", snapshot_id=7, by=("day",))
    assert parse_spec(find_job("compare"), '{"left": "a", "right": "b"}') == CompareSpec(left="a", right="b")


@pytest.mark.parametrize("text", ["{}", "[]", '{"table": 3}', '{"table": "a", "tabel": "b"}', "{", ""])
def test_a_wrong_specification_is_refused_with_its_fields(text: str) -> None:
    with pytest.raises(InvalidSpec, match="Its fields are table, snapshot-id, by"):
        parse_spec(find_job("fingerprint"), text)


def test_a_job_reports_and_says_how_far_it_is() -> None:
    steps: list[ProgressStep] = []
    job = find_job(f"{__name__}:greet")

    report = run(job, Session(), parse_spec(job, '{"name": "Ada", "times": 2}'), steps.append)  # type: ignore[arg-type]

    assert report == GreetReport(greeting="Hello Ada")
    assert steps == [ProgressStep("greeting", 1, 2), ProgressStep("greeting", 2, 2)]


# The program


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "--job", "vacuum", "--spec", "{}"],
        ["run", "--job", "fingerprint", "--spec", "{}"],
        ["run", "--job", "fingerprint", "--spec", "no-such-file.json"],
        ["run", "--job", "fingerprint", "--spec", '{"table": "t"}', "--conf", "spark.a"],
        ["no-such-command"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_before_anything_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == WRONG_USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err


def test_a_wrong_java_ends_with_3_and_the_fix(
    tmp_path: Path,
) -> None:
    """In a process of its own: in this one a JVM may run already, which needs no other."""
    pytest.importorskip("pyspark")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="25.0.1"\n')
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "SPARK_HOME": "", "SPARK_REMOTE": ""}
    arguments = ["run", "--job", "fingerprint", "--spec", '{"table": "t"}', "--uri", "http://127.0.0.1:1"]

    ended = subprocess.run(
        [sys.executable, "-m", "nunatak_spark", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )

    said = ended.stderr
    assert ended.returncode == CANNOT_RUN, said
    assert f"JAVA_HOME={tmp_path} is Java 25; Spark 4.1 runs on Java 17 or 21" in said
    assert "Fix: " in said
    assert not list(tmp_path.rglob("started"))


def test_the_package_is_a_program_that_lists_its_jobs() -> None:
    ran = subprocess.run([sys.executable, "-m", "nunatak_spark", "jobs"], capture_output=True, text=True, check=True)

    assert ran.stdout.startswith("fingerprint: table, snapshot-id, by\n")


def test_the_file_of_the_program_runs_as_spark_submit_runs_it(tmp_path: Path) -> None:
    file = Path(sys.modules["nunatak_spark"].__file__ or "").parent / "__main__.py"

    ran = subprocess.run([sys.executable, file, "jobs"], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert "compare: left, right" in ran.stdout


def test_help_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == DONE
    assert "Exit codes: 0 done" in " ".join(capsys.readouterr().out.split())
