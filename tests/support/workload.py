"""Writers that append to tables over HTTP and note what they saw for the history checker, and the servers they suffer.

An append is metadata only: the catalog is under test, not the data files. What the catalog holds afterwards is in
found.py.
"""

import json
import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.support.caller import ANSWER_SECONDS, Answer, Caller, Lost
from tests.support.catalogs.process import RunningServer
from tests.support.found import RESEND_SECONDS, await_jobs_done, await_true, database, find_tables, local_path, tries
from tests.support.history import Attempt, Read, current_snapshot

__all__ = [  # what the fault tests take from here, wherever it is written
    "NAMESPACE", "RESEND_SECONDS", "SCHEMA", "SEED_VARIABLE", "TABLES", "TRANSACTIONS",
    "Answer", "Caller", "Lost", "Rotation", "Run", "Writer",
    "append_to", "await_jobs_done", "await_true", "create_tables", "database", "find_tables", "kill_again_and_again",
    "kill_over", "local_path", "new_key", "seeded", "send_until_answered", "tries",
]  # fmt: skip

MOST_REFUSALS = 50  # of one intent; somebody else got through each time, or a server refuses its own success
SEED_VARIABLE = "NUNATAK_TEST_SEED"
NAMESPACE = "faults"
TABLES = f"/v1/namespaces/{NAMESPACE}/tables"
TRANSACTIONS = "/v1/transactions/commit"
COME_BACK_LATER = (429, 503)  # certain that nothing was done; the same request is sent again
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


def seeded(name: str) -> random.Random:
    """Chance that can be repeated: the seed is printed, and taken from the environment if it is there."""
    seed = os.environ.get(SEED_VARIABLE) or secrets.token_hex(4)
    print(f"{name}: {SEED_VARIABLE}={seed}")
    return random.Random(f"{seed}/{name}")


def new_key(chance: random.Random) -> str:
    """An Idempotency-Key that a seed repeats."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def send_until_answered(caller: Caller, method: str, path: str, body: bytes | None, key: str) -> Answer:
    """The answer to a request that is sent again as it was for as long as the connection gets lost."""
    for _ in tries():
        try:
            return caller.send(method, path, body, key)
        except Lost:
            continue
    raise AssertionError(f"no answer to {method} {path} in {RESEND_SECONDS} seconds")


def create_tables(port: int, names: Sequence[str]) -> None:
    """Empty tables in the workload's namespace, which may be there already."""
    with Caller(port) as caller:
        caller.send("POST", "/v1/namespaces", json.dumps({"namespace": [NAMESPACE]}).encode())
        for name in names:
            caller.expect(200, "POST", TABLES, {"name": name, "schema": SCHEMA})


def append_to(name: str, metadata: Mapping[str, Any], snapshot_id: int, intent: str) -> dict[str, Any]:
    """The change of one table that adds a snapshot on top of the one that was read."""
    current = current_snapshot(metadata)
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "summary": {"operation": "append", "intent": intent},
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "schema-id": 0,
        **({} if current is None else {"parent-snapshot-id": current}),
    }
    return {
        "identifier": {"namespace": [NAMESPACE], "name": name},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    }


class Shown(msgspec.Struct, rename="kebab"):
    """What a writer needs to see of a table; the rest of the answer is not even looked at."""

    table_uuid: str
    location: str
    last_sequence_number: int
    current_snapshot_id: int | None = None


class _Load(msgspec.Struct):
    metadata: Shown


