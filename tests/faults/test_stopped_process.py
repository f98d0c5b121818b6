"""Servers that stand still for a while and go on with what they knew, as a paused virtual machine does (F10)."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.test_second_process import serve_a_second_time
from tests.support.catalogs.cluster import Cluster, running_cluster
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.history import Attempt, findings, kinds_of
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.promises import show
from tests.support.workload import (
    TABLES,
    Caller,
    Rotation,
    Run,
    Writer,
    append_to,
    await_true,
    create_tables,
    find_tables,
    local_path,
    seeded,
)

STOPS = int(os.environ.get("NUNATAK_TEST_STOPS", "4"))  # a soak sets more
WRITERS = 8
ROUNDS = 10  # for a canary; most need one
PATIENCE_SECONDS = 0.25  # shorter than a server stands still: clients leave and ask again


@contextmanager
def standing_still(server: RunningServer) -> Iterator[None]:
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def stop_again_and_again(server: RunningServer, run: Run, chance: random.Random, times: int) -> None:
    """Each time in the middle of some work, for longer than the clients have patience."""
    for _ in range(times):
        run.await_another_attempt()
        time.sleep(chance.uniform(0, 0.1))
        with standing_still(server):
            time.sleep(PATIENCE_SECONDS * chance.uniform(1.2, 3))
        run.await_applied(run.applied + WRITERS)


def impatient(port: int, tables: Rotation | list[str], chance: random.Random, numbers: range) -> list[Writer]:
    """Writers that send the same request again if no answer comes soon; every other one uses keys."""
    return [
        Writer(
            number,
            port,
            tables,
            random.Random(chance.random()),
            keyed=number % 2 == 0,
            may_give_up=False,
            answer_seconds=PATIENCE_SECONDS,
        )
        for number in numbers
    ]


def test_a_server_that_stands_still_under_load_loses_and_doubles_nothing(server: RunningServer) -> None:
    """Its clients left and asked again: when it goes on, it finds every request several times."""
    chance = seeded("stopped")
    tables = Rotation(server.port, open_at_once=4, commits=STOPS * WRITERS * 5)
    run = Run(impatient(server.port, tables, chance, range(WRITERS)))

    with run.working():
        stop_again_and_again(server, run, chance, STOPS)

    sentences = findings(run.attempts, run.reads, find_tables(server.data, server.port, tables.names))
    kinds = kinds_of(sentences)
    show(
        "F10",
        "a server that stands still under load, while its clients ask again, loses and doubles nothing",
        commits=run.applied,
        stops=STOPS,
        **{kind: kinds[kind] for kind in ("lost", "doubled", "wrong answer", "stale read")},
    )
    assert sentences[:5] == []
    assert {attempt.status for attempt in run.attempts} <= {200, 409}


def test_a_server_that_stands_still_and_recognises_no_repetition_is_found_out(tmp_path: Path) -> None:
    """The canary, once it stood still at the right moment."""
    chance = seeded("stopped-broken")
    wrong = 0
    with running_server(tmp_path / "data", broken="no-idempotency") as server:
        for number in range(ROUNDS):
            names = [f"t{number}_{each}" for each in range(4)]
            create_tables(server.port, names)
            run = Run(impatient(server.port, names, chance, range(WRITERS)))
            with run.working():
                stop_again_and_again(server, run, chance, 3)
            found = find_tables(server.data, server.port, names)
            wrong += kinds_of(findings(run.attempts, run.reads, found))["wrong answer"]
            if wrong:
                break

    assert wrong > 0


def test_a_second_server_refuses_to_start_beside_one_that_stands_still(server: RunningServer) -> None:
    """It may go on at any moment, so its folder is still taken."""
    create_tables(server.port, ["t"])
    with standing_still(server):
        second = serve_a_second_time(server.data)

    assert second.returncode != 0
    assert "another server already works on" in second.stderr
    with Caller(server.port) as caller:
        metadata = caller.expect(200, "GET", f"{TABLES}/t")["metadata"]
        caller.expect(200, "POST", f"{TABLES}/t", append_to("t", metadata, 11, "went on"))


# Two servers on one PostgreSQL: one stands still, the other takes over


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres() as server:
        yield server


def overtake(cluster: Cluster) -> tuple[list[int], list[str]]:
    """One server reads, writes its file, and stands still before it moves the pointer; the other commits meanwhile.

    Returns the answers of both, the one that stood still first, and what the checker says.
    """
    late, quick = cluster.servers
    create_tables(late.port, ["t"])
    with Caller(late.port) as caller, Caller(quick.port) as other, ThreadPoolExecutor(1) as pool:
        loaded = caller.expect(200, "GET", f"{TABLES}/t")
        folder = local_path(loaded["metadata-location"]).parent
        bodies = [
            json.dumps(append_to("t", loaded["metadata"], snapshot_id, f"i{snapshot_id}")).encode()
            for snapshot_id in (11, 12)
        ]
        started = time.monotonic()
        asked = pool.submit(caller.send, "POST", f"{TABLES}/t", bodies[0])
        await_true("its file is written", lambda: len(list(folder.iterdir())) > 1)
        with standing_still(late):
            statuses = [other.send("POST", f"{TABLES}/t", bodies[1]).status]
        statuses.insert(0, asked.result().status)
    ended = time.monotonic()
    attempts = [
        Attempt(f"i{snapshot_id}", {"t": snapshot_id}, started, ended, status)
        for snapshot_id, status in zip((11, 12), statuses, strict=True)
    ]
    return statuses, findings(attempts, [], cluster.find_tables(["t"]))


def test_a_server_that_stood_still_before_the_swap_does_not_commit_over_the_one_that_took_over(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with running_cluster(tmp_path / "data", postgres.new_database(), broken="slow-to-commit") as cluster:
        assert overtake(cluster) == ([409, 200], [])


def test_a_server_that_commits_over_the_one_that_took_over_is_found_out(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """The canary: it moves the pointer from wherever it stands by now."""
    with running_cluster(tmp_path / "data", postgres.new_database(), broken="no-cas,slow-to-commit") as cluster:
        statuses, found = overtake(cluster)

    assert statuses == [200, 200]
    assert kinds_of(found)["lost"]


def test_two_servers_of_which_one_stands_still_again_and_again_lose_and_double_nothing(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """It wakes up with requests, sessions and metadata of long ago, and the tables have moved on."""
    chance = seeded("stopped-one-of-two")
    with running_cluster(tmp_path / "data", postgres.new_database()) as cluster:
        late, quick = cluster.servers
        tables = Rotation(late.port, open_at_once=3, commits=STOPS * WRITERS * 5)
        half = WRITERS // 2
        run = Run(
            [
                *impatient(late.port, tables, chance, range(half)),
                *impatient(quick.port, tables, chance, range(half, WRITERS)),
            ]
        )
        with run.working():
            stop_again_and_again(late, run, chance, STOPS)

        sentences = findings(run.attempts, run.reads, cluster.find_tables(tables.names))
    kinds = kinds_of(sentences)
    show(
        "F10",
        "of two servers on PostgreSQL one stands still and wakes up: it commits over nothing",
        commits=run.applied,
        stops=STOPS,
        **{kind: kinds[kind] for kind in ("lost", "doubled", "wrong answer", "stale read")},
    )
    assert sentences[:5] == []
