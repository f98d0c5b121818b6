"""A target of an earlier version: it would treat shadows as its own tables, so nothing is begun with it."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nunatak.client import Client
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.catalog_state import open_catalog_state
from nunatak_spark.migration.shadow_flags import require_shadow_support

NO_ROUTE = {"error": {"message": "No route for request: GET /x", "type": "BadRequestException", "code": 400}}
NOT_FOUND = {"error": {"message": "Not found", "type": "NotFoundException", "code": 404}}
ANSWERS = [(400, NO_ROUTE), (404, NOT_FOUND), (404, {"detail": "nothing of Iceberg's"})]


@pytest.fixture(params=ANSWERS, ids=["no route", "not found", "another server"])
def older(request: pytest.FixtureRequest) -> Iterator[str]:
    """It knows its warehouses and nothing that came later."""
    status, refusal = request.param

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path.startswith("/management/v1/warehouses")
            body = {"warehouses": [{"name": "default", "default": True}]} if is_known else refusal
            data = json.dumps(body).encode()
            self.send_response(200 if is_known else status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_target_that_does_not_know_shadows_is_refused(older: str) -> None:
    with Client(older) as client, pytest.raises(CannotRun, match="does not know shadows") as raised:
        require_shadow_support(client)

    assert raised.value.fix == "Upgrade the target's server first."


def test_a_target_that_keeps_no_state_is_refused(older: str, tmp_path: Path) -> None:
    with (
        pytest.raises(CannotRun, match="keeps no state of migrations"),
        open_catalog_state(lambda: Client(older), "m", "inventory", create=True),
    ):
        pass
