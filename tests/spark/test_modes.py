"""One job, unchanged, in all the places where Spark runs; each must see exactly what this process sees."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

import nunatak_spark
from nunatak_spark.configuration import EXTENSIONS, EXTENSIONS_CLASS, JARS, Catalog, properties_text
from nunatak_spark.errors import CannotRun
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.installation import require_connect
from nunatak_spark.runner import DONE
from nunatak_spark.verification import FingerprintReport
from tests.support.server import ROOT, RunningServer
from tests.support.spark import Installation, Sql
from tests.support.spark_cluster import FAST, connect_server, spark_environment, spark_home, standalone

pytestmark = pytest.mark.slow

RUN_SECONDS = 300
FAST_DRIVER = f"spark.driver.extraJavaOptions={FAST}"
FAST_EXECUTORS = f"spark.executor.extraJavaOptions={FAST}"


@pytest.fixture
def table(sql: Sql) -> str:
    sql("CREATE TABLE here.numbers USING iceberg AS SELECT id, hex(id) AS text, map('a', id) AS tags FROM range(1000)")
    return f"lake.{sql.namespace}.numbers"


def fingerprinted(command: list[str], environment: Mapping[str, str], report: Path) -> FingerprintReport:
    """What the job found; by a file, because spark-submit sends both outputs of a program into one."""
    command = [*command, "--report", str(report)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=dict(environment)
    )
    assert ended.returncode == DONE, ended.stderr[-4000:]
    return msgspec.json.decode(report.read_bytes(), type=FingerprintReport)


def job(table: str) -> list[str]:
    return ["run", "--job", "fingerprint", "--spec", json.dumps({"table": table})]


def test_spark_submit_runs_the_job_with_a_properties_file(
    sql: Sql, table: str, installation: Installation, shared_server: RunningServer, tmp_path: Path
) -> None:
    settings = {
        JARS: str(installation.jars[0]),
        EXTENSIONS: EXTENSIONS_CLASS,
        "spark.ui.enabled": "false",
        **Catalog(shared_server.uri).settings(),
    }
    (tmp_path / "spark.conf").write_text(properties_text(settings))
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--conf", FAST_DRIVER]
    program = str(Path(nunatak_spark.__file__).parent / "__main__.py")
    environment = {**spark_environment(installation, tmp_path), "PYSPARK_PYTHON": sys.executable}

    report = fingerprinted(
        [*submit, "--properties-file", str(tmp_path / "spark.conf"), program, *job(table)],
        environment,
        tmp_path / "report.json",
    )

    assert report.fingerprint == fingerprint(sql.spark, table)


def test_spark_submit_without_the_jar_is_told_what_is_missing(
    environment: None, installation: Installation, tmp_path: Path
) -> None:
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--conf", FAST_DRIVER]
    program = str(Path(nunatak_spark.__file__).parent / "__main__.py")
    ended = subprocess.run(
        [*submit, program, *job("lake.a.b"), "--uri", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env={**spark_environment(installation, tmp_path), "PYSPARK_PYTHON": sys.executable},
    )

    assert ended.returncode == 3, ended.stderr[-4000:]
    assert "Iceberg's runtime is not on the class path of spark-submit" in ended.stdout


def test_a_standalone_cluster_of_two_workers_runs_the_job(
    sql: Sql, table: str, installation: Installation, shared_server: RunningServer, tmp_path: Path
) -> None:
    with standalone(installation, tmp_path) as master:
        settings = [FAST_DRIVER, FAST_EXECUTORS, "spark.executor.memory=512m"]
        options = ["--uri", shared_server.uri, "--master", master, *(f"--conf={one}" for one in settings)]
        environment = {
            **spark_environment(installation, tmp_path),
            "NUNATAK_SPARK_JARS": str(installation.jars[0]),
        }
        report = fingerprinted(
            [sys.executable, "-m", "nunatak_spark", *job(table), *options], environment, tmp_path / "report.json"
        )
        executors = {path.parent.name for path in (tmp_path / "workers").glob("app-*/*/stderr")}

    assert report.fingerprint == fingerprint(sql.spark, table)
    assert len(executors) == 2


def test_spark_connect_runs_the_job(
    sql: Sql, table: str, installation: Installation, shared_server: RunningServer, tmp_path: Path
) -> None:
    try:
        require_connect()
    except CannotRun as reason:
        pytest.skip(f"NOT RUN: {reason}")
    settings = {JARS: str(installation.jars[0]), EXTENSIONS: EXTENSIONS_CLASS}
    with connect_server(installation, tmp_path, settings) as remote:
        command = [sys.executable, "-m", "nunatak_spark", *job(table), "--uri", shared_server.uri, "--remote", remote]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
        report = fingerprinted(command, environment, tmp_path / "report.json")

    assert report.fingerprint == fingerprint(sql.spark, table)
