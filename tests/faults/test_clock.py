"""Clocks that jump by ten minutes, each server's on its own: what is told in times stays in order (F11)."""

import itertools
import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nunatak.catalog import write
from nunatak.iceberg import updates
from tests.support.model import Answer, Request
from tests.support.model_servers import MOMENT, ModelServers, database_of, in_memory
from tests.support.promises import show
from tests.support.workload import SCHEMA, append_to, new_key, seeded

COMMITS = int(os.environ.get("NUNATAK_TEST_CLOCK_COMMITS", "120"))
JUMP_MS = 600_000
TOLERATED_MS = 60_000  # how far a snapshot may lie before the one before it
NAMESPACE = ("n",)
NAMES = ("t1", "t2")


class JumpingClock:
    """Runs on, and now and then is ten minutes early or late."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._true_ms = MOMENT
        self._error_ms = 0
        self.jumps = 0

    def __call__(self) -> int:
        self._true_ms += self._chance.choice([0, 0, 1, 30])
        if self._chance.random() < 0.05:
            self.jump()
        return self._true_ms + self._error_ms

    def jump(self) -> None:
        self._error_ms = self._chance.choice([each for each in (-JUMP_MS, 0, JUMP_MS) if each != self._error_ms])
        self.jumps += 1


class ServersWithClocks(ModelServers):
    """Each server has a clock of its own."""

    def __init__(self, folder: Path, chance: random.Random, database_url: str = "", servers: int = 1) -> None:
        self.clocks = [JumpingClock(random.Random(chance.random())) for _ in range(servers)]
        super().__init__(folder, database_url, servers)

    def clock(self, number: int) -> Callable[[], int]:
        return self.clocks[number]


@dataclass
class Seen:
    """What a run showed: snapshots by table, and what must not be, one sentence each."""

    applied: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in NAMES})
    replays: int = 0
    wrong: list[str] = field(default_factory=list)


def commit_under_jumps(servers: ServersWithClocks, chance: random.Random, commits: int) -> Seen:
    """Appends, roll-backs and new properties from two clients at a time; what has a key is sent again after a jump."""
    seen, numbers = Seen(), itertools.count(1)
    servers.new_warehouse()
    expect(servers.send(Request("createNamespace", body={"namespace": list(NAMESPACE), "properties": {}}), 0))
    for name in NAMES:
        expect(servers.send(Request("createTable", NAMESPACE, {"name": name, "schema": SCHEMA, "properties": {}}), 0))
    while sum(map(len, seen.applied.values())) < commits:
        turn = next(numbers)
        requests = [a_commit(servers, name, chance, turn) for name in chance.choices(NAMES, k=2)]
        answers = servers.send_together(requests, turn)
        for request, answer in zip(requests, answers, strict=True):
            look_at(request, answer, seen)
            send_again(servers, request, answer, turn, seen)
        once = Request("createNamespace", body={"namespace": [f"n{turn}"], "properties": {}}, key=new_key(chance))
        send_again(servers, once, servers.send(once, turn), turn, seen)
    for name in NAMES:
        look_back(servers, name, seen)
    return seen


def a_commit(servers: ModelServers, name: str, chance: random.Random, turn: int) -> Request:
    """A client that tells time by the table, as one does whose clock agrees with the server's."""
    loaded = expect(servers.send(Request("loadTable", (NAMESPACE, name)), turn))["metadata"]
    known = [snapshot["snapshot-id"] for snapshot in loaded["snapshots"]]
    body: dict[str, Any]
    what = chance.random()
    if what < 0.2:
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"turn": str(turn)}}]}
    elif known and what < 0.35:
        back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": chance.choice(known)}
        body = {"requirements": [], "updates": [back]}
    else:
        body = append_to(name, loaded, chance.getrandbits(62) + 1, "clock")
        body["identifier"]["namespace"] = list(NAMESPACE)
        times = [entry["timestamp-ms"] for entry in loaded["snapshot-log"]]
        body["updates"][0]["snapshot"]["timestamp-ms"] = max([loaded["last-updated-ms"], *times])
    key = new_key(chance) if chance.random() < 0.5 else None
    return Request("updateTable", (NAMESPACE, name), body, key=key)


def look_at(request: Request, answer: Answer, seen: Seen) -> None:
    """A commit is applied or in conflict, whatever time it is."""
    name = str(request.target[1])  # type: ignore[index]
    if answer.status not in (200, 409):
        seen.wrong.append(f"answered {answer.status} {answer.body}")
    if answer.status == 200:
        added = [each["snapshot"]["snapshot-id"] for each in (request.body or {})["updates"] if "snapshot" in each]
        seen.applied[name] |= set(added)
        log = answer.body["metadata"]["metadata-log"]
        if log and answer.body["metadata"]["last-updated-ms"] <= log[-1]["timestamp-ms"]:
            seen.wrong.append(f"went back: {name} was updated before its last version")


def send_again(servers: ServersWithClocks, request: Request, answer: Answer, turn: int, seen: Seen) -> None:
    """With its key, and after a jump, it is answered as it was."""
    if request.key is None:
        return
    seen.replays += 1
    servers.clocks[turn % len(servers.clocks)].jump()
    again = servers.send(request, turn)
    if (again.status, again.body) != (answer.status, answer.body):
        seen.wrong.append(f"forgotten: a key that was answered {answer.status} is answered {again.status}")


