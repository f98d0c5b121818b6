"""A small synchronous HTTP client of the catalog, for the command line and the Spark jobs; no decisions of its own."""

import gzip
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID

from nunatak import __version__, errors

Json = dict[str, Any]
Levels = tuple[str, ...]

TIMEOUT_SECONDS = 60
PAGE_SIZE = 1000
NOT_KNOWN = (401, 419)  # Spec: 419 is for an expired token
SEPARATOR = "\x1f"  # Spec, namespace path parameter: every server understands the unit separator.


class ServerUnreachable(ConnectionError):
    """No server answered; not a CatalogError, since the catalog did not refuse anything."""


class NoAddress(ServerUnreachable):
    """The URI is not the address of a catalog; a retry does not help."""


@dataclass(frozen=True)
class ClientCredential:
    """The id and secret of an OAuth client, exchanged for access tokens."""

    client_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class ServerResponse:
    """A response, its body decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        if not self.body:
            return {}
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise ValueError("the answer is not a JSON object")
        return value


class Client:
    """One connection to one warehouse of a catalog; an error response is raised as the error that it names.

    A token is requested only after a 401: the secret is not sent to a server that does not require a login.
    """

    def __init__(
        self,
        uri: str,
        *,
        warehouse: str | None = None,
        token: str | None = None,
        credential: ClientCredential | None = None,
        new_key: Callable[[], str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        try:
            parts = urlsplit(uri if "//" in uri else f"http://{uri}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None or parts.scheme not in {"http", "https"}:
            raise NoAddress(f"{uri!r} is not the address of a catalog; write it like http://127.0.0.1:8181")
        self.uri = uri.rstrip("/")
        self.warehouse = warehouse
        self._token = token
        self._credential = credential
        self._new_key = new_key or new_idempotency_key
        self._headers = dict(headers or {})  # that another catalog requires with each request
        # Users give URIs with and without /v1; the paths below include it.
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=timeout_seconds, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        self._prefix: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    # Namespaces

    def list_namespaces(self, parent: Levels = ()) -> Iterator[Levels]:
        query = {"parent": SEPARATOR.join(parent)} if parent else {}
        for level in self._pages(("namespaces",), query, "namespaces"):
            yield tuple(level)

    def walk_namespaces(self, parent: Levels = ()) -> Iterator[Levels]:
        """Yields every namespace below `parent`, each before its children."""
        for namespace in self.list_namespaces(parent):
            yield namespace
            yield from self.walk_namespaces(namespace)

    def load_namespace(self, namespace: Levels) -> Json:
        return self.call("GET", _namespace(namespace))

    def create_namespace(self, namespace: Levels, properties: Mapping[str, str]) -> Json:
        return self.call("POST", ("namespaces",), {"namespace": list(namespace), "properties": dict(properties)})

    def update_namespace(self, namespace: Levels, updates: Mapping[str, str], removals: Sequence[str]) -> Json:
        changes = {"updates": dict(updates), "removals": list(removals)}
        return self.call("POST", (*_namespace(namespace), "properties"), changes)

    def drop_namespace(self, namespace: Levels) -> None:
        self.call("DELETE", _namespace(namespace))

    # Tables

    def list_tables(self, namespace: Levels) -> Iterator[Levels]:
        for identifier in self._pages((*_namespace(namespace), "tables"), {}, "identifiers"):
            yield (*identifier["namespace"], identifier["name"])

    def load_table(self, name: Levels) -> Json:
        return self.call("GET", _entry("tables", name))

    def table_exists(self, name: Levels) -> bool:
        """Whether a table of that name exists and is visible to the caller."""
        answer = self.send("HEAD", self._path(_entry("tables", name)))
        return answer.status != errors.NotFound.status and bool(self._refuse_errors(answer))

    def create_table(self, name: Levels, request: Json) -> Json:
        return self.call("POST", (*_namespace(name[:-1]), "tables"), {"name": name[-1], **request})

    def commit_table(self, name: Levels, requirements: Sequence[Json], updates: Sequence[Json]) -> Json:
        commit = {"identifier": _identifier(name), "requirements": list(requirements), "updates": list(updates)}
        return self.call("POST", _entry("tables", name), commit)

    def drop_table(self, name: Levels, *, purge: bool = False) -> None:
        self.call("DELETE", _entry("tables", name), query={"purgeRequested": "true" if purge else "false"})

    def rename_table(self, source: Levels, destination: Levels) -> None:
        self.call("POST", ("tables", "rename"), _renaming(source, destination))

    def register_table(
        self, name: Levels, metadata_location: str, *, overwrite: bool = False, shadow_of: str | None = None
    ) -> Json:
        """Registers a table; `shadow_of` names its source if another catalog still owns it, see `set_shadow`."""
        request: Json = {"name": name[-1], "metadata-location": metadata_location, "overwrite": overwrite}
        if shadow_of is not None:
            request["shadow-of"] = shadow_of
        return self.call("POST", (*_namespace(name[:-1]), "register"), request)

    # Views

    def list_views(self, namespace: Levels) -> Iterator[Levels]:
        for identifier in self._pages((*_namespace(namespace), "views"), {}, "identifiers"):
            yield (*identifier["namespace"], identifier["name"])

    def load_view(self, name: Levels) -> Json:
        return self.call("GET", _entry("views", name))

    def create_view(self, name: Levels, request: Json) -> Json:
        return self.call("POST", (*_namespace(name[:-1]), "views"), {"name": name[-1], **request})

    def drop_view(self, name: Levels) -> None:
        self.call("DELETE", _entry("views", name))

    def rename_view(self, source: Levels, destination: Levels) -> None:
        self.call("POST", ("views", "rename"), _renaming(source, destination))

    def register_view(self, name: Levels, metadata_location: str) -> Json:
        request = {"name": name[-1], "metadata-location": metadata_location}
        return self.call("POST", (*_namespace(name[:-1]), "register-view"), request)

    # Both

    def search(self, text: str, kind: str | None = None) -> Iterator[Json]:
        query = {"query": text} if kind is None else {"query": text, "type": kind}
        yield from self._pages(("search",), query, "results")

    def load_config(self) -> Json:
        query = "" if self.warehouse is None else "?" + urlencode({"warehouse": self.warehouse})
        return self._refuse_errors(self.send("GET", f"/v1/config{query}")).json()

    # The management API

    def manage(
        self,
        method: str,
        segments: Sequence[str],
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Calls the management API; `segments` of the path are not yet encoded."""
        path = "/".join(quote(segment, safe="") for segment in segments)
        parameters = f"?{urlencode(query)}" if query else ""
        return self._refuse_errors(self.send(method, f"/management/v1/{path}{parameters}", body)).json()

    def manage_pages(
        self, segments: Sequence[str], member: str, query: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Yields all items of a paginated list of the management API."""
        return _pages(lambda page: self.manage("GET", segments, query={**(query or {}), **page}), member)

    def securable_of(self, name: Levels, *, table: bool = False) -> str:
        """Returns `table:WH/A/T`, `namespace:WH/A` or, without a name, `warehouse:WH`, for this client's warehouse."""
        kind = "table" if table else "namespace" if name else "warehouse"
        return f"{kind}:{'/'.join(map(escape_level, (self.warehouse or self.default_warehouse(), *name)))}"

    def default_warehouse(self) -> str:
        """Returns the name of the server's default warehouse."""
        for each in self.manage_pages(("warehouses",), "warehouses"):
            if each["default"]:
                return str(each["name"])
        raise errors.NoSuchWarehouse(
            "The caller may not see the default warehouse", hint="Name another one with --warehouse."
        )

    # Shadows: tables that another catalog still owns

    def list_shadows(self) -> list[Json]:
        """Returns the shadow flags of all tables of the warehouse that the caller may see."""
        return list(self.manage("GET", ("shadows",), query={"securable": self.securable_of(())})["shadows"])

    def find_shadow(self, name: Levels) -> Json | None:
        """Returns the shadow flag of a table, or None."""
        query = {"securable": self.securable_of(name, table=True)}
        return next(iter(self.manage("GET", ("shadows",), query=query)["shadows"]), None)

    def set_shadow(self, name: Levels, source: str, state: str) -> None:
        """Flags a table as `shadow` (no commits, no maintenance) or `cut-over` (no files are deleted)."""
        body = {"securable": self.securable_of(name, table=True), "source": source, "state": state}
        self.manage("PUT", ("shadows",), body)

    def lift_shadow(self, securable: str) -> None:
        """Removes the flag: the table owns its files from now on."""
        self.manage("DELETE", ("shadows",), query={"securable": securable})

    # Below the operations

    def call(
        self,
        method: str,
        segments: Sequence[str],
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Calls an operation of the warehouse; `segments` of the path after the prefix are not yet encoded."""
        parameters = f"?{urlencode(query)}" if query else ""
        return self._refuse_errors(self.send(method, self._path(segments) + parameters, body)).json()

    def _path(self, segments: Sequence[str]) -> str:
        if self._prefix is None:
            config = self.load_config()
            self._prefix = str({**config.get("defaults", {}), **config.get("overrides", {})}.get("prefix", ""))
        path = "/".join(quote(segment, safe="") for segment in segments)
        prefix = f"{quote(self._prefix, safe='')}/" if self._prefix else ""
        return f"/v1/{prefix}{path}"

    def send(self, method: str, path: str, body: Json | None = None) -> ServerResponse:
        """Sends one request; `path` starts with a slash and is encoded. Returns error responses, too.

        A change carries an Idempotency-Key, so it is safe to send it again after a lost response.
        """
        headers = {}
        if method != "GET":
            headers["Idempotency-Key"] = self._new_key()
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        answer = self._sent(method, path, content, headers)
        if answer.status in NOT_KNOWN and self._credential is not None:  # no token yet, or it has expired
            self._token = self._log_in(self._credential)
            answer = self._sent(method, path, content, headers)
        return answer

    def _log_in(self, credential: ClientCredential) -> str:
        """Requests an access token; raises the catalog's error for a wrong secret."""
        self._token = None
        form = {
            "grant_type": "client_credentials",
            "client_id": credential.client_id,
            "client_secret": credential.secret,
            "scope": "catalog",
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self._sent("POST", "/v1/oauth/tokens", urlencode(form).encode(), headers)
        if answer.status >= 300:
            raise _login_refused(answer, self.uri)
        return str(answer.json()["access_token"])

    def _sent(self, method: str, path: str, content: bytes | None, more: Mapping[str, str]) -> ServerResponse:
        """Sends a request, a second time if the connection was lost; raises ServerUnreachable."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": f"nunatak/{__version__}"}
        headers.update(self._headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        headers.update(more)
        try:
            try:
                return self._exchange(method, path, content, headers)
            # The server may have closed an idle keep-alive connection.
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self._connection.close()
                return self._exchange(method, path, content, headers)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ServerUnreachable(
                f"no catalog answers at {self.uri} ({error or type(error).__name__}); start one with `nunatak serve`, "
                "or name another with --uri or NUNATAK_URI"
            ) from error

    def _exchange(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> ServerResponse:
        self._connection.request(method, self._root + path, body=content, headers=dict(headers))
        response = self._connection.getresponse()
        received = response.read()
        names = {name.lower(): value for name, value in response.getheaders()}
        if names.get("content-encoding") == "gzip":
            received = gzip.decompress(received)
        return ServerResponse(response.status, names, received)

    def _refuse_errors(self, answer: ServerResponse) -> ServerResponse:
        if answer.status < 300 or answer.status == 304:
            return answer
        raise error_of(answer, self.uri)

    def _pages(self, segments: Sequence[str], query: Mapping[str, str], member: str) -> Iterator[Any]:
        return _pages(lambda page: self.call("GET", segments, query={**query, **page}), member)


def _pages(ask: Callable[[Mapping[str, str]], Json], member: str) -> Iterator[Any]:
    token = ""
    while True:
        page = ask({"pageToken": token, "pageSize": str(PAGE_SIZE)})
        yield from page.get(member, [])
        following = page.get("next-page-token")
        if not following or following == token:
            return
        token = following


def escape_level(level: str) -> str:
    """Escapes a level of a name for a securable."""
    return level.replace("%", "%25").replace("/", "%2F")


def new_idempotency_key() -> str:
    """Returns a UUIDv7, as the REST specification requires: the time in milliseconds, then random bits."""
    stamp = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    return str(UUID(int=stamp << 80 | 0x7 << 76 | (random >> 68) << 64 | 0b10 << 62 | random & (1 << 62) - 1))


def error_of(answer: ServerResponse, uri: str) -> errors.CatalogError:
    """Returns the error of a response, chosen by its status and Iceberg type or, failing that, by its status."""
    try:
        model = answer.json()["error"]
        message, kind, hint = str(model["message"]), str(model.get("type")), model.get("hint")
    except (ValueError, KeyError, TypeError):
        return errors.CatalogError(
            f"{uri} answered {answer.status} without an Iceberg error",
            hint="the address may belong to something that is not a catalog, or to a proxy in front of it",
        )
    kinds = [known for known in _tree(errors.CatalogError) if known.status == answer.status]
    chosen = next((known for known in kinds if known.iceberg_type == kind), None)
    return (chosen or next(iter(kinds), errors.CatalogError))(message, hint=hint)


def is_unknown_route(error: errors.CatalogError) -> bool:
    """Whether a server has no such route: an older version, or not Nunatak."""
    is_plain = type(error) in {errors.NotFound, errors.MethodNotAllowed, errors.CatalogError}
    return is_plain or (type(error) is errors.BadRequest and error.message.startswith("No route for request"))


def _login_refused(answer: ServerResponse, uri: str) -> errors.CatalogError:
    """Returns the error of a failed login, whose body has the format of OAuth, not of the catalog's errors."""
    try:
        said = answer.json()
        if isinstance(said.get("error"), str):
            return errors.NotAuthenticated(str(said.get("error_description") or said["error"]))
    except ValueError:
        pass
    return error_of(answer, uri)


def _tree(kind: type[errors.CatalogError]) -> Iterator[type[errors.CatalogError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


def _namespace(levels: Levels) -> tuple[str, str]:
    return ("namespaces", SEPARATOR.join(levels))


def _entry(kind: str, name: Levels) -> tuple[str, ...]:
    return (*_namespace(name[:-1]), kind, name[-1])


def _identifier(name: Levels) -> Json:
    return {"namespace": list(name[:-1]), "name": name[-1]}


def _renaming(source: Levels, destination: Levels) -> Json:
    return {"source": _identifier(source), "destination": _identifier(destination)}
