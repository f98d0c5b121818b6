"""What a warehouse permits: nothing while it is read-only, its format versions, its locations; on every database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nunatak.api.routes import ROUTES
from tests.api.wire import (
    SCHEMA,
    a_commit,
    a_table,
    a_version,
    a_view,
    add_snapshot,
    branch_is_at,
    done,
    ok,
    set_branch,
)
from tests.support.catalogs.local import LocalCatalog

WAREHOUSES = "/management/v1/warehouses"
LAB = f"{WAREHOUSES}/lab"
TABLES = "/v1/lab/namespaces/a/tables"
VIEWS = "/v1/lab/namespaces/a/views"


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCatalog]:
    """With a namespace, a table and a view in a warehouse that was made at run time."""
    environment = {}
    if request.param != "sqlite":
        fixture = "database" if request.param == "postgres" else "mariadb_database"
        environment = {"NUNATAK_DATABASE_URL": request.getfixturevalue(fixture), "NUNATAK_DATABASE_CONNECTIONS": "3"}
    made = LocalCatalog(tmp_path, environment)
    ok(made.call("POST", WAREHOUSES, {"name": "lab"}))
    ok(made.call("POST", "/v1/lab/namespaces", {"namespace": ["a"]}))
    ok(made.call("POST", TABLES, a_table("t")))
    ok(made.call("POST", VIEWS, a_view("v")))
    yield made
    made.close()


def change(lab: LocalCatalog, **fields: Any) -> Any:
    version = ok(lab.call("GET", LAB))["version"]
    wanted = {"version": version, **{name.replace("_", "-"): value for name, value in fields.items()}}
    changed = ok(lab.call("PATCH", LAB, wanted))
    assert changed.pop("steps") == []  # a local folder is not tested
    return changed


def append(number: int) -> dict[str, Any]:
    return a_commit(add_snapshot(number), set_branch(number), requires=[branch_is_at(None)])


Attempt = tuple[str, str, Any]


def attempts(lab: LocalCatalog) -> dict[str, Attempt]:
    """A request of every operation that changes a warehouse; each would succeed if it were writable."""
    located = ok(lab.call("GET", f"{TABLES}/t"))["metadata-location"]
    viewed = ok(lab.call("GET", f"{VIEWS}/v"))["metadata-location"]
    properties = a_commit({"action": "set-properties", "updates": {"x": "y"}})
    named = {"namespace": ["a"], "name": "t"}
    one_view = {"namespace": ["a"], "name": "v"}
    return {
        "createNamespace": ("POST", "/v1/lab/namespaces", {"namespace": ["b"]}),
        "dropNamespace": ("DELETE", "/v1/lab/namespaces/a", None),
        "updateProperties": ("POST", "/v1/lab/namespaces/a/properties", {"updates": {"x": "y"}}),
        "createTable": ("POST", TABLES, a_table("new")),
        "registerTable": (
            "POST",
            "/v1/lab/namespaces/a/register",
            {"name": "t", "metadata-location": located, "overwrite": True},
        ),
        "updateTable": ("POST", f"{TABLES}/t", properties),
        "dropTable": ("DELETE", f"{TABLES}/t", None),
        "unregisterTable": ("POST", f"{TABLES}/t/unregister", {}),
        "renameTable": (
            "POST",
            "/v1/lab/tables/rename",
            {"source": named, "destination": {"namespace": ["a"], "name": "t2"}},
        ),
        "commitTransaction": (
            "POST",
            "/v1/lab/transactions/commit",
            {"table-changes": [{"identifier": named, **properties}]},
        ),
        "createView": ("POST", VIEWS, a_view("new")),
        "registerView": ("POST", "/v1/lab/namespaces/a/register-view", {"name": "v2", "metadata-location": viewed}),
        "replaceView": (
            "POST",
            f"{VIEWS}/v",
            a_commit({"action": "set-properties", "updates": {"x": "y"}}),
        ),
        "dropView": ("DELETE", f"{VIEWS}/v", None),
        "renameView": (
            "POST",
            "/v1/lab/views/rename",
            {"source": one_view, "destination": {"namespace": ["a"], "name": "v2"}},
        ),
    }


def test_every_route_that_changes_a_warehouse_is_refused_while_it_is_read_only(lab: LocalCatalog) -> None:
    tried = attempts(lab)
    of_warehouses = {each.operation for each in ROUTES if each.mutates and "{prefix}" in each.template}
    # A report changes nothing that a reader sees, and only reads are signed in a read-only warehouse.
    assert tried.keys() == of_warehouses - {"reportMetrics", "signRequest"}
    assert change(lab, read_only=True)["read-only"] is True
    written = lab.app.catalog.objects.local.counts["write"]

    staged = lab.call("POST", TABLES, a_table("staged", stage_create=True))
    refused = {name: lab.call(*attempt) for name, attempt in tried.items()}

    for name, answer in {**refused, "stageTable": staged}.items():
        assert (answer.status, answer.json["error"]["type"]) == (403, "ReadOnlyWarehouseException"), name
        assert "lab is read-only" in answer.json["error"]["message"]
    assert lab.app.catalog.objects.local.counts["write"] == written
    assert ok(lab.call("GET", f"{TABLES}/t"))["metadata"]["properties"] != {"x": "y"}
    assert lab.call("POST", f"{TABLES}/t/metrics", {"report-type": "scan-report"}).status == 204


def test_a_warehouse_can_be_written_again_after_a_change(lab: LocalCatalog) -> None:
    change(lab, read_only=True)

    assert change(lab, read_only=False)["read-only"] is False

    ok(lab.call("POST", f"{TABLES}/t", append(1)))


def test_a_commit_that_was_applied_is_not_refused_when_it_is_sent_again(lab: LocalCatalog) -> None:
    """A client that lost the answer must not hear that its commit failed: it would delete its files."""
    key = {"Idempotency-Key": "0192d5a0-0000-7000-8000-000000000001"}
    sent = append(1)
    ok(lab.call("POST", f"{TABLES}/t", sent))
    transaction = {"table-changes": [{"identifier": {"namespace": ["a"], "name": "t"}, **append(3)}]}
    ok(lab.call("POST", TABLES, a_table("keyed"), key))
    change(lab, read_only=True)

    again = lab.call("POST", f"{TABLES}/t", sent)
    keyed = lab.call("POST", TABLES, a_table("keyed"), key)
    other = lab.call("POST", f"{TABLES}/t", append(2))
    unlike = lab.call("POST", "/v1/lab/transactions/commit", transaction)

    assert again.status == 200, again.body
    assert keyed.status == 200, keyed.body
    assert (other.status, unlike.status) == (403, 403)  # never applied


# Format versions


def version_of(metadata: Any) -> int:
    return int(metadata["metadata"]["format-version"])


def assert_refused(answer: Any, status: int, text: str) -> None:
    assert answer.status == status, answer.body
    assert text in answer.json["error"]["message"]


def test_only_allowed_format_versions_are_created_committed_and_registered(lab: LocalCatalog) -> None:
    v3 = {"format-version": "3"}
    three = ok(lab.call("POST", TABLES, a_table("three", properties=v3)))
    change(lab, format_versions=[1, 2])
    upgrade = a_commit({"action": "upgrade-format-version", "format-version": 3})
    creation = a_commit(
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        requires=[{"type": "assert-create"}],
    )
    registration = {"name": "again", "metadata-location": three["metadata-location"]}
    done(lab.call("POST", f"{TABLES}/three/metrics", {"report-type": "scan-report"}))
    not_allowed = "v3 is not allowed in warehouse lab (allowed: v1, v2)"

    for path, body in (
        (TABLES, a_table("new", properties=v3)),
        (TABLES, a_table("new", properties=v3, stage_create=True)),
        (f"{TABLES}/new", creation),
        (f"{TABLES}/t", upgrade),
        (
            "/v1/lab/transactions/commit",
            {"table-changes": [{"identifier": {"namespace": ["a"], "name": "t"}, **upgrade}]},
        ),
    ):
        assert_refused(lab.call("POST", path, body), 400, not_allowed)
    ok(lab.call("POST", f"{TABLES}/three/unregister", {}))
    assert_refused(lab.call("POST", "/v1/lab/namespaces/a/register", registration), 400, not_allowed)

    assert version_of(ok(lab.call("GET", f"{TABLES}/t"))) == 2


def test_a_table_keeps_a_format_version_that_is_no_longer_allowed(lab: LocalCatalog) -> None:
    ok(lab.call("POST", TABLES, a_table("three", properties={"format-version": "3"})))
    change(lab, format_versions=[2])

    ok(lab.call("POST", f"{TABLES}/three", a_commit({"action": "set-properties", "updates": {"x": "y"}})))


def test_a_new_table_gets_the_default_format_version_of_the_warehouse(lab: LocalCatalog) -> None:
    change(lab, format_versions=[1, 3], default_format_version=3)
    creation = a_commit(
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        requires=[{"type": "assert-create"}],
    )

    assert version_of(ok(lab.call("POST", TABLES, a_table("created")))) == 3
    assert version_of(ok(lab.call("POST", TABLES, a_table("staged", stage_create=True)))) == 3
    assert version_of(ok(lab.call("POST", f"{TABLES}/committed", creation))) == 3
    assert version_of(ok(lab.call("POST", TABLES, a_table("one", properties={"format-version": "1"})))) == 1
    shown = change(lab, format_versions=[1, 3], default_format_version=None)
    assert shown["default-format-version"] == 3  # 2 is not allowed
    assert change(lab, format_versions=[])["default-format-version"] == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"format-versions": [4]},
        {"format-versions": [0, 1]},
        {"format-versions": [2, 2]},
        {"format-versions": [1], "default-format-version": 2},
        {"default-format-version": 7},
        {"layout": "pretty"},
        {"region": ""},
        {"read-only": "yes"},
        {"further-locations": ["file:///etc"]},
        {"further-locations": ["s3://bucket/x"]},
        {"profile": {"type": "s3"}},
        {"profile": {"type": "s3", "unknown": 1}},
        {"secret": {"type": "s3", "access-key-id": "a", "secret-access-key": "b"}},
    ],
)
def test_a_description_that_contradicts_itself_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    lab = LocalCatalog(tmp_path)
    try:
        ok(lab.call("POST", WAREHOUSES, {"name": "lab"}))

        assert lab.call("POST", WAREHOUSES, {"name": "new", **fields}).status == 400
        assert lab.call("PATCH", LAB, {"version": 1, **fields}).status == 400

        assert ok(lab.call("GET", LAB))["version"] == 1
        assert lab.call("GET", f"{WAREHOUSES}/new").status == 404
    finally:
        lab.close()


# Changes


def test_a_change_names_the_version_it_was_made_for(lab: LocalCatalog) -> None:
    first = ok(lab.call("PATCH", LAB, {"version": 1, "region": "eu"}))
    late = lab.call("PATCH", LAB, {"version": 1, "region": "us"})

    assert (first["version"], first["region"]) == (2, "eu")
    assert_refused(late, 409, "is at version 2, not 1")
    assert lab.call("PATCH", LAB, {"region": "us"}).status == 400  # without a version
    assert lab.call("PATCH", f"{WAREHOUSES}/default", {"version": 1}).status == 409  # of the settings
    assert lab.call("PATCH", f"{WAREHOUSES}/none", {"version": 1}).status == 404
    assert {**ok(lab.call("GET", LAB)), "steps": []} == first


def test_of_changes_at_the_same_time_one_is_made(lab: LocalCatalog) -> None:
    answers = lab.together(*(lab.request("PATCH", LAB, {"version": 1, "region": f"r{n}"}) for n in range(4)))

    assert sorted(each.status for each in answers) == [200, 409, 409, 409]
    assert ok(lab.call("GET", LAB))["version"] == 2


def test_a_change_leaves_alone_what_it_does_not_name(lab: LocalCatalog) -> None:
    root = f"file://{lab.data.resolve()}/warehouses"
    first = change(
        lab, read_only=True, format_versions=[2], region="eu", layout="plain", further_locations=[f"{root}/more"]
    )

    second = change(lab, read_only=False)

    assert second == {**first, "read-only": False, "version": first["version"] + 1}
    assert second["allowed-locations"] == [f"{root}/lab", f"{root}/more"]


def test_a_further_location_can_be_used_until_it_is_taken_away(lab: LocalCatalog) -> None:
    more = f"file://{lab.data.resolve()}/warehouses/more"
    assert lab.call("POST", TABLES, a_table("there", location=f"{more}/there")).status == 400
    change(lab, further_locations=[more])
    ok(lab.call("POST", TABLES, a_table("there", location=f"{more}/there")))

    version = ok(lab.call("GET", LAB))["version"]
    stranding = lab.call("PATCH", LAB, {"version": version, "further-locations": []})
    taken = lab.call("POST", WAREHOUSES, {"name": "other", "location": f"{more}/x"})
    done(lab.call("DELETE", f"{TABLES}/there"))

    assert_refused(stranding, 409, "tables of lab lie in it")
    assert_refused(taken, 409, "overlaps the warehouse lab")
    assert change(lab, further_locations=[])["allowed-locations"] == [f"file://{lab.data.resolve()}/warehouses/lab"]
    ok(lab.call("POST", WAREHOUSES, {"name": "other", "location": f"{more}/x"}))


@pytest.mark.parametrize("make", [lambda root: [f"{root}/lab/inside"], lambda root: [f"{root}/x", f"{root}/x/y"]])
def test_the_locations_of_one_warehouse_do_not_overlap(lab: LocalCatalog, make: Callable[[str], list[str]]) -> None:
    locations = make(f"file://{lab.data.resolve()}/warehouses")

    assert lab.call("PATCH", LAB, {"version": 1, "further-locations": locations}).status == 400


def test_what_was_described_survives_a_restart(lab: LocalCatalog) -> None:
    before = change(lab, read_only=True, format_versions=[2, 3], region="eu", layout="plain")

    lab.restart()

    assert ok(lab.call("GET", LAB)) == before
    assert lab.call("POST", TABLES, a_table("new")).status == 403


def test_a_view_is_replaced_where_tables_have_another_format_version(lab: LocalCatalog) -> None:
    change(lab, format_versions=[3])

    ok(
        lab.call(
            "POST",
            f"{VIEWS}/v",
            a_commit(
                {"action": "add-view-version", "view-version": a_version("SELECT 2", 2)},
                {"action": "set-current-view-version", "view-version-id": 2},
            ),
        )
    )
