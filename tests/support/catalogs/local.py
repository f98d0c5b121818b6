"""The whole server in this process, without a socket: its counters, its clock and its settings are at hand."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import apsw

from nunatak.access import administration, securables
from nunatak.access.administration import Actor
from nunatak.access.credentials import new_api_key
from nunatak.access.privileges import EVERYTHING
from nunatak.access.sessions import principal_grantee
from nunatak.access.vault import Vault
from nunatak.api.app import App
from nunatak.api.http import RequestHead, Response, join_headers
from nunatak.catalog.jobs import run_next
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from nunatak.server import build_app, close_app
from nunatak.settings import Settings, load
from tests.api.wire import Answer, a_table, a_view, ok, path_of
from tests.support.described import check_described

T = TypeVar("T")

ADMINISTRATOR = "root"
MOST_JOBS = 1000  # at once; more than any test makes
# A test asks as one caller, and on a fast machine more often than one may.
AUTH = {"NUNATAK_AUTH": "embedded", "NUNATAK_RATE_LIMIT": "0", "NUNATAK_ADDRESS_RATE_LIMIT": "0"}


def settings_of(data: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of a server on this data folder; no configuration file is read."""
    return load({"data": data}, {"NUNATAK_CONFIG": os.devnull, **(environment or {})})


@asynccontextmanager
async def opened_app(settings: Settings, *, exclusive: bool = True) -> AsyncIterator[App]:
    """The application of LocalCatalog for a test that has an event loop of its own."""
    app = await build_app(settings, exclusive=exclusive)
    try:
        yield app
    finally:
        await close_app(app)


async def create_administrator(store: Store, vault: Vault, now_ms: int) -> str:
    """Create the principal that may do everything; returns its API key."""
    actor = Actor(ADMINISTRATOR, now_ms)
    key = new_api_key(vault)
    everything = administration.parse_privileges(["SERVER_ADMIN"])
    await store.apply(administration.create_principal(actor, ADMINISTRATOR))
    await store.apply(administration.create_credential(actor, ADMINISTRATOR, key))
    await store.apply(
        administration.grant(actor, int(EVERYTHING), principal_grantee(ADMINISTRATOR), securables.SERVER, everything)
    )
    return key.shown.reveal()


@dataclass
class Clock:
    """Real time plus what a test adds to it."""

    added_ms: int = 0


def answer_of(method: str, response: Response) -> Answer:
    """As a client sees it."""
    shown = {name.decode(): value.decode() for name, value in response.headers}
    return Answer(response.status, shown, b"" if method == "HEAD" else response.body)


