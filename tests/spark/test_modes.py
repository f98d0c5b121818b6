"""One job, unchanged, in all the places where Spark runs; each must see exactly what this process sees."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import nunatak_spark
from nunatak.client import Client
from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.comparison_jobs import FingerprintReport
from nunatak_spark.configuration import EXTENSIONS, EXTENSIONS_CLASS, JARS, CatalogConfig, format_properties
from nunatak_spark.errors import CannotRun
from nunatak_spark.fingerprint import Fingerprint, fingerprint
from nunatak_spark.installation import require_connect
from nunatak_spark.jobs import no_progress
from nunatak_spark.maintenance.compaction_plan import MIN_INPUT_FILES
from nunatak_spark.runner import DONE, FAILED
from nunatak_spark.sql_text import SUBSTITUTE, quote_name
from tests.spark.maintaining import ManyReport, ManySpec, do_all
from tests.support.catalogs.process import ROOT, RunningServer
from tests.support.spark import Installation, Sql, local_path
from tests.support.spark_cluster import FAST, connect_server, spark_environment, spark_home, standalone

pytestmark = pytest.mark.slow

RUN_SECONDS = 480  # less than a minute on a quiet machine
PARTITIONS = 12
FAST_DRIVER = f"spark.driver.extraJavaOptions={FAST}"
FAST_EXECUTORS = f"spark.executor.extraJavaOptions={FAST}"


@pytest.fixture
def table(sql: Sql) -> str:
    sql("CREATE TABLE here.numbers USING iceberg AS SELECT id, hex(id) AS text, map('a', id) AS tags FROM range(1000)")
    return f"lake.{sql.namespace}.numbers"


def fingerprinted(command: list[str], environment: Mapping[str, str], report: Path) -> FingerprintReport:
    """What the job found; by a file, because spark-submit sends both outputs of a program into one."""
    return msgspec.json.decode(reported(command, environment, report), type=FingerprintReport)


def reported(command: list[str], environment: Mapping[str, str], report: Path) -> bytes:
    command = [*command, "--report", str(report)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=dict(environment)
    )
    assert ended.returncode == DONE, ended.stderr[-4000:]
    return report.read_bytes()


# A table that needs maintenance


@dataclass(frozen=True)
class Messy:
    """A table of many small files and some snapshots, and the jobs for it."""

    sql: Sql
    client: Client
    name: str

    @property
    def sql_name(self) -> str:
        return f"lake.{self.sql.namespace}.{self.name}"

    @property
    def place(self) -> str:
        return f"table:default/{self.sql.namespace}/{self.name}"

    def jobs(self, uri: str) -> ManySpec:
        """Compaction with every row compared, expiry of all but the last snapshot, and a look for orphans."""
        specs = [self._job(kind) for kind in ("data-compaction", "snapshot-expiry", "orphan-removal")]
        specs[0] = msgspec.structs.replace(specs[0], options={**specs[0].options, "verify": "full"})
        now_ms = time.time_ns() // 1_000_000 + 60_000  # also those that the compaction makes
        specs[1] = msgspec.structs.replace(specs[1], options={"older-than-ms": now_ms, "min-snapshots-to-keep": 1})
        return ManySpec(uri=uri, jobs=specs)

    def _job(self, kind: str) -> JobSpec:
        body = {"securable": self.place, "type": kind, "dry-run": True}
        return msgspec.convert(self.client.manage("POST", ("maintenance", "jobs"), body)["jobs"][0]["job"], JobSpec)

    def ask(self) -> int:
        body = {"securable": self.place, "type": "data-compaction"}
        return int(self.client.manage("POST", ("maintenance", "jobs"), body)["jobs"][0]["job-id"])

    def replaced(self) -> int:
        """How many snapshots a rewrite has made."""
        snapshots = self.client.load_table((self.sql.namespace, self.name))["metadata"]["snapshots"]
        return sum(each["summary"]["operation"] == "replace" for each in snapshots)

    def most_files_of_a_partition(self) -> int:
        return int(self.sql.value(f"SELECT max(file_count) FROM {self.sql_name}.partitions"))

    def state(self) -> tuple[Fingerprint, int, int]:
        """All rows, and how many files and snapshots there are."""
        self.sql(f"REFRESH TABLE {self.sql_name}")
        counts = [self.sql.value(f"SELECT count(*) FROM {self.sql_name}.{of}") for of in ("files", "snapshots")]
        return fingerprint(self.sql.spark, self.sql_name), counts[0], counts[1]


@pytest.fixture
def messy(sql: Sql, shared_server: RunningServer) -> Iterator[Callable[[str], Messy]]:
    with Client(shared_server.uri) as client:

        def make(name: str) -> Messy:
            made = Messy(sql, client, name)
            sql(
                f"CREATE TABLE {made.sql_name} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) "
                "TBLPROPERTIES ('write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true')"
            )
            for start in (0, 800):
                rows = sql.spark.range(start, start + 800, 1, 4).selectExpr("id", f"int(id % {PARTITIONS}) AS part")
                rows.writeTo(made.sql_name).append()
            return made

        yield make


def assert_maintained_alike(
    where: list[str],
    environment: Mapping[str, str],
    folder: Path,
    server: RunningServer,
    messy: Callable[[str], Messy],
) -> None:
    """The same jobs there and in this process: the same gains, and the same rows in as many files."""
    there, here = messy("there"), messy("local")
    before = there.state()
    spec = msgspec.json.encode(there.jobs(server.uri)).decode()
    job = ["run", "--job", "tests.spark.maintaining:do_all", "--spec", spec, "--uri", server.uri]

    found = reported([sys.executable, "-m", "nunatak_spark", *job, *where], environment, folder / "report.json")
    local = do_all(here.sql.spark, here.jobs(server.uri), no_progress)

    remote = msgspec.json.decode(found, type=ManyReport)
    assert remote.ok
    for kind, outcome in local.outcomes.items():
        assert (remote.outcomes[kind].changed, remote.outcomes[kind].gains) == (outcome.changed, outcome.gains), kind
    assert before[1:] == (PARTITIONS * 8, 2)
    assert there.state() == here.state() == (before[0], PARTITIONS, 1)
    assert remote.fingerprint == local.fingerprint == before[0]


def job(table: str) -> list[str]:
    return ["run", "--job", "fingerprint", "--spec", json.dumps({"table": table})]


def test_spark_submit_runs_the_job_with_a_properties_file(
    sql: Sql, table: str, installation: Installation, shared_server: RunningServer, tmp_path: Path
) -> None:
    settings = {
        JARS: str(installation.jars[0]),
        EXTENSIONS: EXTENSIONS_CLASS,
        "spark.ui.enabled": "false",
        **CatalogConfig(shared_server.uri).settings(),
    }
    (tmp_path / "spark.conf").write_text(format_properties(settings))
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


def test_a_standalone_cluster_of_two_workers_does_the_jobs(
    messy: Callable[[str], Messy], installation: Installation, shared_server: RunningServer, tmp_path: Path
) -> None:
    with standalone(installation, tmp_path) as master:
        settings = [FAST_DRIVER, FAST_EXECUTORS, "spark.executor.memory=512m", "spark.sql.shuffle.partitions=2"]
        where = ["--master", master, *(f"--conf={one}" for one in settings)]
        environment = {
            **spark_environment(installation, tmp_path),
            "NUNATAK_SPARK_JARS": str(installation.jars[0]),
            "PYTHONPATH": str(ROOT),
        }
        assert_maintained_alike(where, environment, tmp_path, shared_server, messy)
        executors = {path.parent.name for path in (tmp_path / "workers").glob("app-*/*/stderr")}

    assert len(executors) == 2


def test_spark_connect_does_the_jobs_and_a_worker_there_ends_in_good_order(
    messy: Callable[[str], Messy], installation: Installation, shared_server: RunningServer, tmp_path: Path
) -> None:
    try:
        require_connect()
    except CannotRun as reason:
        pytest.skip(f"NOT RUN: {reason}")
    settings = {JARS: str(installation.jars[0]), EXTENSIONS: EXTENSIONS_CLASS, SUBSTITUTE: "true"}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    with connect_server(installation, tmp_path, settings) as remote:
        assert_names_are_text(["--remote", remote], environment, tmp_path, shared_server, messy("plain").sql)
        assert_maintained_alike(["--remote", remote], environment, tmp_path, shared_server, messy)
        assert_handed_back_midway(remote, environment, tmp_path / "worker.log", shared_server, messy("interrupted"))
        assert_failure_names_the_file(remote, environment, shared_server, messy("broken"))


def assert_failure_names_the_file(
    remote: str, environment: Mapping[str, str], server: RunningServer, messy: Messy
) -> None:
    file = messy.sql.spark.sql(f"SELECT file_path FROM {messy.sql_name}.files").first()
    assert file is not None
    lost = local_path(file.file_path)
    lost.unlink()
    command = [sys.executable, "-m", "nunatak_spark", "run", "--uri", server.uri, "--remote", remote]
    job = ["--job", "fingerprint", "--spec", json.dumps({"table": messy.sql_name})]
    ended = subprocess.run(
        [*command, *job], capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=dict(environment)
    )

    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, last.startswith("The job failed: ")) == (FAILED, True), ended.stderr[-4000:]
    assert lost.name in last
    assert "Exception: " in last


def assert_names_are_text(
    where: list[str], environment: Mapping[str, str], folder: Path, server: RunningServer, sql: Sql
) -> None:
    """Spark replaces no variable in a name, although it was started to do so."""
    name = quote_name(("lake", sql.namespace, "t${env:PATH}${system:user.home}"))
    sql(f"CREATE TABLE {name} AS SELECT 1 AS `${{env:PATH}}`")
    command = [sys.executable, "-m", "nunatak_spark", *job(name), "--uri", server.uri, *where]

    report = fingerprinted(command, environment, folder / "named.json")

    assert report.fingerprint == fingerprint(sql.spark, name)


def assert_handed_back_midway(
    remote: str, environment: Mapping[str, str], log: Path, server: RunningServer, messy: Messy
) -> None:
    """A worker that is told to end while the Connect server works for it; and another, which goes on."""
    before, _, _ = messy.state()
    number = messy.ask()
    options = ["--uri", server.uri, "--remote", remote, "--securable", messy.place]
    worker = [sys.executable, "-m", "tests.spark.small_commits", "spark", "worker", *options]
    with log.open("wb") as out, subprocess.Popen(worker, stdout=out, stderr=out, env=dict(environment)) as first:
        try:
            until = time.monotonic() + RUN_SECONDS
            while not messy.replaced() and first.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            first.terminate()
            assert first.wait(RUN_SECONDS) == DONE, log.read_text()
        finally:
            first.kill()
    back = messy.client.manage("GET", ("maintenance", "jobs", str(number)))
    subprocess.run([*worker, "--once"], env=dict(environment), check=True, timeout=RUN_SECONDS, capture_output=True)

    done = messy.client.manage("GET", ("maintenance", "jobs", str(number)))
    assert (back["state"], back["attempts"]) == ("waiting", 0), log.read_text()
    assert (done["state"], done["attempts"]) == ("done", 1)
    rows, files, _ = messy.state()
    assert rows == before
    # What the Connect server was doing for the first may still have been committed beside the second, which then
    # rewrites in small pieces; what is left is not worth another compaction.
    assert done["result"]["gains"][0] == {"of": "data files", "before": PARTITIONS * 8, "after": files}
    assert messy.most_files_of_a_partition() < MIN_INPUT_FILES
