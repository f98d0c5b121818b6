"""kill -9 at random moments under load: what was acknowledged stays, once; nothing points at what is not there (F1)."""

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nunatak.catalog import sweep
from tests.support.catalogs.local import opened_app, settings_of
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.checked import assert_sound
from tests.support.history import FoundTable, findings, kinds_of
from tests.support.promises import show
from tests.support.workload import (
    NAMESPACE,
    SCHEMA,
    TABLES,
    Caller,
    Rotation,
    Run,
    Writer,
    await_jobs_done,
    create_tables,
    find_tables,
    kill_over,
    local_path,
    new_key,
    seeded,
    send_until_answered,
)

# A soak sets more.
KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "8"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "400"))
WRITERS = int(os.environ.get("NUNATAK_TEST_WRITERS", "8"))
ROUNDS = 10  # for a canary; most need one
MOST_LIFE_KILLS = 25  # each meets a handful of requests; more would only take longer
LATER = 1_000_000  # numbers of writers that come after the others


def writers(port: int, tables: Sequence[str] | Rotation, chance: random.Random, count: int) -> Run:
    """Every other one uses keys."""
    return Run(
        [Writer(number, port, tables, random.Random(chance.random()), number % 2 == 0) for number in range(count)]
    )


def test_a_killed_server_loses_doubles_and_dangles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = seeded("kill")
    with running_server(tmp_path / "data") as server:
        tables = Rotation(server.port, open_at_once=max(3, WRITERS // 2), commits=COMMITS)
        run = writers(server.port, tables, chance, WRITERS)

        with run.working():
            kill_over(server, run, chance, KILLS, COMMITS)

        left = orphans(server.data / "warehouse", find_tables(server.data, server.port, tables.names))
        last = move_on(server.port, tables.names, chance)
        found = find_tables(server.data, server.port, tables.names)
    sentences = findings([*run.attempts, *last.attempts], [*run.reads, *last.reads], found)
    monkeypatch.setattr(sweep, "SLEEP_FACTOR", 0)  # nobody asks for anything meanwhile
    swept = asyncio.run(sweep_once(server.data))
    remaining = orphans(server.data / "warehouse", found)
    kinds = kinds_of(sentences)
    show(
        "F1",
        "kill -9 of a server on SQLite loses, doubles and dangles nothing, and its leftovers are swept",
        commits=run.applied,
        kills=KILLS,
        writers=WRITERS,
        tables=len(found),
        reads=len(run.reads),
        **{kind: kinds[kind] for kind in ("lost", "doubled", "dangling", "gap", "stale read", "wrong answer")},
        swept=swept,
        orphans=len(remaining),
        slowest_restart_seconds=round(max(server.restarts), 2),
    )
    print(run.summary())
    assert sentences == []
    assert [attempt for attempt in run.attempts if (attempt.status or 0) >= 500] == []
    assert (swept, remaining) == (len(left), set())
    assert_sound(server.data, age_ms=0)


def orphans(warehouse: Path, tables: Sequence[FoundTable]) -> set[Path]:
    """Metadata files that no line of the commit log names: the leftovers of commits that a kill cut off."""
    named = {local_path(line.metadata_location) for table in tables for line in table.log if line.metadata_location}
    return set(warehouse.rglob("*.metadata.json")) - named


def move_on(port: int, names: Sequence[str], chance: random.Random) -> Run:
    """One more append to each table: a file is swept once its table has passed it, when it can never come to count."""
    run = Run([Writer(LATER + number, port, [name], chance, keyed=True) for number, name in enumerate(names)])
    for writer in run.writers:
        writer.run(lambda done: done >= 1)
    return run


async def sweep_once(data: Path) -> int:
    async with opened_app(settings_of(data)) as app:
        return await sweep.sweep(app.catalog, age_ms=0)


CANARIES = {
    "answer-before-commit": "lost",
    "file-after-pointer": "dangling",
    "no-cas": "lost",
    "no-idempotency": "wrong answer",
    "stale-reads": "stale read",
}


@pytest.mark.parametrize("broken", CANARIES)
def test_a_broken_server_is_found_out_by_the_same_run(tmp_path: Path, broken: str) -> None:
    """The canaries: each of these faults has been somebody's."""
    chance = seeded(f"kill-{broken}")
    kinds: Counter[str] = Counter()
    with running_server(tmp_path / "data", broken=broken) as server:
        for number in range(ROUNDS):
            names = [f"t{number}_{each}" for each in range(3)]
            create_tables(server.port, names)
            run = writers(server.port, names, chance, 6)
            with run.working():
                kill_over(server, run, chance, 1, 30)
            kinds += kinds_of(findings(run.attempts, run.reads, find_tables(server.data, server.port, names)))
            if kinds[CANARIES[broken]]:
                break
    print(f"{broken}: {dict(kinds)}")
    assert kinds[CANARIES[broken]]


@dataclass
class Owner:
    """Leads tables of its own through their whole life, with a key for each request: every answer is certain."""

    mark: int
    port: int
    random: random.Random
    lives: int = 0
    surprises: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Caller(self.port) as caller:
            while not stop.is_set():
                first, second = (f"own_{self.mark}_{self.lives}_{which}" for which in "ab")
                created = self._ask(caller, 200, "POST", TABLES, {"name": first, "schema": SCHEMA})
                self._ask(
                    caller, 204, "POST", "/v1/tables/rename", {"source": named(first), "destination": named(second)}
                )
                self._ask(caller, 204, "DELETE", f"{TABLES}/{second}")
                wanted = {"name": first, "metadata-location": created.get("metadata-location")}
                again = self._ask(caller, 200, "POST", f"/v1/namespaces/{NAMESPACE}/register", wanted)
                if again != created:
                    self.surprises.append(f"{first} came back as {again}")
                self._ask(caller, 204, "DELETE", f"{TABLES}/{first}?purgeRequested=true")
                self.lives += 1

    def _ask(self, caller: Caller, expected: int, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        answer = send_until_answered(caller, method, path, content, new_key(self.random))
        if answer.status != expected:
            self.surprises.append(f"{method} {path}: {answer}")
        return answer.json if answer.status == 200 else {}


def named(table: str) -> dict[str, Any]:
    return {"namespace": [NAMESPACE], "name": table}


def lead_lives(server: RunningServer, chance: random.Random, kills: int) -> list[Owner]:
    """Owners at work while the server is killed."""
    create_tables(server.port, [])
    owners = [Owner(chance.getrandbits(32), server.port, random.Random(chance.random())) for _ in range(4)]
    stop = threading.Event()
    with ThreadPoolExecutor(len(owners)) as pool:
        running = [pool.submit(owner.run, stop) for owner in owners]
        try:
            for _ in range(kills):
                time.sleep(chance.uniform(0.1, 0.5))
                server.kill()
                server.restart()
        finally:
            stop.set()
    for each in running:
        each.result()
    print(f"{[owner.lives for owner in owners]} lives")
    return owners


def test_the_life_of_a_table_is_certain_although_the_server_is_killed(tmp_path: Path) -> None:
    """A create that is sent again must not meet itself, nor a drop the hole it left."""
    with running_server(tmp_path / "data") as server:
        owners = lead_lives(server, seeded("lives"), min(KILLS // 2, MOST_LIFE_KILLS))

        assert [surprise for owner in owners for surprise in owner.surprises] == []
        assert sum(owner.lives for owner in owners) > 0
        await_jobs_done(server.data)
        with Caller(server.port) as caller:
            assert caller.expect(200, "GET", TABLES)["identifiers"] == []


def test_a_server_that_forgets_what_it_did_for_a_key_is_found_out(tmp_path: Path) -> None:
    """The canary of the lives."""
    chance = seeded("lives-broken")
    with running_server(tmp_path / "data", broken="no-idempotency") as server:
        for _ in range(ROUNDS):
            if any(owner.surprises for owner in lead_lives(server, chance, 1)):
                return
    raise AssertionError("nobody was surprised: the test would not notice")