def look_back(servers: ModelServers, name: str, seen: Seen) -> None:
    """The history of a table, by each server."""
    for which in range(len(servers.catalogs)):
        answer = servers.send(Request("loadTable", (NAMESPACE, name)), which)
        metadata = expect(answer)["metadata"]
        versions = [entry["timestamp-ms"] for entry in metadata["metadata-log"]] + [metadata["last-updated-ms"]]
        if any(after <= before for before, after in pairwise(versions)):
            seen.wrong.append(f"went back: the versions of {name} have the times {versions}")
        times = [entry["timestamp-ms"] for entry in metadata["snapshot-log"]]
        if any(after < before - TOLERATED_MS for before, after in pairwise(times)):
            seen.wrong.append(f"went back: the snapshots of {name} became current at {times}")
        held = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
        if held != seen.applied[name]:
            seen.wrong.append(f"lost or doubled: {name} holds {len(held)} of {len(seen.applied[name])} snapshots")
        if servers.send(Request("loadTable", (NAMESPACE, name)), which + 1, match=answer.etag).status != 304:
            seen.wrong.append(f"the ETag of {name} changed without a change")


def expect(answer: Answer) -> Any:
    assert answer.status == 200, answer
    return answer.body


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def backend(request: pytest.FixtureRequest) -> Iterator[tuple[str, ServersWithClocks, random.Random]]:
    """Where several servers may share a database, there are two, and their clocks jump each by itself."""
    name: str = request.param
    chance = seeded(f"clock-{name}")
    with in_memory() as folder, database_of(name) as url:
        servers = ServersWithClocks(folder, chance, url, servers=2 if url else 1)
        try:
            yield name, servers, chance
        finally:
            servers.close()


@pytest.mark.timeout(max(600, COMMITS))
def test_jumping_clocks_put_nothing_out_of_order(backend: tuple[str, ServersWithClocks, random.Random]) -> None:
    name, servers, chance = backend
    seen = commit_under_jumps(servers, chance, COMMITS)
    jumps = sum(clock.jumps for clock in servers.clocks)
    show(
        "F11",
        f"{name}: clocks that jump by ten minutes put nothing out of order",
        commits=sum(map(len, seen.applied.values())),
        jumps=jumps,
        replays=seen.replays,
        wrong=len(seen.wrong),
    )
    assert seen.wrong == []
    assert jumps > COMMITS // 10


def test_a_client_whose_clock_is_wrong_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A snapshot from ten minutes ago, or from the future, would put the table's history out of order."""
    servers = ModelServers(tmp_path)
    try:
        servers.new_warehouse()
        expect(servers.send(Request("createNamespace", body={"namespace": list(NAMESPACE), "properties": {}}), 0))
        expect(servers.send(Request("createTable", NAMESPACE, {"name": "t1", "schema": SCHEMA, "properties": {}}), 0))
        for number, (error_ms, status) in enumerate([(0, 200), (-JUMP_MS, 400), (JUMP_MS, 400), (30_000, 200)], 1):
            before = expect(servers.send(Request("loadTable", (NAMESPACE, "t1")), 0))
            body = append_to("t1", before["metadata"], number, "clock")
            body["identifier"]["namespace"] = list(NAMESPACE)
            body["updates"][0]["snapshot"]["timestamp-ms"] = servers.now_ms + error_ms
            assert servers.send(Request("updateTable", (NAMESPACE, "t1"), body), 0).status == status
            after = expect(servers.send(Request("loadTable", (NAMESPACE, "t1")), 0))
            assert (after == before) == (status != 200)
    finally:
        servers.close()


def test_a_key_is_remembered_as_long_as_promised_and_then_forgotten(tmp_path: Path) -> None:
    servers = ModelServers(tmp_path)
    try:
        servers.new_warehouse()
        create = Request("createNamespace", body={"namespace": ["m"], "properties": {}}, key=str(uuid.uuid4()))
        expect(servers.send(create, 0))
        for minutes in (-10, 10, 29):
            servers.now_ms = MOMENT + minutes * 60_000
            assert servers.send(create, 0).status == 200
        servers.now_ms = MOMENT + 36 * 60_000
        assert servers.send(create, 0).status == 409  # taken for a new request, and it exists already
    finally:
        servers.close()


# Canaries


def _times_are_the_clocks(patch: pytest.MonkeyPatch) -> None:
    honest = updates._TableDraft.__init__

    def begin(self: updates._TableDraft, base: Any, *, is_new: bool, now_ms: int) -> None:
        honest(self, base, is_new=is_new, now_ms=now_ms)
        self.last_updated_ms = now_ms

    patch.setattr(updates._TableDraft, "__init__", begin)


def _keys_live_five_minutes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write, "GRACE_SECONDS", -1500)


@pytest.mark.parametrize(
    ("mistake", "found"), [(_times_are_the_clocks, "went back"), (_keys_live_five_minutes, "forgotten")]
)
def test_a_server_that_trusts_its_clock_is_found_out(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None], found: str
) -> None:
    chance = seeded(f"clock-canary-{found}")
    mistake(monkeypatch)
    with in_memory() as folder:
        servers = ServersWithClocks(folder, chance)
        try:
            seen = commit_under_jumps(servers, chance, 100)
        finally:
            servers.close()
    print(seen.wrong[:3])
    assert [sentence for sentence in seen.wrong if sentence.startswith(found)]
