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


class Exchange:
    """Begun when the head of a request is here, started when its body is."""

    __slots__ = (
        "_connection",
        "_headers",
        "_path",
        "_query",
        "body",
        "disconnected",
        "keep_alive",
        "response_complete",
        "response_started",
    )

    message_event = asyncio.Event()  # nobody waits for a part of the body

    def __init__(self, connection: Connection, url: bytes, headers: Headers) -> None:
        """Raises what httptools finds wrong with the URL, or ValueError if there is no path in it."""
        parsed = httptools.parse_url(url)
        if parsed.path is None:
            raise ValueError("no path")
        self._connection = connection
        self._path: bytes = parsed.path
        self._query: bytes = parsed.query or b""
        self._headers = headers
        self.body = b""
        self.disconnected = False
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False

    async def run(self, application: Application) -> None:
        connection = self._connection
        try:
            response = await application.exchange(
                "POST",
                self._path,
                self._query,
                self._headers,
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
