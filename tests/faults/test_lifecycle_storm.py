"""Creates, drops, renames and registers all at once, with readers paging through them (F17)."""

import itertools
import json
import os
import random
import string
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.promises import show
from tests.support.workload import SCHEMA, Caller, await_jobs_done, database, local_path, seeded

CLIENTS = 6
STEPS = int(os.environ.get("NUNATAK_TEST_STEPS", "40"))  # per client; a step is one to thirteen requests
STORM, OTHER = "storm", "other"
# Hot names, which everybody fights for, lie between stable ones, which nobody touches.
STABLE = [f"{letter}_stable" for letter in string.ascii_lowercase]
HOT = [f"{letter}_hot" for letter in "afkpuz"]
MOVING = ("c_moving", "x_moving")  # the two names of one table that is renamed to and fro
PASSING = [f"passing_{number}" for number in range(3)]  # namespaces that come and go


def tables_of(namespace: str) -> str:
    return f"/v1/namespaces/{namespace}/tables"


def renaming(source: tuple[str, str], to: tuple[str, str]) -> dict[str, Any]:
    return {
        "source": {"namespace": [source[0]], "name": source[1]},
        "destination": {"namespace": [to[0]], "name": to[1]},
    }


@dataclass
class Client:
    """One of the fighters; `surprises` are answers that no order of the requests explains."""

    number: int
    port: int
    random: random.Random
    steps: int
    surprises: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def run(self) -> None:
        with Caller(self.port) as caller:
            self._caller = caller
            for step in range(self.steps):
                self.random.choice((self._fight, self._fight, self._fight, self._pass_by, self._live))(step)

    def _ask(self, allowed: tuple[int, ...], method: str, path: str, body: Any = None) -> Any:
        answer = self._caller.send(method, path, None if body is None else json.dumps(body).encode())
        self.statuses[answer.status] += 1
        if answer.status not in allowed:
            self.surprises.append(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer.json if answer.status == 200 else None

    def _hot(self) -> tuple[str, str]:
        return self.random.choice((STORM, STORM, OTHER)), self.random.choice(HOT)

    def _fight(self, _: int) -> None:
        """One operation on a name that others want too."""
        namespace, name = self._hot()
        path = f"{tables_of(namespace)}/{name}"
        match self.random.randrange(5):
            case 0 | 1:
                self._ask((200, 409), "POST", tables_of(namespace), {"name": name, "schema": SCHEMA})
            case 2:
                purge = self.random.choice(("true", "false"))
                self._ask((204, 404), "DELETE", f"{path}?purgeRequested={purge}")
            case 3:
                self._ask((204, 404, 409), "POST", "/v1/tables/rename", renaming((namespace, name), self._hot()))
            case _:
                self._ask((200, 404), "GET", path)

    def _pass_by(self, _: int) -> None:
        """A namespace that appears and disappears under the tables of others."""
        namespace = self.random.choice(PASSING)
        self._ask((200, 409), "POST", "/v1/namespaces", {"namespace": [namespace]})
        self._ask((200, 404, 409), "POST", tables_of(namespace), {"name": "t", "schema": SCHEMA})
        self._ask((204, 404), "DELETE", f"{tables_of(namespace)}/t")
        self._ask((204, 404, 409), "DELETE", f"/v1/namespaces/{namespace}")

    def _live(self, step: int) -> None:
        """The whole life of a table under names of our own, where each answer is certain."""
        first, second = f"k_own_{self.number}_{step}_a", f"k_own_{self.number}_{step}_b"
        storm = tables_of(STORM)
        self._ask((200,), "POST", storm, {"name": first, "schema": SCHEMA})
        self._ask((409,), "POST", storm, {"name": first, "schema": SCHEMA})
        loaded = self._ask((200,), "GET", f"{storm}/{first}")
        self._ask((204,), "DELETE", f"{storm}/{first}")
        self._ask((404,), "GET", f"{storm}/{first}")
        if loaded is None:
            return
        register = f"/v1/namespaces/{STORM}/register"
        location = loaded["metadata-location"]
        if self.random.random() < 0.3:
            wanted = {"name": self.random.choice(HOT), "metadata-location": location}
            if self._ask((200, 409), "POST", register, wanted) is not None:
                return  # it now belongs to everybody
        self._ask((200,), "POST", register, {"name": second, "metadata-location": location})
        again = self._ask((200,), "GET", f"{storm}/{second}")
        if again is not None and again["metadata"]["table-uuid"] != loaded["metadata"]["table-uuid"]:
            self.surprises.append(f"{second} is another table than {first} was")
        self._ask((204,), "POST", "/v1/tables/rename", renaming((STORM, second), (OTHER, first)))
        self._ask((404,), "DELETE", f"{storm}/{second}")
        self._ask((204,), "DELETE", f"{tables_of(OTHER)}/{first}?purgeRequested=true")
        self._ask((404,), "GET", f"{tables_of(OTHER)}/{first}")


@dataclass
class PagingReader:
    """Walks through the tables in small pages, over and over."""

    port: int
    size: int
    walks: int = 0
    surprises: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Caller(self.port) as caller:
            while not stop.is_set():
                self._check(list_names(caller, self.size))
                self.walks += 1

    def _check(self, names: list[str]) -> None:
        self.surprises += [f"{name} was listed twice" for name, times in Counter(names).items() if times > 1]
        self.surprises += [f"{name} was skipped" for name in STABLE if name not in names]
        if names != sorted(names):
            self.surprises.append(f"listed out of order: {names}")


@dataclass
class Mover:
    """Renames one table to and fro, and nobody else does: every answer is certain."""

    port: int
    surprises: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        here, there = MOVING
        with Caller(self.port) as caller:
            while not stop.is_set():
                body = json.dumps(renaming((STORM, here), (STORM, there))).encode()
                answer = caller.send("POST", "/v1/tables/rename", body)
                if answer.status != 204:
                    self.surprises.append(f"{here} could not be renamed to {there}: {answer}")
                here, there = there, here


@dataclass
class Onlooker:
    """Asks for all tables in one answer, which shows one moment: the table that moves has one name in it."""

    port: int
    surprises: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Caller(self.port) as caller:
            while not stop.is_set():
                listed = caller.expect(200, "GET", tables_of(STORM))["identifiers"]
                names = [identifier["name"] for identifier in listed if identifier["name"] in MOVING]
                if len(names) != 1:
                    self.surprises.append(f"the table that moves has the names {names}")


def list_names(caller: Caller, size: int) -> list[str]:
    names: list[str] = []
    token = ""
    for _ in range(1000):
        page = caller.expect(200, "GET", f"{tables_of(STORM)}?pageToken={token}&pageSize={size}")
        assert len(page["identifiers"]) <= size
        names += [identifier["name"] for identifier in page["identifiers"]]
        token = page.get("next-page-token") or ""
        if not token:
            return names
    raise AssertionError("a list without end")


@dataclass(frozen=True)
class Storm:
    """What came of it: answers by status, walks through all pages, and everything that must not be."""

    statuses: Counter[int]
    walks: int
    surprises: list[str]


def storm(server: RunningServer, chance: random.Random, steps: int) -> Storm:
    with Caller(server.port) as caller:
        for namespace in (STORM, OTHER):
            caller.expect(200, "POST", "/v1/namespaces", {"namespace": [namespace]})
        for name in (*STABLE, MOVING[0]):
            caller.expect(200, "POST", tables_of(STORM), {"name": name, "schema": SCHEMA})
    clients = [Client(number, server.port, random.Random(chance.random()), steps) for number in range(CLIENTS)]
    readers = [PagingReader(server.port, size) for size in (1, 7)]
    others: list[Any] = [*readers, Mover(server.port), Onlooker(server.port)]
    stop = threading.Event()

    with ThreadPoolExecutor(len(clients) + len(others)) as pool:
        reading = [pool.submit(other.run, stop) for other in others]
        fighting = [pool.submit(client.run) for client in clients]
        try:
            for each in fighting:
                each.result()
        finally:
            stop.set()
        for each in reading:
            each.result()

    await_jobs_done(server.data)
    surprises = [surprise for each in (*clients, *others) for surprise in each.surprises]
    statuses = sum((client.statuses for client in clients), Counter[int]())
    return Storm(statuses, sum(reader.walks for reader in readers), surprises + what_is_wrong(server))


def test_a_storm_of_lifecycles_leaves_one_table_for_each_name(server: RunningServer) -> None:
    """MISSION: 000-87"""
    seen = storm(server, seeded("storm"), STEPS)

    show(
        "F17",
        "creates, drops, renames and registers all at once, with readers paging through them",
        requests=seen.statuses.total(),
        clients=CLIENTS,
        walks_through_all_pages=seen.walks,
        server_errors=sum(count for status, count in seen.statuses.items() if status >= 500),
        surprises=len(seen.surprises),
    )
    print(dict(seen.statuses))
    assert seen.surprises[:5] == []
    assert min(seen.statuses[status] for status in (200, 204, 404, 409)) > 0
    assert seen.walks > 0


# What each broken server lets happen, by a word of the sentence that says so.
CANARIES = {"paging-by-offset": "was skipped", "rename-in-two-steps": f"has the names {[*MOVING]}"}


@pytest.mark.parametrize("broken", CANARIES)
def test_a_broken_server_is_found_out_by_the_same_storm(tmp_path: Path, broken: str) -> None:
    """The canaries."""
    with running_server(tmp_path / "data", broken=broken) as server:
        surprises = storm(server, seeded(f"storm-{broken}"), 20).surprises

    assert any(CANARIES[broken] in surprise for surprise in surprises), surprises[:5]


def what_is_wrong(server: RunningServer) -> list[str]:
    """Every name must lead to one whole table of its own, in a folder of its own, that the database knows once."""
    live: dict[tuple[str, str], Any] = {}
    wrong = []
    with Caller(server.port) as caller:
        for (namespace,) in caller.expect(200, "GET", "/v1/namespaces")["namespaces"]:
            for identifier in caller.expect(200, "GET", tables_of(namespace))["identifiers"]:
                name = identifier["name"]
                if (namespace, name) in live:
                    wrong.append(f"{namespace}.{name} is listed twice")
                live[namespace, name] = caller.expect(200, "GET", f"{tables_of(namespace)}/{name}")
    wrong += [f"{name} is gone" for name in STABLE if (STORM, name) not in live]
    for name, loaded in live.items():
        if json.loads(local_path(loaded["metadata-location"]).read_bytes()) != loaded["metadata"]:
            wrong.append(f"{name} is answered differently from what its file says")
    uuids = Counter(loaded["metadata"]["table-uuid"] for loaded in live.values())
    wrong += [f"table {uuid} has two names" for uuid, times in uuids.items() if times > 1]
    places = sorted(PurePosixPath(local_path(loaded["metadata"]["location"])) for loaded in live.values())
    wrong += [f"{place} holds two tables" for place, after in itertools.pairwise(places) if after.is_relative_to(place)]
    with database(server.data) as connection:
        query = "SELECT table_namespace, table_name, metadata_location FROM {} ORDER BY 1, 2"
        pointers, heads = (
            connection.execute(query.format(table)).fetchall() for table in ("iceberg_tables", "nunatak_heads")
        )
    if pointers != heads or {(namespace, name) for namespace, name, _ in pointers} != set(live):
        wrong.append(f"the database has {pointers}, beside that {heads}, and the server lists {sorted(live)}")
    return wrong
