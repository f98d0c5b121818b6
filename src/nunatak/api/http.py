"""Request and Response as handlers see them, decoding of paths and bodies, compression. Nothing here knows a route."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote_plus

import msgspec
import zstandard

from nunatak.access.administration import Actor
from nunatak.access.embedded import EmbeddedIdentity
from nunatak.access.guard import Guard, Known
from nunatak.access.privileges import EVERYTHING
from nunatak.access.sessions import JoinedHeaders, Session
from nunatak.access.vault import Vault
from nunatak.api.paging import Tokens
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.large_work import LARGE_BYTES, SENDER
from nunatak.errors import BadRequest, CatalogError, NotAuthenticated, show_text, status_and_type
from nunatak.iceberg.commit_request import check_utf8
from nunatak.iceberg.identifiers import Identifier, Namespace, check_name, check_namespace

Headers = Sequence[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
COMPRESS_FROM_BYTES = 16 * 1024  # below this, the CPU time of compression costs more than the transfer

Body = TypeVar("Body")


class RequestHead:
    """The part of a request before its body: raw path and query, and headers with lower-case names.

    Many requests may share one instance: it must not be changed.
    """

    __slots__ = ("headers", "method", "path", "query")

    def __init__(self, method: str, path: bytes, query: bytes, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers


def join_headers(listed: Headers) -> dict[bytes, bytes]:
    """Returns headers by name; repeated ones are joined, so that no copy hides another, such as one set by a proxy."""
    headers = dict(listed)
    return headers if len(headers) == len(listed) else JoinedHeaders(listed)


class Response:
    """Status, headers and body, ready to send."""

    __slots__ = ("body", "headers", "packed", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        headers: tuple[tuple[bytes, bytes], ...] = (),
        packed: dict[str, bytes] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.packed = packed  # cache of the compressed forms of this body, by encoding; None: not cached


def json_response(value: object, *headers: tuple[bytes, bytes], status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), (JSON_TYPE, *headers))


def raw_json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, (JSON_TYPE,))


NO_CONTENT = Response(204)
_NO_QUERY: Mapping[str, str] = {}
STRANGER = Caller()


class Context(Protocol):
    """The part of the application that handlers use; implemented by app.App."""

    @property
    def tokens(self) -> Tokens: ...
    @property
    def endpoints(self) -> list[str]: ...
    @property
    def vault(self) -> Vault | None: ...
    @property
    def identity(self) -> EmbeddedIdentity | None: ...
    @property
    def distinct_errors(self) -> bool: ...
    async def metrics_text(self) -> bytes: ...
    def note_denial(self, request: "Request", privileges: list[str], securable: str) -> None: ...
    def note_failed_login(self, error: NotAuthenticated, action: str, host: str) -> None: ...
    def note_issued_token(self, request: "Request", principal: str) -> None: ...


class Request:
    """One HTTP request, matched to a route; `path_names` are the raw path segments that stand for names."""

    __slots__ = (
        "_query",
        "asked_warehouse",
        "body",
        "caller",
        "catalog",
        "context",
        "decoded",
        "guard",
        "headers",
        "host",
        "known",
        "method",
        "path_names",
        "query_string",
        "replaces",
        "securable",
        "warehouse",
    )

    def __init__(
        self,
        catalog: Catalog,
        warehouse: WarehousePlace,
        method: str,
        path_names: Sequence[str],
        query_string: bytes,
        headers: dict[bytes, bytes],
        context: "Context",
    ) -> None:
        self.catalog = catalog
        self.warehouse = warehouse
        self.method = method
        self.path_names = path_names
        self.query_string = query_string
        self.headers = headers
        self.context = context
        self.asked_warehouse = ""  # as the client named it: by name, by location, or empty
        self.body = b""
        self.caller = STRANGER
        self.decoded: tuple[object, object] | None = None  # the type or decoder of the body, and the decoded value
        self.guard: Guard | None = None  # if `known` is None, every request is allowed
        self.known: Known | None = None
        self.host = ""  # the client's address; behind a trusted proxy, the forwarded one
        self.securable = ""  # the target of the request, for audit records; set by admission
        self.replaces = False  # whether it was admitted to replace a table, not only to create one
        self._query: Mapping[str, str] | None = None

    @property
    def session(self) -> Session | None:
        """The caller's session; None without authentication."""
        return None if self.known is None else self.known.session

    @property
    def actor(self) -> Actor:
        """The author of a change, as the audit trail records it."""
        caller, session = self.caller, self.session
        external = session is None or session.is_external
        return Actor(caller.principal, self.catalog.now_ms(), caller.request_id, caller.origin, external)

    async def rights(self, securable: str) -> int:
        """Returns the caller's rights on the securable, as a bit mask of privileges."""
        if self.known is None or self.guard is None:
            return int(EVERYTHING)
        (held,) = await self.guard.ask(self.known, [securable])
        return held

    @property
    def query(self) -> Mapping[str, str]:
        if not self.query_string:
            return _NO_QUERY
        if self._query is None:
            try:
                text = self.query_string.decode("ascii")
                self._query = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict"))
            except (UnicodeDecodeError, ValueError) as error:
                raise BadRequest(f"Malformed query string: {show_text(error)}") from error
        return self._query

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip(" \t")  # RFC 9110: not part of a value

    def namespace(self) -> Namespace:
        """Returns the namespace of the path; raises BadRequest if it is invalid."""
        return check_namespace(split_namespace(self.path_names[0], self.catalog.namespace_separator))

    def identifier(self, what: str) -> Identifier:
        """Returns the table or view of the path; raises BadRequest if it is invalid."""
        return _identifier(self.path_names[0], self.path_names[1], self.catalog.namespace_separator, what)

    def flag(self, name: str) -> bool:
        """Returns a boolean query parameter; absent means false. Raises BadRequest."""
        text = self.query.get(name, "false").lower()
        if text not in ("true", "false"):
            raise BadRequest(f"Invalid {name}: {text[:50]!r} is neither true nor false")
        return text == "true"

    def decode(self, kind: type[Body]) -> Body:
        """Returns the body as `kind`, or raises BadRequest; decoded once, for admission and handler."""
        if self.decoded is not None and self.decoded[0] is kind:
            return cast("Body", self.decoded[1])
        try:
            check_utf8(self.body)
            value = msgspec.json.decode(self.body, type=kind)
        except msgspec.ValidationError as error:
            raise BadRequest(f"Malformed request: {_error_text(error)}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"Malformed request: the body is not valid JSON: {error}") from error
        except RecursionError as error:
            raise BadRequest("Malformed request: nested too deeply") from error
        self.decoded = kind, value
        return value


def _error_text(error: msgspec.ValidationError) -> str:
    """Returns the decoder's message with the part shortened that may quote the client; the last is the path."""
    what, separator, place = str(error).rpartition(" - at ")
    return f"{show_text(what)}{separator}{place}" if separator else show_text(place)


@lru_cache(maxsize=8192)  # clients name the same tables repeatedly
def _identifier(namespace: str, name: str, separator: str, what: str) -> Identifier:
    return Identifier(check_namespace(split_namespace(namespace, separator)), check_name(decode_segment(name), what))


def decode_segment(raw: str) -> str:
    """Returns a raw path segment percent-decoded; `+` is a space, as Java's URLEncoder writes it."""
    if "%" not in raw and "+" not in raw:
        return raw
    try:
        return unquote_plus(raw, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"Malformed path: {raw[:100]!r} is not valid UTF-8") from error


def split_namespace(raw: str, separator: str) -> Namespace:
    """Returns the levels of a raw namespace segment; split before decoding, so a level may contain the separator."""
    if "%" not in raw and separator == "\x1f":  # the common case: one level, nothing to decode
        return (raw.replace("+", " "),) if "+" in raw else (raw,)
    text = raw.replace("%1f", "%1F")
    if separator != "\x1f":
        text = text.replace(_encode_separator(separator), "%1F").replace(_encode_separator(separator).lower(), "%1F")
    return tuple(decode_segment(level) for level in text.split("%1F"))


def _encode_separator(separator: str) -> str:
    # quote() never encodes these four characters.
    return quote(separator, safe="") if separator not in ".-_~" else f"%{ord(separator):02X}"


def split_parent(value: str, separator: str) -> Namespace:
    """Returns the levels of the `parent` parameter, which is already decoded."""
    return tuple(value.replace(separator, "\x1f").split("\x1f"))


def mark_sender(request: Request) -> None:
    """Sets SENDER, by which large work is queued: the principal, or the address without authentication."""
    caller = request.caller
    host = caller.address[0] if caller.address is not None else ""
    SENDER.set(caller.principal if request.known is not None else request.host or host)


async def decode_body(request: Request, decode: Callable[[bytes], Body]) -> Body:
    """Returns the body decoded once by `decode`; a large body is decoded in a thread, one at a time per sender."""
    mark_sender(request)
    if request.decoded is None or request.decoded[0] is not decode:
        if len(request.body) > LARGE_BYTES:
            request.decoded = decode, await request.catalog.large_work.run(decode, request.body)
        else:
            request.decoded = decode, decode(request.body)
    return cast("Body", request.decoded[1])


def compress(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(body)
    return gzip.compress(body, 1, mtime=0)


def choose_encoding(header: str) -> str | None:
    """Returns gzip or zstd if the client accepts it, else None; gzip first, since every client decodes it."""
    offered: dict[str, bool] = {}
    for item in header.split(","):
        name, _, rest = item.partition(";")
        offered[name.strip().lower()] = rest.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    for name in ("gzip", "zstd"):
        if offered.get(name):
            return name
    return None


def error_response(error: CatalogError, *, distinct: bool = False) -> Response:
    """Returns the Iceberg error envelope; the HTTP status and the code in the body are always equal."""
    status, kind = status_and_type(error, distinct=distinct)
    model: dict[str, object] = {"message": error.message, "type": kind, "code": status}
    if error.hint:
        model["hint"] = error.hint
    headers = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in error.headers]
    return Response(status, msgspec.json.encode({"error": model}), (JSON_TYPE, *headers))
