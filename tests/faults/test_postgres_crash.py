"""PostgreSQL itself stops at once or is killed under load and comes back: nothing acknowledged is lost, and what was
answered meanwhile was true (F3)."""

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs.cluster import running_cluster
from tests.support.cluster_clients import proxied, spread_writers, tables_for
from tests.support.history import findings, kinds_of
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.postgres_proxy import Cut, is_query
from tests.support.promises import show
from tests.support.workload import SCHEMA, TABLES, Caller, append_to, await_true, create_tables, seeded

# A night's run sets more.
CRASHES = int(os.environ.get("NUNATAK_TEST_CRASHES", "2"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "150"))
WRITERS = 8
UNWRITTEN = "wal_writer_delay=10000ms"  # what no commit waits for reaches the disk late, and is lost by most crashes

Crash = Callable[[PostgresServer], None]
WAYS: list[Crash] = [PostgresServer.stop_at_once, PostgresServer.kill]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server that waits for the disk."""
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres(UNWRITTEN) as server:
        yield server


def test_a_database_that_crashes_under_load_loses_nothing_acknowledged(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """MISSION: 003-25"""
    chance = seeded("database crashes")
    names = tables_for(COMMITS)
    pauses: list[float] = []
    with running_cluster(tmp_path / "data", postgres.new_database()) as cluster:
        create_tables(cluster.ports[0], names)
        run = spread_writers(cluster.ports, names, chance, WRITERS)

        with run.working():
            for number in range(CRASHES):
                run.await_applied(COMMITS * (number + 1) // (CRASHES + 1))
                time.sleep(chance.uniform(0, 0.05))
                WAYS[number % 2](postgres)
                time.sleep(chance.uniform(0, 1))
                postgres.start()
                pauses.append(seconds_until_applied(run))
            run.await_applied(COMMITS)

        print(run.summary())
        assert findings(run.attempts, run.reads, cluster.find_tables(names)) == []
    busy = sum(attempt.status == 503 for attempt in run.attempts)
    show(
        "F3",
        "PostgreSQL stopped at once or killed, and restarted",
        commits=run.applied,
        crashes=CRASHES,
        answered_503=busy,
        unknown=run.count("unknown"),
        slowest_resume_seconds=round(max(pauses), 2),
        findings=0,
    )


def seconds_until_applied(run: Any) -> float:
    started = time.monotonic()
    run.await_applied(run.applied + 1)
    return time.monotonic() - started


def test_a_server_that_does_not_wait_for_the_disk_is_found_out(tmp_path: Path, postgres: PostgresServer) -> None:
    """The canary: what such a server acknowledged goes with the crash."""
    chance = seeded("no durability")
    with running_cluster(tmp_path / "data", postgres.new_database(), count=1, broken="asynchronous-commit") as cluster:
        create_tables(cluster.ports[0], ["t"])
        postgres.execute("CHECKPOINT")
        postgres.stop_flushing()
        run = spread_writers(cluster.ports, ["t"], chance, 2)
        run.each_carries_out(4)
        assert postgres.has_unflushed_commits()

        postgres.kill()
        postgres.start()

        assert kinds_of(findings(run.attempts, run.reads, cluster.find_tables(["t"])))["lost"] > 0


# Answers while the database is away

REQUESTS: dict[str, tuple[str, str, Any]] = {
    "load": ("GET", f"{TABLES}/t", None),
    "list": ("GET", TABLES, None),
    "create": ("POST", TABLES, {"name": "new", "schema": SCHEMA}),
    "drop": ("DELETE", f"{TABLES}/t", None),
    "create namespace": ("POST", "/v1/namespaces", {"namespace": ["new"]}),
    "ready": ("GET", "/ready", None),
}


def test_without_its_database_a_server_says_that_nothing_was_done_and_when_to_come_back(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """And it needs no restart when the database is back."""
    with running_cluster(tmp_path / "data", postgres.new_database(), count=1) as cluster:
        (port,) = cluster.ports
        create_tables(port, ["t"])
        with Caller(port) as caller:
            change = append_to("t", caller.expect(200, "GET", f"{TABLES}/t")["metadata"], 11, "later")
        requests = {**REQUESTS, "commit": ("POST", f"{TABLES}/t", change)}

        postgres.stop_at_once()
        answers = {name: ask(port, *request) for name, request in requests.items()}
        postgres.start()

        assert answers == dict.fromkeys(requests, (503, "1"))
        with Caller(port) as caller:
            caller.expect(200, "GET", "/ready")
            caller.expect(200, "POST", f"{TABLES}/t", change)
            assert caller.expect(200, "GET", TABLES)["identifiers"] == [{"namespace": ["faults"], "name": "t"}]
        (found,) = cluster.find_tables(["t"])
        assert found.chain == [11]


def ask(port: int, method: str, path: str, body: Any) -> tuple[int, str | None]:
    """The status, and after how many seconds to come back."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("Retry-After")
    finally:
        connection.close()


def test_a_namespace_that_a_crash_undid_is_not_taken_for_another_transaction_that_got_its_number(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Nothing of it was on the disk, so the database knows of no such transaction and gives its number away."""
    url = postgres.new_database()
    with (
        proxied(postgres.port, url) as (proxy, address),
        running_cluster(tmp_path / "data", address, count=1) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        create_tables(cluster.ports[0], [])
        proxy.upstream_port, upstream = 1, proxy.upstream_port  # the session that is there goes on
        proxy.cut_at_next(is_query("COMMIT"), Cut.BEFORE)

        asked = pool.submit(ask, cluster.ports[0], "POST", "/v1/namespaces", {"namespace": ["undone"]})
        await_true("the connection is cut", lambda: proxy.cuts == 1)
        postgres.stop_at_once()
        postgres.start()
        for number in range(20):
            postgres.execute(f"CREATE TABLE other_{number} (id INT)", url=url)
        proxy.upstream_port = upstream
        status, _ = asked.result()

        there = ask(cluster.ports[0], "GET", "/v1/namespaces/undone", None)[0]
        assert (status, there) in {(200, 200), (500, 404), (503, 404)}
