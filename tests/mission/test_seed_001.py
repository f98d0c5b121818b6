"""The requests of the API overview, under the prefix /iceberg that it configures and without a catalog prefix."""

from pathlib import Path
from typing import Any

import pytest

from tests.mission.wire import created, is_part_of, send
from tests.support.catalogs.process import RunningServer, running_server

BASE = "/iceberg/v1"
GOLD = f"{BASE}/namespaces/analytics%1Fgold"
ORDERS = f"{GOLD}/tables/orders"
TOKEN = {"Authorization": "Bearer <token>"}
NAMESPACE = {
    "namespace": ["analytics", "gold"],
    "properties": {"owner": "data-team@company.com", "location": "s3://my-bucket/warehouse/analytics/gold/"},
}
CREATE_ORDERS: dict[str, Any] = {
    "name": "orders",
    "location": "s3://my-bucket/warehouse/analytics/gold/orders/",
    "schema": {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "order_id", "type": "long", "required": True},
            {"id": 2, "name": "customer_id", "type": "long", "required": True},
            {"id": 3, "name": "total", "type": "double", "required": False},
            {"id": 4, "name": "order_date", "type": "date", "required": True},
        ],
    },
    "partition-spec": {
        "spec-id": 0,
        "fields": [{"field-id": 1000, "source-id": 4, "name": "order_date_month", "transform": "month"}],
    },
    "properties": {"write.format.default": "parquet", "format-version": "2"},
    "stage-create": False,
}
CURRENT, NEXT = 8027658604211071520, 9135729705312082631
COMMIT: dict[str, Any] = {
    "identifier": {"namespace": ["analytics", "gold"], "name": "orders"},
    "requirements": [{"type": "assert-current-snapshot-id", "snapshot-id": CURRENT}],
    "updates": [
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": NEXT,
                "parent-snapshot-id": CURRENT,
                "sequence-number": 6,
                "timestamp-ms": 1715704000000,
                "summary": {"operation": "append", "added-records": "10000"},
                "manifest-list": "s3://my-bucket/warehouse/.../metadata/snap-...avro",
            },
        },
        {"action": "set-current-snapshot", "snapshot-id": NEXT},
    ],
}


def namespace_inside_warehouse(server: RunningServer) -> dict[str, Any]:
    """The documented namespace with its location moved from the documented bucket into our warehouse."""
    warehouse = (server.data / "warehouse").as_uri()
    properties: Any = NAMESPACE["properties"]
    location = properties["location"].replace("s3://my-bucket/warehouse", warehouse)
    return {**NAMESPACE, "properties": {**properties, "location": location}}


def inside_warehouse(server: RunningServer) -> dict[str, Any]:
    """The documented table with its location moved from the documented bucket into our warehouse."""
    location = CREATE_ORDERS["location"].replace("s3://my-bucket/warehouse", (server.data / "warehouse").as_uri())
    return {**CREATE_ORDERS, "location": location}


@pytest.fixture
def gold(catalog: RunningServer) -> RunningServer:
    """The catalog in which `analytics` and `analytics.gold` exist."""
    created(send(catalog, "POST", f"{BASE}/namespaces", {"namespace": ["analytics"]}))
    created(send(catalog, "POST", f"{BASE}/namespaces", namespace_inside_warehouse(catalog)))
    return catalog


@pytest.fixture
def orders(gold: RunningServer) -> RunningServer:
    """The catalog in which `orders` stands at the documented snapshot, number five of its sequence."""
    created(send(gold, "POST", f"{GOLD}/tables", inside_warehouse(gold)))
    snapshot = {
        "snapshot-id": CURRENT,
        "sequence-number": 5,
        "timestamp-ms": 1715700000000,
        "summary": {"operation": "append"},
        "manifest-list": "s3://my-bucket/warehouse/.../metadata/snap-...avro",
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": CURRENT},
    ]
    created(send(gold, "POST", ORDERS, {"requirements": [], "updates": updates}))
    return gold


def test_config_is_the_first_call_and_knows_warehouses_by_name(tmp_path: Path) -> None:
    """MISSION: 001-02, 001-03"""
    other = (tmp_path / "my-warehouse").as_uri()
    with running_server(
        tmp_path / "nunatak-data", environment={"NUNATAK_WAREHOUSES": f"my-warehouse={other}"}
    ) as server:
        config = created(send(server, "GET", f"{BASE}/config?warehouse=my-warehouse"))

        assert {**config["defaults"], **config["overrides"]}["warehouse"].rstrip("/") == other
        texts = [*config["defaults"].values(), *config["overrides"].values()]
        assert all(isinstance(text, str) for text in texts)
        prefix = config["overrides"]["prefix"]
        created(send(server, "POST", f"{BASE}/{prefix}/namespaces", {"namespace": ["analytics"]}))
        assert created(send(server, "GET", f"{BASE}/{prefix}/namespaces"))["namespaces"] == [["analytics"]]
        assert created(send(server, "GET", f"{BASE}/namespaces"))["namespaces"] == []


def test_namespaces_are_listed_below_a_parent(gold: RunningServer) -> None:
    """MISSION: 001-07"""
    for layer in ("bronze", "silver"):
        created(send(gold, "POST", f"{BASE}/namespaces", {"namespace": ["analytics", layer]}))

    listed = created(send(gold, "GET", f"{BASE}/namespaces?parent=analytics", headers=TOKEN))

    assert sorted(listed["namespaces"]) == [["analytics", "bronze"], ["analytics", "gold"], ["analytics", "silver"]]


