"""kill -9 while namespaces and tables come and go: the audit trail says what happened, all of it and nothing else."""

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import postgres
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.checked import assert_sound
from tests.support.found import await_true
from tests.support.found import database as opened
from tests.support.history import Outcome, outcome_of
from tests.support.workload import SCHEMA, Caller, Lost, new_key, seeded, send_until_answered

KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "4"))
CLIENTS = 6
APART = 25  # changes between two kills, and up to twice as many
ROUNDS = 10  # for the canary; most need one

RECORDS = (
    "SELECT operation, table_namespace || '/' || table_name FROM nunatak_commits",
    "SELECT action, securable FROM nunatak_audit",
)
NAMESPACES = "SELECT namespace FROM iceberg_namespace_properties WHERE property_key = 'exists'"
TABLES = "SELECT table_namespace || '/' || table_name FROM iceberg_tables"

Change = tuple[str, str]  # what was done, and to what


@dataclass
class Client:
    """Leads namespaces with a table each through their life, under names nobody else uses.

    With keys every request is sent until it is answered. Without, one that was lost stays so, and nobody knows whether
    it happened; the next life has other names.
    """

    mark: str
    port: int
    random: random.Random
    keyed: bool
    told: dict[Change, Outcome] = field(default_factory=dict)
    applied: int = 0

    def run(self, stop: threading.Event) -> None:
        life = 0
        with Caller(self.port) as caller:
            while not stop.is_set():
                self._live(caller, f"{self.mark}_{life}")
                life += 1

    def _live(self, caller: Caller, name: str) -> None:
        here = f"/v1/namespaces/{name}"
        namespace, table = f"default\x1f{name}.", f"{name}/t"
        steps: list[tuple[Change, str, str, Any]] = [
            (("create-namespace", namespace), "POST", "/v1/namespaces", {"namespace": [name]}),
            (("update-namespace", namespace), "POST", f"{here}/properties", {"updates": {"color": "red"}}),
            (("create-table", table), "POST", f"{here}/tables", {"name": "t", "schema": SCHEMA}),
            (("drop-table", table), "DELETE", f"{here}/tables/t", None),
            (("drop-namespace", namespace), "DELETE", here, None),
        ]
        for change, method, path, body in steps:
            content = None if body is None else json.dumps(body).encode()
            self.told[change] = self._send(caller, method, path, content)
            if self.told[change] != "applied":
                return
            self.applied += 1

    def _send(self, caller: Caller, method: str, path: str, body: bytes | None) -> Outcome:
        if self.keyed:
            return outcome_of(send_until_answered(caller, method, path, body, new_key(self.random)).status)
        try:
            return outcome_of(caller.send(method, path, body).status)
        except Lost:
            time.sleep(0.2)  # the server is coming back, and needs the processor itself
            return "unknown"


def rows(server: RunningServer, url: str | None, sql: str) -> list[tuple[Any, ...]]:
    if url is not None:
        return asyncio.run(postgres.execute(url, sql))
    with opened(server.data) as connection:
        return connection.execute(sql).fetchall()


def wrong_records(told: Mapping[Change, Outcome], found: Counter[Change]) -> list[str]:
    """What the records say differently from the answers: each change once, a refused one never, and no other."""
    allowed = {"applied": (1,), "refused": (0,), "unknown": (0, 1)}
    wrong = [
        f"{change} was {outcome}, and is recorded {found[change]} times"
        for change, outcome in told.items()
        if found[change] not in allowed[outcome]
    ]
    return wrong + [f"{change} is recorded, but nobody asked for it" for change in found.keys() - told.keys()]


def wrong_effects(found: Counter[Change], namespaces: set[str], tables: set[str]) -> list[str]:
    """Where the records and the catalog differ, also about what nobody was told the outcome of."""

    def left(noun: str) -> set[str]:
        made, gone = ({what for action, what in found if action == f"{verb}-{noun}"} for verb in ("create", "drop"))
        return made - gone

    there = {f"default\x1f{name}." for name in namespaces}
    differing = (left("namespace") ^ there) | (left("table") ^ tables)
    return [f"{what!r} is not as its records say" for what in sorted(differing)]


def applied(clients: Sequence[Client]) -> int:
    return sum(client.applied for client in clients)


def lives_among_kills(server: RunningServer, url: str | None, chance: random.Random, kills: int) -> list[str]:
    """What is wrong with the audit trail after so many kills."""
    clients = [
        Client(f"{chance.getrandbits(32):x}_{number}", server.port, random.Random(chance.random()), number % 2 == 0)
        for number in range(CLIENTS)
    ]
    stop = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        working = [pool.submit(client.run, stop) for client in clients]
        try:
            for _ in range(kills):
                enough = applied(clients) + APART + chance.randrange(APART)
                await_true("changes are made", lambda: applied(clients) >= enough)  # noqa: B023
                server.kill()
                server.restart()
        finally:
            stop.set()
    for each in working:
        each.result()
    told = {change: outcome for client in clients for change, outcome in client.told.items()}
    marks = tuple(client.mark for client in clients)
    found = Counter[Change]()
    for query in RECORDS:
        found.update(
            (action, what)
            for action, what in rows(server, url, query)
            if what.removeprefix("default\x1f").startswith(marks)
        )
    namespaces = {name for (name,) in rows(server, url, NAMESPACES) if name.startswith(marks)}
    tables = {name for (name,) in rows(server, url, TABLES) if name.startswith(marks)}
    print(f"{Counter(told.values())} changes, {found.total()} records, {kills} kills")
    assert "applied" in told.values()
    return [*wrong_records(told, found), *wrong_effects(found, namespaces, tables)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_audit_rows_are_exactly_the_changes_that_were_made_although_the_server_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    url = request.getfixturevalue("database") if kind == "postgres" else None
    environment = {"NUNATAK_DATABASE_URL": url} if url is not None else None
    with running_server(tmp_path / "data", environment=environment) as server:
        assert lives_among_kills(server, url, seeded(f"audit {kind}"), KILLS) == []
    assert_sound(server.data if url is None else url, warehouse=server.data / "warehouse")


def test_a_server_that_writes_audit_rows_a_moment_later_is_found_out(tmp_path: Path) -> None:
    """The canary."""
    chance = seeded("audit apart")
    with running_server(tmp_path / "data", broken="audit-apart") as server:
        for _ in range(ROUNDS):
            if lives_among_kills(server, None, chance, 1):
                return
    raise AssertionError("nothing was found wrong: the test would not notice")
