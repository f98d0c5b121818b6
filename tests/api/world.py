"""A catalog with one of everything, and a picture of all it holds: what a refused request must leave as it was."""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from tests.api.wire import Answer, a_table, a_view, ok
from tests.support.catalogs.process import RunningServer

ANSWER_SECONDS = 60
MOVED_UUID = "00000000-0000-4000-8000-000000000001"

# Every table a refused request has no business in; only the memory of idempotency keys may grow.
# The bytes beside a pointer are left out: they follow a commit a little later.
_TABLES = (
    "* FROM iceberg_tables",
    "* FROM iceberg_namespace_properties",
    "* FROM iceberg_table_properties",
    "catalog_name, table_namespace, table_name, metadata_location, table_uuid, location FROM nunatak_heads",
    "* FROM nunatak_commits",
    "* FROM nunatak_jobs",
    "* FROM nunatak_reports",
)


@dataclass
class World:
    """Namespace `ns` with the tables `t` and `other` and the view `v`, an empty namespace `empty`, odd files beside."""

    server: RunningServer
    connection: http.client.HTTPConnection
    places: dict[str, str]

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        content = body if body is None or isinstance(body, bytes) else self.fill(json.dumps(body)).encode()
        self.connection.request(method, self.fill(path), content, dict(headers or {}))
        response = self.connection.getresponse()
        shown = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, shown, response.read())

    def raw(self, request: bytes) -> Answer:
        """Exactly these bytes, for what no decent client would send."""
        with socket.create_connection(("127.0.0.1", self.server.port), ANSWER_SECONDS) as sock:
            sock.sendall(request)
            response = http.client.HTTPResponse(sock)
            response.begin()
            shown = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, shown, response.read())

    def fill(self, text: str) -> str:
        """Put real places where a request or a message says WAREHOUSE, OTHER or a file's name in capitals."""
        for name, place in self.places.items():
            text = text.replace(name, place)
        return text

    def state(self) -> tuple[object, ...]:
        database = apsw.Connection(str(self.server.data / "nunatak.db"))
        try:
            rows = [database.execute(f"SELECT {table} ORDER BY 1, 2, 3").fetchall() for table in _TABLES]
        finally:
            database.close()
        return rows, _files(self.server.data / "warehouse"), _files(self.server.data.parent / "outside")


def _files(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def build_world(server: RunningServer) -> World:
    warehouse = server.data / "warehouse"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS)
    world = World(server, connection, {"WAREHOUSE": f"file://{warehouse}"})
    for namespace in ("ns", "empty"):
        ok(world.call("POST", "/v1/namespaces", {"namespace": [namespace], "properties": {"owner": "ann"}}))
    table = ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("t")))
    other = ok(world.call("POST", "/v1/namespaces/ns/tables", a_table("other")))
    view = ok(world.call("POST", "/v1/namespaces/ns/views", a_view("v")))
    world.places |= {
        "OTHER": other["metadata"]["location"],
        "TABLE_FILE": table["metadata-location"],
        "VIEW_FILE": view["metadata-location"],
        "TABLE_UUID": table["metadata"]["table-uuid"],
        "VIEW_UUID": view["metadata"]["view-uuid"],
        "ELSEWHERE": f"file://{server.data.parent / 'outside'}",
    }
    outside = server.data.parent / "outside"
    outside.mkdir()
    _write_odd_files(warehouse, outside, table)
    return world


def _write_odd_files(warehouse: Path, outside: Path, table: Any) -> None:
    """What an attacker who may write into the warehouse could leave there."""
    (warehouse / "link").symlink_to(outside, target_is_directory=True)
    (warehouse / "a-file").write_text("not a folder")
    (warehouse / "blocked").mkdir()
    (warehouse / "blocked" / "data").write_text("where a table's data folder would be")
    (warehouse / "text.metadata.json").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (warehouse / "list.metadata.json").write_text("[]")
    (warehouse / "half.metadata.json").write_text('{"format-version": 2}')
    (warehouse / "torn.gz.metadata.json").write_bytes(b"\x1f\x8b\x08\x00torn")
    moved = table["metadata"] | {"location": f"file://{outside}/table", "table-uuid": MOVED_UUID}
    (warehouse / "moved.metadata.json").write_text(json.dumps(moved))
    (outside / "real.metadata.json").write_text(json.dumps(table["metadata"]))
    (warehouse / "linked.metadata.json").symlink_to(outside / "real.metadata.json")
