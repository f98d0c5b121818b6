"""The examples of the registry document, as curl commands under /apis/iceberg/v1 and its prefix `default`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mission.wire import Answer, created, curl, is_part_of, send
from tests.support.catalogs.process import RunningServer, running_server

BASE = "/apis/iceberg/v1/default"
USERS = f"{BASE}/namespaces/my_database/tables/users"
MANIFESTS = "s3://my-bucket/warehouse/my_database/users/metadata/snap-3051729675574597004.avro"

CREATE_DATABASE = """
curl -X POST http://localhost:8080/apis/iceberg/v1/default/namespaces \\
  -H "Content-Type: application/json" \\
  -d '{"namespace": ["my_database"], "properties": {"owner": "data-team", "description": "Production database"}}'
"""
CREATE_USERS = """
curl -X POST http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables \\
  -H "Content-Type: application/json" \\
  -d '{
    "name": "users",
    "schema": {"type": "struct", "schema-id": 0, "fields": [
      {"id": 1, "name": "id", "required": true, "type": "long"},
      {"id": 2, "name": "name", "required": true, "type": "string"},
      {"id": 3, "name": "email", "required": false, "type": "string"},
      {"id": 4, "name": "created_at", "required": true, "type": "timestamp"}
    ]},
    "properties": {"write.format.default": "parquet"}
  }'
"""
RENAME_USERS = """
curl -X POST http://localhost:8080/apis/iceberg/v1/default/tables/rename \\
  -H "Content-Type: application/json" \\
  -d '{
    "source": {"namespace": ["my_database"], "name": "users"},
    "destination": {"namespace": ["my_database"], "name": "customers"}
  }'
"""
ADD_COLUMN = """
curl -X POST http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables/users \\
  -H "Content-Type: application/json" \\
  -d '{
    "requirements": [{"type": "assert-current-schema-id", "current-schema-id": 0}],
    "updates": [
      {"action": "add-schema", "schema": {"type": "struct", "schema-id": 1, "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "name", "required": true, "type": "string"},
        {"id": 3, "name": "email", "required": false, "type": "string"},
        {"id": 4, "name": "created_at", "required": true, "type": "timestamp"},
        {"id": 5, "name": "updated_at", "required": false, "type": "timestamp"}
      ]}},
      {"action": "set-current-schema", "schema-id": 1}
    ]
  }'
"""
FIRST_SNAPSHOT = """
curl -X POST http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables/users \\
  -H "Content-Type: application/json" \\
  -d '{
    "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": -1}],
    "updates": [
      {"action": "add-snapshot", "snapshot": {
        "snapshot-id": 3051729675574597004,
        "timestamp-ms": 1709550000000,
        "summary": {"operation": "append"},
        "manifest-list": "s3://my-bucket/warehouse/my_database/users/metadata/snap-3051729675574597004.avro"
      }},
      {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 3051729675574597004, "type": "branch"}
    ]
  }'
"""
CHANGE_PROPERTIES = """
curl -X POST http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables/users \\
  -H "Content-Type: application/json" \\
  -d '{
    "requirements": [],
    "updates": [
      {"action": "set-properties", "updates": {
        "write.format.default": "parquet", "write.parquet.compression-codec": "zstd"
      }},
      {"action": "remove-properties", "removals": ["deprecated-key"]}
    ]
  }'
