"""kill -9 at random moments under load: what was acknowledged stays, once; nothing points at what is not there (F1)."""

import dataclasses
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.history import findings
from tests.support.workload import (
    NAMESPACE,
    SCHEMA,
    TABLES,
    Caller,
    Run,
    Writer,
    await_jobs_done,
    create_tables,
    find_tables,
    kill_again_and_again,
    mortal_server,
    new_key,
    seeded,
    send_until_answered,
)

# Per variant; a night's run sets more.
KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "10"))
WRITERS = 8
NAMES = ("t1", "t2", "t3")


@pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "without keys"])
def test_a_killed_server_loses_doubles_and_dangles_nothing(tmp_path: Path, keyed: bool) -> None:
    chance = seeded(f"kill-{keyed}")
    with mortal_server(tmp_path / "data") as server:
        create_tables(server.port, NAMES)
        writers = [
            Writer(number, server.port, NAMES, random.Random(chance.random()), keyed) for number in range(WRITERS)
        ]
        run = Run(writers)

        with run.working():
            kill_again_and_again(server, run, chance, KILLS)

        tables = find_tables(server.data, server.port, NAMES)
        print(run.summary())
        assert [attempt for attempt in run.attempts if (attempt.status or 0) >= 500] == []
        assert findings(run.attempts, run.reads, tables) == []
        with Caller(server.port) as caller:
            assert caller.expect(200, "GET", "/ready") == {"status": "ready"}

    # The canary: had the run lost or doubled but one commit, the line above would have said so.
    applied = [attempt for attempt in run.attempts if attempt.outcome == "applied"]
    assert len(applied) > KILLS
    one = chance.choice(applied)
    ((name, snapshot_id),) = one.snapshots.items()
    forgotten = [attempt for attempt in run.attempts if attempt is not one]
    assert f"foreign: nobody made snapshot {snapshot_id} of {name}" in findings(forgotten, run.reads, tables)
    again = dataclasses.replace(one, snapshots={name: snapshot_id + 1})
    assert f"lost: {one.intent} was answered 200 but is not in {name}" in findings(
        [*run.attempts, again], run.reads, tables
    )


@dataclass
class Owner:
    """Leads tables of its own through their whole life, with a key for each request: every answer is certain."""

    number: int
    port: int
    random: random.Random
    lives: int = 0
    surprises: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Caller(self.port) as caller:
            while not stop.is_set():
                first, second = (f"own_{self.number}_{self.lives}_{which}" for which in "ab")
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


def test_the_life_of_a_table_is_certain_although_the_server_is_killed(tmp_path: Path) -> None:
    """A create that is sent again must not meet itself, nor a drop the hole it left."""
    chance = seeded("lives")
    with mortal_server(tmp_path / "data") as server:
        create_tables(server.port, [])
        owners = [Owner(number, server.port, random.Random(chance.random())) for number in range(4)]
        stop = threading.Event()
        with ThreadPoolExecutor(len(owners)) as pool:
            running = [pool.submit(owner.run, stop) for owner in owners]
            try:
                for _ in range(KILLS // 2):
                    time.sleep(chance.uniform(0.1, 0.5))
                    server.kill()
                    server.restart()
            finally:
                stop.set()
        for each in running:
            each.result()

        print(f"{[owner.lives for owner in owners]} lives")
        assert [surprise for owner in owners for surprise in owner.surprises] == []
        assert sum(owner.lives for owner in owners) > 0
        await_jobs_done(server.data)
        with Caller(server.port) as caller:
            assert caller.expect(200, "GET", TABLES)["identifiers"] == []
