"""The requests of the API reference, at the root and without a catalog prefix."""

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.mission.wire import Answer, created, curl, is_part_of, send
from tests.support.catalogs.process import RunningServer

TABLES = "/v1/namespaces/analytics/tables"
EVENTS = f"{TABLES}/events"
VIEWS = "/v1/namespaces/analytics/views"
CREATE_ANALYTICS = {"namespace": ["analytics"], "properties": {"owner": "data-team"}}
CREATE_EVENTS: dict[str, Any] = {
    "name": "events",
    "location": "s3://my-bucket/analytics/events",
    "schema": {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 1, "name": "id", "required": True, "type": "long"},
            {"id": 2, "name": "event_type", "required": True, "type": "string"},
            {"id": 3, "name": "timestamp", "required": True, "type": "timestamptz"},
        ],
    },
    "partition-spec": {
        "spec-id": 0,
        "fields": [{"source-id": 3, "field-id": 1000, "name": "ts_day", "transform": "day"}],
    },
    "properties": {"write.format.default": "parquet"},
}
WAIT_SECONDS = 30  # for work the server does after its answer; a bound against hanging, not a promise of speed


def without_location(name: str = "events") -> dict[str, Any]:
    """The documented table, left to the server's own choice of a place."""
    return {key: value for key, value in CREATE_EVENTS.items() if key != "location"} | {"name": name}


@pytest.fixture
def analytics(catalog: RunningServer) -> RunningServer:
    created(send(catalog, "POST", "/v1/namespaces", CREATE_ANALYTICS))
    return catalog


@pytest.fixture
def events(analytics: RunningServer) -> RunningServer:
    created(send(analytics, "POST", TABLES, without_location()))
    return analytics


def local_files(table: dict[str, Any]) -> list[Path]:
    folder = Path(table["metadata"]["location"].removeprefix("file://"))
    return sorted(path for path in folder.rglob("*") if path.is_file())


# Configuration and namespaces


def test_config_answers_without_a_prefix(catalog: RunningServer) -> None:
    """MISSION: 002-05"""
    assert is_part_of({"defaults": {}, "overrides": {}}, created(send(catalog, "GET", "/v1/config")))


def test_a_namespace_is_created_with_200_and_loaded(catalog: RunningServer) -> None:
    """MISSION: 002-07, 002-08"""
    assert is_part_of(CREATE_ANALYTICS, created(send(catalog, "POST", "/v1/namespaces", CREATE_ANALYTICS)))

    assert is_part_of(CREATE_ANALYTICS, created(send(catalog, "GET", "/v1/namespaces/analytics")))


def test_namespace_properties_are_updated_and_removed(analytics: RunningServer) -> None:
    """MISSION: 002-09"""
    change = {"updates": {"description": "Analytics tables"}, "removals": ["deprecated-key"]}

    answer = created(send(analytics, "POST", "/v1/namespaces/analytics/properties", change))

    assert answer["updated"] == ["description"]
    assert answer["removed"] == []
    assert answer["missing"] == ["deprecated-key"]
    properties = created(send(analytics, "GET", "/v1/namespaces/analytics"))["properties"]
    assert is_part_of({"owner": "data-team", "description": "Analytics tables"}, properties)


def test_a_namespace_is_dropped_with_204(analytics: RunningServer) -> None:
    """MISSION: 002-10"""
    dropped = send(analytics, "DELETE", "/v1/namespaces/analytics")

    assert (dropped.status, dropped.body) == (204, b"")
    assert send(analytics, "GET", "/v1/namespaces/analytics").error == (404, "NoSuchNamespaceException")


def test_namespaces_are_listed_page_by_page(catalog: RunningServer) -> None:
    """MISSION: 002-06, 002-52"""
    made = [["raw", f"events_{number:02}"] for number in range(7)]
    for namespace in [["raw"], ["analytics"], *made]:
        created(send(catalog, "POST", "/v1/namespaces", {"namespace": namespace}))
    whole = created(send(catalog, "GET", "/v1/namespaces"))
    assert sorted(whole["namespaces"]) == [["analytics"], ["raw"]]
    assert whole.get("next-page-token") is None

    pages, token = [], ""
    for _ in range(len(made)):
        page = created(send(catalog, "GET", f"/v1/namespaces?parent=raw&pageSize=3&pageToken={quote(token, safe='')}"))
        pages.append(page["namespaces"])
        token = page.get("next-page-token")
        if token is None:
            break

    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(namespace for page in pages for namespace in page) == made