def test_a_nested_namespace_is_created_and_loaded(catalog: RunningServer) -> None:
    """MISSION: 001-08, 001-09"""
    created(send(catalog, "POST", f"{BASE}/namespaces", {"namespace": ["analytics"]}))

    wanted = namespace_inside_warehouse(catalog)
    assert is_part_of(wanted, created(send(catalog, "POST", f"{BASE}/namespaces", wanted)))

    assert is_part_of(wanted, created(send(catalog, "GET", f"{BASE}/namespaces/analytics%1Fgold")))


def test_the_tables_of_a_nested_namespace_are_listed(gold: RunningServer) -> None:
    """MISSION: 001-10"""
    for name in ("orders", "customers"):
        location = f"{(gold.data / 'warehouse').as_uri()}/analytics/gold/{name}/"
        created(send(gold, "POST", f"{GOLD}/tables", {**CREATE_ORDERS, "name": name, "location": location}))

    listed = created(send(gold, "GET", f"{BASE}/namespaces/analytics%1Fgold/tables"))

    assert sorted(identifier["name"] for identifier in listed["identifiers"]) == ["customers", "orders"]
    assert all(identifier["namespace"] == ["analytics", "gold"] for identifier in listed["identifiers"])


def test_a_location_outside_the_warehouse_is_refused_by_name(gold: RunningServer) -> None:
    answer = send(gold, "POST", f"{GOLD}/tables", CREATE_ORDERS)

    assert answer.error == (400, "BadRequestException")
    assert (gold.data / "warehouse").as_uri() in answer.json["error"]["message"]
    assert send(gold, "HEAD", ORDERS).status == 404


def test_a_partitioned_table_is_created(gold: RunningServer) -> None:
    """MISSION: 001-11"""
    metadata = created(send(gold, "POST", f"{GOLD}/tables", inside_warehouse(gold)))["metadata"]

    assert metadata["format-version"] == 2
    assert is_part_of(CREATE_ORDERS["partition-spec"], metadata["partition-specs"][0])
    assert is_part_of(CREATE_ORDERS["schema"]["fields"], metadata["schemas"][0]["fields"])
    assert metadata["location"].rstrip("/") == inside_warehouse(gold)["location"].rstrip("/")
    assert metadata["properties"]["write.format.default"] == "parquet"
    assert "format-version" not in metadata["properties"]


def test_a_loaded_table_has_the_documented_fields(orders: RunningServer) -> None:
    """MISSION: 001-12"""
    table = created(send(orders, "GET", ORDERS))

    metadata = table["metadata"]
    assert table["metadata-location"].startswith(metadata["location"])
    assert isinstance(table["config"], dict)
    assert {
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "current-schema-id",
        "schemas",
        "partition-specs",
        "default-spec-id",
        "sort-orders",
        "current-snapshot-id",
        "refs",
        "snapshots",
    } <= metadata.keys()
    assert metadata["last-sequence-number"] == 5
    assert metadata["last-column-id"] == 4
    assert metadata["current-snapshot-id"] == CURRENT
    assert is_part_of({"main": {"snapshot-id": CURRENT, "type": "branch"}}, metadata["refs"])


def test_a_commit_moves_the_table_from_the_asserted_snapshot_to_the_next(orders: RunningServer) -> None:
    """MISSION: 001-14, 001-15, 001-16, 001-17"""
    metadata = created(send(orders, "POST", ORDERS, COMMIT))["metadata"]

    assert metadata["current-snapshot-id"] == NEXT
    assert metadata["last-sequence-number"] == 6
    assert [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]] == [CURRENT, NEXT]
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [CURRENT, NEXT]
    assert metadata["snapshots"][1]["parent-snapshot-id"] == CURRENT
    assert is_part_of({"main": {"snapshot-id": NEXT, "type": "branch"}}, metadata["refs"])


def test_a_commit_on_a_moved_snapshot_is_a_conflict(orders: RunningServer) -> None:
    """MISSION: 001-18"""
    assert created(send(orders, "POST", ORDERS, COMMIT))
    before = created(send(orders, "GET", ORDERS))
    text = {"operation": "append", "added-records": "1"}
    snapshot = {**COMMIT["updates"][0]["snapshot"], "snapshot-id": NEXT + 1, "summary": text}
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-current-snapshot", "snapshot-id": NEXT + 1},
    ]

    assert send(orders, "POST", ORDERS, {**COMMIT, "updates": updates}).error == (409, "CommitFailedException")

    assert created(send(orders, "GET", ORDERS)) == before


def test_views_live_from_create_to_drop(gold: RunningServer) -> None:
    """MISSION: 001-19"""
    views = f"{GOLD}/views"
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "one", "required": False, "type": "int"}]}
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1715704000000,
        "summary": {},
        "default-namespace": ["analytics", "gold"],
        "representations": [{"type": "sql", "sql": "SELECT 1 AS one", "dialect": "trino"}],
    }
    body = {
        "name": "ones",
        "schema": schema,
        "view-version": version,
        "properties": {},
        "location": f"{(gold.data / 'warehouse').as_uri()}/analytics/gold/ones",
    }

    view = created(send(gold, "POST", views, body))
    assert created(send(gold, "GET", f"{views}/ones"))["metadata"] == view["metadata"]
    assert send(gold, "HEAD", f"{views}/ones").status == 204
    change = {"updates": [{"action": "set-properties", "updates": {"owner": "ops"}}]}
    assert created(send(gold, "POST", f"{views}/ones", change))["metadata"]["properties"]["owner"] == "ops"
    assert send(gold, "DELETE", f"{views}/ones").status == 204
    assert send(gold, "HEAD", f"{views}/ones").status == 404