class LocalCatalog:
    """One server on one data folder; `call` is a request, `together` are requests at the same time.

    With `auth`, embedded authentication is on: `call` is by the administrator, `call_as` by whoever is named. Several
    catalogs can share the event loop of one `runner`; `now_ms` replaces the real time.
    """

    def __init__(
        self,
        data: Path,
        environment: Mapping[str, str] | None = None,
        *,
        auth: bool = False,
        runner: asyncio.Runner | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.data = data
        self.clock = Clock()
        self.keys: dict[str, str] = {}  # the API key of each principal
        self._settings = settings_of(data, {**(AUTH if auth else {}), **(environment or {})})
        self._now_ms = now_ms
        self._owns_runner = runner is None
        self._runner = runner or asyncio.Runner()
        try:
            self.start()
            if auth:
                made = create_administrator(self.app.catalog.store, self._vault(), self.app.catalog.now_ms())
                self.keys[ADMINISTRATOR] = self.run(made)
        except BaseException:
            self._close_runner()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        by = self.headers(ADMINISTRATOR) if self.keys else {}
        return self.call_anonymously(method, path, body, {**by, **(headers or {})})

    def together(self, *requests: Coroutine[Any, Any, Answer]) -> list[Answer]:
        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(*requests)

        return self.run(all_of_them())

    async def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request by nobody in particular, as the HTTP server hands it over."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        raw_path, _, query = path.partition("?")
        listed = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        head = RequestHead(method, raw_path.encode("latin-1"), query.encode("latin-1"), join_headers(listed))

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        answer = answer_of(method, await self.app.respond(head, receive))
        if "content-encoding" not in answer.headers:
            check_described(method, raw_path, answer.status, answer.headers.get("content-type"), answer.body)
        return answer

    # What many tests begin with

    def namespace(self, *levels: str, **properties: str) -> None:
        ok(self.call("POST", "/v1/namespaces", {"namespace": list(levels), "properties": properties}))

    def table(self, namespace: str, name: str, **fields: Any) -> Any:
        return ok(self.call("POST", path_of(namespace, "tables"), a_table(name, **fields)))

    def view(self, namespace: str, name: str, **fields: Any) -> Any:
        return ok(self.call("POST", path_of(namespace, "views"), a_view(name, **fields)))

    def load(self, namespace: str, name: str, kind: str = "tables") -> Any:
        return ok(self.call("GET", path_of(namespace, kind, name)))

    def commit(self, namespace: str, name: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        return self.call("POST", path_of(namespace, "tables", name), body, headers)

    # Principals, with `auth`

    def principal(self, name: str, **granted: str) -> str:
        """Make it, with an API key; `granted` maps securables (server, or warehouse__a__b for a path) to privileges."""
        store, key = self.app.catalog.store, new_api_key(self._vault())
        self.run(store.apply(administration.create_principal(self._actor(), name)))
        self.run(store.apply(administration.create_credential(self._actor(), name, key)))
        self.keys[name] = key.shown.reveal()
        for where, privileges in granted.items():
            self.grant(name, where, privileges)
        return name

    def grant(self, name: str, where: str, privileges: str) -> None:
        wanted = administration.parse_privileges(privileges.split(","))
        changes = administration.grant(
            self._actor(), int(EVERYTHING), principal_grantee(name), securable(where), wanted
        )
        self.run(self.app.catalog.store.apply(changes))

    def revoke(self, name: str, where: str, privileges: str) -> None:
        wanted = administration.parse_privileges(privileges.split(","))
        store = self.app.catalog.store
        changes = self.run(
            administration.revoke(
                store, self._actor(), int(EVERYTHING), principal_grantee(name), securable(where), wanted
            )
        )
        self.run(store.apply(changes))

    def headers(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}"}

    def call_as(
        self, name: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self.call_anonymously(method, path, body, {**self.headers(name), **(headers or {})})

    def call_anonymously(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """With no more than the given headers."""
        return self.run(self.request(method, path, body, headers))

    def _actor(self) -> Actor:
        return Actor(ADMINISTRATOR, self.app.catalog.now_ms())

    def _vault(self) -> Vault:
        assert self.app.vault is not None
        return self.app.vault

    # What stands behind the answers

    @property
    def store(self) -> SqliteStore:
        store = self.app.catalog.store
        assert isinstance(store, SqliteStore)
        return store

    @property
    def warehouse(self) -> Path:
        return self.data / "warehouse"

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What the database holds, read beside the server."""
        connection = apsw.Connection(str(self.data / "nunatak.db"))
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def files(self) -> set[str]:
        """Every file below the warehouse."""
        return {str(file.relative_to(self.warehouse)) for file in self.warehouse.rglob("*") if file.is_file()}

    def state(self) -> tuple[object, ...]:
        """Everything a request could have changed."""
        return (
            self.rows("SELECT * FROM iceberg_tables ORDER BY 1, 2, 3"),
            self.rows("SELECT * FROM iceberg_namespace_properties ORDER BY 1, 2, 3"),
            self.files(),
        )

    def work_off_jobs(self) -> int:
        """Do every job that is due; returns how many there were."""

        async def all_of_them() -> int:
            count = 0
            while count < MOST_JOBS and await run_next(self.app.catalog):
                count += 1
            return count

        return self.run(all_of_them())

    # Start and stop

    def start(self) -> None:
        self.app = self.run(build_app(self._settings))
        real = self._now_ms or self.app.catalog.now_ms
        self.app.catalog = replace(self.app.catalog, now_ms=lambda: real() + self.clock.added_ms)

    def stop(self) -> None:
        self.run(close_app(self.app))

    def restart(self) -> None:
        """Stop cleanly and start again on the same folder, with nothing in memory."""
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        self._close_runner()

    def _close_runner(self) -> None:
        if self._owns_runner:
            self._runner.close()


def securable(where: str) -> str:
    """`server`, `default`, `default__sales`, `default__sales____orders`: four underscores before a table."""
    if where == "server":
        return securables.SERVER
    container, _, entry = where.partition("____")
    warehouse, *levels = container.split("__")
    if entry:
        return securables.entry(warehouse, tuple(levels), entry)
    return securables.namespace(warehouse, tuple(levels))


def metadata_file(loaded: Any) -> Path:
    """The file on disk that an answer's metadata-location names."""
    return Path(loaded["metadata-location"].removeprefix("file://"))
