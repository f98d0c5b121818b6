"""The whole server in this process, without a socket: its counters, its clock and its settings are at hand."""

import asyncio
import json
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import apsw

from nunatak.api.app import App
from nunatak.api.http import RequestHead, Response, join_headers
from nunatak.catalog.jobs import run_next
from nunatak.database.sqlite import SqliteStore
from nunatak.server import build_app, close_app
from nunatak.settings import load
from tests.api.wire import Answer, a_table, a_view, ok, path_of
from tests.support.described import check_described

T = TypeVar("T")


@dataclass
class Clock:
    """Real time plus what a test adds to it."""

    added_ms: int = 0


def answer_of(method: str, response: Response) -> Answer:
    """As a client sees it."""
    shown = {name.decode(): value.decode() for name, value in response.headers}
    return Answer(response.status, shown, b"" if method == "HEAD" else response.body)


class LocalCatalog:
    """One server on one data folder; `call` is a request, `together` are requests at the same time."""

    def __init__(self, data: Path, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.clock = Clock()
        self._environment = {"NUNATAK_CONFIG": os.devnull, **(environment or {})}
        self._runner = asyncio.Runner()
        try:
            self.app = self._build()
        except BaseException:
            self._runner.close()
            raise

    def _build(self) -> App:
        app = self._runner.run(build_app(load({"data": self.data}, self._environment)))
        real = app.catalog.now_ms
        app.catalog = replace(app.catalog, now_ms=lambda: real() + self.clock.added_ms)
        return app

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        return self.run(self.request(method, path, body, headers))

    def together(self, *requests: Coroutine[Any, Any, Answer]) -> list[Answer]:
        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(*requests)

        return self.run(all_of_them())

    async def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request, as the HTTP server hands it over."""
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
            while count < 1000 and await run_next(self.app.catalog):
                count += 1
            return count

        return self.run(all_of_them())

    def restart(self) -> None:
        """Stop cleanly and start again on the same folder, with nothing in memory."""
        self.run(close_app(self.app))
        self.app = self._build()

    def close(self) -> None:
        self.run(close_app(self.app))
        self._runner.close()


def metadata_file(loaded: Any) -> Path:
    """The file on disk that an answer's metadata-location names."""
    return Path(loaded["metadata-location"].removeprefix("file://"))
