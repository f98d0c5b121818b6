"""What the server tells the spool of requests: each change and refusal once, reports made flat, loads as numbers."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nunatak.database import bindings
from nunatak.events import reports
from nunatak.events.outbox import deliver
from tests.api.conftest import MakeCatalog
from tests.api.wire import (
    a_commit,
    a_table,
    a_version,
    a_view,
    add_snapshot,
    branch_is_at,
    done,
    identifier,
    ok,
    path_of,
    rename,
    set_branch,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog

T = path_of("ns", "tables", "t")
KEY = "0198c2c4-0000-7000-8000-000000000001"


def spooled(catalog: LocalCatalog, kind: str = "events") -> list[dict[str, Any]]:
    """Everything of a kind that was noted until now."""
    inner = catalog.app.catalog
    assert inner.spool is not None
    catalog.run(deliver(inner.store, inner.spool, inner.server_id, inner.now_ms))
    catalog.run(inner.spool.flush(finish=True))
    files = sorted((catalog.data / "spool" / kind).rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def test_a_commit_is_told_with_its_snapshot_and_what_it_counted(catalog: LocalCatalog) -> None:
    created = catalog.table("ns", "t")
    snapshot = add_snapshot(7)
    snapshot["snapshot"]["summary"] |= {"added-data-files": "3", "total-records": "12", "note": "many", "odd": "１"}

    headers = {"User-Agent": "spark", "X-Request-ID": "r-1"}
    answer = catalog.commit("ns", "t", a_commit(snapshot, set_branch(7)), headers)

    assert answer.status == 200
    *_, event = spooled(catalog)
    assert event["operation"] == "commit-table"
    assert (event["warehouse"], event["namespace"], event["table_name"]) == ("default", "ns", "t")
    assert event["table_uuid"] == created["metadata"]["table-uuid"]
    assert (event["snapshot_id"], event["snapshot_operation"]) == (7, "append")
    assert event["counters"] == {"added-data-files": 3, "total-records": 12}
    assert (event["status"], event["error"], event["tries"]) == (200, None, 1)
    assert event["duration_ms"] > 0
    assert event["metadata_bytes"] == len(answer.body)
    assert (event["principal"], event["client"], event["request_id"]) == ("anonymous", "spark", "r-1")


def test_a_conflict_is_told_as_such(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")

    refused = catalog.commit("ns", "t", a_commit(add_snapshot(7), set_branch(7), requires=[branch_is_at(3)]))

    assert refused.status == 409
    *_, event = spooled(catalog)
    assert (event["operation"], event["table_name"], event["status"]) == ("commit-table", "t", 409)
    assert event["error"] == "CommitFailedException"
    assert (event["snapshot_id"], event["snapshot_operation"]) == (7, "append")


def test_every_change_of_tables_views_and_namespaces_is_told_once(catalog: LocalCatalog) -> None:
    done_by = [
        ("POST", "/v1/namespaces", {"namespace": ["a", "b.c"]}),
        ("POST", path_of(["ns"]) + "/properties", {"updates": {"x": "y"}}),
        ("POST", path_of("ns", "tables"), a_table("t")),
        ("POST", path_of("ns", "tables"), a_table("staged", stage_create=True)),  # nothing is created: not told
        ("POST", T, a_commit(set_properties(x="y"))),
        (
            "POST",
            "/v1/transactions/commit",
            {"table-changes": [{"identifier": identifier("ns", "t"), **a_commit(set_properties(x="z"))}]},
        ),
        ("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("ns", "u"))),
        ("POST", path_of("ns", "views"), a_view("v")),
        ("DELETE", path_of("ns", "views", "v"), None),
        ("DELETE", path_of("ns", "tables", "u"), None),
        ("DELETE", path_of("ns"), None),
    ]
    for method, path, body in done_by:
        answer = catalog.call(method, path, body)
        assert answer.status < 300, (path, answer.body)

    told = [(event["operation"], event["namespace"], event.get("table_name")) for event in spooled(catalog)]
    assert told == [
        ("create-namespace", "ns", None),
        ("create-namespace", "a.b%2Ec", None),
        ("update-namespace", "ns", None),
        ("create-table", "ns", "t"),
        ("commit-table", "ns", "t"),
        ("commit-table", "ns", "t"),
        ("rename-table", "ns", "t"),
        ("create-view", "ns", "v"),
        ("drop-view", "ns", "v"),
        ("drop-table", "ns", "u"),
        ("drop-namespace", "ns", None),
    ]
    (renamed,) = [event for event in spooled(catalog) if event["operation"] == "rename-table"]
    assert renamed["renamed_to"] == "ns.u"


def test_a_new_name_is_told_so_that_namespace_and_table_can_be_told_apart(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    ok(catalog.call("POST", "/v1/namespaces", {"namespace": ["a.b"]}))
    to = {"namespace": ["a.b"], "name": "c.d"}

    answer = catalog.call("POST", "/v1/tables/rename", rename(identifier("ns", "t"), to))

    assert answer.status < 300, answer.body
    *_, event = spooled(catalog)
    assert event["renamed_to"] == "a%2Eb.c%2Ed"


def test_a_table_made_by_a_commit_is_told_as_created(catalog: LocalCatalog) -> None:
    staged = ok(catalog.call("POST", path_of("ns", "tables"), a_table("t", stage_create=True)))["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    ok(catalog.commit("ns", "t", a_commit(*updates, requires=[{"type": "assert-create"}])))

    *_, event = spooled(catalog)
    assert (event["operation"], event["table_uuid"]) == ("create-table", staged["table-uuid"])


def test_the_events_of_views_carry_their_uuid(catalog: LocalCatalog) -> None:
    created = ok(catalog.call("POST", path_of("ns", "views"), a_view("v")))
    uuid = created["metadata"]["view-uuid"]
    version = {"action": "add-view-version", "view-version": a_version("SELECT 2", 2)}
    replaced = catalog.call("POST", path_of("ns", "views", "v"), a_commit(version))
    ok(replaced)
    done(catalog.call("POST", "/v1/views/rename", rename(identifier("ns", "v"), identifier("ns", "w"))))
    done(catalog.call("DELETE", path_of("ns", "views", "w")))
    register = {"name": "x", "metadata-location": created["metadata-location"]}
    ok(catalog.call("POST", path_of("ns") + "/register-view", register))

    told = {event["operation"]: event for event in spooled(catalog) if event["operation"].endswith("view")}
    assert set(told) == {"create-view", "commit-view", "rename-view", "drop-view", "register-view"}
    for name in ("create-view", "commit-view", "rename-view", "register-view"):
        assert told[name]["table_uuid"] == uuid
    assert told["commit-view"]["metadata_bytes"] == len(replaced.body)


def test_a_commit_that_changes_nothing_or_is_refused_is_told_with_the_uuid_of_its_table(catalog: LocalCatalog) -> None:
    uuid = catalog.table("ns", "t")["metadata"]["table-uuid"]
    ok(catalog.commit("ns", "t", a_commit()))
    assert catalog.commit("ns", "t", a_commit(requires=[branch_is_at(3)])).status == 409

    *_, nothing, refused = spooled(catalog)
    assert (nothing["status"], nothing["table_uuid"]) == (200, uuid)
    assert (refused["status"], refused["table_uuid"]) == (409, uuid)


def test_a_request_sent_again_is_told_once(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    for _ in range(3):
        ok(catalog.commit("ns", "t", a_commit(set_properties(x="y")), {"Idempotency-Key": KEY}))

    assert [event["operation"] for event in spooled(catalog)].count("commit-table") == 1


def test_reports_are_told_flat_with_who_sent_them_002_36(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    metrics = {"result-data-files": {"unit": "count", "value": 3}}
    done(
        catalog.call(
            "POST", f"{T}/metrics", {"table-name": "ns.t", "snapshot-id": 1, "filter": True, "metrics": metrics}
        )
    )
    done(catalog.call("POST", f"{T}/metrics", {"report-type": "commit-report", "operation": "append"}))

    (scan,), (commit,) = spooled(catalog, "scan_reports"), spooled(catalog, "commit_reports")
    assert (scan["namespace"], scan["table_name"], scan["principal"]) == ("ns", "t", "anonymous")
    assert (scan["counters"], scan["filter_json"], scan["filter_columns"]) == ({"result-data-files": 3}, "true", [])
    assert commit["operation"] == "append"


def test_a_report_that_is_far_too_long_is_refused_and_not_kept(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")

    answer = catalog.call("POST", f"{T}/metrics", {"filter": "x" * 300_000})

    assert answer.status == 413
    assert spooled(catalog, "scan_reports") == []
    assert catalog.rows("SELECT count(*) FROM nunatak_reports") == [(0,)]


def test_what_is_not_read_of_a_report_never_becomes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"report-type":"scan-report","junk":' + b"[" * 900 + b"]" * 900 + b',"snapshot-id":7}'
    decoded: list[object] = []
    real = msgspec.json.decode

    def watched(data: Any, **named: Any) -> Any:
        decoded.append(result := real(data, **named))
        return result

    monkeypatch.setattr(msgspec.json, "decode", watched)
    kind, fields = reports.flat_report(body, {})

    assert (kind, fields["snapshot_id"]) == ("scan_reports", 7)
    assert not any(isinstance(each, list) for each in decoded)


def test_the_bytes_of_kept_reports_are_bounded_and_not_only_their_number(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "KEPT_REPORT_BYTES", 1_000_000)
    catalog.table("ns", "t")
    for size in (200_000, 100_000, 20_000):
        for _ in range(60):
            done(catalog.call("POST", f"{T}/metrics", {"metadata": "x" * size}))

    ((count, stored),) = catalog.rows("SELECT count(*), sum(length(report)) FROM nunatak_reports")
    assert count >= 40
    assert stored < 3_000_000, "of 19 MB that were sent"


def test_a_refused_commit_is_told_without_keeping_it_in_memory(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    spool = catalog.app.catalog.spool
    assert spool is not None
    catalog.run(spool.flush())

    body = a_commit(set_properties(large="x" * 30_000), requires=[branch_is_at(3)])
    assert catalog.commit("ns", "t", body).status == 409

    ((_, _, record),) = spool._waiting
    assert isinstance(record, dict)
    assert len(json.dumps(record)) < 1000
    assert [event["status"] for event in spooled(catalog) if event["operation"] == "commit-table"] == [409]


def test_of_loads_only_their_number_is_told(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    for _ in range(3):
        catalog.load("ns", "t")
    catalog.call("GET", f"{T}?snapshots=refs")

    (told,) = spooled(catalog, "table_loads")
    assert (told["table_name"], told["loads"]) == ("t", 4)
    assert not any("principal" in name for name in told)


def test_administration_is_told_without_its_body(catalog: LocalCatalog) -> None:
    policy = {"securable": "warehouse:default", "policy": {"type": "snapshot-expiry"}}
    answer = catalog.call("POST", "/management/v1/policies", policy)
    assert answer.status < 300, answer.body

    (told,) = spooled(catalog, "audit")
    assert (told["action"], told["outcome"], told["detail"]) == ("set-policy", "allowed", None)


def test_changes_wait_for_a_spool_that_cannot_be_written(make_catalog: MakeCatalog, tmp_path: Path) -> None:
    blocking = tmp_path / "file"
    blocking.write_text("not a folder")
    catalog = make_catalog(spool_location=str(blocking / "spool"))
    catalog.namespace("ns")
    catalog.table("ns", "t")
    assert catalog.commit("ns", "t", a_commit(requires=[branch_is_at(3)])).status == 409

    assert spooled(catalog) == []
    assert b"nunatak_spool_dropped_total 1.0" in catalog.call("GET", "/metrics").body, "the refusal"
    catalog.load("ns", "t")

    blocking.unlink()
    inner = catalog.app.catalog
    catalog.run(deliver(inner.store, inner.spool, inner.server_id, inner.now_ms))
    (file,) = (blocking / "spool" / "events").rglob("*.jsonl")
    told = [json.loads(line)["operation"] for line in file.read_text().splitlines()]
    assert told == ["create-namespace", "create-table"]


def test_without_a_spool_nothing_is_kept(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog(spool_location="off")
    catalog.namespace("ns")
    catalog.table("ns", "t")
    catalog.load("ns", "t")
    done(catalog.call("POST", f"{T}/metrics", {}))

    assert catalog.app.catalog.spool is None
    assert not (catalog.data / "spool").exists()


def test_what_was_told_is_written_when_the_server_stops(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    catalog.restart()

    (file,) = (catalog.data / "spool" / "events").rglob("*.jsonl")
    assert [json.loads(line)["operation"] for line in file.read_text().splitlines()] == [
        "create-namespace",
        "create-table",
    ]


@pytest.mark.parametrize("place", ["s3://bucket/spool", "http://host/spool"])
def test_a_spool_where_nothing_can_be_written_is_refused(make_catalog: MakeCatalog, place: str) -> None:
    with pytest.raises(Exception, match="spool_location is"):
        make_catalog(spool_location=place)
