"""A proxy between a store and MariaDB that counts round trips and cuts the connection at a chosen request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.support.postgres_proxy import Cut

# What this proxy has to know of the protocol: a packet is its length, a number and the payload; a request has number 0.
QUERY, OK = 0x03, 0x00
MORE_RESULTS = 0x0008  # a bit of an OK packet's status, which follows two small counts: there are more answers to come

Wanted = Callable[[str], bool]


def ends_with(text: str) -> Wanted:
    return lambda query: query.endswith(text)


def holds(text: str) -> Wanted:
    return lambda query: text in query


@dataclass
class MariadbProxy:
    """Forwards to `upstream_port`; `round_trips` counts the requests, `cuts` what was cut so far."""

    upstream_port: int
    port: int = 0
    round_trips: int = 0
    cuts: int = 0
    _armed: list[tuple[Wanted, Cut]] = field(default_factory=list)
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    def cut_at_next(self, wanted: Wanted, moment: Cut) -> None:
        self._armed.append((wanted, moment))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            writer.close()
            self._tasks.discard(task)
            return
        link = _Link(self, reader, writer, there, back)
        answers = asyncio.create_task(link.answers())
        try:
            await link.requests()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if not link.unnoticed:
                back.close()
            writer.close()
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await answers
            back.close()
            self._tasks.discard(task)

    def match(self, query: str) -> Cut | None:
        if self._armed and self._armed[0][0](query):
            self.cuts += 1
            return self._armed.pop(0)[1]
        return None

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


@dataclass
class _Link:
    proxy: MariadbProxy
    client: asyncio.StreamReader
    to_client: asyncio.StreamWriter
    server: asyncio.StreamReader
    to_server: asyncio.StreamWriter
    unnoticed: bool = False
    silent: bool = False

    async def requests(self) -> None:
        while True:
            number, payload = await _read(self.client)
            if number == 0 and payload[0] == QUERY:
                self.proxy.round_trips += 1
                moment = self.proxy.match(payload[1:].decode())
                if moment is Cut.AFTER:
                    self.silent = True
                elif moment is not None:
                    self.unnoticed = moment is Cut.UNNOTICED
                    return
            self.to_server.write(_packet(number, payload))

    async def answers(self) -> None:
        try:
            while True:
                number, payload = await _read(self.server)
                if not self.silent:
                    self.to_client.write(_packet(number, payload))
                elif payload[0] == OK and not int.from_bytes(payload[3:5], "little") & MORE_RESULTS:
                    self.to_server.close()
                    return
        finally:
            self.to_client.close()


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readexactly(4)
    return head[3], await reader.readexactly(int.from_bytes(head[:3], "little"))


def _packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((number,)) + payload


@contextlib.asynccontextmanager
async def mariadb_proxy(upstream_port: int) -> AsyncIterator[MariadbProxy]:
    proxy = MariadbProxy(upstream_port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0, limit=1 << 25)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.end()
        await asyncio.gather(*proxy._tasks, return_exceptions=True)
