"""Workers as processes of their own: killed, told to end, cancelled, and jobs done at once from the command line."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nunatak_spark
from nunatak.client import Client, ClientCredential, Json
from nunatak.iceberg.conventions import PIN_PREFIX
from nunatak_spark.console import WorkerEvent
from nunatak_spark.fingerprint import Fingerprint, fingerprint
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome
from nunatak_spark.shutdown import ShutdownSignal
from nunatak_spark.worker import SharedSession, Worker, WorkerOptions, unique_worker_name
from tests.support.catalogs.principals import Login
from tests.support.catalogs.process import ROOT, RunningServer, running_server
from tests.support.spark import Installation
from tests.support.spark_cluster import FAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

LEASE_SECONDS = 15  # long enough that a starved machine sends a heartbeat in time
END_SECONDS = 240  # for a process that takes twenty on a quiet machine
PARTITIONS, FILES_EACH = 15, 20
CATALOG, JANITORS = "quick", "janitors"
NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Quick:
    """A server that gives jobs away for a short time, and the principal as which the workers log in."""

    server: RunningServer
    janitor: Login

    @property
    def uri(self) -> str:
        return self.server.uri

    def client(self, login: Login) -> Client:
        return Client(self.uri, credential=ClientCredential(*login.client))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quick]:
    seconds = {"NUNATAK_MAINTENANCE_LEASE_SECONDS": str(LEASE_SECONDS)}
    with running_server(tmp_path_factory.mktemp("quick") / "nunatak-data", environment=seconds, auth=True) as server:
        with Client(server.uri, credential=ClientCredential(*server.root.client)) as root:
            root.create_namespace(("shop",), {})
            root.create_namespace(("system",), {})
        # As the page about workers says, and no more.
        yield Quick(server, server.principal("janitor", shop="WRITE", system="WRITE"))


@pytest.fixture(scope="module")
def client(quick: Quick) -> Iterator[Client]:
    with quick.client(quick.server.root) as client:
        yield client


@dataclass(frozen=True)
class Orders:
    """A table of many small files."""

    spark: "SparkSession"
    client: Client
    name: str

    @property
    def sql_name(self) -> str:
        return f"{CATALOG}.shop.{self.name}"

    @property
    def place(self) -> str:
        return f"table:default/shop/{self.name}"

    @property
    def worker(self) -> tuple[str, ...]:
        """The command that does its jobs and no others."""
        return ("spark", "worker", "--securable", self.place)

    @property
    def metadata(self) -> Json:
        metadata: Json = self.client.load_table(("shop", self.name))["metadata"]
        return metadata

    def rewrites(self) -> int:
        return sum(each["summary"]["operation"] == "replace" for each in self.metadata["snapshots"])

    def files(self) -> int:
        now = self.metadata["current-snapshot-id"]
        (current,) = [each for each in self.metadata["snapshots"] if each["snapshot-id"] == now]
        return int(current["summary"]["total-data-files"])

    def pins(self) -> list[str]:
        return [name for name in self.metadata.get("refs", {}) if name.startswith(PIN_PREFIX)]

    def fingerprint(self) -> Fingerprint:
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        return fingerprint(self.spark, self.sql_name)

    def twice(self) -> int:
        """Rows that are there more than once."""
        rows = self.spark.sql(f"SELECT count(*) - count(DISTINCT id) FROM {self.sql_name}").collect()
        return int(rows[0][0])

    def ask(self, kind: str = "data-compaction") -> int:
        body = {"securable": self.place, "type": kind}
        return int(self.client.manage("POST", ("maintenance", "jobs"), body)["jobs"][0]["job-id"])


@pytest.fixture
def orders(spark: "SparkSession", quick: Quick, client: Client) -> Orders:
    for catalog, login in ((CATALOG, quick.server.root), (JANITORS, quick.janitor)):
        nunatak_spark.add_catalog(spark, nunatak_spark.CatalogConfig(quick.uri, catalog, None, None, login.credential))
    made = Orders(spark, client, f"orders_{next(NUMBERS)}")
    spark.sql(
        f"CREATE TABLE {made.sql_name} (id BIGINT, part INT, text STRING) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true')"
    )
    rows = spark.range(0, 3000, 1, FILES_EACH).selectExpr(
        "id", f"cast(id % {PARTITIONS} AS int) AS part", "sha2(string(id), 256) AS text"
    )
    rows.writeTo(made.sql_name).append()
    assert made.files() == PARTITIONS * FILES_EACH
    return made


def shown(client: Client, job: int) -> Json:
    return client.manage("GET", ("maintenance", "jobs", str(job)))


def eventually(look: Callable[[], bool], process: "Started | None" = None) -> None:
    until = time.monotonic() + END_SECONDS
    while not look():
        assert time.monotonic() < until, "it never came to that"
        assert process is None or process.popen.poll() is None, process.text()
        time.sleep(0.02)


@dataclass(frozen=True)
class Started:
    """One command at work, in a process group of its own."""

    popen: subprocess.Popen[bytes]
    out: Path

    def text(self) -> str:
        return self.out.read_text(errors="replace")

    def events(self) -> list[Json]:
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]

    def wait(self) -> int:
        return self.popen.wait(END_SECONDS)

    def kill(self) -> None:
        """kill -9 for it and everything it started, the JVM among it."""
        os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(30)


@contextlib.contextmanager
def started(installation: Installation, quick: Quick, out: Path, *arguments: str) -> Iterator[Started]:
    environment: Mapping[str, str] = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NUNATAK_SPARK_JARS": ",".join(map(str, installation.jars)),
        "NUNATAK_CREDENTIAL": quick.janitor.credential,
        "PYTHONUNBUFFERED": "1",
    }
    words = [*arguments, "--uri", quick.uri, "--master", "local[1]", "-o", "json"]
    words += ["--conf", f"spark.driver.extraJavaOptions={FAST}"]
    with out.open("wb") as file:
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.small_commits", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    process = Started(popen, out)
    try:
        yield process
    finally:
        if popen.poll() is None:
            process.kill()


def test_a_worker_killed_midway_is_followed_by_another_and_nothing_is_lost_or_done_twice(
    environment: None, installation: Installation, quick: Quick, orders: Orders, tmp_path: Path
) -> None:
    before = orders.fingerprint()
    job = orders.ask()

    with started(installation, quick, tmp_path / "first", *orders.worker, "--worker-name", "first") as first:
        eventually(lambda: orders.rewrites() >= 2, first)
        first.kill()
    killed = shown(orders.client, job)
    rewritten, left_over, files = orders.rewrites(), orders.pins(), orders.files()
    with started(
        installation, quick, tmp_path / "second", *orders.worker, "--poll", "0.5", "--max-jobs", "1"
    ) as second:
        assert second.wait() == 0, second.text()

    assert (killed["state"], killed["attempts"]) == ("running", 1), "the first did not get through"
    assert killed["worker"].startswith("janitor/first-")
    assert left_over == [f"{PIN_PREFIX}job-{job}"]
    assert PARTITIONS < files < PARTITIONS * FILES_EACH
    told = shown(orders.client, job)
    assert (told["state"], told["attempts"], told["changed"], told["error"]) == ("done", 2, True, None)
    assert told["result"]["gains"][0] == {"of": "data files", "before": PARTITIONS * FILES_EACH, "after": PARTITIONS}
    assert orders.rewrites() > rewritten
    assert orders.files() == PARTITIONS
    assert orders.pins() == []
    assert orders.fingerprint() == before
    assert orders.twice() == 0
    ended = [each for each in second.events() if each["event"] == "ended"]
    assert [(each["job-id"], each["state"]) for each in ended] == [(job, "done")]


def test_a_worker_that_is_told_to_end_hands_its_job_back_and_a_command_does_it_at_once(
    environment: None, installation: Installation, quick: Quick, orders: Orders, tmp_path: Path
) -> None:
    before = orders.fingerprint()
    job = orders.ask()

    with started(installation, quick, tmp_path / "worker", *orders.worker) as worker:
        eventually(lambda: orders.rewrites() >= 1, worker)
        os.kill(worker.popen.pid, signal.SIGTERM)
        assert worker.wait() == 0, worker.text()
    back = shown(orders.client, job)
    name = f"shop.{orders.name}"
    with started(installation, quick, tmp_path / "run", "maintain", "compact", name, "--run") as command:
        assert command.wait() == 0, command.text()

    assert (back["state"], back["worker"], back["attempts"]) == ("waiting", None, 0)
    assert [each["state"] for each in worker.events() if each["event"] == "ended"] == ["handed-back"]
    told = shown(orders.client, job)
    assert (told["state"], told["attempts"]) == ("done", 1)
    assert (orders.files(), orders.pins()) == (PARTITIONS, [])
    assert orders.fingerprint() == before
    assert orders.twice() == 0


def test_a_job_that_is_cancelled_while_spark_works_stops_and_the_next_one_is_done(
    quick: Quick, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, with the session that all tests share: what is interrupted are its statements alone."""
    monkeypatch.setattr("nunatak_spark.maintenance.compaction_plan.COMMIT_BYTES", 1)
    before = orders.fingerprint()
    job = orders.ask()
    said: list[WorkerEvent] = []
    shared = SharedSession(lambda: orders.spark)
    wishes = WorkerOptions(securable=orders.place, name=unique_worker_name("here"), catalog=JANITORS, once=True)

    def maintain_at_length(work: JobContext) -> JobOutcome:
        """The first job goes on to count rows, for hours unless it is stopped; if it was not before."""
        outcome = maintain(work)
        if work.job == f"job-{job}":
            work.spark.range(10**14).selectExpr("sum(id % 7)").collect()
        return outcome

    def cancel() -> None:
        eventually(lambda: orders.rewrites() >= 1)
        with quick.client(quick.janitor) as other:
            other.manage("POST", ("maintenance", "jobs", str(job), "cancel"))

    cancelling = threading.Thread(target=cancel, daemon=True)
    with quick.client(quick.janitor) as one, quick.client(quick.janitor) as beats:
        worker = Worker(wishes, one, beats, shared, maintain_at_length, ShutdownSignal(), said.append)
        cancelling.start()
        worker.run()
        cancelling.join()
        asked = [orders.ask(), orders.ask("snapshot-expiry")]
        worker.run()

    assert [each.state for each in worker.results] == ["cancelled", "done", "done"], [
        each.error for each in worker.results
    ]
    assert shown(orders.client, job)["state"] == "cancelled"
    assert [shown(orders.client, each)["state"] for each in asked] == ["done", "done"]
    assert orders.files() == PARTITIONS
    assert orders.fingerprint() == before
    assert orders.twice() == 0
