"""A request and an answer as our handlers see them; nothing here knows a route."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast
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
COMPRESS_FROM_BYTES = 16 * 1024  # below this the sender's CPU costs more than the wire

Body = TypeVar("Body")


class RequestHead:
    """What a request says before its body: path and query as they were sent, names of headers in small letters.

    It may be shared by many requests: nothing in it is changed.
    """

    __slots__ = ("headers", "method", "path", "query")

    def __init__(self, method: str, path: bytes, query: bytes, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers


def join_headers(listed: Headers) -> dict[bytes, bytes]:
    """By name; of a header that came several times no copy hides another, least of all one that a proxy has set."""
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
        self.packed = packed  # where compressed forms of this very body are kept, if anywhere


def json_response(value: object, *headers: tuple[bytes, bytes], status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), (JSON_TYPE, *headers))


def raw_json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, (JSON_TYPE,))


NO_CONTENT = Response(204)
_NO_QUERY: Mapping[str, str] = {}
STRANGER = Caller()


class Context(Protocol):
    """What handlers use of the application that serves them; app.py is it."""

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
        "touched",
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
        self.asked_warehouse = ""  # as the client named it: by its name, by its location, or not at all
        self.body = b""
        self.caller = STRANGER
        self.decoded: tuple[object, object] | None = None  # how the body was decoded, and what it is
        self.guard: Guard | None = None  # with `known` None, everybody may do everything
        self.known: Known | None = None
        self.host = ""  # the client's address, if rights are asked for; behind a trusted proxy, as that tells it
        self.securable = ""  # what the request is about, as far as its admission had to know
        self.replaces = False  # whether it was admitted to replace a table, not only to create one
        self.touched: list[Any] = []  # what its handler was about to change: see telling.py
        self._query: Mapping[str, str] | None = None

    @property
    def session(self) -> Session | None:
        """Who asks; None if this server does not want to know."""
        return None if self.known is None else self.known.session

    @property
    def actor(self) -> Actor:
        """Who makes a change, as it is recorded."""
        caller, session = self.caller, self.session
        external = session is None or session.is_external
        return Actor(caller.principal, self.catalog.now_ms(), caller.request_id, caller.origin, external)

    async def rights(self, securable: str) -> int:
        """What the caller may do there, as a sum of privileges."""
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
        return None if value is None else value.decode("latin-1").strip(" \t")  # RFC 9110: no part of a value

    def namespace(self) -> Namespace:
        """The namespace of the path, checked."""
        return check_namespace(split_namespace(self.path_names[0], self.catalog.namespace_separator))

    def identifier(self, what: str) -> Identifier:
        """The table or view of the path, checked."""
        return _identifier(self.path_names[0], self.path_names[1], self.catalog.namespace_separator, what)

    def flag(self, name: str) -> bool:
        """A boolean query parameter; absent means false."""
        text = self.query.get(name, "false").lower()
        if text not in ("true", "false"):
            raise BadRequest(f"Invalid {name}: {text[:50]!r} is neither true nor false")
        return text == "true"

    def decode(self, kind: type[Body]) -> Body:
        """The body as `kind`, or BadRequest saying what is wrong with it; admission and handler share one decoding."""
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
    """What the decoder found, which may quote the client, and where, which comes last."""
    what, separator, place = str(error).rpartition(" - at ")
    return f"{show_text(what)}{separator}{place}" if separator else show_text(place)


@lru_cache(maxsize=8192)  # clients name the same tables again and again
def _identifier(namespace: str, name: str, separator: str, what: str) -> Identifier:
    return Identifier(check_namespace(split_namespace(namespace, separator)), check_name(decode_segment(name), what))


def decode_segment(raw: str) -> str:
    """One path segment as sent: percent-decoded, and a plus is a space, as Java's encoder means it."""
    if "%" not in raw and "+" not in raw:
        return raw
    try:
        return unquote_plus(raw, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"Malformed path: {raw[:100]!r} is not valid UTF-8") from error


def split_namespace(raw: str, separator: str) -> Namespace:
    """The levels of a namespace segment. It is split before decoding, so a level may hold the separator's character."""
    if "%" not in raw and separator == "\x1f":
        return (raw.replace("+", " "),) if "+" in raw else (raw,)
    text = raw.replace("%1f", "%1F")
    if separator != "\x1f":
        text = text.replace(_encode_separator(separator), "%1F").replace(_encode_separator(separator).lower(), "%1F")
    return tuple(decode_segment(level) for level in text.split("%1F"))


def _encode_separator(separator: str) -> str:
    return quote(separator, safe="") if separator not in ".-_~" else f"%{ord(separator):02X}"


def split_parent(value: str, separator: str) -> Namespace:
    """The levels of the `parent` parameter, which arrives decoded."""
    return tuple(value.replace(separator, "\x1f").split("\x1f"))


def mark_sender(request: Request) -> None:
    """Who sent it: somebody known, or an address."""
    caller = request.caller
    host = caller.address[0] if caller.address is not None else ""
    SENDER.set(caller.principal if request.known is not None else request.host or host)


async def decode_body(request: Request, decode: Callable[[bytes], Body]) -> Body:
    """The body as `decode` reads it, in a thread if it is large; what follows from it waits for its sender's turn."""
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
    """gzip or zstd if the client takes it; gzip first, since every client decodes it."""
    offered: dict[str, bool] = {}
    for item in header.split(","):
        name, _, rest = item.partition(";")
        offered[name.strip().lower()] = rest.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    for name in ("gzip", "zstd"):
        if offered.get(name):
            return name
    return None


def error_response(error: CatalogError, *, distinct: bool = False) -> Response:
    """The Iceberg error envelope; the status line and the code inside always agree."""
    status, kind = status_and_type(error, distinct=distinct)
    model: dict[str, object] = {"message": error.message, "type": kind, "code": status}
    if error.hint:
        model["hint"] = error.hint
    headers = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in error.headers]
    return Response(status, msgspec.json.encode({"error": model}), (JSON_TYPE, *headers))
