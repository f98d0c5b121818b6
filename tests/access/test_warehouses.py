"""Warehouses that are made while servers run: every server learns of them, and none offers what is gone."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nunatak.settings import SettingsError
from tests.api.wire import a_table, ok
from tests.support.catalogs.local import LocalCatalog

WAREHOUSES = "/management/v1/warehouses"


@pytest.fixture
def two_servers(database: str, tmp_path: Path) -> Iterator[tuple[LocalCatalog, LocalCatalog]]:
    """On one database and one folder."""
    environment = {"NUNATAK_DATABASE_URL": database, "NUNATAK_DATABASE_CONNECTIONS": "3"}
    servers = LocalCatalog(tmp_path, environment), LocalCatalog(tmp_path, environment)
    yield servers
    for server in servers:
        server.close()


def test_a_warehouse_made_by_one_server_is_served_by_the_other_at_once(
    two_servers: tuple[LocalCatalog, LocalCatalog],
) -> None:
    one, other = two_servers
    ok(one.call("POST", WAREHOUSES, {"name": "lab"}))

    ok(other.call("POST", "/v1/lab/namespaces", {"namespace": ["a"]}))
    ok(other.call("POST", "/v1/lab/namespaces/a/tables", a_table("t")))

    assert ok(one.call("GET", "/v1/lab/namespaces/a/tables/t"))["metadata"]
    assert ok(other.call("GET", "/v1/config?warehouse=lab"))["overrides"]["prefix"] == "lab"


def test_nothing_is_put_into_a_warehouse_that_another_server_dropped(
    two_servers: tuple[LocalCatalog, LocalCatalog],
) -> None:
    one, other = two_servers
    ok(one.call("POST", WAREHOUSES, {"name": "lab"}))
    ok(other.call("GET", "/v1/lab/namespaces"))
    assert one.call("DELETE", f"{WAREHOUSES}/lab").status == 204

    refused = other.call("POST", "/v1/lab/namespaces", {"namespace": ["a"]})
    other.run(other.app.catalog.warehouses.refresh())

    assert (refused.status, refused.json["error"]["type"]) == (404, "NoSuchWarehouseException")
    assert other.call("GET", "/v1/lab/namespaces").status == 404
    ok(one.call("POST", WAREHOUSES, {"name": "lab"}))
    assert ok(one.call("GET", "/v1/lab/namespaces"))["namespaces"] == []


def test_dropping_a_warehouse_and_filling_it_at_once_never_both_succeed(
    make_both: Any,
) -> None:
    for number, server in make_both:
        name = f"lab{number}"
        ok(server.call("POST", WAREHOUSES, {"name": name}))

        dropped, filled = server.together(
            server.request("DELETE", f"{WAREHOUSES}/{name}"),
            server.request("POST", f"/v1/{name}/namespaces", {"namespace": ["a"]}),
        )

        assert (dropped.status, filled.status) in {(204, 404), (409, 200)}


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def make_both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[tuple[int, LocalCatalog]]]:
    """One server, several rounds."""
    environment = {}
    if request.param != "sqlite":
        fixture = "database" if request.param == "postgres" else "mariadb_database"
        environment = {"NUNATAK_DATABASE_URL": request.getfixturevalue(fixture)}
    server = LocalCatalog(tmp_path, environment)
    yield [(number, server) for number in range(8)]
    server.close()


def test_a_place_that_is_not_allowed_any_more_is_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = LocalCatalog(tmp_path)
    ok(before.call("POST", WAREHOUSES, {"name": "lab"}))
    before.close()

    with caplog.at_level(logging.WARNING):
        after = LocalCatalog(tmp_path, {"NUNATAK_WAREHOUSE_ROOTS": f"file://{tmp_path}/elsewhere"})
    try:
        found = [each["name"] for each in ok(after.call("GET", WAREHOUSES))["warehouses"]]
        refused = after.call("GET", "/v1/lab/namespaces")
    finally:
        after.close()

    assert found == ["default"]
    assert refused.status == 404
    assert "warehouse lab cannot be served" in caplog.text


def test_a_root_that_is_no_location_stops_the_server(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="warehouse_roots"):
        LocalCatalog(tmp_path, {"NUNATAK_WAREHOUSE_ROOTS": "file:///a/../b"})