class Rotation:
    """Tables that give way to the next ones after some commits each, so that metadata stays small in a long run."""

    def __init__(self, port: int, *, open_at_once: int, commits: int, commits_each: int = 50) -> None:
        self.names = [f"r{number}" for number in range(open_at_once + commits // commits_each)]
        self._open = self.names[:open_at_once]
        self._next = iter(self.names[open_at_once:])
        self._commits_each = commits_each
        self._counts = dict.fromkeys(self.names, 0)
        self._lock = threading.Lock()
        create_tables(port, self.names)

    def choose(self, chance: random.Random) -> str:
        return chance.choice(self._open)

    def committed(self, name: str) -> None:
        """Count a commit; the one that fills its table up opens the next one."""
        with self._lock:
            self._counts[name] += 1
            if self._counts[name] == self._commits_each and (new := next(self._next, None)) is not None:
                self._open[self._open.index(name)] = new


@dataclass
class Writer:
    """Appends until told to stop, one thing after the other. A lost request is sent again as it was; after a conflict
    the same intent is tried with a new append."""

    number: int
    port: int
    tables: Sequence[str] | Rotation
    random: random.Random
    keyed: bool
    all_tables_at_once: bool = False
    may_give_up: bool = True  # now and then leave a lost request alone: it is unknown whether it happened
    resend_as_new: bool = False  # the mistake that the checker must find
    answer_seconds: float = ANSWER_SECONDS
    attempts: list[Attempt] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    applied: int = 0
    abandoned: threading.Event = field(default_factory=threading.Event)  # the run has failed: wait for nobody

    def run(self, stop: Callable[[int], bool]) -> None:
        """Carry out intents until `stop`, which is asked with their number before each."""
        done = 0
        with self.caller() as caller:
            while not stop(done):
                self._carry_out(caller, f"w{self.number}-{done}")
                done += 1
                time.sleep(self.random.uniform(0, 0.02))  # let the other writers in between

    def caller(self) -> Caller:
        return Caller(self.port, self.answer_seconds)

    def _choose(self) -> list[str]:
        if isinstance(self.tables, Rotation):
            return [self.tables.choose(self.random)]
        return list(self.tables) if self.all_tables_at_once else [self.random.choice(self.tables)]

    def _carry_out(self, caller: Caller, intent: str) -> None:
        chosen = self._choose()
        for _ in range(MOST_REFUSALS):
            loaded = {name: self._load(caller, name) for name in chosen}
            snapshots = {name: self.random.getrandbits(62) + 1 for name in chosen}
            changes = [append_to(name, loaded[name], snapshots[name], intent) for name in chosen]
            path = TRANSACTIONS if self.all_tables_at_once else f"{TABLES}/{chosen[0]}"
            body = json.dumps({"table-changes": changes} if self.all_tables_at_once else changes[0]).encode()
            started = time.monotonic()
            status = self._send(caller, path, body)
            attempt = Attempt(intent, snapshots, started, time.monotonic(), status)
            self.attempts.append(attempt)
            if attempt.outcome == "applied":
                self.applied += 1
                if isinstance(self.tables, Rotation):
                    self.tables.committed(chosen[0])
            if attempt.outcome != "refused" and not (self.resend_as_new and status is None):
                return

    def _send(self, caller: Caller, path: str, body: bytes) -> int | None:
        """The status of the first answer that comes, or None if the writer gave up."""
        key = new_key(self.random) if self.keyed else None
        gives_up = self.resend_as_new or (self.may_give_up and self.random.random() < 0.2)
        for _ in tries(self.abandoned):
            try:
                answer = caller.send("POST", path, body, key)
            except Lost:
                if gives_up:
                    return None
                continue
            if answer.status not in COME_BACK_LATER:
                return answer.status
        raise AssertionError(f"no answer to POST {path} in {RESEND_SECONDS} seconds")

    def _load(self, caller: Caller, name: str) -> dict[str, Any]:
        # Every other writer asks for all snapshots, which the server answers in another way.
        mode = ("refs", "all")[self.number % 2]
        for _ in tries(self.abandoned):
            started = time.monotonic()
            try:
                answer = caller.send("GET", f"{TABLES}/{name}?snapshots={mode}")
            except Lost:
                continue
            if answer.status >= 500:
                continue  # it says that it cannot tell; nothing was read
            assert answer.status == 200, answer
            metadata = msgspec.to_builtins(msgspec.json.decode(answer.body, type=_Load).metadata)
            self.reads.append(Read(name, current_snapshot(metadata), started, time.monotonic()))
            return metadata
        raise AssertionError(f"no answer to a load of {name} in {RESEND_SECONDS} seconds")


@dataclass
class Run:
    """Writers at work, each in a thread; leaving the block stops them and waits until each has its last answer."""

    writers: Sequence[Writer]
    _running: "list[Future[None]]" = field(default_factory=list)

    @contextmanager
    def working(self) -> Iterator[None]:
        stop = threading.Event()
        with self._start(lambda _: stop.is_set()):
            try:
                yield
            finally:
                stop.set()

    def each_carries_out(self, count: int) -> None:
        with self._start(lambda done: done >= count):
            pass

    @contextmanager
    def _start(self, stop: Callable[[int], bool]) -> Iterator[None]:
        with ThreadPoolExecutor(len(self.writers)) as pool:
            self._running = [pool.submit(writer.run, stop) for writer in self.writers]
            try:
                yield
            except BaseException:
                for writer in self.writers:
                    writer.abandoned.set()
                raise
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what ended a writer, if anything did."""
        for writer in self._running:
            if writer.done():
                writer.result()

    def still_works(self) -> bool:
        self.raise_failure()
        return True

    def await_another_attempt(self) -> None:
        before = self._tried
        await_true("somebody appends", lambda: self.still_works() and self._tried > before)

    def await_applied(self, count: int) -> None:
        """Wait until so many appends were acknowledged, for as long as they become more."""
        while self.applied < count:
            before = self.applied
            await_true("somebody appends", lambda: self.still_works() and self.applied > before)  # noqa: B023

    @property
    def _tried(self) -> int:
        return sum(len(writer.attempts) for writer in self.writers)

    @property
    def applied(self) -> int:
        return sum(writer.applied for writer in self.writers)

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for writer in self.writers for attempt in writer.attempts]

    @property
    def reads(self) -> list[Read]:
        return [read for writer in self.writers for read in writer.reads]

    def count(self, outcome: str) -> int:
        return sum(attempt.outcome == outcome for attempt in self.attempts)

    def summary(self) -> str:
        return ", ".join(f"{self.count(each)} {each}" for each in ("applied", "refused", "unknown"))


def kill_again_and_again(server: RunningServer, run: Run, chance: random.Random, times: int) -> None:
    """Kill each server once somebody appended to it."""
    for number in range(times):
        run.await_another_attempt()
        time.sleep(chance.uniform(0, 0.3))
        _kill(server, chance, number)


def kill_over(server: RunningServer, run: Run, chance: random.Random, times: int, commits: int) -> None:
    """Spread the kills over so many acknowledged commits, and return when these are reached."""
    for number in range(times):
        run.await_applied(int(commits * (number + chance.random()) / times))
        run.await_another_attempt()
        _kill(server, chance, number)
    run.await_applied(commits)


def _kill(server: RunningServer, chance: random.Random, number: int) -> None:
    """At any moment, or every other time right after the database was written, which is where a commit in several
    steps would come apart."""
    if number % 2:
        _await_write(server.data / "nunatak.db-wal")
        time.sleep(chance.uniform(0, 0.004))
    server.kill()
    server.restart()


def _await_write(file: Path) -> None:
    """Wait until the file changes, but not for ever: the writers may have stopped for a moment."""
    if not file.exists():
        return  # the catalog is not in a file
    before = file.stat().st_mtime_ns
    deadline = time.monotonic() + 5
    while file.stat().st_mtime_ns == before and time.monotonic() < deadline:
        time.sleep(0.0002)
