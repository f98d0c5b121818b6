"""Where the load comes from: bare HTTP clients, in a process of their own so that their CPU is not the server's."""

import asyncio
import contextlib
import json
import multiprocessing
import random
import re
import signal
import statistics
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

import httptools
import uvloop

from tests.bench.content import NO_SNAPSHOT, Head, append_to, head_of

ANSWER_SECONDS = 30  # after the end of a slice, for what is still under way
BACK_OFF_SECONDS = (0.010, 0.320)
MOST_TRIES = 1000  # of one append; back-off makes this minutes, so a slice ends by time

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    """Where a server listens; `base` is the path before `/namespaces`."""

    host: str
    port: int
    base: str

    @classmethod
    def of(cls, uri: str) -> "Address":
        parts = urlsplit(uri)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, f"{parts.path.rstrip('/')}/v1")

    def request(self, method: str, path: str, body: bytes = b"", *, etag: str | None = None) -> bytes:
        lines = [f"{method} {self.base}{path} HTTP/1.1", f"Host: {self.host}:{self.port}", "Accept: application/json"]
        if etag is not None:
            lines.append(f"If-None-Match: {etag}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Limits:
    """How much load: it ends when the time is over or the operations are done, whatever comes first."""

    clients: int
    seconds: float
    operations: int


@dataclass(frozen=True)
class Answer:
    status: int  # 0 if the connection ended first: what happened is unknown
    etag: str | None = None
    parts: Sequence[bytes] = ()

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


LOST = Answer(0)


@dataclass(frozen=True)
class Commit:
    table: str
    snapshot_id: int


@dataclass(frozen=True)
class Slice:
    """What one workload did to one server for a moment."""

    operations: int
    failed: int
    seconds: float
    p50_ms: float
    p99_ms: float
    tries: int
    generator_cpu_seconds: float
    acknowledged: tuple[Commit, ...] = ()
    refused: tuple[Commit, ...] = ()
    heads: tuple[Head, ...] = ()


class Driver:
    """Runs the coroutines of this module in the generator's process, one after the other."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, load: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._pool.submit(_run, load, args, kwargs).result()


@contextlib.contextmanager
def generator_process() -> Iterator[Driver]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_leave_interrupts_to_the_parent) as pool:
        yield Driver(pool)


async def collect(address: Address, requests: Sequence[bytes], clients: int = 1) -> list[Answer]:
    """Each request once; the answers in the same order. This prepares and checks, it measures nothing."""
    answers = [LOST] * len(requests)
    numbers = iter(range(len(requests)))

    async def client(connection: _Connection) -> None:
        for number in numbers:
            answers[number] = await connection.call(requests[number])

    async with _connections(address, clients) as connections:
        await asyncio.gather(*map(client, connections))
    return answers


async def replay(address: Address, requests: Sequence[bytes], status: int, limits: Limits) -> Slice:
    """The requests in a circle, each client from its own place; any other status is a failure."""

    async def client(tally: _Tally, connection: _Connection, number: int) -> None:
        at = number * len(requests) // limits.clients
        while tally.may_begin():
            began = time.perf_counter()
            answer = await connection.call(requests[at % len(requests)])
            tally.end(began, failed=answer.status != status)
            at += 1

    tally = _Tally(limits)
    await _run_clients(address, tally, client)
    return tally.slice()


async def append(address: Address, namespace: str, heads: Sequence[Head], limits: Limits) -> Slice:
    """Each client appends to tables that are its own, one after the other."""
    moved: dict[str, Head] = {head.table: head for head in heads}

    async def client(tally: _Tally, connection: _Connection, number: int) -> None:
        mine = deque(heads[number :: limits.clients])
        while mine and tally.may_begin():
            began = time.perf_counter()
            head = mine.popleft()
            answer, after = await _commit(address, namespace, tally, connection, head)
            tally.end(began, failed=answer.status != 200)
            if answer.status != 200:
                found = await connection.call(address.request("GET", f"/namespaces/{namespace}/tables/{head.table}"))
                if found.status != 200:
                    continue
                after = head_of(head.table, found.json["metadata"])
            moved[head.table] = after
            mine.append(after)

    tally = _Tally(limits)
    await _run_clients(address, tally, client)
    return tally.slice(heads=tuple(moved.values()))


async def contend(address: Address, namespace: str, head: Head, limits: Limits) -> Slice:
    """All clients append to one table: load, append, and after a conflict wait a random while and begin again."""
    load = address.request("GET", f"/namespaces/{namespace}/tables/{head.table}")

    async def client(tally: _Tally, connection: _Connection, number: int) -> None:
        while tally.may_begin():
            began = time.perf_counter()
            for attempt in range(MOST_TRIES):
                found = await connection.call(load)
                if found.status != 200:
                    tally.end(began, failed=True)
                    break
                answer, _ = await _commit(address, namespace, tally, connection, _refreshed(head, found.body))
                if answer.status != 409:
                    tally.end(began, failed=answer.status != 200)
                    break
                if tally.is_over():
                    break  # neither done nor failed: a writer whose time was up
                least, most = BACK_OFF_SECONDS
                await asyncio.sleep(random.uniform(0, min(most, least * 2**attempt)))

    tally = _Tally(limits)
    await _run_clients(address, tally, client)
    return tally.slice()


CURRENT_SNAPSHOT = re.compile(rb'"current-snapshot-id"\s*:\s*(-?\d+)')
LAST_SEQUENCE = re.compile(rb'"last-sequence-number"\s*:\s*(\d+)')


def _refreshed(head: Head, body: bytes) -> Head:
    """Two numbers looked up in the text: 64 writers that decode whole tables would measure the generator."""
    sequence, current = LAST_SEQUENCE.search(body), CURRENT_SNAPSHOT.search(body)
    assert sequence is not None, body[:200]
    snapshot_id = NO_SNAPSHOT if current is None else int(current[1])
    return Head(
        head.table,
        head.table_uuid,
        head.location,
        None if snapshot_id == NO_SNAPSHOT else snapshot_id,
        int(sequence[1]),
    )


async def _commit(
    address: Address, namespace: str, tally: "_Tally", connection: "_Connection", head: Head
) -> tuple[Answer, Head]:
    snapshot_id = random.getrandbits(62)
    body, after = append_to(head, namespace, snapshot_id, time.time_ns() // 1_000_000)
    tally.tries += 1
    answer = await connection.call(address.request("POST", f"/namespaces/{namespace}/tables/{head.table}", body))
    if answer.status == 200:
        tally.acknowledged.append(Commit(head.table, snapshot_id))
    elif answer.status == 409:
        tally.refused.append(Commit(head.table, snapshot_id))
    return answer, after


class _Tally:
    """Counts the operations of one slice and says when it is over."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.begun = self.failed = self.tries = 0
        self.latencies: list[float] = []
        self.acknowledged: list[Commit] = []
        self.refused: list[Commit] = []
        self.start_clock()

    def start_clock(self) -> None:
        self.cpu_before = time.process_time()
        self.started = self.ended = time.perf_counter()

    def is_over(self) -> bool:
        return time.perf_counter() - self.started >= self.limits.seconds

    def may_begin(self) -> bool:
        if self.begun >= self.limits.operations or self.is_over():
            return False
        self.begun += 1
        return True

    def end(self, began: float, *, failed: bool) -> None:
        self.ended = time.perf_counter()
        if failed:
            self.failed += 1
        else:
            self.latencies.append(self.ended - began)

    def slice(self, heads: tuple[Head, ...] = ()) -> Slice:
        cuts = statistics.quantiles(self.latencies, n=100, method="inclusive") if len(self.latencies) > 1 else ()
        single = self.latencies[0] if self.latencies else 0.0
        return Slice(
            operations=len(self.latencies),
            failed=self.failed,
            seconds=self.ended - self.started,
            p50_ms=1000 * (cuts[49] if cuts else single),
            p99_ms=1000 * (cuts[98] if cuts else single),
            tries=self.tries,
            generator_cpu_seconds=time.process_time() - self.cpu_before,
            acknowledged=tuple(self.acknowledged),
            refused=tuple(self.refused),
            heads=heads,
        )


class _Connection:
    """One request at a time to one server, on a wire that is laid again if the server closed it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._wire: _Wire | None = None

    async def open(self) -> "_Wire":
        loop = asyncio.get_running_loop()
        _, self._wire = await loop.create_connection(_Wire, self._address.host, self._address.port)
        return self._wire

    async def call(self, request: bytes) -> Answer:
        wire = self._wire
        if wire is None or wire.transport.is_closing():
            wire = await self.open()
        return await wire.send(request)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.transport.close()


class _Wire(asyncio.Protocol):
    """What goes over one socket; httptools calls the methods that begin with `on_`."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._etag: str | None = None
        self._parts: list[bytes] = []

    def send(self, request: bytes) -> "asyncio.Future[Answer]":
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._waiter

    def connection_lost(self, error: Exception | None) -> None:
        self._answer(LOST)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"etag":
            self._etag = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        answer = Answer(self._parser.get_status_code(), self._etag, self._parts)
        self._etag, self._parts = None, []
        if not self._parser.should_keep_alive():
            self.transport.close()
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)


@contextlib.asynccontextmanager
async def _connections(address: Address, count: int) -> AsyncIterator[list[_Connection]]:
    connections = [_Connection(address) for _ in range(count)]
    try:
        for connection in connections:
            await connection.open()
        yield connections
    finally:
        for connection in connections:
            connection.close()


async def _run_clients(
    address: Address, tally: _Tally, client: Callable[[_Tally, _Connection, int], Coroutine[Any, Any, None]]
) -> None:
    """All clients at once, on connections opened before the clock starts; one that hangs is ended and has failed."""
    async with _connections(address, tally.limits.clients) as connections:
        tally.start_clock()
        tasks = [asyncio.create_task(client(tally, one, number)) for number, one in enumerate(connections)]
        done, hanging = await asyncio.wait(tasks, timeout=tally.limits.seconds + ANSWER_SECONDS)
        for task in hanging:
            task.cancel()
        tally.failed += len(hanging)
        for task in done:
            task.result()


def _run(load: Callable[..., Coroutine[Any, Any, T]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return uvloop.run(load(*args, **kwargs))


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
