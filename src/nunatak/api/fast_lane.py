"""The fast lane: a load of a table this process knows is answered in the protocol, before a task or a scope is made.

It promises exactly what the handler of loadTable promises (one read of the pointer, the file looked at, the same bytes
and headers) and steps aside for everything else: another route, an unknown table, a header that changes the answer.
"""

import os
import time
from typing import Protocol
from urllib.parse import parse_qsl

from nunatak.access.audit_rows import ALLOWED
from nunatak.access.privileges import Privilege
from nunatak.api.app import App
from nunatak.api.http import COMPRESS_FROM_BYTES, accepted_encoding, decode_segment, split_namespace
from nunatak.catalog.cache import Loaded
from nunatak.catalog.heads import key_of
from nunatak.catalog.ownership import securable_of
from nunatak.database.records import Key
from nunatak.errors import CatalogError
from nunatak.iceberg.identifiers import Identifier, check_name, check_namespace

MAX_TARGETS = 20_000  # remembered URLs; beyond that they are learnt anew
MAX_REQUESTS, MAX_REQUEST_BYTES = 10_000, 2048  # whole requests that need not be parsed again
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
        self._guard = app.guard
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

    def answer(
        self, url: bytes, headers: list[tuple[bytes, bytes]], client: tuple[str, int] | None = None
    ) -> tuple[bytes, bytes] | None:
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
        etag = packing = authorization = None
        agent = b""
        for name, value in headers:
            if name not in _PLAIN:
                return None
            if name == b"if-none-match":
                etag = value
            elif name == b"accept-encoding":
                packing = value
            elif name == b"authorization":
                authorization = value
            elif name == b"user-agent":
                agent = value
        row = self._pointer_now(key, loaded.metadata_location)
        if row is None or row[0] != loaded.metadata_location or row[1] == "VIEW":
            return None
        if self._guard is not None and not self._is_allowed(key, authorization, row[3], client, agent):
            return None
        try:
            os.stat(loaded.path)
        except OSError:
            return None
        return self._bytes(loaded, etag, packing, started)

    def _is_allowed(
        self, key: Key, authorization: bytes | None, policy: int, client: tuple[str, int] | None, agent: bytes
    ) -> bool:
        """Whether somebody known may load it, under the policy that was read with the pointer; it is counted and noted.

        Whoever is not, or asks too often, is told so on the ordinary way.
        """
        assert self._guard is not None
        known = self._guard.known(authorization)
        if known is None or known.version != policy:
            return False
        securable = securable_of(key)
        if not known.rights.get(securable, 0) & Privilege.TABLE_READ_META:
            return False
        host = client[0] if client is not None else ""
        app, principal = self._app, known.session.principal
        if app.rates is not None and app.rates.take(principal, host) is not None:
            return False
        if app.audits_reads and app.audit is not None:
            app.audit.note(principal, "loadTable", securable, ALLOWED, known.origin(host, agent), None)
        return True

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
