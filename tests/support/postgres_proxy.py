"""A proxy between a store and PostgreSQL that counts round trips and cuts the connection at a chosen message."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum

# The protocol's message types this proxy has to know: the byte before the length.
QUERY, BIND, FLUSH, READY = b"Q", b"B", b"H", b"Z"
DESCRIBED = (b"T", b"n", b"E")  # how the answer to a statement that is only described ends: its columns, none, an error

Wanted = Callable[[bytes, bytes], bool]
Choice = Callable[[bytes, bytes], "Cut | None"]


NOTICED_SECONDS = 15.0  # then the server hears of a connection that ended unnoticed, as keep-alive tells it in life


class Cut(Enum):
    """When the connection ends, seen from the message that was waited for."""

    BEFORE = "the server never gets it and sees the connection end"
    UNNOTICED = "the server never gets it and waits for more"
    AFTER = "the server does it and its answer is lost"
    MIDWAY = "the server does it and all of its answer but the end arrives"


def is_query(text: str) -> Wanted:
    """A simple query of exactly this text."""
    return lambda kind, body: kind == QUERY and body.rstrip(b"\0").decode() == text


def nth_message(number: int) -> Wanted:
    """The message before which so many others came, of whatever kind."""
    seen = itertools.count()
    return lambda *_: next(seen) == number


def is_bind(kind: bytes, _: bytes) -> bool:
    """The values of a prepared statement: its execution follows."""
    return kind == BIND


@dataclass
class PostgresProxy:
    """Forwards to `upstream_port`; `round_trips` counts the answers, `cuts` what was cut so far."""

    upstream_port: int
    port: int = 0
    round_trips: int = 0
    cuts: int = 0
    choose: Choice | None = None  # asked about every message, if nothing else is awaited
    _armed: list[tuple[Wanted, Cut]] = field(default_factory=list)
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    def cut_at_next(self, wanted: Wanted, moment: Cut) -> None:
        self._armed.append((wanted, moment))

    def disarm(self) -> bool:
        """Cut nothing more; returns whether everything that was awaited came."""
        missed, self._armed = self._armed, []
        return not missed

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:  # nobody listens there now
            writer.close()
            self.tasks.discard(task)
            return
        link = _Link(self, reader, writer, there, back)
        answers = asyncio.create_task(link.answers())
        try:
            await link.requests()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if link.unnoticed:
                asyncio.get_running_loop().call_later(NOTICED_SECONDS, back.close)
            else:
                back.close()
            writer.close()
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await answers
            back.close()
            self.tasks.discard(task)

    def match(self, kind: bytes, body: bytes) -> Cut | None:
        if self._armed and self._armed[0][0](kind, body):
            self.cuts += 1
            return self._armed.pop(0)[1]
        chosen = self.choose(kind, body) if self.choose is not None and not self._armed else None
        self.cuts += chosen is not None
        return chosen

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


@dataclass
class _Link:
    proxy: PostgresProxy
    client: asyncio.StreamReader
    to_client: asyncio.StreamWriter
    server: asyncio.StreamReader
    to_server: asyncio.StreamWriter
    unnoticed: bool = False
    silent: bool = False
    endless: bool = False
    flushed: bool = False

    async def requests(self) -> None:
        self.to_server.write(await _read_untyped(self.client))  # the first message has no type
        while True:
            kind, body = await _read(self.client)
            moment = self.proxy.match(kind, body)
            if moment is Cut.AFTER:
                self.silent = True
            elif moment is Cut.MIDWAY:
                self.endless = True
            elif moment is not None:
                self.unnoticed = moment is Cut.UNNOTICED
                return
            self.flushed = kind == FLUSH
            self.to_server.write(_message(kind, body))

    async def answers(self) -> None:
        try:
            while True:
                kind, body = await _read(self.server)
                if (self.silent or self.endless) and self._is_end(kind):
                    self.to_server.close()
                    return
                if not self.silent:
                    self.proxy.round_trips += kind == READY
                    self.to_client.write(_message(kind, body))
        finally:
            self.to_client.close()

    def _is_end(self, kind: bytes) -> bool:
        return kind == READY or (self.flushed and kind in DESCRIBED)


async def _read_untyped(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big") - 4)


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    return kind, (await _read_untyped(reader))[4:]


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


@contextlib.asynccontextmanager
async def postgres_proxy(upstream_port: int) -> AsyncIterator[PostgresProxy]:
    proxy = PostgresProxy(upstream_port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.end()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
