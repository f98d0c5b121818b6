"""Request bodies: size and memory limits, decompression, and the checks before JSON is decoded.

A body is received only after its sender is authenticated, unless the route is public or the signature covers the body.
Nothing here knows a route.
"""

import asyncio
import contextlib
import hashlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import zstandard

from nunatak.api.request_limits import InFlight
from nunatak.catalog.large_work import short_switch_interval
from nunatak.errors import BadRequest, NotAuthenticated, ServiceUnavailable, TooLarge, UnsupportedMediaType, show_text

Receive = Callable[[], Awaitable[dict[str, Any]]]

MAX_JSON_DEPTH = 64
# Decoding this many takes less than 0.1 s, during which no other request is served: the decoder holds the GIL. A
# schema of 25,000 columns has as many objects and four times as many commas.
BRACKETS = b"{["
MAX_JSON_MARKS = {BRACKETS: 100_000, b",": 1_000_000, b'"': 4_000_000, b"\\": 1_000_000}
_NEITHER_QUOTE_NOR_BRACKET = bytes(set(range(256)) - set(b'"[]{}'))
_STEP = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]

# Encoders write one member; concatenated compressed files have a few. Each costs more time than its few bytes suggest.
MAX_MEMBERS = 64
MAX_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # RFC 8878 recommends this limit; a frame may demand gigabytes
PIECE_BYTES = 64 * 1024  # compressed input at a time: zlib copies what is left of it after each member
UNFOLDED_BYTES = 256 * 1024  # output at a time: zlib joins its output while holding the GIL

LARGE_BYTES = 64 * 1024  # a larger body is checked and hashed in a thread, and counted as memory
UNANNOUNCED_BYTES = 4 * 1024 * 1024  # of a body that must be read to authenticate its sender
_THREADS = 2


