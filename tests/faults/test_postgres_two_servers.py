"""Two servers on one PostgreSQL, either killed at any moment: what one acknowledged stands at both, and once (F2)."""

import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs.cluster import Cluster, running_cluster
from tests.support.cluster_clients import spread_writers, tables_for
from tests.support.history import Attempt, findings, kinds_of
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.promises import show
from tests.support.proxy import Fault, faulty_proxy
from tests.support.workload import (
    NAMESPACE,
    SCHEMA,
    TABLES,
    Answer,
    Caller,
    Lost,
    append_to,
    create_tables,
    new_key,
    seeded,
)

# A night's run sets more.
KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "4"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "240"))
WRITERS = 10
ROUNDS = 10  # for a canary; most need one


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Cluster]:
    """Servers that nobody kills."""
    with running_cluster(tmp_path_factory.mktemp("healthy") / "data", postgres.new_database()) as cluster:
        create_tables(cluster.ports[0], [])
        yield cluster


def test_two_servers_of_which_either_is_killed_lose_double_and_dangle_nothing(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """MISSION: 003-36"""
    chance = seeded("two servers")
    names = tables_for(COMMITS)
    with running_cluster(tmp_path / "data", postgres.new_database()) as cluster:
        create_tables(cluster.ports[0], names)
        run = spread_writers(cluster.ports, names, chance, WRITERS)

        with run.working():
            cluster.kill_over(run, chance, kills=KILLS, commits=COMMITS)

        found = findings(run.attempts, run.reads, cluster.find_tables(names))
        print(run.summary())
        assert found == []
        assert [attempt for attempt in run.attempts if (attempt.status or 0) >= 500] == []
    show(
        "F2", "two servers on PostgreSQL, either killed", commits=run.applied, kills=KILLS, writers=WRITERS, findings=0
    )


def test_servers_that_overwrite_each_others_pointers_are_found_out(tmp_path: Path, postgres: PostgresServer) -> None:
    """The canary: without compare-and-swap the later commit takes the earlier one's place, once two have met."""
    chance = seeded("no compare-and-swap")
    lost = 0
    with running_cluster(tmp_path / "data", postgres.new_database(), broken="no-cas") as cluster:
        for name in (f"t{number}" for number in range(ROUNDS)):
            create_tables(cluster.ports[0], [name])
            run = spread_writers(cluster.ports, [name], chance, WRITERS)

            run.each_carries_out(5)

            lost += kinds_of(findings(run.attempts, run.reads, cluster.find_tables([name])))["lost"]
            if lost:
                break

    assert lost > 0


def lose_at_one_and_ask_the_other(cluster: Cluster, name: str, key: str | None) -> list[str]:
    """What the checker says of a commit whose reply is lost at one server and which is sent again to the other."""
    create_tables(cluster.ports[0], [name])
    with Caller(cluster.ports[0]) as caller:
        change = append_to(name, caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"], 11, "once")
    request = ("POST", f"{TABLES}/{name}", json.dumps(change).encode(), key)
    started = time.monotonic()
    with faulty_proxy(cluster.ports[0], lambda _: Fault.CUT_REPLY) as proxy, Caller(proxy.port) as caller:
        with pytest.raises(Lost):
            caller.send(*request)
        assert proxy.statuses == [200]
    with Caller(cluster.ports[1]) as caller:
        status = caller.send(*request).status
    attempt = Attempt("once", {name: 11}, started, time.monotonic(), status)
    return findings([attempt], [], cluster.find_tables([name]))


@pytest.mark.parametrize("keyed", [True, False], ids=["with key", "without key"])
def test_a_commit_whose_reply_was_lost_at_one_server_is_answered_as_done_by_the_other(
    healthy: Cluster, keyed: bool
) -> None:
    chance = seeded(f"other server {keyed}")

    assert lose_at_one_and_ask_the_other(healthy, f"other_{keyed}", new_key(chance) if keyed else None) == []


def test_servers_that_recognise_no_repeated_commit_are_found_out(tmp_path: Path, postgres: PostgresServer) -> None:
    """The canary: the other server refuses what was done, and a client would delete its files."""
    with running_cluster(tmp_path / "data", postgres.new_database(), broken="no-idempotency") as cluster:
        found = lose_at_one_and_ask_the_other(cluster, "t", None)

    assert "wrong answer: once was answered 409 but is in t" in found


# One request at both servers at once


def ask_both(postgres: PostgresServer, cluster: Cluster, method: str, path: str, body: Any, key: str) -> list[Answer]:
    """The answers of two servers that got the same request, looked, and may write only when both want to."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    content = None if body is None else json.dumps(body).encode()

    def ask(port: int) -> Answer:
        with Caller(port) as caller:
            return caller.send(method, path, content, key)

    with ThreadPoolExecutor(2) as pool:
        with postgres.holding(cluster.url, "LOCK TABLE iceberg_tables, iceberg_namespace_properties IN SHARE MODE"):
            asked = [pool.submit(ask, port) for port in cluster.ports]
            postgres.await_rows(waiting, [(2,)], url=cluster.url)
        return [answer.result() for answer in asked]


def named(table: str) -> dict[str, Any]:
    return {"namespace": [NAMESPACE], "name": table}


WRITES: dict[str, tuple[str, str, Any, int]] = {
    "create": ("POST", TABLES, {"name": "both_create_new", "schema": SCHEMA}, 200),
    "set a property": (
        "POST",
        f"{TABLES}/both_set_a_property",
        {"requirements": [], "updates": [{"action": "set-properties", "updates": {"color": "red"}}]},
        200,
    ),
    "drop": ("DELETE", f"{TABLES}/both_drop", None, 204),
    "rename": (
        "POST",
        "/v1/tables/rename",
        {"source": named("both_rename"), "destination": named("both_rename_new")},
        204,
    ),
    "create namespace": ("POST", "/v1/namespaces", {"namespace": ["both_new"]}, 200),
}


@pytest.mark.parametrize("write", WRITES)
def test_one_request_with_a_key_at_two_servers_at_once_is_done_once_and_answered_alike(
    healthy: Cluster, postgres: PostgresServer, write: str
) -> None:
    """A client that lost patience with one server asks the other: neither may refuse what the other does."""
    create_tables(healthy.ports[0], [f"both_{write.replace(' ', '_')}"])
    method, path, body, expected = WRITES[write]

    answers = ask_both(postgres, healthy, method, path, body, new_key(random.Random(write)))

    assert [answer.status for answer in answers] == [expected, expected]
    assert answers[0].body == answers[1].body
    if write == "set a property":
        (found,) = healthy.find_tables(["both_set_a_property"])
        assert len(found.log) == 2  # created, and changed once
