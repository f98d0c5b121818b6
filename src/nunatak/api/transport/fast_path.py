"""The fast path: answers a load of a cached table in the protocol, without creating a task or a scope.

It does exactly what the handler of loadTable does (one read of the pointer, the same check of the file, the same bytes
and headers) and leaves everything else to the handler: another route, an unknown table, a header that changes the
response.
"""

import time
from typing import Protocol
from urllib.parse import parse_qsl

from nunatak.access.audit_rows import ALLOWED
from nunatak.access.known_sessions import digest_of
from nunatak.access.privileges import Privilege
from nunatak.api.app import App
from nunatak.api.http import COMPRESS_FROM_BYTES, choose_encoding, decode_segment, split_namespace
from nunatak.api.transport.request_cache import RequestCache
from nunatak.catalog.cache import Loaded
from nunatak.catalog.ownership import securable_of
from nunatak.catalog.pointers import has_file, key_of
from nunatak.database.records import Key
from nunatak.errors import CatalogError
from nunatak.iceberg.identifiers import Identifier, check_name, check_namespace

MAX_TARGETS, MAX_TARGET_BYTES = 20_000, 1024  # cached URLs; the cache is cleared when it is full
MAX_REQUESTS, MAX_REQUEST_BYTES = 10_000, 2048  # whole requests that need not be parsed again
# Headers that do not affect a load, or are handled below. A request with any other goes to the handler.
_PLAIN = frozenset(
    {
        b"host", b"accept", b"user-agent", b"connection", b"content-type", b"accept-language", b"accept-encoding",
        b"if-none-match", b"x-client-version", b"x-client-git-commit-short", b"authorization", b"cache-control",
        b"x-iceberg-access-delegation", b"content-length", b"pragma", b"accept-charset",
    }
)  # fmt: skip


_READ_META = int(Privilege.TABLE_READ_META)  # an int: combining IntFlag values costs more than the rest of the check


class PointerNow(Protocol):
    """A database that can be read synchronously."""

    def pointer_now(self, key: Key, known: str | None) -> tuple[str, str | None, bytes | None, int] | None: ...


