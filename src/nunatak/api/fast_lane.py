"""The fast lane: a load of a table this process knows is answered in the protocol, before a task or a scope is made.

It promises exactly what the handler of loadTable promises (one read of the pointer, the file looked at, the same bytes
and headers) and steps aside for everything else: another route, an unknown table, a header that changes the answer.
"""

import asyncio
import os
import time
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nunatak.api.app import App
from nunatak.api.http import COMPRESS_FROM_BYTES, accepted_encoding, decode_segment, split_namespace
from nunatak.catalog.cache import Loaded
from nunatak.catalog.heads import key_of
from nunatak.database.records import Key
from nunatak.errors import CatalogError
from nunatak.iceberg.identifiers import Identifier, check_name, check_namespace

MAX_TARGETS = 20_000  # remembered URLs; beyond that they are learnt anew
MAX_REQUESTS, MAX_REQUEST_BYTES = 10_000, 2048  # whole requests that need not be parsed again
JOINED_BYTES = 64 * 1024  # up to here one copy is cheaper than a second write
# Headers that no load depends on. With any other, except those handled below, the handler decides.
_PLAIN = frozenset(
    {
        b"host", b"accept", b"user-agent", b"connection", b"content-type", b"accept-language", b"accept-encoding",
        b"if-none-match", b"x-client-version", b"x-client-git-commit-short", b"authorization", b"cache-control",
        b"x-iceberg-access-delegation", b"content-length", b"pragma", b"accept-charset",
    }
)  # fmt: skip


class PointerNow(Protocol):
    """A database that is read without waiting."""

    def pointer_now(self, key: Key, known: str | None) -> tuple[str, str | None, bytes | None, int] | None: ...


