"""A TCP proxy that loses, repeats and delays, as networks do. It reads HTTP/1.1 with lengths, no more."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Fault(Enum):
    """What happens to one request; the server gets the whole of it in every case."""

    NONE = "nothing"
    CUT_AT_ONCE = "both connections end before the server answers"
    CUT_REPLY = "the server answers, the client hears nothing"
    CUT_MIDWAY = "the client hears half of the answer"
    TWICE = "the server gets the request twice at the same time, the client hears one answer"
    TWICE_AND_CUT = "the server gets the request twice at the same time, the client hears nothing"
    LATE = "the client's connection ends, and the request reaches the server long after that"
    SLOW = "the request and the answer take their time"


UNNOTICED = (Fault.NONE, Fault.TWICE, Fault.SLOW)  # the client gets its answer, and sends nothing again
LATE_SECONDS = 0.15  # by then the client has sent it again, most often
SLOW_SECONDS = 0.03


class _Cut(Exception):
    """The client's connection ends here."""


@dataclass
class FaultyProxy:
    """Forwards to `upstream_port`; `choose` is asked once per request, with its first line. It ends when every request
    has reached the server."""

    upstream_port: int
    choose: Callable[[bytes], Fault]
    port: int = 0
    answers: list[tuple[bytes, int]] = field(default_factory=list)  # each request and its status, heard or not
    faults: list[Fault] = field(default_factory=list)
    struck: set[bytes] = field(default_factory=set)  # the requests that met with a fault, each once
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _late: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def statuses(self) -> list[int]:
        return [status for _, status in self.answers]

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._late, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                await self._pass_on(await _read_message(reader), writer)
        except (_Cut, asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or we cut it off
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass_on(self, request: bytes, client: asyncio.StreamWriter) -> None:
        fault = self.choose(request.partition(b"\r\n")[0])
        self.faults.append(fault)
        if fault is not Fault.NONE:
            self.struck.add(request)
        if fault is Fault.LATE:
            self._late.add(asyncio.create_task(self._ask_late(request)))
            raise _Cut
        if fault is Fault.CUT_AT_ONCE:
            await self._ask(request, hear=False)
            raise _Cut
        if fault is Fault.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        copies = 2 if fault in (Fault.TWICE, Fault.TWICE_AND_CUT) else 1
        answers = await asyncio.gather(*(self._ask(request) for _ in range(copies)))
        if fault in (Fault.CUT_REPLY, Fault.TWICE_AND_CUT):
            raise _Cut
        if fault is Fault.CUT_MIDWAY:
            client.write(answers[0][: len(answers[0]) // 2])
            await client.drain()
            client.close()  # what was written still arrives
            raise _Cut
        if fault is Fault.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        client.write(answers[-1])
        await client.drain()

    async def _ask_late(self, request: bytes) -> None:
        await asyncio.sleep(LATE_SECONDS)
        await self._ask(request)

    async def _ask(self, request: bytes, *, hear: bool = True) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        try:
            writer.write(request)
            await writer.drain()
            if not hear:
                await asyncio.sleep(0.001)  # the request is on its way; the answer, most often, is not
                return b""
            answer = await _read_message(reader)
            self.answers.append((request, int(answer.split(b" ", 2)[1])))
            return answer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


@contextmanager
def faulty_proxy(upstream_port: int, choose: Callable[[bytes], Fault]) -> Iterator[FaultyProxy]:
    """The proxy at work in a thread of its own."""
    proxy = FaultyProxy(upstream_port, choose)
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(proxy.serve(started, stop),))
    thread.start()
    try:
        assert started.wait(30)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