@pytest.mark.parametrize("kind", ["tables", "views"])
def test_tables_and_views_are_listed_page_by_page(analytics: RunningServer, kind: str) -> None:
    """MISSION: 002-11, 002-22, 002-52"""
    names = [f"n{number}" for number in range(5)]
    for name in names:
        body = without_location(name) if kind == "tables" else a_view(name)
        created(send(analytics, "POST", f"/v1/namespaces/analytics/{kind}", body))

    first = created(send(analytics, "GET", f"/v1/namespaces/analytics/{kind}?pageSize=3&pageToken="))
    # A name that sorts before the cursor is created between two pages: nothing may be listed twice or left out.
    created(send(analytics, "POST", TABLES, without_location("a")))
    token = quote(first["next-page-token"], safe="")
    second = created(send(analytics, "GET", f"/v1/namespaces/analytics/{kind}?pageSize=3&pageToken={token}"))

    assert [identifier["name"] for identifier in first["identifiers"] + second["identifiers"]] == names
    assert second.get("next-page-token") is None


def test_an_invented_page_token_is_refused(analytics: RunningServer) -> None:
    """MISSION: 002-43, 002-52"""
    assert send(analytics, "GET", "/v1/namespaces?pageSize=50&pageToken=abc123").error == (400, "BadRequestException")


# Tables


def test_tables_are_listed(events: RunningServer) -> None:
    """MISSION: 002-11"""
    created(send(events, "POST", TABLES, without_location("users")))

    listed = created(send(events, "GET", TABLES))

    documented = [{"namespace": ["analytics"], "name": "events"}, {"namespace": ["analytics"], "name": "users"}]
    assert listed["identifiers"] == documented


def test_a_table_in_a_bucket_needs_a_storage_for_it(analytics: RunningServer) -> None:
    refused = send(analytics, "POST", TABLES, CREATE_EVENTS)

    assert refused.error == (400, "BadRequestException")
    assert (analytics.data / "warehouse").as_uri() in refused.json["error"]["message"]
    assert send(analytics, "HEAD", EVENTS).status == 404


def test_a_table_partitioned_by_day_is_created_with_200(analytics: RunningServer) -> None:
    """MISSION: 002-12"""
    location = f"{(analytics.data / 'warehouse').as_uri()}/analytics/events"
    table = created(send(analytics, "POST", TABLES, {**CREATE_EVENTS, "location": location}))

    metadata = table["metadata"]
    assert metadata["location"] == location
    assert is_part_of(CREATE_EVENTS["schema"], metadata["schemas"][0])
    assert is_part_of(CREATE_EVENTS["partition-spec"], metadata["partition-specs"][0])
    assert metadata["last-partition-id"] == 1000
    assert metadata["properties"]["write.format.default"] == "parquet"


def test_a_staged_table_is_prepared_and_not_created(analytics: RunningServer) -> None:
    """We support what the document leaves out: a commit may create the table later. MISSION: 002-13"""
    staged = created(send(analytics, "POST", TABLES, {**without_location(), "stage-create": True}))

    assert staged["metadata"]["table-uuid"]
    assert send(analytics, "HEAD", EVENTS).status == 404
    assert created(send(analytics, "POST", TABLES, {**without_location(), "stage-create": False}))
    assert send(analytics, "HEAD", EVENTS).status == 204


def test_a_loaded_table_has_location_metadata_and_config(events: RunningServer) -> None:
    """MISSION: 002-14"""
    table = created(send(events, "GET", EVENTS, headers={"X-Iceberg-Access-Delegation": "vended-credentials"}))

    assert table["metadata-location"].endswith(".metadata.json")
    assert table["metadata"]["format-version"] == 2
    assert {"table-uuid", "location", "schemas", "partition-specs", "properties"} <= table["metadata"].keys()
    assert isinstance(table["config"], dict)


def test_a_commit_adds_a_schema_and_makes_it_current(events: RunningServer) -> None:
    """MISSION: 002-15"""
    fields = [*CREATE_EVENTS["schema"]["fields"], {"id": 4, "name": "user_id", "required": False, "type": "long"}]
    commit = {
        "identifier": {"namespace": ["analytics"], "name": "events"},
        "requirements": [{"type": "assert-current-schema-id", "current-schema-id": 0}],
        "updates": [
            {"action": "add-schema", "schema": {"type": "struct", "fields": fields}},
            {"action": "set-current-schema", "schema-id": 1},
        ],
    }

    metadata = created(send(events, "POST", EVENTS, commit))["metadata"]

    assert metadata["current-schema-id"] == 1
    assert metadata["last-column-id"] == 4
    assert send(events, "POST", EVENTS, commit).error == (409, "CommitFailedException")


