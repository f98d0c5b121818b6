"""Clients that know several servers, one address for several servers, and a proxy before their PostgreSQL.

The servers are started by catalogs/cluster.py; who writes and who judges is in workload.py and history.py.
"""

import asyncio
import itertools
import random
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.caller import Answer, Caller, Lost
from tests.support.found import tries
from tests.support.history import BUSY
from tests.support.postgres_proxy import PostgresProxy
from tests.support.workload import Run, Writer, new_key

# Clients

MOST_SNAPSHOTS = 250  # of one table


class SpreadCaller(Caller):
    """Asks one server or another as chance has it, and the next one after an answer that was lost or a failure."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._callers = [Caller(port) for port in ports]
        self._chance = chance
        self._turn = chance.randrange(len(ports))

    def send(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Answer:
        if self._chance.random() < 0.3:
            self._next()
        try:
            answer = self._callers[self._turn].send(method, path, body, key)
        except Lost:
            self._next()
            raise
        if answer.status >= 500:
            self._next()
        return answer

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    def _next(self) -> None:
        self._turn = (self._turn + 1) % len(self._callers)


@dataclass
class SpreadWriter(Writer):
    """A writer that knows several servers and believes an answer: after "not now" it is free to do another append."""

    ports: Sequence[int] = ()

    def caller(self) -> Caller:
        return SpreadCaller(self.ports, self.random)

    def _send(self, caller: Caller, path: str, body: bytes) -> int | None:
        key = new_key(self.random) if self.keyed else None
        gives_up = self.may_give_up and self.random.random() < 0.2
        lost = False
        for _ in tries():
            try:
                answer = caller.send("POST", path, body, key)
            except Lost:
                lost = True
                if gives_up:
                    return None
                continue
            if answer.status not in BUSY or not lost:  # "not now" says nothing of the copy that was lost
                return answer.status
        raise AssertionError(f"no answer to POST {path} in time")


def spread_writers(
    ports: Sequence[int], tables: Sequence[str], chance: random.Random, count: int, *, all_tables_at_once: bool = False
) -> Run:
    """Every other writer uses keys, and every other pair names the tables in the other order."""
    return Run(
        [
            SpreadWriter(
                number,
                0,
                tables if number % 4 < 2 else tables[::-1],
                random.Random(chance.random()),
                keyed=bool(number % 2),
                all_tables_at_once=all_tables_at_once,
                ports=ports,
            )
            for number in range(count)
        ]
    )


def tables_for(commits: int) -> list[str]:
    """So few that writers meet, so many that none grows long: a commit writes all snapshots of its table."""
    return [f"t{number}" for number in range(max(3, commits // MOST_SNAPSHOTS))]


# One address for several servers

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NO_BODY = {b"204", b"304"}


@dataclass
class RoundRobin:
    """An HTTP/1.1 proxy that hands each request to the next server, whoever got the one before."""

    upstream_ports: Sequence[int]
    port: int = 0
    counts: dict[int, int] = field(default_factory=dict)  # requests by server
    _turn: Iterator[int] = field(init=False)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._turn = itertools.cycle(self.upstream_ports)
        self.counts = dict.fromkeys(self.upstream_ports, 0)

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        links: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        try:
            while True:
                head, body = await _read_message(reader)
                port = next(self._turn)
                if port not in links:
                    links[port] = await asyncio.open_connection("127.0.0.1", port)
                self.counts[port] += 1
                answers, requests = links[port]
                requests.write(head + body)
                answer, content = await _read_message(answers, to_head=head.startswith(b"HEAD "))
                writer.write(answer + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # somebody left: so does the client
        finally:
            self._tasks.discard(task)
            for end in (writer, *(there for _, there in links.values())):
                end.transport.abort()


async def _read_message(reader: asyncio.StreamReader, *, to_head: bool = False) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    empty = to_head or length is None or head[9:12] in _NO_BODY
    return head, b"" if empty or length is None else await reader.readexactly(int(length[1]))


@contextmanager
def round_robin(ports: Sequence[int]) -> Iterator[RoundRobin]:
    """The proxy at work in a thread of its own."""
    proxy = RoundRobin(ports)
    with serving(proxy.serve):
        yield proxy


@contextmanager
def serving(serve: Callable[[threading.Event, asyncio.Event], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """A coroutine with an event loop and a thread of its own."""
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(started, stop),))
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@contextmanager
def proxied(upstream_port: int, url: str) -> Iterator[tuple[PostgresProxy, str]]:
    """A proxy before PostgreSQL, in a thread of its own, and the database's address through it."""
    proxy = PostgresProxy(upstream_port)

    async def serve(started: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        proxy.end()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)

    with serving(serve):
        # Without TLS the proxy sees the messages.
        yield proxy, f"postgresql://postgres@127.0.0.1:{proxy.port}/{url.rpartition('/')[2]}?sslmode=disable"