class FastLane:
    """Knows which URLs are plain loads, and answers them from memory and one read of the database."""

    def __init__(self, app: App, pointers: PointerNow) -> None:
        self._app = app
        self._pointer_now = pointers.pointer_now
        self._cache = app.catalog.cache
        self._contended = app.catalog.contention.tables
        self._targets: dict[bytes, Key | None] = {}
        self.requests: dict[bytes, tuple[bytes, list[tuple[bytes, bytes]]]] = {}

    def remember(self, request: bytes, url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Clients send the same bytes again and again: what these said need not be parsed the next time."""
        if len(request) <= MAX_REQUEST_BYTES:
            if len(self.requests) >= MAX_REQUESTS:
                self.requests.clear()
            self.requests[request] = (url, headers)

    def answer(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes] | None:
        """Head and body of the answer, or None if this is not for the fast lane."""
        targets = self._targets
        key = targets.get(url)
        if key is None:
            if url in targets:
                return None
            key = self._learn(url)
            if key is None:
                return None
        started = time.perf_counter()
        loaded = self._cache.find(key)
        if loaded is None or loaded.path is None or key in self._contended:
            return None
        etag = packing = None
        for name, value in headers:
            if name not in _PLAIN:
                return None
            if name == b"if-none-match":
                etag = value
            elif name == b"accept-encoding":
                packing = value
        row = self._pointer_now(key, loaded.metadata_location)
        if row is None or row[0] != loaded.metadata_location or row[1] == "VIEW":
            return None
        try:
            os.stat(loaded.path)
        except OSError:
            return None
        return self._bytes(loaded, etag, packing, started)

    def _bytes(
        self, loaded: Loaded, etag: bytes | None, packing: bytes | None, started: float
    ) -> tuple[bytes, bytes] | None:
        if etag is not None:
            if etag != loaded.etag.encode("ascii"):
                return None
            self._app.metrics.count("loadTable", "GET", 304, time.perf_counter() - started)
            return b"HTTP/1.1 304 Not Modified\r\netag: " + etag + b"\r\n\r\n", b""
        body, extra = loaded.answer, b""
        if packing is not None and len(body) >= COMPRESS_FROM_BYTES:
            encoding = accepted_encoding(packing.decode("latin-1"))
            if encoding is not None:
                packed = loaded.packed.get(encoding)
                if packed is None:
                    return None
                body, extra = packed, b"content-encoding: %b\r\nvary: accept-encoding\r\n" % encoding.encode("ascii")
        self._app.metrics.count("loadTable", "GET", 200, time.perf_counter() - started)
        if extra:
            return _head(loaded, extra, len(body)), body
        if loaded.http_head is None:
            loaded.http_head = _head(loaded, b"", len(body))
        return loaded.http_head, body

    def _learn(self, url: bytes) -> Key | None:
        """Which table a URL loads; None for anything but a plain load of all snapshots."""
        if len(self._targets) >= MAX_TARGETS:
            self._targets.clear()
        key = self._targets[url] = self._read(url)
        return key

    def _read(self, url: bytes) -> Key | None:
        try:
            path, _, query = url.decode("ascii").partition("?")
            route, prefix, names = self._app.router.match("GET", path)
            if route.operation != "loadTable" or any(
                pair != ("snapshots", "all") for pair in parse_qsl(query, keep_blank_values=True)
            ):
                return None
            catalog = self._app.catalog
            warehouse = catalog.warehouse(decode_segment(prefix) if prefix else "")
            namespace = check_namespace(split_namespace(names[0], catalog.namespace_separator))
            return key_of(warehouse, Identifier(namespace, check_name(decode_segment(names[1]), "table")))
        except (CatalogError, UnicodeDecodeError, ValueError):
            return None


def _head(loaded: Loaded, extra: bytes, size: int) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\netag: %b\r\ncache-control: private, no-cache\r\n"
        b"%bcontent-length: %d\r\n\r\n" % (loaded.etag.encode("ascii"), extra, size)
    )


class CatalogProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast lane in front, and Iceberg's error format for what is not HTTP at all."""

    fast_lane: FastLane | None = None
    answered = False
    begun = ended = 0  # messages of this connection, as far as they were parsed
    last_seen = 0.0
    idle_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self.last_seen = self.loop.time()
        lane, begun = self.fast_lane, self.begun
        if lane is None or begun != self.ended:
            super().data_received(data)
            return
        known = lane.requests.get(data)
        if known is not None and self._is_free():
            answer = lane.answer(*known)
            if answer is not None:
                self._unset_keepalive_if_required()
                self._write(*answer)
                return
        super().data_received(data)
        if self.answered and self.ended == self.begun == begun + 1 and known is None:
            lane.remember(data, self.url, self.headers)  # one request, whole, and nothing else

    def _is_free(self) -> bool:
        """Whether an answer may be written now: none is on its way, and the client reads."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    def on_message_begin(self) -> None:
        self.begun += 1
        # The scope is made only for requests that leave the fast lane.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.answered = False

    def on_headers_complete(self) -> None:
        lane = self.fast_lane
        if (
            lane is not None
            and self.parser.get_method() == b"GET"
            and self._is_free()
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        ):
            answer = lane.answer(self.url, self.headers)
            if answer is not None:
                self._write(*answer)
                return
        url, headers, expecting = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expecting
        self.headers.extend(headers)
        super().on_headers_complete()

    def _write(self, head: bytes, body: bytes) -> None:
        self.answered = True
        self.server_state.total_requests += 1
        if len(body) <= JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        # One timer for many answers: setting and cancelling one for each would cost more than the answer's lookup.
        if self.idle_timer is None:
            self.idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """End a connection on which nothing has come for long."""
        self.idle_timer = None
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            return  # the ordinary way has its own timer
        quiet = self.loop.time() - self.last_seen
        if quiet >= self.timeout_keep_alive:
            self.timeout_keep_alive_handler()
        else:
            self.idle_timer = self.loop.call_later(self.timeout_keep_alive - quiet, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        super().connection_lost(exc)

    def on_body(self, body: bytes) -> None:
        if not self.answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.ended += 1
        if not self.answered:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        body = msgspec.json.encode({"error": {"message": msg, "type": "BadRequestException", "code": 400}})
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()


def protocol_with(lane: FastLane | None) -> type[CatalogProtocol]:
    """The protocol class for one server."""
    members: dict[str, Any] = {"fast_lane": lane}
    return type("ServedProtocol", (CatalogProtocol,), members)
