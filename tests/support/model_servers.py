"""Servers in this process that a model is held against: requests by the name of their operation, on any database."""

import asyncio
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvloop

from nunatak.api.http import RequestHead
from nunatak.catalog.catalog import WarehousePlace
from nunatak.objectstore.location import parse_location
from tests.support import mariadb, postgres
from tests.support.catalogs.local import MOST_JOBS, LocalCatalog
from tests.support.model import Answer, Model, Request

MOMENT = 1_750_000_000_000  # where the clock starts; it moves only when somebody moves it


class ModelServers:
    """Servers on one database, with a warehouse of its own for every catalog that is tried out."""

    def __init__(self, folder: Path, database_url: str = "", servers: int = 1) -> None:
        self.root = folder / "warehouse"
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._numbers = itertools.count(1)
        self.warehouse = ""
        self.now_ms = MOMENT
        self.steps = 0
        self.divergences: list[str] = []
        self.seed = 0
        self.salt = ""
        environment = {"NUNATAK_DATABASE_URL": database_url}
        self.catalogs = [
            LocalCatalog(folder, environment, runner=self._runner, now_ms=self.clock(number))
            for number in range(servers)
        ]

    def clock(self, number: int) -> Callable[[], int]:
        return lambda: self.now_ms

    def new_warehouse(self) -> Model:
        """An empty catalog, under a prefix that was never used."""
        shutil.rmtree(self.root / self.warehouse, ignore_errors=True)
        self.warehouse = f"w{next(self._numbers)}"
        self.now_ms = MOMENT
        self._open_warehouse()
        return Model(f"file://{self.root}/{self.warehouse}", self.now_ms)

    def _open_warehouse(self) -> None:
        location = f"file://{self.root}/{self.warehouse}"
        for each in self.catalogs:
            each.app.catalog.warehouses[self.warehouse] = WarehousePlace(
                self.warehouse, location, (parse_location(location),)
            )

    def restart(self) -> None:
        """Stop all of them before the first starts again: nothing is left in memory."""
        for each in self.catalogs:
            each.stop()
        for each in self.catalogs:
            each.start()
        self._open_warehouse()

    def close(self) -> None:
        for each in self.catalogs:
            each.close()
        self._runner.close()

    def send(self, request: Request, which: int, match: str | None = None) -> Answer:
        return self._runner.run(self._request(request, which, match))

    def send_together(self, requests: list[Request], which: int) -> list[Answer]:
        """All at once; where there are several servers, each to another."""

        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(
                *(self._request(each, which + number, None) for number, each in enumerate(requests))
            )

        return self._runner.run(all_of_them())

    async def _request(self, request: Request, which: int, match: str | None) -> Answer:
        method, path, query = path_of(request)
        body = b"" if request.body is None else json.dumps(request.body).encode()
        headers = {b"idempotency-key": request.key.encode()} if request.key is not None else {}
        if match is not None:
            headers[b"if-none-match"] = match.encode()
        app = self.catalogs[which % len(self.catalogs)].app
        raw_path = f"/v1/{self.warehouse}{path}".encode()
        response = await app.respond(RequestHead(method, raw_path, query.encode(), headers), body)
        shown = dict(response.headers)
        etag = shown[b"etag"].decode() if b"etag" in shown else None
        return Answer(response.status, json.loads(response.body) if response.body else None, etag)

    def work_off_jobs(self) -> None:
        done = self.catalogs[0].work_off_jobs()
        assert done < MOST_JOBS, "the jobs do not end"

    def files(self) -> set[str]:
        found = (self.root / self.warehouse).rglob("*")
        return {f"file://{file}" for file in found if file.is_file()}


def path_of(request: Request) -> tuple[str, str, str]:
    """Method, path below the prefix, and query of an operation."""
    target = request.target
    query = request.query
    match request.operation:
        case "createNamespace":
            return "POST", "/namespaces", query
        case "listNamespaces":
            return "GET", "/namespaces", query
        case "renameTable":
            return "POST", "/tables/rename", query
        case "renameView":
            return "POST", "/views/rename", query
        case "commitTransaction":
            return "POST", "/transactions/commit", query
    assert target is not None
    is_name = isinstance(target[0], tuple)
    levels: Any = target[0] if is_name else target
    base = "/namespaces/" + "%1F".join(quote(level, safe="") for level in levels)
    end = quote(target[1], safe="") if is_name else ""
    templates = {
        "loadNamespaceMetadata": ("GET", ""),
        "namespaceExists": ("HEAD", ""),
        "dropNamespace": ("DELETE", ""),
        "updateProperties": ("POST", "/properties"),
        "listTables": ("GET", "/tables"),
        "listViews": ("GET", "/views"),
        "createTable": ("POST", "/tables"),
        "createView": ("POST", "/views"),
        "registerTable": ("POST", "/register"),
        "registerView": ("POST", "/register-view"),
        "loadTable": ("GET", f"/tables/{end}"),
        "tableExists": ("HEAD", f"/tables/{end}"),
        "updateTable": ("POST", f"/tables/{end}"),
        "dropTable": ("DELETE", f"/tables/{end}"),
        "unregisterTable": ("POST", f"/tables/{end}/unregister"),
        "loadView": ("GET", f"/views/{end}"),
        "viewExists": ("HEAD", f"/views/{end}"),
        "replaceView": ("POST", f"/views/{end}"),
        "dropView": ("DELETE", f"/views/{end}"),
    }
    method, rest = templates[request.operation]
    return method, base + rest, query


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder that costs no disk, where there is one: nothing here cuts the power."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="nunatak-model-", dir=shared))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database_of(kind: str) -> Iterator[str]:
    """The address of an empty database on a server of its own; nothing for SQLite, which is a file."""
    if kind == "sqlite":
        yield ""
    elif kind == "postgres":
        if postgres.find_binaries() is None:
            pytest.skip(postgres.NOT_INSTALLED)
        with postgres.running_postgres("fsync=off") as server:
            yield server.new_database()
    else:
        if mariadb.find_server() is None:
            pytest.skip(mariadb.NOT_INSTALLED)
        with mariadb.running_mariadb() as other:
            yield other.new_database()
