"""Any number of servers on one PostgreSQL are one catalog: what one did all others know, and none does it again."""

import asyncio
import http.client
import json
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import asyncpg
import pytest

from tests.support.caller import Answer, Caller
from tests.support.catalogs.cluster import Cluster, running_cluster
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.found import await_true, local_path
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.promises import show
from tests.support.workload import NAMESPACE, SCHEMA, TABLES, create_tables, new_key, seeded

# A night's run sets more.
PAIRS = int(os.environ.get("NUNATAK_TEST_PAIRS", "40"))
ROUNDS = 10  # for a canary; most need one
STEPS = int(os.environ.get("NUNATAK_TEST_STEPS", "60"))
HISTORY = 100  # metadata files of a table to purge: enough to be killed midway


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Cluster]:
    """Two servers that nobody kills."""
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data", postgres.new_database()) as running:
        create_tables(running.ports[0], [])
        yield running


def set_properties(**properties: str) -> bytes:
    """A commit that requires nothing: nothing but its key keeps it from being carried out twice."""
    return json.dumps({"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}).encode()


# One key at two servers


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes | None
    key: str


def at_once(ports: Sequence[int], requests: Sequence[Request]) -> list[Answer]:
    """Each request to a server of its own, at the same moment."""
    barrier = threading.Barrier(len(ports))

    def send(port: int, request: Request) -> Answer:
        with Caller(port) as caller:
            caller.expect(200, "GET", "/health")  # connected before it counts
            barrier.wait(30)
            return caller.send(request.method, request.path, request.body, request.key)

    with ThreadPoolExecutor(len(ports)) as pool:
        return list(pool.map(send, ports, requests))


def commits_logged(postgres: PostgresServer, cluster: Cluster, name: str, operation: str = "commit-table") -> int:
    sql = "SELECT count(*) FROM nunatak_commits WHERE table_name = $1 AND operation = $2"
    count: int = postgres.execute(sql, name, operation, url=cluster.url)[0][0]
    return count


def commit_in_pairs(cluster: Cluster, name: str, pairs: int, chance: random.Random) -> list[tuple[Answer, Answer]]:
    """Each commit is sent to both servers at once, under one key."""
    create_tables(cluster.ports[0], [name])
    answers = []
    for number in range(pairs):
        request = Request("POST", f"{TABLES}/{name}", set_properties(number=str(number)), new_key(chance))
        first, again = at_once(cluster.ports, [request, request])
        answers.append((first, again))
    return answers


def test_a_commit_sent_to_two_servers_at_once_under_one_key_happens_once(
    cluster: Cluster, postgres: PostgresServer
) -> None:
    chance = seeded("pairs")

    answers = commit_in_pairs(cluster, "pairs", PAIRS, chance)

    assert [(first.status, again.status) for first, again in answers] == [(200, 200)] * PAIRS
    assert all(first.body == again.body for first, again in answers)
    doubled = commits_logged(postgres, cluster, "pairs") - PAIRS
    assert doubled == 0
    # Whoever came second deleted the file it had written for nothing.
    folder = local_path(answers[-1][0].json["metadata-location"]).parent
    assert len(list(folder.glob("*.metadata.json"))) == PAIRS + 1
    show("F5", "one key at two servers at once", commits=PAIRS, doubled=doubled)


def test_servers_that_carry_out_what_another_has_done_under_the_key_are_found_out(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """The canary: the answer of the first stays, and yet the second carries it out, once two have met."""
    with running_cluster(tmp_path / "data", postgres.new_database(), broken="key-taken-ignored") as broken:
        assert any(reports_kept_of_pairs(broken, postgres, f"doubled{number}", 10) > 10 for number in range(ROUNDS))


def test_a_report_sent_to_two_servers_at_once_under_one_key_is_kept_once(
    cluster: Cluster, postgres: PostgresServer
) -> None:
    """Nothing but the key can tell two reports apart: they compare nothing and swap nothing."""
    assert reports_kept_of_pairs(cluster, postgres, "reported", PAIRS) == PAIRS


def reports_kept_of_pairs(cluster: Cluster, postgres: PostgresServer, name: str, pairs: int) -> int:
    chance = seeded(name)
    create_tables(cluster.ports[0], [name])
    body = b'{"report-type":"scan-report"}'
    for _ in range(pairs):
        request = Request("POST", f"{TABLES}/{name}/metrics", body, new_key(chance))
        assert [answer.status for answer in at_once(cluster.ports, [request, request])] == [204, 204]
    sql = "SELECT count(*) FROM nunatak_reports WHERE table_name = $1"
    kept: int = postgres.execute(sql, name, url=cluster.url)[0][0]
    return kept


def changes(number: int) -> dict[str, tuple[str, str, Any, str]]:
    """Every way to change something but a commit: method, path, body, and the table and operation in the log."""
    place, old, new = f"/v1/namespaces/{NAMESPACE}", f"old{number}", f"new{number}"

    def named(table: str) -> dict[str, Any]:
        return {"namespace": [NAMESPACE], "name": table}

    return {
        "create-namespace": ("POST", "/v1/namespaces", {"namespace": [f"n{number}"]}, ""),
        "create-table": ("POST", TABLES, {"name": new, "schema": SCHEMA}, new),
        "rename-table": ("POST", "/v1/tables/rename", {"source": named(old), "destination": named(new)}, new),
        "drop-table": ("DELETE", f"{place}/tables/{old}", None, old),
        "drop-namespace": ("DELETE", f"/v1/namespaces/empty{number}", None, ""),
        "update-properties": ("POST", f"{place}/properties", {"updates": {"n": str(number)}}, ""),
    }


@pytest.mark.parametrize("operation", changes(0))
def test_any_change_sent_to_two_servers_at_once_under_one_key_happens_once(
    cluster: Cluster, postgres: PostgresServer, operation: str
) -> None:
    """The second is refused by what the first did, and must not say so."""
    chance = seeded(f"pairs of {operation}")
    for number in range(max(3, PAIRS // 10)):
        unique = chance.getrandbits(40)
        method, path, body, table = changes(unique)[operation]
        if operation in ("rename-table", "drop-table"):
            create_tables(cluster.ports[0], [f"old{unique}"])
        if operation == "drop-namespace":
            with Caller(cluster.ports[0]) as caller:
                caller.expect(200, "POST", "/v1/namespaces", {"namespace": [f"empty{unique}"]})
        request = Request(method, path, None if body is None else json.dumps(body).encode(), new_key(chance))

        first, again = at_once(cluster.ports[:: 1 if number % 2 else -1], [request, request])

        assert first.status in (200, 204)
        assert (again.status, again.body) == (first.status, first.body)
        if table:
            assert commits_logged(postgres, cluster, table, operation) == 1


def test_of_two_requests_under_one_key_at_two_servers_one_is_refused(
    cluster: Cluster, postgres: PostgresServer
) -> None:
    chance = seeded("two under one key")
    create_tables(cluster.ports[0], ["shared_key"])
    for number in range(max(3, PAIRS // 10)):
        before = commits_logged(postgres, cluster, "shared_key")
        key = new_key(chance)
        bodies = [set_properties(who=f"{who}{number}") for who in ("ann", "bob")]
        wanted = [Request("POST", f"{TABLES}/shared_key", body, key) for body in bodies]

        statuses = [answer.status for answer in at_once(cluster.ports, wanted)]

        assert sorted(statuses) == [200, 422]
        assert commits_logged(postgres, cluster, "shared_key") == before + 1


def test_a_key_past_its_time_may_be_used_again_at_any_server(cluster: Cluster, postgres: PostgresServer) -> None:
    key = new_key(seeded("expired"))
    with Caller(cluster.ports[0]) as caller:
        assert caller.send("POST", "/v1/namespaces", b'{"namespace":["expired_1"]}', key).status == 200
    postgres.execute("UPDATE nunatak_idempotency SET expires_ms = 1 WHERE idempotency_key = $1", key, url=cluster.url)
    create_tables(cluster.ports[0], ["expired"])
    request = Request("POST", f"{TABLES}/expired", set_properties(a="b"), key)

    first, again = at_once(cluster.ports, [request, request])

    assert (first.status, first.body) == (again.status, again.body)
    assert first.status == 200
    assert commits_logged(postgres, cluster, "expired") == 1


# What one has done the other knows


@dataclass
class Reader:
    """Asks one server, and sees the headers too."""

    port: int

    def get(self, path: str, etag: str | None = None) -> tuple[int, str | None, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"If-None-Match": etag} if etag else {})
            response = connection.getresponse()
            body = response.read()
            return response.status, response.headers["ETag"], json.loads(body) if body else None
        finally:
            connection.close()


def test_what_one_server_committed_the_other_shows_at_once(cluster: Cluster) -> None:
    chance = seeded("read your writes")
    create_tables(cluster.ports[0], ["seen"])
    path = f"{TABLES}/seen"
    etag: str | None = None
    for number in range(STEPS):
        writer, reader = chance.sample(cluster.ports, 2)
        with Caller(writer) as caller:
            committed = caller.expect(200, "POST", path, json.loads(set_properties(number=str(number))))

        status, fresh, loaded = Reader(reader).get(path, etag)  # the ETag is of what was there before

        assert status == 200
        assert loaded == committed
        assert fresh != etag
        assert Reader(writer).get(path, fresh)[:2] == (304, fresh)
        assert Reader(reader).get(path, fresh)[:2] == (304, fresh)
        assert Reader(reader).get(f"{path}?snapshots=refs")[2]["metadata-location"] == committed["metadata-location"]
        etag = fresh


def test_names_and_properties_are_the_same_at_every_server_at_once(cluster: Cluster) -> None:
    """Created, changed, renamed and dropped at either server, as chance has it, and looked for at the other."""
    chance = seeded("names")
    namespace = f"names{chance.getrandbits(30)}"
    place = f"/v1/namespaces/{namespace}"
    with Caller(cluster.ports[0]) as first:
        first.expect(200, "POST", "/v1/namespaces", {"namespace": [namespace]})
    names: set[str] = set()
    properties: dict[str, str] = {}
    for number in range(STEPS):
        writer, reader = chance.sample(cluster.ports, 2)
        with Caller(writer) as caller:
            step = chance.choice(["create", "rename", "drop", "set", "remove"])
            if step == "create" or not names:
                caller.expect(200, "POST", f"{place}/tables", {"name": f"t{number}", "schema": SCHEMA})
                names.add(f"t{number}")
            elif step == "rename":
                old, new = chance.choice(sorted(names)), f"r{number}"
                ends = [{"namespace": [namespace], "name": name} for name in (old, new)]
                caller.expect(204, "POST", "/v1/tables/rename", {"source": ends[0], "destination": ends[1]})
                names = names - {old} | {new}
            elif step == "drop":
                old = chance.choice(sorted(names))
                caller.expect(204, "DELETE", f"{place}/tables/{old}")
                names.remove(old)
            elif step == "set":
                caller.expect(200, "POST", f"{place}/properties", {"updates": {f"p{number % 5}": str(number)}})
                properties[f"p{number % 5}"] = str(number)
            else:
                caller.expect(200, "POST", f"{place}/properties", {"removals": [f"p{number % 5}"]})
                properties.pop(f"p{number % 5}", None)

        listed = Reader(reader).get(f"{place}/tables")[2]["identifiers"]
        shown = Reader(reader).get(place)[2]["properties"]

        assert {each["name"] for each in listed} == names, step
        assert {name: value for name, value in shown.items() if name != "location"} == properties, step
        assert all(Reader(reader).get(f"{place}/tables/{name}")[0] == 200 for name in sorted(names)[:3])


def test_a_page_token_of_one_server_is_good_at_the_other(cluster: Cluster) -> None:
    namespace = f"pages{seeded('pages').getrandbits(30)}"
    names = [f"t{number:02}" for number in range(11)]
    with Caller(cluster.ports[0]) as caller:
        caller.expect(200, "POST", "/v1/namespaces", {"namespace": [namespace]})
        for name in names:
            caller.expect(200, "POST", f"/v1/namespaces/{namespace}/tables", {"name": name, "schema": SCHEMA})
    found: list[str] = []
    token, turn = "", 0
    while token is not None and turn < 20:
        path = f"/v1/namespaces/{namespace}/tables?pageSize=2&pageToken={quote(token)}"
        status, _, page = Reader(cluster.ports[turn % 2]).get(path)
        assert status == 200
        found += [each["name"] for each in page["identifiers"]]
        token, turn = page.get("next-page-token"), turn + 1

    assert found == names
    assert turn == 6


# Jobs


def a_table_with_files(port: int, name: str, count: int) -> Path:
    """A table of so many metadata files, nearly all of them as old versions of it; returns its folder."""
    create_tables(port, [name])
    with Caller(port) as caller:
        caller.expect(
            200,
            "POST",
            f"{TABLES}/{name}",
            json.loads(set_properties(**{"write.metadata.previous-versions-max": "999"})),
        )
        loaded = caller.expect(200, "GET", f"{TABLES}/{name}")
        folder = local_path(loaded["metadata-location"]).parent
        for number in range(count - 2):
            assert caller.send("POST", f"{TABLES}/{name}", set_properties(number=str(number))).status == 200
    assert len(list(folder.iterdir())) == count
    return folder


def jobs_left(postgres: PostgresServer, url: str) -> list[tuple[Any, ...]]:
    return postgres.execute("SELECT leased_by, attempts FROM nunatak_jobs", url=url)


def purge(port: int, name: str) -> None:
    with Caller(port) as caller:
        caller.expect(204, "DELETE", f"{TABLES}/{name}?purgeRequested=true")


def test_a_purge_whose_server_is_killed_midway_is_finished_by_the_other(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    environment = {"NUNATAK_DATABASE_URL": url}
    data = tmp_path / "data"
    with (
        running_server(data, environment=environment) as other,
        running_server(data, environment=environment, broken="slow-deletes") as one,
    ):
        folder = a_table_with_files(other.port, "t", HISTORY)
        kept = a_table_with_files(other.port, "kept", 5)
        create_tables(other.port, ["first", "second"])

        purge(one.port, "t")
        await_true("the purge is midway", lambda: len(os.listdir(folder)) < HISTORY)
        one.kill()

        assert len(os.listdir(folder)) > 0
        ((owner, attempts),) = jobs_left(postgres, url)
        assert (owner is not None, attempts) == (True, 1)
        purge(other.port, "first")
        await_true("the other works", lambda: len(jobs_left(postgres, url)) == 1)
        assert jobs_left(postgres, url) == [(owner, 1)], "nobody takes what is leased"

        postgres.execute("UPDATE nunatak_jobs SET not_before_ms = 1", url=url)  # the lease runs out
        purge(other.port, "second")
        await_true("no job is left", lambda: jobs_left(postgres, url) == [])
        assert not folder.parent.exists()
        assert len(list(kept.iterdir())) == 5
        one.restart()


# The client goes away


@contextmanager
def in_flight(port: int, path: str, body: bytes, is_begun: Callable[[], bool]) -> Iterator[None]:
    """A request that was handed to the database when its client hangs up."""
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        await_true("the commit waits for the database", is_begun)
    yield


def properties_of(port: int, name: str) -> dict[str, str]:
    with Caller(port) as caller:
        properties: dict[str, str] = caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"]["properties"]
    return properties


def test_a_client_that_hangs_up_does_not_cancel_a_commit_in_flight_on_postgres(
    cluster: Cluster, postgres: PostgresServer
) -> None:
    create_tables(cluster.ports[0], ["hung_up"])

    async def hold_the_table(held: threading.Event, let_go: threading.Event) -> None:
        connection = await asyncpg.connect(cluster.url)
        async with connection.transaction():
            await connection.fetch("SELECT 1 FROM iceberg_tables WHERE table_name = 'hung_up' FOR UPDATE")
            held.set()
            await asyncio.to_thread(let_go.wait, 30)
        await connection.close()

    def is_begun() -> bool:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'nunatak' AND wait_event_type = 'Lock'"
        return postgres.execute(waiting, url=cluster.url) != []

    held, let_go = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(asyncio.run, hold_the_table(held, let_go))
        try:
            assert held.wait(30)
            with in_flight(cluster.ports[0], f"{TABLES}/hung_up", set_properties(a="b"), is_begun):
                assert "a" not in properties_of(cluster.ports[1], "hung_up")
        finally:
            let_go.set()
        holding.result()

    await_true("the commit is carried out", lambda: properties_of(cluster.ports[1], "hung_up").get("a") == "b")
    assert commits_logged(postgres, cluster, "hung_up") == 1


def test_a_client_that_hangs_up_does_not_cancel_a_commit_in_flight_on_sqlite(shared_server: RunningServer) -> None:
    name = f"hung_up_{seeded('hang up').getrandbits(30)}"
    create_tables(shared_server.port, [name])
    connection = apsw.Connection(str(shared_server.data / "nunatak.db"))

    def transactions() -> int:
        with Caller(shared_server.port) as caller:
            page = caller.send("GET", "/metrics").body.decode()
        return int(float(page.partition("\nnunatak_database_transactions_total ")[2].split()[0]))

    before = transactions()
    connection.execute("BEGIN IMMEDIATE")
    try:
        with in_flight(shared_server.port, f"{TABLES}/{name}", set_properties(a="b"), lambda: transactions() > before):
            assert "a" not in properties_of(shared_server.port, name)
    finally:
        connection.execute("ROLLBACK")
        connection.close()

    await_true("the commit is carried out", lambda: properties_of(shared_server.port, name).get("a") == "b")
