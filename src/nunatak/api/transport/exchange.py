"""One request that is whole before anybody works on it, and its answer in one write: most commits come like that.

To uvicorn's protocol it is the cycle of a request, as far as it asks one. What costs time in the other kind, a scope,
an event for each part of a body and messages for each part of an answer, is not made.
"""

import asyncio
from http import HTTPStatus
from typing import Protocol

import httptools
from uvicorn.protocols.http.flow_control import FlowControl

from nunatak.api.http import Response

_STATUS_LINES = {each.value: b"HTTP/1.1 %d %b\r\n" % (each, each.phrase.encode("ascii")) for each in HTTPStatus}

_END = b"\r\n\r\n"
MOST_HEADS, LONGEST_HEAD = 4096, 2048
_NEVER_THE_SAME = frozenset({b"idempotency-key", b"x-request-id", b"traceparent", b"x-amz-date", b"dpop"})

Address = tuple[str, int]
Headers = list[tuple[bytes, bytes]]


class Application(Protocol):
    async def exchange(
        self,
        method: str,
        raw_path: bytes,
        query_string: bytes,
        headers: Headers,
        body: bytes,
        address: Address | None,
        certificate: str | None,
    ) -> Response:
        """The answer as it goes out, with all of its headers; never raises."""
        ...


class Connection(Protocol):
    """What an exchange needs of the protocol it belongs to."""

    transport: asyncio.Transport
    flow: FlowControl
    client: Address | None
    certificate: str | None

    def on_response_complete(self) -> None: ...


class Head:
    """What comes before the body of such a request, understood."""

    __slots__ = ("body_bytes", "headers", "path", "query", "url")

    def __init__(self, url: bytes, headers: Headers, body_bytes: int) -> None:
        """Raises what httptools finds wrong with the URL, or ValueError if there is no path in it."""
        parsed = httptools.parse_url(url)
        if parsed.path is None:
            raise ValueError("no path")
        self.url = url
        self.path: bytes = parsed.path
        self.query: bytes = parsed.query or b""
        self.headers = headers
        self.body_bytes = body_bytes


class Heads:
    """Clients send the same head again and again: what its bytes say need not be parsed the next time."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}

    def find(self, request: bytes) -> tuple[Head, bytes] | None:
        """What is known of a request that is here as a whole, and its body."""
        end = request.find(_END) + len(_END)
        head = self._known.get(request[:end])
        if head is None or len(request) - end != head.body_bytes:
            return None
        return head, request[end:]

    def remember(self, request: bytes, head: Head) -> None:
        """`request` is one request, whole, and nothing else, and was parsed to this head."""
        end = len(request) - head.body_bytes
        if (
            end > LONGEST_HEAD
            or not request.startswith(b"POST ")
            or request.find(_END) != end - len(_END)
            or any(name in _NEVER_THE_SAME for name, _ in head.headers)
        ):
            return
        if len(self._known) >= MOST_HEADS:
            self._known.clear()
        self._known[request[:end]] = head


class Exchange:
    """Begun when the head of a request is here, started when its body is."""

    __slots__ = (
        "_connection",
        "body",
        "disconnected",
        "head",
        "keep_alive",
        "response_complete",
        "response_started",
    )

    message_event = asyncio.Event()  # nobody waits for a part of the body

    def __init__(self, connection: Connection, head: Head, body: bytes = b"") -> None:
        self._connection = connection
        self.head = head
        self.body = body
        self.disconnected = False
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False

    async def run(self, application: Application) -> None:
        connection, head = self._connection, self.head
        try:
            response = await application.exchange(
                "POST",
                head.path,
                head.query,
                head.headers,
                self.body,
                connection.client,
                connection.certificate,
            )
            if connection.flow.write_paused and not self.disconnected:
                await connection.flow.drain()
        except BaseException:  # stopped, and not by itself
            connection.transport.close()
            raise
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        connection.transport.writelines(self._written(response))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()

    def _written(self, response: Response) -> list[bytes]:
        lines = [_STATUS_LINES[response.status]]
        lines += [b"%b: %b\r\n" % header for header in response.headers]
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        head = b"".join(lines)
        return [head, response.body] if response.body else [head]
