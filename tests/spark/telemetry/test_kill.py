"""Ingest as a process that is killed in the middle: every event is in the table once, and no more than once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nunatak.client import Client
from nunatak.errors import NotFound
from tests.spark.telemetry.lines import DAY
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.spark import Installation, configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EVENTS = int(os.environ.get("NUNATAK_TEST_EVENTS", "20000"))
FILES = 25
BATCH = 5  # files
CATALOG = f"killed_{os.getpid()}"
WAIT_SECONDS = 900


def spool_of(folder: Path, events: int) -> Path:
    """As many events as a busy server notes in a day, each with its number; first and last file have a broken line."""
    day = folder / "events" / DAY
    day.mkdir(parents=True)
    each = events // FILES
    for n in range(FILES):
        with (day / f"n1-1-0000-{n:06}.jsonl").open("w") as file:
            for number in range(n * each, (n + 1) * each):
                file.write(
                    f'{{"event_id":"e-{number}","at":"{DAY}T{number % 24:02}:{number % 60:02}:00.000Z","node":"n1",'
                    f'"operation":"commit-table","warehouse":"w","namespace":"shop","table_name":"t{number % 100}",'
                    f'"status":{409 if number % 50 == 0 else 200},"tries":1,"duration_ms":{number % 400},'
                    f'"snapshot_id":{number},"snapshot_operation":"append","counters":{{"added-records":{number % 7}}},'
                    '"principal":"etl"}\n'
                )
    for n in (0, FILES - 1):
        with (day / f"n1-1-0000-{n:06}.jsonl").open("a") as file:
            file.write('{"event_id":"cut off in the mid\n')
    return folder


@contextlib.contextmanager
def ingesting(
    server: RunningServer, installation: Installation, spool: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    spec = json.dumps({"spool": str(spool), "files-per-batch": BATCH})
    arguments = ["run", "--job", "ingest", "--spec", spec, "--uri", server.uri, "--master", "local[2]"]
    lean = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", f"spark.local.dir={log.parent}"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "nunatak_spark", *arguments, *lean, "--progress", "none"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NUNATAK_SPARK_JARS": str(installation.jars[0])},
            start_new_session=True,  # the JVM with it: both are killed together
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def committed(client: Client, table: str = "events") -> int:
    """How many batches are in the table."""
    try:
        return len(client.load_table(("system", table))["metadata"].get("snapshots", []))
    except NotFound:
        return 0


def kill_in_the_middle(process: subprocess.Popen[bytes], client: Client, batches: int, rejected: int) -> None:
    """Once so many batches are in the tables of events and of rejected lines."""
    deadline = time.monotonic() + WAIT_SECONDS

    def is_time() -> bool:
        return committed(client) >= batches and committed(client, "rejected") >= rejected

    while not is_time() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    ended = process.poll()
    kill(process)
    assert ended is None, "it was through before it could be killed"


def test_events_are_ingested_exactly_once_across_a_kill(
    spark: "SparkSession", environment: None, installation: Installation, tmp_path: Path
) -> None:
    spool = spool_of(tmp_path / "spool", EVENTS)
    report = tmp_path / "second.log"
    with running_server(tmp_path / "nunatak-data", environment={"NUNATAK_SPOOL_LOCATION": "off"}) as server:
        with Client(server.uri) as client, ingesting(server, installation, spool, tmp_path / "first.log") as first:
            kill_in_the_middle(first, client, batches=2, rejected=1)
            partly = committed(client)
        assert 2 <= partly < FILES // BATCH
        assert len(list(spool.rglob("*.jsonl"))) == FILES  # nothing goes before all of it is in

        began = time.monotonic()
        with ingesting(server, installation, spool, report) as second:
            status = second.wait(WAIT_SECONDS)
        took = time.monotonic() - began

        configure(spark, rest_catalog(CATALOG, server.uri))
        query = f"""SELECT count(*), count(DISTINCT event_id), sum(snapshot_id), count_if(status = 409)
            FROM {CATALOG}.system.events"""
        (found,) = spark.sql(query).collect()
        rejected = spark.sql(f"SELECT kind, reason FROM {CATALOG}.system.rejected").collect()
    print(f"{EVENTS} events; killed after {partly} batches; the rest took {took:.1f} s with its start")
    assert tuple(found) == (EVENTS, EVENTS, EVENTS * (EVENTS - 1) // 2, EVENTS // 50)
    assert [tuple(row) for row in rejected] == [("events", "not JSON of this kind")] * 2
    assert '"rejected": 2,' in report.read_text()  # also the one of the run that was killed
    assert status == 4  # done, and there is something to look at
    assert f'"files": {FILES},' in report.read_text()
    assert list(spool.rglob("*.jsonl")) == []
