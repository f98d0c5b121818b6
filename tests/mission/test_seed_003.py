"""The endpoints that the operations guide lists, with the prefix of the default warehouse and without one."""

import pytest

from tests.mission.wire import created, send
from tests.support.catalogs.process import RunningServer

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
SET_OWNER = [{"action": "set-properties", "updates": {"owner": "ops"}}]


def test_config_negotiates_location_and_endpoints(catalog: RunningServer) -> None:
    """MISSION: 003-12"""
    config = created(send(catalog, "GET", "/v1/config"))

    assert {**config["defaults"], **config["overrides"]}["warehouse"] == (catalog.data / "warehouse").as_uri()
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}" in config["endpoints"]
    assert "POST /v1/{prefix}/transactions/commit" in config["endpoints"]


@pytest.mark.parametrize("base", ["/v1/default", "/v1"])
def test_the_listed_endpoints_answer_with_and_without_a_prefix(catalog: RunningServer, base: str) -> None:
    """MISSION: 003-06, 003-07, 003-08, 003-13, 003-14, 003-15, 003-16, 003-17, 003-18, 003-20"""
    namespaces, namespace = f"{base}/namespaces", f"{base}/namespaces/db"
    created(send(catalog, "POST", namespaces, {"namespace": ["db"]}))
    assert created(send(catalog, "GET", namespaces))["namespaces"] == [["db"]]
    assert created(send(catalog, "GET", namespace))["namespace"] == ["db"]

    created(send(catalog, "POST", f"{namespace}/tables", {"name": "events", "schema": SCHEMA}))
    assert created(send(catalog, "GET", f"{namespace}/tables"))["identifiers"] == [
        {"namespace": ["db"], "name": "events"}
    ]
    commit = {"requirements": [], "updates": SET_OWNER}
    created(send(catalog, "POST", f"{namespace}/tables/events", commit))
    table = created(send(catalog, "GET", f"{namespace}/tables/events"))
    assert table["metadata"]["properties"]["owner"] == "ops"

    assert send(catalog, "DELETE", f"{namespace}/tables/events").status == 204
    body = {"name": "events", "metadata-location": table["metadata-location"]}
    assert created(send(catalog, "POST", f"{namespace}/register", body))["metadata"] == table["metadata"]
    identifier = {"namespace": ["db"], "name": "events"}
    changes = {"table-changes": [{"identifier": identifier, **commit}]}
    assert send(catalog, "POST", f"{base}/transactions/commit", changes).status == 204

    assert send(catalog, "DELETE", f"{namespace}/tables/events").status == 204
    assert send(catalog, "DELETE", namespace).status == 204