class BodyRoom:
    """Limits the bodies in memory: how many are being received, and the bytes of the large ones.

    Both limits apply in total and per caller, which is a principal or, before authentication, an address. Small bodies
    that were received are not counted: the number of connections bounds them.
    """

    def __init__(
        self, total_bytes: int, caller_bytes: int, total_awaited: int = 4096, caller_awaited: int = 512
    ) -> None:
        self._total_bytes, self._caller_bytes = total_bytes, caller_bytes
        self._total_awaited, self._caller_awaited = total_awaited, caller_awaited
        self._bytes: dict[str, int] = {}
        self._awaited: dict[str, int] = {}
        self._sender_locks: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bodies")
        self.bytes = 0
        self.awaited = 0

    def take(self, caller: str, size: int) -> None:
        held = self._bytes.get(caller, 0)
        if held + size > self._caller_bytes or self.bytes + size > self._total_bytes:
            raise ServiceUnavailable(
                "The memory for large request bodies is full; nothing was done",
                hint="Send the same request again soon, and fewer of this size at once.",
            )
        self._bytes[caller] = held + size
        self.bytes += size

    def give_back(self, caller: str, size: int) -> None:
        self.bytes -= size
        _lower(self._bytes, caller, size)

    @contextlib.contextmanager
    def awaiting(self, caller: str) -> Iterator[None]:
        """Counts a body while it is being received; raises ServiceUnavailable if there are too many."""
        held = self._awaited.get(caller, 0)
        if held >= self._caller_awaited or self.awaited >= self._total_awaited:
            raise ServiceUnavailable(
                "Too many requests wait for their bodies; nothing was done",
                hint="Send the body of a request right after its headers.",
            )
        self._awaited[caller] = held + 1
        self.awaited += 1
        try:
            yield
        finally:
            self.awaited -= 1
            _lower(self._awaited, caller, 1)

    async def in_thread(self, caller: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Runs `work` in a thread; one at a time per caller, so that no caller fills the queue of the thread pool."""
        async with self._one_at_a_time(caller):
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, _run_with_short_interval, work, *arguments
            )

    @contextlib.asynccontextmanager
    async def _one_at_a_time(self, caller: str) -> AsyncIterator[None]:
        lock = self._sender_locks.setdefault(caller, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            # An unused lock is removed: the number of callers is not bounded.
            if not lock.locked() and self._sender_locks.get(caller) is lock:
                del self._sender_locks[caller]


def _run_with_short_interval(work: Callable[..., Any], *arguments: Any) -> Any:
    with short_switch_interval():
        return work(*arguments)


def _lower(counts: dict[str, int], caller: str, by: int) -> None:
    left = counts.get(caller, 0) - by
    if left > 0:
        counts[caller] = left
    else:
        counts.pop(caller, None)


class Body:
    """The body of one request, received once and only when it is first read; call `release` at the end."""

    __slots__ = (
        "_caller",
        "_headers",
        "_in_flight",
        "_raw",
        "_ready",
        "_receive",
        "_room",
        "_taken",
        "limit",
        "share_of",
    )

    def __init__(
        self,
        source: Receive | bytes,
        headers: Mapping[bytes, bytes],
        room: BodyRoom,
        in_flight: InFlight,
        limit: int,
    ) -> None:
        """`limit` is the largest size in bytes, before and after decompression; there is no other size limit."""
        self._receive: Receive | None = None
        self._raw: bytes | None = None
        if isinstance(source, bytes):
            self._raw = source
        else:
            self._receive = source
        self._headers = headers
        self._room = room
        self._in_flight = in_flight
        self._caller = ""
        self._taken = 0
        self._ready: bytes | None = None
        self.limit = limit
        self.share_of: str | None = None  # the caller whose share of requests is released while the body is received

    def assign_to(self, caller: str) -> None:
        """Counts the memory of the body against `caller` from now on; raises ServiceUnavailable if that is too much."""
        if self._taken:
            self._room.give_back(self._caller, self._taken)
            taken, self._taken = self._taken, 0  # zero first: if `_take` raises, `release` must not return it again
            self._caller = caller
            self._take(taken)
        self._caller = caller

    async def raw(self) -> bytes:
        """Returns the body as it was sent; raises TooLarge."""
        if self._raw is None:
            self._raw = await self._receive_all(self.limit)
        elif len(self._raw) > self.limit:
            raise _too_large(self.limit)
        return self._raw

    async def read(self, *, is_json: bool = True) -> bytes:
        """Returns the decompressed body; JSON is checked for depth and size before anything decodes it."""
        if self._ready is None:
            raw = await self.raw()
            encoding = self._headers.get(b"content-encoding", b"identity").strip().lower()
            if not raw or (encoding == b"identity" and len(raw) <= LARGE_BYTES):
                if is_json:
                    check_json(raw)
                self._ready = raw
            else:
                self._ready = await self._prepare(raw, encoding.decode("latin-1"), is_json)
        return self._ready

    async def _prepare(self, raw: bytes, encoding: str, is_json: bool) -> bytes:
        if self.limit <= LARGE_BYTES:  # small even when decompressed: not worth a thread
            return _unpack(raw, encoding, self.limit, is_json)
        ready: bytes = await self._room.in_thread(self._caller, _unpack, raw, encoding, self.limit, is_json)
        if ready is not raw and len(ready) > LARGE_BYTES:
            self._take(len(ready))
        return ready

    async def sha256(self) -> str:
        """Returns the SHA-256 of the body as sent, for a signature that covers it; read before authentication."""
        if self._raw is None:
            limit = min(self.limit, UNANNOUNCED_BYTES)
            try:
                self._raw = await self._receive_all(limit)
            except TooLarge:
                raise NotAuthenticated(
                    f"The signature of a body of more than {limit} bytes must include its hash",
                    hint="Send the SHA-256 of the body as x-amz-content-sha256.",
                ) from None
        return (await self._hash(b"", self._raw)).hex()

    async def digest(self, resource: bytes, query: bytes) -> bytes:
        """Returns the hash by which a repeated request is recognised: of resource, query and the body as sent."""
        return await self._hash(b"\0".join((resource, query, b"")), await self.raw())

    async def _hash(self, before: bytes, content: bytes) -> bytes:
        if len(content) <= LARGE_BYTES:
            return hashlib.sha256(before + content).digest()
        hashed = hashlib.sha256(before)
        await self._room.in_thread(self._caller, hashed.update, content)
        return hashed.digest()

    def release(self) -> None:
        if self._taken:
            self._room.give_back(self._caller, self._taken)
            self._taken = 0

    def _take(self, size: int) -> None:
        self._room.take(self._caller, size)
        self._taken += size

    async def _receive_all(self, limit: int) -> bytes:
        length = self._headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        assert self._receive is not None
        message = await self._first(self._receive)
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(body) > limit:
                raise _too_large(limit)
            return body
        parts, size = [body], len(body)
        with self._in_flight.paused(self.share_of), self._room.awaiting(self._caller):
            while message.get("more_body"):
                message = _check_connected(await self._receive())
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(limit)
                if size > LARGE_BYTES:
                    self._take(size - self._taken)
        return b"".join(parts)

    async def _first(self, receive: Receive) -> dict[str, Any]:
        """Receives the first part; while it waits for the client, the request does not count as in flight."""
        with self._in_flight.paused(self.share_of), self._room.awaiting(self._caller):
            return _check_connected(await receive())


def _check_connected(message: dict[str, Any]) -> dict[str, Any]:
    if message["type"] == "http.disconnect":  # the body is incomplete: it must not be taken for an empty one
        raise BadRequest("The client disconnected before the request was complete")
    return message


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"Request body is larger than {limit} bytes")


def _unpack(raw: bytes, encoding: str, limit: int, is_json: bool) -> bytes:
    body = raw if encoding == "identity" else decompress(raw, encoding, limit)
    if is_json:
        check_json(body)
    return body


# Checks before decoding


def check_json(body: bytes) -> None:
    """Checks nesting depth and number of values before JSON is decoded; raises BadRequest above what schemas need."""
    containers = body.count(b"{") + body.count(b"[") if len(body) <= LARGE_BYTES else _check_marks(body)
    if containers <= MAX_JSON_DEPTH:
        return  # too few brackets to nest that deep, as in nearly every request
    if _depth(body) > MAX_JSON_DEPTH:
        raise BadRequest(f"Malformed request: JSON nested deeper than {MAX_JSON_DEPTH} levels")


def _check_marks(body: bytes) -> int:
    """Returns the number of opening brackets; counts in pieces, so that a body far over a limit is refused early."""
    counts = dict.fromkeys(MAX_JSON_MARKS, 0)
    for start in range(0, len(body), PIECE_BYTES):
        piece = body[start : start + PIECE_BYTES]
        for marks, most in MAX_JSON_MARKS.items():
            counts[marks] += sum(piece.count(mark) for mark in marks)
            if counts[marks] > most:
                raise BadRequest(f"Malformed request: the JSON holds more than {most} of {marks.decode()!r}")
    return counts[BRACKETS]


def _depth(body: bytes) -> int:
    """Returns the nesting depth of brackets outside of strings, in a few passes that each run in C.

    Exact for valid JSON; for anything else exact up to the first syntax error, where every decoder stops.
    """
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NEITHER_QUOTE_NOR_BRACKET)
    # Two adjacent quotes can be removed: they are an empty string, or the end of one string and the start of the next.
    outside = b"".join(text.replace(b'""', b"").split(b'"')[::2])
    return max(accumulate(map(_STEP.__getitem__, outside)), default=0)


# Decompression


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Undoes a Content-Encoding; raises TooLarge above `limit` bytes of output. Takes time linear in both sizes."""
    try:
        if encoding in ("gzip", "x-gzip"):
            data = _gunzip(body, limit)
        elif encoding == "zstd":
            data = _unzstd(body, limit)
        else:
            raise UnsupportedMediaType(
                f"Unsupported Content-Encoding: {show_text(encoding)}", hint="Send gzip, zstd or identity."
            )
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise BadRequest(f"Malformed request: the {encoding} body cannot be decompressed") from error
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _gunzip(body: bytes, limit: int) -> bytes:
    """Decompresses all members; stops soon after `limit` bytes."""
    parts: list[bytes] = []
    size, members, start, rest = 0, 0, 0, b""
    unfolder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    while (rest or start < len(body)) and size <= limit:
        piece = rest
        if not piece:
            piece, start = body[start : start + PIECE_BYTES], start + PIECE_BYTES
        if unfolder.eof:
            unfolder = zlib.decompressobj(16 + zlib.MAX_WBITS)
        part = unfolder.decompress(piece, min(limit + 1 - size, UNFOLDED_BYTES))
        parts.append(part)
        size += len(part)
        rest = unfolder.unused_data if unfolder.eof else unfolder.unconsumed_tail
        if unfolder.eof:
            members += 1
            _check_members(members, "gzip")
    if size > limit:
        raise _too_large(limit)  # before the parts are joined, which holds the GIL
    if not unfolder.eof:
        raise BadRequest("Malformed request: the gzip body is cut short")
    return b"".join(parts)


def _unzstd(body: bytes, limit: int) -> bytes:
    """Decompresses all frames; stops soon after `limit` bytes."""
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    with decoder.stream_reader(body, read_across_frames=True) as reader:
        data = reader.read(limit + 1)
    frames = 0
    while body and len(data) <= limit:
        # The reader does not report whether a frame ended; decompressing again is safe now that the size is known.
        frame = decoder.decompressobj()
        frame.decompress(body)
        if not frame.eof:
            raise BadRequest("Malformed request: the zstd body is cut short")
        body = frame.unused_data
        frames += 1
        _check_members(frames, "zstd")
    return data


def _check_members(count: int, encoding: str) -> None:
    if count > MAX_MEMBERS:
        raise BadRequest(f"Malformed request: the {encoding} body is made of more than {MAX_MEMBERS} parts")