"""


@pytest.fixture
def database(catalog: RunningServer) -> RunningServer:
    """The catalog in which `my_database` was made as documented."""
    created(curl(catalog, CREATE_DATABASE))
    return catalog


@pytest.fixture
def users(database: RunningServer) -> RunningServer:
    """The catalog in which `users` was made as documented."""
    created(curl(database, CREATE_USERS))
    return database


def load_users(server: RunningServer) -> Any:
    return created(send(server, "GET", USERS))


def test_config_answers_defaults_and_overrides(catalog: RunningServer) -> None:
    """MISSION: 000-02, 000-04, 000-12"""
    config = created(curl(catalog, "curl http://localhost:8080/apis/iceberg/v1/config"))

    assert is_part_of({"defaults": {}, "overrides": {}}, config)
    assert {**config["defaults"], **config["overrides"]}["warehouse"] == (catalog.data / "warehouse").as_uri()


def test_a_namespace_is_created_and_echoed(catalog: RunningServer) -> None:
    """MISSION: 000-05, 000-08, 000-14"""
    answer = created(curl(catalog, CREATE_DATABASE))

    documented = {
        "namespace": ["my_database"],
        "properties": {"owner": "data-team", "description": "Production database"},
    }
    assert is_part_of(documented, answer)
    assert is_part_of(documented, send(catalog, "GET", f"{BASE}/namespaces/my_database").json)


def test_namespaces_are_listed(database: RunningServer) -> None:
    """MISSION: 000-13"""
    created(send(database, "POST", f"{BASE}/namespaces", {"namespace": ["another_database"]}))

    listed = created(curl(database, "curl http://localhost:8080/apis/iceberg/v1/default/namespaces"))

    assert sorted(listed["namespaces"]) == [["another_database"], ["my_database"]]


def test_a_namespace_is_loaded_checked_and_changed(database: RunningServer) -> None:
    """MISSION: 000-08, 000-15, 000-16, 000-18"""
    change = {"removals": ["description", "absent"], "updates": {"owner": "ops"}}
    changed = created(send(database, "POST", f"{BASE}/namespaces/my_database/properties", change))

    assert changed["updated"] == ["owner"]
    assert changed["removed"] == ["description"]
    assert changed["missing"] == ["absent"]
    properties = created(send(database, "GET", f"{BASE}/namespaces/my_database"))["properties"]
    assert properties["owner"] == "ops"
    assert "description" not in properties
    exists = send(database, "HEAD", f"{BASE}/namespaces/my_database")
    assert (exists.status, exists.body) == (204, b"")
    absent = send(database, "HEAD", f"{BASE}/namespaces/absent")
    assert (absent.status, absent.body) == (404, b"")


def test_a_table_is_created_with_the_documented_columns(database: RunningServer) -> None:
    """MISSION: 000-06, 000-20"""
    table = created(curl(database, CREATE_USERS))

    metadata = table["metadata"]
    (schema,) = metadata["schemas"]
    assert [(field["id"], field["name"], field["required"], field["type"]) for field in schema["fields"]] == [
        (1, "id", True, "long"),
        (2, "name", True, "string"),
        (3, "email", False, "string"),
        (4, "created_at", True, "timestamp"),
    ]
    assert schema["schema-id"] == metadata["current-schema-id"] == 0
    assert metadata["last-column-id"] == 4
    assert metadata["properties"]["write.format.default"] == "parquet"
    assert metadata["location"].startswith((database.data / "warehouse").as_uri())
    written = Path(table["metadata-location"].removeprefix("file://"))
    assert json.loads(written.read_bytes()) == metadata


def test_a_table_is_loaded_and_checked(users: RunningServer) -> None:
    """MISSION: 000-06, 000-21, 000-23"""
    table = created(
        curl(users, "curl http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables/users")
    )

    assert table["metadata-location"].endswith(".metadata.json")
    assert table["metadata"]["table-uuid"]
    assert table["metadata"]["format-version"] == 2
    assert send(users, "HEAD", USERS).status == 204
    assert send(users, "HEAD", USERS + "_absent").status == 404


def test_tables_are_listed(users: RunningServer) -> None:
    """MISSION: 000-19"""
    listed = created(curl(users, "curl http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables"))

    assert listed["identifiers"] == [{"namespace": ["my_database"], "name": "users"}]


def test_a_table_is_renamed(users: RunningServer) -> None:
    """MISSION: 000-25"""
    before = load_users(users)

    assert curl(users, RENAME_USERS).status == 204

    assert send(users, "GET", USERS).error == (404, "NoSuchTableException")
    renamed = created(send(users, "GET", f"{BASE}/namespaces/my_database/tables/customers"))
    assert renamed["metadata"] == before["metadata"]


def test_a_table_is_dropped(users: RunningServer) -> None:
    """MISSION: 000-24"""
    dropped = curl(
        users, "curl -X DELETE http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database/tables/users"
    )

    assert (dropped.status, dropped.body) == (204, b"")
    assert send(users, "GET", USERS).error == (404, "NoSuchTableException")


def test_only_an_empty_namespace_is_dropped(users: RunningServer) -> None:
    """MISSION: 000-17, 000-75"""
    drop = "curl -X DELETE http://localhost:8080/apis/iceberg/v1/default/namespaces/my_database"
    assert curl(users, drop).error == (409, "NamespaceNotEmptyException")

    assert send(users, "DELETE", USERS).status == 204
    assert curl(users, drop).status == 204
    assert curl(users, drop).error == (404, "NoSuchNamespaceException")


def test_the_example_that_adds_a_column(users: RunningServer) -> None:
    """MISSION: 000-22, 000-63, 000-66"""
    before = load_users(users)

    table = created(curl(users, ADD_COLUMN))

    metadata = table["metadata"]
    assert metadata["current-schema-id"] == 1
    assert metadata["last-column-id"] == 5
    assert [field["name"] for field in metadata["schemas"][1]["fields"]][-1] == "updated_at"
    assert table["metadata-location"] != before["metadata-location"]
    assert load_users(users)["metadata"] == metadata
    assert curl(users, ADD_COLUMN).error == (409, "CommitFailedException")
    assert load_users(users)["metadata"] == metadata


def test_the_example_that_adds_the_first_snapshot(users: RunningServer) -> None:
    """MISSION: 000-42, 000-56, 000-57, 000-64"""
    metadata = created(curl(users, FIRST_SNAPSHOT))["metadata"]

    assert metadata["current-snapshot-id"] == 3051729675574597004
    assert metadata["last-sequence-number"] == 1
    assert is_part_of({"main": {"snapshot-id": 3051729675574597004, "type": "branch"}}, metadata["refs"])
    (snapshot,) = metadata["snapshots"]
    assert snapshot["manifest-list"] == MANIFESTS
    assert snapshot["timestamp-ms"] == 1709550000000
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [3051729675574597004]
    assert curl(users, FIRST_SNAPSHOT.replace("3051729675574597004", "3051729675574597005")).error == (
        409,
        "CommitFailedException",
    )


def test_the_example_that_changes_properties(users: RunningServer) -> None:
    """MISSION: 000-10, 000-61, 000-62, 000-65"""
    given: dict[str, Any] = {"updates": [{"action": "set-properties", "updates": {"deprecated-key": "1", "kept": "2"}}]}
    created(send(users, "POST", USERS, {"requirements": [], **given}))

    properties = created(curl(users, CHANGE_PROPERTIES))["metadata"]["properties"]

    assert is_part_of(
        {"write.format.default": "parquet", "write.parquet.compression-codec": "zstd", "kept": "2"}, properties
    )
    assert "deprecated-key" not in properties


def test_the_views_of_the_endpoint_list(database: RunningServer) -> None:
    """MISSION: 000-07, 000-26, 000-27, 000-28, 000-29, 000-30, 000-31, 000-32"""
    views = f"{BASE}/namespaces/my_database/views"

    def version(number: int, sql: str) -> dict[str, Any]:
        return {
            "version-id": number,
            "schema-id": 0,
            "timestamp-ms": 1709550000000 + number,
            "summary": {"engine-name": "test"},
            "default-namespace": ["my_database"],
            "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
        }

    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "one", "required": False, "type": "int"}]}
    body = {
        "name": "ones",
        "schema": schema,
        "view-version": version(1, "SELECT 1 AS one"),
        "properties": {"owner": "ops"},
    }
    view = created(send(database, "POST", views, body))

    assert view["metadata"]["format-version"] == 1
    assert view["metadata"]["properties"]["owner"] == "ops"
    assert created(send(database, "GET", views))["identifiers"] == [{"namespace": ["my_database"], "name": "ones"}]
    assert send(database, "HEAD", f"{views}/ones").status == 204
    replacement = {
        "requirements": [{"type": "assert-view-uuid", "uuid": view["metadata"]["view-uuid"]}],
        "updates": [
            {"action": "add-view-version", "view-version": version(2, "SELECT 2 AS one")},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }
    replaced = created(send(database, "POST", f"{views}/ones", replacement))
    assert replaced["metadata"]["current-version-id"] == 2
    assert created(send(database, "GET", f"{views}/ones"))["metadata"] == replaced["metadata"]
    rename = {
        "source": {"namespace": ["my_database"], "name": "ones"},
        "destination": {"namespace": ["my_database"], "name": "twos"},
    }
    assert send(database, "POST", f"{BASE}/views/rename", rename).status == 204
    assert send(database, "HEAD", f"{views}/ones").status == 404
    assert send(database, "DELETE", f"{views}/twos").status == 204
    assert send(database, "GET", f"{views}/twos").error == (404, "NoSuchViewException")


def test_the_default_prefix_is_a_setting(tmp_path: Path) -> None:
    """MISSION: 000-02, 000-03, 000-11"""
    warehouse = (tmp_path / "elsewhere").as_uri()
    environment = {"NUNATAK_DEFAULT_WAREHOUSE": "production", "NUNATAK_WAREHOUSE": warehouse}
    with running_server(tmp_path / "nunatak-data", environment=environment) as server:
        config = created(send(server, "GET", "/apis/iceberg/v1/config"))
        assert {**config["defaults"], **config["overrides"]}["warehouse"] == warehouse
        created(send(server, "POST", "/apis/iceberg/v1/production/namespaces", {"namespace": ["my_database"]}))

        for path in ("/apis/iceberg/v1/production/namespaces", "/apis/iceberg/v1/namespaces"):
            assert created(send(server, "GET", path))["namespaces"] == [["my_database"]]
        body = {"name": "users", "schema": {"type": "struct", "fields": []}}
        table = created(send(server, "POST", "/apis/iceberg/v1/production/namespaces/my_database/tables", body))
        assert table["metadata"]["location"].startswith(warehouse + "/")
        assert send(server, "GET", "/apis/iceberg/v1/absent/namespaces").status == 404


def unknown_things() -> list[tuple[str, dict[str, Any]]]:
    requirement = {"requirements": [{"type": "assert-full-moon"}], "updates": []}
    action = {"requirements": [], "updates": [{"action": "add-glitter"}]}
    return [("requirement", requirement), ("action", action)]


@pytest.mark.parametrize(("what", "body"), unknown_things())
def test_an_unknown_requirement_or_action_is_refused(users: RunningServer, what: str, body: dict[str, Any]) -> None:
    """MISSION: 000-67"""
    before = load_users(users)

    answer: Answer = send(users, "POST", USERS, body)

    assert answer.error == (400, "BadRequestException"), what
    assert load_users(users) == before
