"""The connection between a server and PostgreSQL is cut at every message of a change, also between COMMIT and its
reply: the answer is true, and what is sent again happens once (F6)."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs.cluster import Cluster, running_cluster
from tests.support.cluster_clients import proxied
from tests.support.found import find_tables
from tests.support.history import findings, outcome_of
from tests.support.postgres import NOT_INSTALLED, PostgresServer, execute, find_binaries, running_postgres
from tests.support.postgres_proxy import Cut, PostgresProxy, is_query, nth_message
from tests.support.promises import show
from tests.support.workload import (
    NAMESPACE,
    SCHEMA,
    TABLES,
    TRANSACTIONS,
    Answer,
    Caller,
    Run,
    Writer,
    append_to,
    create_tables,
    new_key,
    seeded,
)

# How often each message is cut at each moment; without a number, each message once at one moment chosen by chance.
REPEATS = int(os.environ.get("NUNATAK_TEST_CUTS", "0"))
MOST_MESSAGES = 200  # of one change
TOGETHER = 4  # commits that are sent at once
WRITERS = 12
APPENDS = int(os.environ.get("NUNATAK_TEST_COMMITS", "96")) // WRITERS  # per writer
CUT_SHARE = 0.02  # of all messages
COMMIT = is_query("COMMIT")
NUMBERS = itertools.count(1)

LINES = "SELECT count(*) FROM nunatak_commits WHERE table_name LIKE $1 || '%'"
NAMESPACES = "SELECT count(*) FROM iceberg_namespace_properties WHERE namespace = $1 AND property_key = 'exists'"
AUDIT_ROWS = "SELECT count(*) FROM nunatak_audit WHERE securable = 'default' || chr(31) || $1 || '.'"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as server:  # connections are cut here, nobody's power
        yield server


@dataclass(frozen=True)
class Place:
    """A server whose connections to the database can be cut."""

    cluster: Cluster
    proxy: PostgresProxy
    direct: str  # the database's address that nobody cuts

    @property
    def port(self) -> int:
        return self.cluster.ports[0]

    def count(self, query: str, name: str) -> int:
        ((found,),) = asyncio.run(execute(self.direct, query, name))
        return int(found)


@pytest.fixture(scope="module")
def place(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running_place(postgres, tmp_path_factory.mktemp("cuts") / "data") as running:
        yield running


@contextlib.contextmanager
def running_place(postgres: PostgresServer, data: Path, broken: str | None = None) -> Iterator[Place]:
    direct = postgres.new_database()
    with (
        proxied(postgres.port, direct) as (proxy, address),
        running_cluster(data, address, count=1, broken=broken) as cluster,
    ):
        create_tables(cluster.ports[0], [])
        yield Place(cluster, proxy, direct)


# One change, cut at each of its messages

Request = tuple[str, str, Any]


@dataclass(frozen=True)
class Operation:
    """A change of something named for it alone: `query` counts by how much it happened, which is 0 or `effect`."""

    request: Callable[[Caller, str], Request]
    success: int
    keyed: bool
    effect: int = 1
    query: str = LINES


def a_table(caller: Caller, name: str) -> str:
    caller.expect(200, "POST", TABLES, {"name": name, "schema": SCHEMA})
    return name


def an_append(caller: Caller, name: str) -> dict[str, Any]:
    return append_to(name, caller.expect(200, "GET", f"{TABLES}/{a_table(caller, name)}")["metadata"], 11, name)


def commit(caller: Caller, name: str) -> Request:
    return "POST", f"{TABLES}/{name}", an_append(caller, name)


def transaction(caller: Caller, name: str) -> Request:
    return "POST", TRANSACTIONS, {"table-changes": [an_append(caller, f"{name}{each}") for each in "abc"]}


def create(_: Caller, name: str) -> Request:
    return "POST", TABLES, {"name": name, "schema": SCHEMA}


def drop(caller: Caller, name: str) -> Request:
    return "DELETE", f"{TABLES}/{a_table(caller, name)}", None


def rename(caller: Caller, name: str) -> Request:
    names = [{"namespace": [NAMESPACE], "name": each} for each in (a_table(caller, name), f"{name}new")]
    return "POST", "/v1/tables/rename", {"source": names[0], "destination": names[1]}


def create_namespace(_: Caller, name: str) -> Request:
    return "POST", "/v1/namespaces", {"namespace": [name]}


def drop_namespace(caller: Caller, name: str) -> Request:
    caller.expect(200, "POST", "/v1/namespaces", {"namespace": [name]})
    return "DELETE", f"/v1/namespaces/{name}", None


def update_namespace(caller: Caller, name: str) -> Request:
    caller.expect(200, "POST", "/v1/namespaces", {"namespace": [name]})
    return "POST", f"/v1/namespaces/{name}/properties", {"updates": {"color": "red"}}


OPERATIONS = {
    "commit": Operation(commit, 200, keyed=False),
    "commit with key": Operation(commit, 200, keyed=True),
    "transaction": Operation(transaction, 204, keyed=False, effect=3),
    "transaction with key": Operation(transaction, 204, keyed=True, effect=3),
    "create": Operation(create, 200, keyed=True),
    "drop": Operation(drop, 204, keyed=True),
    "rename": Operation(rename, 204, keyed=True),
    "create namespace": Operation(create_namespace, 200, keyed=True, query=NAMESPACES),
    "drop namespace": Operation(drop_namespace, 204, keyed=True, query=NAMESPACES, effect=-1),
    "create namespace and its audit row": Operation(create_namespace, 200, keyed=True, query=AUDIT_ROWS),
    "update namespace and its audit row": Operation(update_namespace, 200, keyed=True, query=AUDIT_ROWS),
    "drop namespace and its audit row": Operation(drop_namespace, 204, keyed=True, query=AUDIT_ROWS),
}


@dataclass(frozen=True)
class Sent:
    """A change that was prepared, so that sending it is all that happens while a cut is awaited."""

    place: Place
    operation: Operation
    name: str
    request: Request
    key: str | None
    before: int

    def send(self) -> Answer:
        method, path, body = self.request
        with Caller(self.place.port) as caller:
            return caller.send(method, path, None if body is None else json.dumps(body).encode(), self.key)

    def judge(self, answer: Answer) -> list[str]:
        """What is wrong with this answer, seen from the database."""
        done = self.place.count(self.operation.query, self.name) - self.before
        what = f"{self.operation.request.__name__} was answered {answer.status} and is there {done} times"
        if done not in (0, self.operation.effect):
            return [f"torn or doubled: {what}"]
        if outcome_of(answer.status) == ("refused" if done else "applied"):
            return [f"wrong answer: {what}"]
        return [] if answer.status in (self.operation.success, 500, 503) else [f"wrong answer: {what}"]

    def judge_again(self) -> list[str]:
        """What is wrong when it is sent again, with the connection whole."""
        answer = self.send()
        if answer.status != self.operation.success:
            return [f"not repeatable: {self.operation.request.__name__} was answered {answer}"]
        return self.judge(answer)


def prepared(place: Place, operation: Operation, chance: random.Random) -> Sent:
    name = f"x{next(NUMBERS):05}"
    with Caller(place.port) as caller:
        request = operation.request(caller, name)
    key = new_key(chance) if operation.keyed else None
    return Sent(place, operation, name, request, key, place.count(operation.query, name))


def moments_of(chance: random.Random) -> Sequence[Cut]:
    return list(Cut) * REPEATS if REPEATS else [chance.choice(list(Cut))]


@dataclass
class Seen:
    """What cuts at all messages of a change showed."""

    found: list[str]
    statuses: list[int]
    messages: int = 0


def cut_at_each_message(place: Place, chance: random.Random, operation: Operation, together: int = 1) -> Seen:
    """So many changes at once, again and again, with a cut one message later each time: until there is none left."""
    seen = Seen([], [])
    with ThreadPoolExecutor(together) as pool:
        for number in range(MOST_MESSAGES):
            for moment in moments_of(chance):
                changes = [prepared(place, operation, chance) for _ in range(together)]
                place.proxy.cut_at_next(nth_message(number), moment)
                answers = list(pool.map(Sent.send, changes))
                if not place.proxy.disarm():
                    seen.messages = number
                    return seen
                for change, answer in zip(changes, answers, strict=True):
                    wrong = [*change.judge(answer), *change.judge_again()]
                    seen.found += [f"cut {moment.name} at message {number}: {sentence}" for sentence in wrong]
                    seen.statuses.append(answer.status)
    raise AssertionError(f"more than {MOST_MESSAGES} messages")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_change_cut_at_any_message_is_answered_truly_and_happens_once(place: Place, name: str) -> None:
    seen = cut_at_each_message(place, seeded(f"cuts {name}"), OPERATIONS[name])

    assert seen.found == []
    assert seen.messages > 3
    show_seen(name, seen)


def test_commits_in_one_batch_cut_at_any_message_are_answered_truly_and_happen_once(place: Place) -> None:
    seen = cut_at_each_message(place, seeded("cuts batch"), OPERATIONS["commit"], TOGETHER)

    assert seen.found == []
    show_seen(f"{TOGETHER} commits at once", seen)


def show_seen(what: str, seen: Seen) -> None:
    show(
        "F6",
        f"{what}, connection cut at each message to PostgreSQL",
        messages=seen.messages,
        cuts=len(seen.statuses),
        answered_503=seen.statuses.count(503),
        answered_500=seen.statuses.count(500),
        findings=len(seen.found),
    )


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if not name.startswith("commit")])
def test_a_change_cut_at_its_commit_is_found_again_and_answered_as_done(place: Place, name: str, moment: Cut) -> None:
    """By its line in the log, or by what became of its transaction; the client hears of no error."""
    change = prepared(place, OPERATIONS[name], seeded(f"commit {name} {moment.name}"))
    place.proxy.cut_at_next(COMMIT, moment)

    answer = change.send()

    assert place.proxy.disarm()
    assert answer.status == change.operation.success
    assert [*change.judge(answer), *change.judge_again()] == []


@pytest.mark.parametrize("moment", Cut, ids=lambda moment: moment.name)
def test_an_update_cut_at_its_commit_is_audited_once_also_without_a_key(place: Place, moment: Cut) -> None:
    """Doing it twice would do no harm, but say twice that it was done."""
    change = prepared(place, Operation(update_namespace, 200, keyed=False, query=AUDIT_ROWS), random.Random(1))
    place.proxy.cut_at_next(COMMIT, moment)

    answer = change.send()

    assert place.proxy.disarm()
    assert (answer.status, change.judge(answer)) == (200, [])


def test_a_server_that_does_not_ask_after_a_lost_commit_is_found_out(postgres: PostgresServer, tmp_path: Path) -> None:
    """The canary: it creates the table again, meets itself, and denies what it did.

    Now and then the server commits on its own behalf at that moment, and the cut meets that; so it has a few tries.
    """
    found: list[str] = []
    with running_place(postgres, tmp_path / "data", "no-resolution") as place:
        for _ in range(5):
            change = prepared(place, Operation(create, 200, keyed=False), random.Random(1))
            place.proxy.cut_at_next(COMMIT, Cut.AFTER)

            answer = change.send()

            assert place.proxy.disarm()
            found = change.judge(answer)
            if found:
                break

    assert found == ["wrong answer: create was answered 409 and is there 1 times"]


# Many writers, cut at random


def test_writers_whose_server_is_cut_off_the_database_at_random_lose_and_double_nothing(place: Place) -> None:
    """More writers than statements on their way, so that commits travel in batches."""
    chance = seeded("random cuts")
    names = [f"r{number}" for number in range(WRITERS)]
    create_tables(place.port, names)
    before = counted(place.port)
    # Every other writer has a table of its own; the others meet on theirs.
    run = Run(
        [
            Writer(number, place.port, [name] if number % 2 else names[::2], random.Random(chance.random()), number < 6)
            for number, name in enumerate(names)
        ]
    )

    place.proxy.choose = lambda *_: chance.choice(list(Cut)) if chance.random() < CUT_SHARE else None
    cuts = place.proxy.cuts
    try:
        run.each_carries_out(APPENDS)
    finally:
        place.proxy.choose = None

    print(run.summary())
    assert findings(run.attempts, run.reads, find_tables(place.direct, place.port, names)) == []
    cuts = place.proxy.cuts - cuts
    assert cuts > 0
    batches, batched = (now - then for now, then in zip(counted(place.port), before, strict=True))
    assert batched > batches
    show("F6", "random cuts under load", commits=run.applied, cuts=cuts, unknown=run.count("unknown"), findings=0)


def counted(port: int) -> tuple[float, float]:
    """How many statements carried commits so far, and how many commits they carried."""
    with Caller(port) as caller:
        text = caller.send("GET", "/metrics").body.decode()
    lines = [f'^nunatak_database_{name}_total{{of="commits"}} (.*)$' for name in ("batches", "batched")]
    batches, batched = (float(re.findall(line, text, re.MULTILINE)[0]) for line in lines)
    return batches, batched