def test_head_says_whether_a_table_exists(events: RunningServer) -> None:
    """MISSION: 002-16"""
    assert send(events, "HEAD", EVENTS).status == 204
    assert send(events, "HEAD", f"{TABLES}/absent").status == 404


def test_a_dropped_table_keeps_its_files(events: RunningServer) -> None:
    """MISSION: 002-17, 002-19"""
    table = created(send(events, "GET", EVENTS))
    before = local_files(table)
    assert before

    dropped = curl(events, 'curl -X DELETE "$CATALOG_URL/v1/namespaces/analytics/tables/events"')

    assert (dropped.status, dropped.body) == (204, b"")
    assert send(events, "HEAD", EVENTS).status == 404
    assert local_files(table) == before


def test_a_purged_table_loses_its_files(events: RunningServer) -> None:
    """MISSION: 002-17, 002-18, 002-19"""
    table = created(send(events, "GET", EVENTS))
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "ops"}}]}
    created(send(events, "POST", EVENTS, change))
    assert len(local_files(table)) == 2

    dropped = curl(events, 'curl -X DELETE "$CATALOG_URL/v1/namespaces/analytics/tables/events?purgeRequested=true"')

    assert (dropped.status, dropped.body) == (204, b"")
    assert send(events, "HEAD", EVENTS).status == 404
    deadline = time.monotonic() + WAIT_SECONDS
    while local_files(table) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert local_files(table) == []


def test_a_table_is_renamed(analytics: RunningServer) -> None:
    """MISSION: 002-20"""
    created(send(analytics, "POST", TABLES, without_location("events_old")))
    rename = {
        "source": {"namespace": ["analytics"], "name": "events_old"},
        "destination": {"namespace": ["analytics"], "name": "events_new"},
    }

    assert send(analytics, "POST", "/v1/tables/rename", rename).status == 204

    listed = created(send(analytics, "GET", TABLES))["identifiers"]
    assert listed == [{"namespace": ["analytics"], "name": "events_new"}]
    assert send(analytics, "POST", "/v1/tables/rename", rename).error == (404, "NoSuchTableException")


def test_a_table_is_registered_from_its_metadata_file(events: RunningServer) -> None:
    """MISSION: 002-21"""
    table = created(send(events, "GET", EVENTS))
    assert send(events, "DELETE", EVENTS).status == 204
    body = {"name": "imported_events", "metadata-location": table["metadata-location"]}

    registered = created(send(events, "POST", "/v1/namespaces/analytics/register", body))

    assert registered["metadata-location"] == table["metadata-location"]
    assert registered["metadata"] == table["metadata"]
    assert created(send(events, "GET", f"{TABLES}/imported_events"))["metadata"] == table["metadata"]
    again = send(events, "POST", "/v1/namespaces/analytics/register", body)
    assert again.error == (409, "AlreadyExistsException")


def test_metadata_in_a_bucket_we_cannot_read_is_not_registered(analytics: RunningServer) -> None:
    body = {"name": "imported_events", "metadata-location": "s3://bucket/metadata/v1.metadata.json"}

    refused = send(analytics, "POST", "/v1/namespaces/analytics/register", body)

    assert refused.error == (400, "BadRequestException")
    assert (analytics.data / "warehouse").as_uri() in refused.json["error"]["message"]
    assert created(send(analytics, "GET", TABLES))["identifiers"] == []


# Views


def a_view(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "schema": {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "n", "required": False, "type": "int"}],
        },
        "view-version": {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 1706313600000,
            "summary": {},
            "default-namespace": ["analytics"],
            "representations": [{"type": "sql", "sql": "SELECT 1 AS n", "dialect": "spark"}],
        },
        "properties": {"owner": "data-team"},
    }