class KnownLoad:
    """A parsed load request, and what is known of its sender under one policy version."""

    __slots__ = (
        "agent",
        "etag",
        "expires_ms",
        "host",
        "key",
        "packing",
        "policy",
        "principal",
        "session",
        "what",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.etag: bytes | None = None
        self.packing: bytes | None = None
        self.session: bytes | None = None  # the digest of the Authorization header
        self.agent = b""
        self.policy = -1  # the policy version under which the sender may load it; no version is negative
        self.expires_ms = 0
        self.principal = ""
        self.host: str | None = None
        self.what = ("", "", "", "", "")  # the audit row of this load from this host


class FastPath:
    """Recognises plain loads, and answers them from the cache and one read of the database."""

    def __init__(self, app: App, pointers: PointerNow) -> None:
        self._app = app
        self._pointer_now = pointers.pointer_now
        self._guard = app.guard
        self._cache = app.catalog.cache
        self._contended = app.catalog.contention.tables
        self._spool = app.catalog.spool
        self._targets: dict[bytes, Key | None] = {}
        self.requests: RequestCache[KnownLoad] = RequestCache(MAX_REQUESTS, MAX_REQUEST_BYTES)
        self.find = self.requests.find  # not a method: one call less for every request

    def remember(self, request: bytes, url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Caches the parsed request by its bytes, because clients send the same bytes repeatedly."""
        load = self._load(url, headers) if len(request) <= MAX_REQUEST_BYTES else None
        if load is not None:
            self.requests.keep(request, load, has_token=load.session is not None)

    def answer(
        self, url: bytes, headers: list[tuple[bytes, bytes]], client: tuple[str, int] | None = None
    ) -> tuple[bytes, bytes] | None:
        """Returns head and body of the response, or None if the request is for the handler."""
        load = self._load(url, headers)
        return None if load is None else self.answer_known(load, client)

    def _load(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> KnownLoad | None:
        targets = self._targets
        key = targets.get(url)
        if key is None:
            if url in targets or len(url) > MAX_TARGET_BYTES:
                return None  # a URL this long (names of 255 bytes in every level) is for the handler
            key = self._learn(url)
            if key is None:
                return None
        load = KnownLoad(key)
        for name, value in headers:
            if name not in _PLAIN:
                return None
            if name == b"if-none-match":
                load.etag = value
            elif name == b"accept-encoding":
                load.packing = value
            elif name == b"authorization":
                if load.session is not None:
                    return None  # two Authorization headers: the handler decides which one counts
                load.session = digest_of(value)
            elif name == b"user-agent":
                load.agent = value
        return load

    def answer_known(self, load: KnownLoad, client: tuple[str, int] | None) -> tuple[bytes, bytes] | None:
        """As `answer`, for a request that was parsed before."""
        key = load.key
        started = time.perf_counter()
        # Authorize first: a hidden table must take the same steps as one that does not exist.
        if self._guard is not None and load.policy < 0 and not self._look_up(load, client):
            return None
        loaded = self._cache.find(key)
        if loaded is None or loaded.path is None or key in self._contended:
            return None
        row = self._pointer_now(key, loaded.metadata_location)
        if row is None or row[0] != loaded.metadata_location or row[1] == "VIEW":
            return None
        if self._guard is not None and not self._is_allowed(load, row[3], client):
            return None
        if not has_file(loaded):
            return None
        answer = self._bytes(loaded, load.etag, load.packing, started)
        if answer is not None and self._spool is not None:
            self._spool.count_load(loaded.metadata_location, key)
        return answer

    def _is_allowed(self, load: KnownLoad, policy: int, client: tuple[str, int] | None) -> bool:
        """Returns whether the sender may load the table under the policy version read with the pointer.

        Applies the rate limit and notes the read for the audit trail. On False the handler answers, e.g. 401 or 429.
        """
        app = self._app
        host = client[0] if client is not None else ""
        if (load.policy != policy or load.host != host or load.expires_ms <= app.catalog.now_ms()) and (
            not self._look_up(load, client) or load.policy != policy
        ):
            return False
        if app.rates is not None and app.rates.take(load.principal, host) is not None:
            return False
        if app.audits_reads and app.audit is not None:
            app.audit.note_again(load.what)
        return True

    def _look_up(self, load: KnownLoad, client: tuple[str, int] | None) -> bool:
        """Copies what the guard has cached of the sender into `load`; returns whether that allows the load."""
        assert self._guard is not None
        load.policy = -1
        host = client[0] if client is not None else ""
        known = None if load.session is None else self._guard.sessions.find(load.session)
        securable = securable_of(load.key)
        if known is None or not known.rights.get(securable, 0) & _READ_META:
            return False
        load.policy, load.expires_ms, load.host = known.version, known.session.expires_ms, host
        load.principal = known.session.principal
        load.what = (load.principal, "loadTable", securable, ALLOWED, known.origin(host, load.agent))
        return True

    def _bytes(
        self, loaded: Loaded, etag: bytes | None, packing: bytes | None, started: float
    ) -> tuple[bytes, bytes] | None:
        if etag is not None:
            if etag != loaded.etag.encode("ascii"):
                # Only the exact tag is handled here; lists, weak tags and stale ones are for the handler.
                return None
            self._app.metrics.count("loadTable", "GET", 304, time.perf_counter() - started)
            return b"HTTP/1.1 304 Not Modified\r\netag: " + etag + b"\r\n\r\n", b""
        body, extra = loaded.answer, b""
        if packing is not None and len(body) >= COMPRESS_FROM_BYTES:
            encoding = choose_encoding(packing.decode("latin-1"))
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
        """Returns the table that a URL loads, and caches it; None for anything but a plain load of all snapshots."""
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
