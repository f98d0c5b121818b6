"""Writers that append to tables over HTTP and note what they saw for the history checker, and what is found afterwards.

An append is metadata only: the catalog is under test, not the data files.
"""

import http.client
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

import apsw

from tests.support.history import Attempt, FoundTable, LogLine, Read, current_snapshot
from tests.support.server import RunningServer, start_server

ANSWER_SECONDS = 30
RESEND_SECONDS = 90  # a server that is not back by then will not come back
MOST_REFUSALS = 50  # of one intent; somebody else got through each time, or a server refuses its own success
SEED_VARIABLE = "NUNATAK_TEST_SEED"
NAMESPACE = "faults"
TABLES = f"/v1/namespaces/{NAMESPACE}/tables"
TRANSACTIONS = "/v1/transactions/commit"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


def seeded(name: str) -> random.Random:
    """Chance that can be repeated: the seed is printed, and taken from the environment if it is there."""
    seed = os.environ.get(SEED_VARIABLE) or secrets.token_hex(4)
    print(f"{name}: {SEED_VARIABLE}={seed}")
    return random.Random(f"{seed}/{name}")


class Lost(Exception):
    """The connection ended before an answer came: the request may have been carried out, or not."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """One connection to a server, opened anew after it was lost."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)

    def send(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Answer:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return Answer(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Lost(f"{method} {path}: {error!r}") from error

    def expect(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, once its status was found to be the expected one."""
        answer = self.send(method, path, None if body is None else json.dumps(body).encode())
        assert answer.status == status, (method, path, answer)
        return answer.json if answer.body else None

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


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


@dataclass
class Writer:
    """Appends until told to stop, one thing after the other. A lost request is sent again as it was; after a conflict
    the same intent is tried with a new append."""

    number: int
    port: int
    tables: Sequence[str]
    random: random.Random
    keyed: bool
    all_tables_at_once: bool = False
    may_give_up: bool = True  # now and then leave a lost request alone: it is unknown whether it happened
    resend_as_new: bool = False  # the mistake that the checker must find
    attempts: list[Attempt] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    def run(self, stop: Callable[[int], bool]) -> None:
        """Carry out intents until `stop`, which is asked with their number before each."""
        done = 0
        with Caller(self.port) as caller:
            while not stop(done):
                self._carry_out(caller, f"w{self.number}-{done}")
                done += 1
                time.sleep(self.random.uniform(0, 0.02))  # let the other writers in between

    def _carry_out(self, caller: Caller, intent: str) -> None:
        chosen = list(self.tables) if self.all_tables_at_once else [self.random.choice(self.tables)]
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
            if attempt.outcome != "refused" and not (self.resend_as_new and status is None):
                return

    def _send(self, caller: Caller, path: str, body: bytes) -> int | None:
        """The status of the first answer that comes, or None if the writer gave up."""
        key = new_key(self.random) if self.keyed else None
        gives_up = self.resend_as_new or (self.may_give_up and self.random.random() < 0.2)
        for _ in tries():
            try:
                return caller.send("POST", path, body, key).status
            except Lost:
                if gives_up:
                    return None
        raise AssertionError(f"no answer to POST {path} in {RESEND_SECONDS} seconds")

    def _load(self, caller: Caller, name: str) -> Any:
        for _ in tries():
            started = time.monotonic()
            try:
                answer = caller.send("GET", f"{TABLES}/{name}?snapshots=refs")
            except Lost:
                continue
            assert answer.status == 200, answer
            metadata = answer.json["metadata"]
            self.reads.append(Read(name, current_snapshot(metadata), started, time.monotonic()))
            return metadata
        raise AssertionError(f"no answer to a load of {name} in {RESEND_SECONDS} seconds")


def tries() -> Iterator[None]:
    deadline = time.monotonic() + RESEND_SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)


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
            yield
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what ended a writer, if anything did."""
        for writer in self._running:
            if writer.done():
                writer.result()

    def await_another_attempt(self) -> None:
        before = len(self.attempts)

        def another() -> bool:
            self.raise_failure()
            return len(self.attempts) > before

        await_true("somebody appends", another)

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for writer in self.writers for attempt in writer.attempts]

    @property
    def reads(self) -> list[Read]:
        return [read for writer in self.writers for read in writer.reads]

    def summary(self) -> str:
        outcomes = [attempt.outcome for attempt in self.attempts]
        return ", ".join(f"{outcomes.count(each)} {each}" for each in ("applied", "refused", "unknown"))


class MortalServer:
    """A server that is killed and comes back on the same data and the same port."""

    def __init__(self, data: Path) -> None:
        self._running = start_server(data)
        self.data = data
        self.port = self._running.port

    @property
    def running(self) -> RunningServer:
        return self._running

    def kill(self) -> None:
        self._running.kill()
        self._close()

    def restart(self) -> None:
        """Start anew on what the last one left, and return once the database can be written."""
        self._running = start_server(self.data, port=self.port)
        with Caller(self.port) as caller:
            caller.expect(200, "GET", "/ready")

    def stop(self) -> int:
        status = self._running.stop()
        self._close()
        return status

    def _close(self) -> None:
        assert self._running.process.stdout is not None
        self._running.process.stdout.close()


def kill_again_and_again(server: MortalServer, run: Run, chance: random.Random, times: int) -> None:
    """Kill each server once somebody appended to it: at any moment, or every other time right after the database was
    written, which is where a commit in several steps would come apart."""
    for number in range(times):
        run.await_another_attempt()
        time.sleep(chance.uniform(0, 0.3))
        if number % 2:
            _await_write(server.data / "nunatak.db-wal")
            time.sleep(chance.uniform(0, 0.004))
        server.kill()
        server.restart()


def _await_write(file: Path) -> None:
    """Wait until the file changes, but not for ever: the writers may have stopped for a moment."""
    before = file.stat().st_mtime_ns
    deadline = time.monotonic() + 5
    while file.stat().st_mtime_ns == before and time.monotonic() < deadline:
        time.sleep(0.0002)


@contextmanager
def mortal_server(data: Path) -> Iterator[MortalServer]:
    server = MortalServer(data)
    try:
        yield server
    finally:
        server.stop()


def find_tables(data: Path, port: int, names: Sequence[str]) -> list[FoundTable]:
    """Each table as the catalog, the disk and the commit log have it."""
    with Caller(port) as caller, database(data) as connection:
        return [_find_table(caller, connection, name) for name in names]


def _find_table(caller: Caller, connection: apsw.Connection, name: str) -> FoundTable:
    answer = caller.expect(200, "GET", f"{TABLES}/{name}?snapshots=all")
    log = tuple(
        LogLine(*row)
        for row in connection.execute(
            "SELECT commit_id, metadata_location, previous_metadata_location, snapshot_id FROM nunatak_commits"
            " WHERE table_uuid = ? ORDER BY sequence",
            (answer["metadata"]["table-uuid"],),
        )
    )
    pointer = local_path(answer["metadata-location"])
    logged = [line.metadata_location for line in log if line.metadata_location is not None]
    return FoundTable(
        name,
        answer["metadata-location"],
        answer["metadata"],
        pointer.read_bytes() if pointer.is_file() else None,
        log,
        tuple(location for location in logged if not local_path(location).is_file()),
    )


@contextmanager
def database(data: Path) -> Iterator[apsw.Connection]:
    """The server's database, for looking only."""
    connection = apsw.Connection(str(data / "nunatak.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    try:
        yield connection
    finally:
        connection.close()


def await_true(what: str, holds: Callable[[], bool]) -> None:
    """Wait for work that the server does after its answer."""
    for _ in tries():
        if holds():
            return
    raise AssertionError(f"still not true after {RESEND_SECONDS} seconds: {what}")


def await_jobs_done(data: Path) -> None:
    """Wait until the server has nothing left to clean up."""
    with database(data) as connection:
        await_true("no job is left", lambda: connection.execute("SELECT count(*) FROM nunatak_jobs").get == 0)


def local_path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