def test_a_view_is_created_listed_loaded_changed_renamed_and_dropped(analytics: RunningServer) -> None:
    """MISSION: 002-22, 002-23, 002-24, 002-25, 002-26, 002-27, 002-28"""
    view = created(send(analytics, "POST", VIEWS, a_view("daily")))
    assert created(send(analytics, "GET", VIEWS))["identifiers"] == [{"namespace": ["analytics"], "name": "daily"}]
    assert created(send(analytics, "GET", f"{VIEWS}/daily"))["metadata"] == view["metadata"]
    assert send(analytics, "HEAD", f"{VIEWS}/daily").status == 204

    change = {
        "requirements": [{"type": "assert-view-uuid", "uuid": view["metadata"]["view-uuid"]}],
        "updates": [{"action": "remove-properties", "removals": ["owner"]}],
    }
    changed = created(send(analytics, "POST", f"{VIEWS}/daily", change))
    assert "owner" not in changed["metadata"].get("properties", {})

    rename = {
        "source": {"namespace": ["analytics"], "name": "daily"},
        "destination": {"namespace": ["analytics"], "name": "hourly"},
    }
    assert send(analytics, "POST", "/v1/views/rename", rename).status == 204
    assert send(analytics, "HEAD", f"{VIEWS}/daily").status == 404
    assert created(send(analytics, "GET", f"{VIEWS}/hourly"))["metadata"] == changed["metadata"]
    assert send(analytics, "DELETE", f"{VIEWS}/hourly").status == 204
    assert created(send(analytics, "GET", VIEWS))["identifiers"] == []


# Metrics, search, health


def test_a_metrics_report_is_accepted(events: RunningServer) -> None:
    """MISSION: 002-36"""
    report = {
        "table-name": "analytics.events",
        "snapshot-id": 1234567890,
        "filter": "timestamp > '2026-01-01'",
        "schema-id": 0,
        "projected-field-ids": [1, 2, 3],
        "projected-field-names": ["id", "event_type", "timestamp"],
        "metrics": {
            "total-planning-duration": {"unit": "nanos", "value": 123456},
            "total-data-manifests": {"unit": "count", "value": 5},
            "total-files-size": {"unit": "bytes", "value": 1073741824},
        },
    }

    for body in (report, {"report-type": "scan-report", **report, "filter": {"type": "true"}}):
        answer = send(events, "POST", f"{EVENTS}/metrics", body)
        assert (answer.status, answer.body) == (204, b"")
    assert send(events, "POST", f"{TABLES}/absent/metrics", report).error == (404, "NoSuchTableException")


def found(answer: Answer) -> list[tuple[str, str]]:
    results = [(result["type"], result["identifier"]) for result in created(answer)["results"]]
    return sorted((kind, ".".join([*identifier["namespace"], identifier["name"]])) for kind, identifier in results)


def test_search_finds_tables_and_views_across_namespaces(events: RunningServer) -> None:
    """MISSION: 002-37"""
    created(send(events, "POST", "/v1/namespaces", {"namespace": ["raw"]}))
    created(send(events, "POST", "/v1/namespaces/raw/tables", without_location("raw_events")))
    created(send(events, "POST", "/v1/namespaces/raw/tables", without_location("users")))
    created(send(events, "POST", VIEWS, a_view("events_by_day")))

    tables = [("table", "analytics.events"), ("table", "raw.raw_events")]
    assert found(send(events, "GET", "/v1/search?query=events&type=table")) == tables
    assert found(send(events, "GET", "/v1/search?query=events&type=view")) == [("view", "analytics.events_by_day")]
    assert found(send(events, "GET", "/v1/search?query=events")) == [*tables, ("view", "analytics.events_by_day")]
    assert found(send(events, "GET", "/v1/search?query=absent")) == []
    assert send(events, "GET", "/v1/search?query=events&type=spoon").error == (400, "BadRequestException")


def test_health_and_readiness_are_answered(catalog: RunningServer) -> None:
    """MISSION: 002-39, 002-40"""
    assert is_part_of({"status": "healthy"}, created(send(catalog, "GET", "/health")))
    assert send(catalog, "GET", "/ready").status == 200


def requests_counted(server: RunningServer, **labels: str) -> float:
    total = 0.0
    for line in send(server, "GET", "/metrics").body.decode().splitlines():
        sample = re.fullmatch(r"nunatak_requests_total\{(.*)\} (\S+)", line)
        if sample and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', sample.group(1))).items():
            total += float(sample.group(2))
    return total


def test_requests_are_counted_by_method_and_status(catalog: RunningServer) -> None:
    """MISSION: 002-41"""
    metrics = send(catalog, "GET", "/metrics")
    assert metrics.status == 200
    assert metrics.headers["content-type"].startswith(("text/plain", "application/openmetrics-text"))
    before = requests_counted(catalog, method="GET", status="404")

    send(catalog, "GET", "/v1/namespaces/absent")

    assert "# TYPE nunatak_requests_total counter" in metrics.body.decode()
    assert requests_counted(catalog, method="GET", status="404") == before + 1


def test_a_request_id_is_echoed(catalog: RunningServer) -> None:
    answer = send(catalog, "GET", "/v1/config", headers={"X-Request-Id": "a-client-chose-this"})

    assert answer.headers["x-request-id"] == "a-client-chose-this"
