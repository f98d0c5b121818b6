"""One request and its response, and a cache of parsed request heads.

The protocol creates an `Exchange` once the head of a request is parsed. It calls the application in a task of its own
and writes the response in one piece.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

import httptools

from nunatak.access.sessions import JoinedHeaders
from nunatak.api.bodies import Receive
from nunatak.api.http import RequestHead, Response, join_headers
from nunatak.api.transport.request_cache import RequestCache
from nunatak.api.transport.uvicorn_internals import FlowControl

_STATUS_LINES = {each.value: b"HTTP/1.1 %d %b\r\n" % (each, each.phrase.encode("ascii")) for each in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_END = b"\r\n\r\n"
_TOKEN = b"authorization"

JOINED_BYTES = 64 * 1024  # up to this size one copy is cheaper than a second write
BUFFERED_BYTES = 64 * 1024  # of a body not yet received by the application; beyond this, reading pauses
MAX_CACHED_HEADS, MAX_HEAD_LENGTH = 4096, 2048
# A head with one of these differs in every request, so caching it is useless.
_NEVER_THE_SAME = frozenset({b"idempotency-key", b"x-request-id", b"traceparent", b"x-amz-date", b"dpop"})

Address = tuple[str, int]
Headers = Sequence[tuple[bytes, bytes]]


class Application(Protocol):
    async def respond(
        self,
        head: RequestHead,
        body: bytes | Receive,
        address: Address | None = None,
        certificate: str | None = None,
    ) -> Response:
        """Returns the complete response with all headers; never raises."""
        ...


class Connection(Protocol):
    """The part of the protocol that an exchange uses."""

    transport: asyncio.Transport
    flow: FlowControl
    client: Address | None
    certificate: str | None

    def must_close_after(self, exchange: "Exchange") -> bool:
        """Returns whether so much of the body is outstanding that a new connection is cheaper than reading it."""
        ...

    def response_written(self, exchange: "Exchange") -> None: ...


def parse_head(method: bytes, url: bytes, headers: Headers) -> RequestHead:
    """Parses a head; raises httptools' errors for an invalid URL, or ValueError if it has no path."""
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise ValueError("no path")
    return RequestHead(method.decode("ascii"), parsed.path, parsed.query or b"", join_headers(headers))


class KnownHeads:
    """A cache of parsed heads by their bytes: clients send the same head repeatedly."""

    def __init__(self) -> None:
        # With the length of the body, and the position of a token, which is taken from the request each time.
        self._known: RequestCache[tuple[RequestHead, int, slice | None]] = RequestCache(
            MAX_CACHED_HEADS, MAX_HEAD_LENGTH
        )

    def find(self, request: bytes) -> tuple[RequestHead, bytes] | None:
        """Returns the head and body of `request`, if its head is cached and it is exactly one whole request."""
        end = request.find(_END) + len(_END)
        known = self._known.find(request[:end])
        if known is None or len(request) - end != known[1]:
            return None
        head, _, token = known
        if token is not None:
            headers = {**head.headers, _TOKEN: request[token]}
            head = RequestHead(head.method, head.path, head.query, headers)
        return head, request[end:]

    def remember(self, request: bytes, head: RequestHead, body_bytes: int) -> None:
        """Caches `head`; `request` is exactly one whole request with this head and a body of `body_bytes`."""
        end = len(request) - body_bytes
        if (
            request[:2] == b"\r\n"  # the parser skips empty lines before a request
            or request.find(_END) != end - len(_END)
            or not _NEVER_THE_SAME.isdisjoint(head.headers)
        ):
            return
        token = head.headers.get(_TOKEN)
        if token is None:
            self._known.keep(request[:end], (head, body_bytes, None), has_token=False)
        # Not for JoinedHeaders: the copy is a plain dict and would lose `repeated`.
        elif not isinstance(head.headers, JoinedHeaders) and (start := request.find(token)) >= 0:
            without = RequestHead(head.method, head.path, head.query, {**head.headers, _TOKEN: b""})
            place = slice(start, start + len(token))
            self._known.keep(request[:end], (without, body_bytes, place), has_token=True)


def format_head(status: int, headers: Headers) -> bytes:
    """Returns the status line and headers, including the empty line; raises ValueError for a line break in a header."""
    lines = [_STATUS_LINES[status]]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines.append(b"\r\n")
    head = b"".join(lines)
    # A line break in a value would let it add headers of its own (response splitting).
    if head.count(b"\n") != len(lines):
        raise ValueError("a header of the response holds a line break")
    return head


class Exchange:
    """A request whose body has arrived before the application is called: most have none, or a small one.

    uvicorn's protocol reads and sets `response_complete`, `disconnected`, `keep_alive` and `message_event`.
    """

    __slots__ = ("_connection", "body", "disconnected", "head", "keep_alive", "response_complete")

    message_event = asyncio.Event()  # shared by all: only a StreamedExchange waits for parts of the body
    is_whole = True

    def __init__(self, connection: Connection, head: RequestHead, body: bytes = b"") -> None:
        self._connection = connection
        self.head = head
        self.body: bytes | bytearray = body
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False

    def add(self, part: bytes) -> None:
        """Appends a part of the body."""
        if not self.body:
            self.body = part
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        self.body += part

    def _content(self) -> bytes | Receive:
        return bytes(self.body)

    async def run(self, application: Application) -> None:
        connection, head = self._connection, self.head
        try:
            response = await application.respond(head, self._content(), connection.client, connection.certificate)
            if connection.flow.write_paused and not self.disconnected:
                await connection.flow.drain()
            if self.disconnected:
                return
            self._write(response, closing=not self.keep_alive or connection.must_close_after(self))
        except BaseException:  # cancelled, or a bug: the client must not wait for a response
            connection.transport.close()
            raise
        connection.response_written(self)

    def _write(self, response: Response, *, closing: bool) -> None:
        headers = (*response.headers, (b"connection", b"close")) if closing else response.headers
        head, body = format_head(response.status, headers), response.body
        self.response_complete = True
        transport = self._connection.transport
        if not body or self.head.method == "HEAD":
            transport.write(head)
        elif len(body) <= JOINED_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))


class StreamedExchange(Exchange):
    """A request whose body the application receives in parts, as from ASGI's `receive`."""

    __slots__ = ("_expects_continue", "ended", "message_event")

    is_whole = False

    def __init__(self, connection: Connection, head: RequestHead, *, expects_continue: bool) -> None:
        super().__init__(connection, head)
        self._expects_continue = expects_continue
        self.ended = False
        self.message_event = asyncio.Event()

    def add(self, part: bytes) -> None:
        super().add(part)
        if len(self.body) > BUFFERED_BYTES:
            self._connection.flow.pause_reading()
        self.message_event.set()

    def end(self) -> None:
        """Marks the body as complete."""
        self.ended = True
        self.message_event.set()

    def _content(self) -> bytes | Receive:
        return self.receive

    async def receive(self) -> dict[str, Any]:
        connection = self._connection
        if self._expects_continue:
            self._expects_continue = False
            if not connection.transport.is_closing():
                connection.transport.write(_CONTINUE)
        if not (self.body or self.ended or self.disconnected):
            self.message_event.clear()
            await self.message_event.wait()
        if self.disconnected:
            return {"type": "http.disconnect"}
        part, self.body = bytes(self.body), b""
        if not self.ended:
            connection.flow.resume_reading()
        return {"type": "http.request", "body": part, "more_body": not self.ended}
