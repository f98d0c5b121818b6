"""Responses whose JSON was encoded before: pages of identifiers by the store, metadata when its file was written."""

from typing import Any, Generic, TypeVar

import msgspec

from nunatak.api.http import JSON_TYPE, Request, Response, raw_json
from nunatak.api.wire import Properties, StorageCredential
from nunatak.catalog.cache import NO_CONFIG, Loaded
from nunatak.errors import BadRequest

NOT_MODIFIED = 304
PRIVATE = (b"cache-control", b"private, no-cache")

Shape = TypeVar("Shape")  # the type that describes the JSON in the OpenAPI document


class Encoded(msgspec.Struct, Generic[Shape], frozen=True, gc=False):
    """JSON of the type `Shape`."""

    body: bytes

    def respond(self, request: Request) -> Response:
        return raw_json(self.body)


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

    def respond(self, request: Request) -> Response:
        """Encodes the result; a GET whose If-None-Match names the ETag is answered 304."""
        if self.config or self.storage_credentials or self.remote_signing_config:
            # Credentials expire: this body is built for each request, has no ETag and is never answered 304.
            return Response(200, self._for_caller(), (JSON_TYPE, PRIVATE))
        if self.etag is None:
            return raw_json(self.body)
        header = (b"etag", self.etag.encode("ascii"))
        if request.method != "GET":
            return Response(200, self.body, (JSON_TYPE, header), self.packed)
        wanted = request.header(b"if-none-match")
        if wanted is not None and matches(wanted, self.etag):
            return Response(NOT_MODIFIED, b"", (header,))
        return Response(200, self.body, (JSON_TYPE, header, PRIVATE), self.packed)

    def _for_caller(self) -> bytes:
        members: dict[str, object] = {"config": self.config or {}}
        if self.storage_credentials:
            members["storage-credentials"] = self.storage_credentials
        if self.remote_signing_config:
            members["remote-signing-config"] = self.remote_signing_config
        stored = memoryview(self.body)[: -len(NO_CONFIG)]
        return b"".join((stored, b",", memoryview(msgspec.json.encode(members))[1:]))


def load_result(loaded: Loaded) -> LoadResult[Any]:
    """Returns the result of a load, create, register or commit; its bytes are built once per metadata file."""
    return LoadResult(loaded.answer, loaded.etag, loaded.packed)


def matches(header: str, etag: str) -> bool:
    if header.strip() == "*":
        raise BadRequest("If-None-Match: * is not supported for a load", hint="Send the ETag of an earlier response.")
    return any(item.strip().removeprefix("W/") == etag for item in header.split(","))
