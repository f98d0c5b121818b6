"""Responses whose JSON was encoded before: pages of identifiers by the store, metadata when its file was written."""

import struct
import zlib
from typing import Any, Generic, TypeVar

import msgspec

from nunatak.api.http import JSON_TYPE, Request, Response, raw_json
from nunatak.api.wire import Properties, StorageCredential
from nunatak.catalog.cache import NO_CONFIG, Loaded
from nunatak.errors import BadRequest

NOT_MODIFIED = 304
PRIVATE = (b"cache-control", b"private, no-cache")
VARY = (b"vary", b"authorization, x-iceberg-access-delegation, user-agent")

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_CHECKS = struct.Struct("<II")  # the end of a gzip member: CRC-32 and size of the text

Shape = TypeVar("Shape")  # the type that describes the JSON in the OpenAPI document


class Encoded(msgspec.Struct, Generic[Shape], frozen=True, gc=False):
    """JSON of the type `Shape`."""

    body: bytes
    cache_control: bytes | None = None  # no-store: it holds credentials

    def respond(self, request: Request) -> Response:
        if self.cache_control is None:
            return raw_json(self.body)
        return Response(200, self.body, (JSON_TYPE, (b"cache-control", self.cache_control)))


class PackedHead(msgspec.Struct, frozen=True):
    """The beginning of a gzip member, to which the end is joined: CRC and size of the text, then the compressed text.

    Metadata of megabytes is compressed once, and the few members of each caller on their own. These are never
    compressed with a view to the rest, so the size of an answer says nothing about the secrets in it.
    """

    data: bytes

    def joined(self, tail: bytes) -> bytes:
        crc, size = _CHECKS.unpack_from(self.data)
        packer = _raw_deflate()
        ending = packer.compress(tail) + packer.flush(zlib.Z_FINISH)
        checks = _CHECKS.pack(zlib.crc32(tail, crc), (size + len(tail)) & 0xFFFFFFFF)
        return b"".join((_GZIP_HEADER, memoryview(self.data)[_CHECKS.size :], ending, checks))


def pack_head(text: bytes | memoryview) -> bytes:
    """Returns the data of a PackedHead; the compressed text ends at a byte, without an end of the stream."""
    packer = _raw_deflate()
    packed = packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)
    return _CHECKS.pack(zlib.crc32(text), len(text) & 0xFFFFFFFF) + packed


def _raw_deflate() -> "zlib._Compress":
    return zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)


class LoadResult(msgspec.Struct, Generic[Shape], frozen=True):
    """A table or view as the specification's LoadTableResult: stored JSON, and members that depend on the caller.

    `body` ends in NO_CONFIG. A staged table has no ETag, because it has no metadata file.
    """

    body: bytes
    etag: str | None = None
    packed: dict[str, bytes] | None = None  # cache of the compressed forms of `body`
    config: Properties | None = None
    storage_credentials: list[StorageCredential] | None = None
    remote_signing_config: dict[str, Any] | None = None
    caller_etag: str | None = None  # of an answer with such members
    not_modified: bool = False  # the client holds an answer with `caller_etag` that it may go on using
    packed_head: PackedHead | None = None  # `body` without NO_CONFIG, compressed

    def respond(self, request: Request) -> Response:
        """Encodes the result; a GET whose If-None-Match names the ETag is answered 304."""
        if self.not_modified:
            return Response(NOT_MODIFIED, b"", self._caller_headers())
        if self.config or self.storage_credentials or self.remote_signing_config:
            # Credentials expire: this body is built for each request, and `etag` is not enough to answer 304.
            stored, tail = memoryview(self.body)[: -len(NO_CONFIG)], self._caller_tail()
            packed = {"gzip": self.packed_head.joined(tail)} if self.packed_head is not None else None
            return Response(200, b"".join((stored, tail)), (JSON_TYPE, *self._caller_headers()), packed)
        if self.etag is None:
            return raw_json(self.body)
        header = (b"etag", self.etag.encode("ascii"))
        if request.method != "GET":
            return Response(200, self.body, (JSON_TYPE, header), self.packed)
        wanted = request.header(b"if-none-match")
        if wanted is not None and matches(wanted, self.etag):
            return Response(NOT_MODIFIED, b"", (header,))
        return Response(200, self.body, (JSON_TYPE, header, PRIVATE), self.packed)

    def _caller_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        shared = (PRIVATE, VARY)
        return shared if self.caller_etag is None else ((b"etag", self.caller_etag.encode("ascii")), *shared)

    def _caller_tail(self) -> bytes:
        members: dict[str, object] = {"config": self.config or {}}
        if self.storage_credentials:
            members["storage-credentials"] = self.storage_credentials
        if self.remote_signing_config:
            members["remote-signing-config"] = self.remote_signing_config
        return b"".join((b",", memoryview(msgspec.json.encode(members))[1:]))


def load_result(loaded: Loaded) -> LoadResult[Any]:
    """Returns the result of a load, create, register or commit; its bytes are built once per metadata file."""
    return LoadResult(loaded.answer, loaded.etag, loaded.packed)


def matches(header: str, etag: str) -> bool:
    if header.strip() == "*":
        raise BadRequest("If-None-Match: * is not supported for a load", hint="Send the ETag of an earlier response.")
    return any(item.strip().removeprefix("W/") == etag for item in header.split(","))
