"""Transactions over three tables through two servers on PostgreSQL, while either server is killed and the database
crashes: each is in all of its tables or in none (F16)."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.catalogs.cluster import Cluster, running_cluster
from tests.support.cluster_clients import spread_writers
from tests.support.history import Attempt, findings, kinds_of
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.promises import show
from tests.support.workload import TABLES, TRANSACTIONS, Caller, Lost, append_to, create_tables, seeded

# A night's run sets more.
KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "3"))
TRANSACTIONS_WANTED = int(os.environ.get("NUNATAK_TEST_TRANSACTIONS", "40"))
PER_ROUND = 200  # transactions on the same three tables, whose metadata grows with each
WRITERS = 6


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres() as server:
        yield server


def test_a_transaction_is_whole_or_absent_whatever_is_killed(tmp_path: Path, postgres: PostgresServer) -> None:
    """MISSION: 002-30, 002-32"""
    chance = seeded("transactions on two servers")
    rounds = -(-TRANSACTIONS_WANTED // PER_ROUND)
    applied = unknown = 0
    with running_cluster(tmp_path / "data", postgres.new_database()) as cluster:
        for number in range(rounds):
            names = [f"{name}_{number}" for name in ("orders", "lines", "totals")]
            create_tables(cluster.ports[0], names)
            run = spread_writers(cluster.ports, names, chance, WRITERS, all_tables_at_once=True)

            with run.working():
                share = min(PER_ROUND, TRANSACTIONS_WANTED)
                cluster.kill_over(run, chance, kills=max(1, KILLS // rounds), commits=share // 2)
                postgres.kill()
                postgres.start()
                run.await_applied(share)

            print(run.summary())
            tables = cluster.find_tables(names)
            assert findings(run.attempts, run.reads, tables) == []
            intents = [[table.snapshots[each]["summary"]["intent"] for each in table.chain] for table in tables]
            assert intents[0] == intents[1] == intents[2]
            applied += run.applied
            unknown += run.count("unknown")
    show(
        "F16",
        "transactions over three tables, two servers on PostgreSQL, servers and database killed",
        transactions=applied,
        server_kills=max(1, KILLS // rounds) * rounds,
        database_kills=rounds,
        unknown=unknown,
        partial=0,
    )


def test_a_server_that_moves_the_tables_of_a_transaction_one_by_one_is_found_out(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """The canary: killed between two tables, it leaves one moved and the others not."""
    names = ["a", "b", "c"]
    with running_cluster(tmp_path / "data", postgres.new_database(), count=1, broken="torn-transactions") as cluster:
        create_tables(cluster.ports[0], names)
        attempt = kill_within_a_transaction(cluster, postgres, names)

        found = findings([attempt], [], cluster.find_tables(names))

    assert kinds_of(found)["torn"] == 1


def kill_within_a_transaction(cluster: Cluster, postgres: PostgresServer, names: list[str]) -> Attempt:
    """One transaction whose server is killed as soon as its first table has moved."""
    (server,) = cluster.servers
    with Caller(server.port) as caller:
        loaded = {name: caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"] for name in names}
    body = json.dumps({"table-changes": [append_to(name, loaded[name], 11, "all") for name in names]}).encode()

    def send() -> None:
        with Caller(server.port) as caller, pytest.raises(Lost):
            caller.send("POST", TRANSACTIONS, body)

    moved = "SELECT count(*) > 0 FROM nunatak_commits WHERE snapshot_id = 11"
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        postgres.await_rows(moved, [(True,)], url=cluster.url)
        server.kill()
        sent.result()
    server.restart()
    return Attempt("all", dict.fromkeys(names, 11), started, time.monotonic(), None)
