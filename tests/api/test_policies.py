"""Policies over HTTP: who may set them, where they count, what becomes of them, and the plans they make."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.test_health import write
from tests.api.wire import a_commit, a_table, done, identifier, ok, path_of, rename, set_properties
from tests.support.catalogs.local import LocalCatalog

POLICIES, PLAN = "/management/v1/policies", "/management/v1/maintenance/plan"
MIB = 1 << 20
EXPIRY = {"type": "snapshot-expiry", "max-snapshot-age-seconds": 86_400}
COMPACTION = {"type": "data-compaction", "trigger": {"small-file-percent": 50.0}}


def at(path: str, securable: str, **query: str) -> str:
    more = "".join(f"&{name}={quote(value, safe='')}" for name, value in query.items())
    return f"{path}?securable={quote(securable, safe='')}{more}"


def set_policy(catalog: LocalCatalog, securable: str, policy: Any) -> None:
    done(catalog.call("POST", POLICIES, {"securable": securable, "policy": policy}))


def effective(catalog: LocalCatalog, securable: str) -> dict[str, str]:
    """Where the policy of each type is set that counts."""
    found = ok(catalog.call("GET", at(f"{POLICIES}/effective", securable)))["policies"]
    return {each["policy"]["type"]: each["securable"] for each in found}


def decision(catalog: LocalCatalog, securable: str, kind: str) -> Any:
    (table,) = ok(catalog.call("GET", at(PLAN, securable)))["tables"]
    return next(each for each in table["decisions"] if each["type"] == kind)


def test_a_policy_is_set_shown_replaced_and_dropped(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    set_policy(catalog, "table:default/ns/t", {**EXPIRY, "min-snapshots-to-keep": 3})
    set_policy(catalog, "table:default/ns/t", EXPIRY)

    (shown,) = ok(catalog.call("GET", at(POLICIES, "namespace:default/ns")))["policies"]
    done(catalog.call("DELETE", at(POLICIES, "table:default/ns/t", type="snapshot-expiry")))

    assert shown["securable"] == "table:default/ns/t"
    assert shown["policy"] == EXPIRY
    assert shown["changed-by"] == "anonymous"
    assert ok(catalog.call("GET", at(POLICIES, "namespace:default/ns")))["policies"] == []
    again = catalog.call("DELETE", at(POLICIES, "table:default/ns/t", type="snapshot-expiry"))
    assert again.error[0] == 404


def test_the_nearest_policy_of_each_type_counts(catalog: LocalCatalog) -> None:
    catalog.namespace("ns", "deep")
    ok(catalog.call("POST", path_of(["ns", "deep"], "tables"), a_table("t")))
    set_policy(catalog, "warehouse:default", EXPIRY)
    set_policy(catalog, "warehouse:default", COMPACTION)
    set_policy(catalog, "namespace:default/ns", EXPIRY)
    set_policy(catalog, "table:default/ns/deep/t", {**COMPACTION, "enabled": False})

    assert effective(catalog, "table:default/ns/deep/t") == {
        "snapshot-expiry": "namespace:default/ns",
        "data-compaction": "table:default/ns/deep/t",
    }
    assert effective(catalog, "warehouse:default") == dict.fromkeys(
        ("snapshot-expiry", "data-compaction"), "warehouse:default"
    )
    assert decision(catalog, "table:default/ns/deep/t", "data-compaction")["state"] == "off"


def test_policies_inside_come_page_by_page(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    for place in ("warehouse:default", "namespace:default/ns", "table:default/ns/t"):
        set_policy(catalog, place, EXPIRY)
        set_policy(catalog, place, COMPACTION)

    found: list[tuple[str, str]] = []
    token: str | None = ""
    while token is not None:
        page = ok(catalog.call("GET", at(POLICIES, "warehouse:default", pageSize="2", pageToken=token)))
        found += [(each["securable"], each["policy"]["type"]) for each in page["policies"]]
        token = page.get("next-page-token")

    assert found == [
        (place, kind)
        for place in ("warehouse:default", "namespace:default/ns", "table:default/ns/t")
        for kind in ("data-compaction", "snapshot-expiry")
    ]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({}, "type"),
        ({"type": "tidying"}, "Invalid value 'tidying'"),
        ({"type": "data-compaction", "colour": "red"}, "unknown field `colour`"),
        ({"type": "data-compaction", "strategy": "zorder"}, "zorder needs at least one"),
        ({"type": "data-compaction", "columns": ["a"]}, "binpack keeps the order"),
        ({"type": "data-compaction", "trigger": {"small-file-percent": 101}}, "small-file-percent"),
        ({"type": "snapshot-expiry", "trigger": {"delete-files": 3}}, "does not apply to snapshot-expiry"),
        ({"type": "snapshot-expiry", "max-snapshot-age-seconds": 0}, "max-snapshot-age-seconds"),
        ({"type": "orphan-removal", "older-than-seconds": 3600}, "259200"),
        ({"type": "row-retention", "column": "day"}, "max-age-seconds"),
        ({"type": "statistics", "budget": {"window": {"start": "25:00", "end": "06:00"}}}, "start"),
        ({"type": "statistics", "budget": {"window": {"start": "06:00", "end": "06:00"}}}, "ends when it begins"),
        ({"type": "statistics", "backoff": {"first-seconds": 9000, "longest-seconds": 10}}, "longest-seconds"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_and_says_why(catalog: LocalCatalog, policy: Any, said: str) -> None:
    answer = catalog.call("POST", POLICIES, {"securable": "namespace:default/ns", "policy": policy})

    status, _, message = answer.error
    assert status == 400
    assert said in message
    assert ok(catalog.call("GET", at(POLICIES, "warehouse:default")))["policies"] == []


def test_a_misspelled_field_is_answered_with_those_there_are(catalog: LocalCatalog) -> None:
    policy = {"type": "snapshot-expiry", "trigger": {"snapshot": 3}}

    answer = catalog.call("POST", POLICIES, {"securable": "namespace:default/ns", "policy": policy})

    assert "unknown field `snapshot`" in answer.error[2]
    assert "max-snapshot-age-seconds" in answer.hint
    assert "trigger.snapshots" in answer.hint
    assert "budget.window.start" in answer.hint


@pytest.mark.parametrize("securable", ["namespace:default/missing", "table:default/ns/missing", "warehouse:missing"])
def test_a_policy_is_not_set_on_what_is_not_there(catalog: LocalCatalog, securable: str) -> None:
    assert catalog.call("POST", POLICIES, {"securable": securable, "policy": EXPIRY}).error[0] == 404


def test_a_policy_goes_with_its_table_and_is_gone_with_it(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    set_policy(catalog, "table:default/ns/t", EXPIRY)

    done(catalog.call("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("ns", "u"))))
    moved = effective(catalog, "table:default/ns/u")
    done(catalog.call("DELETE", path_of("ns", "tables", "u")))
    catalog.table("ns", "u")

    assert moved == {"snapshot-expiry": "table:default/ns/u"}
    assert effective(catalog, "table:default/ns/u") == {}


def test_a_policy_is_gone_with_its_namespace(catalog: LocalCatalog) -> None:
    catalog.namespace("brief")
    set_policy(catalog, "namespace:default/brief", EXPIRY)
    done(catalog.call("DELETE", path_of("brief")))
    catalog.namespace("brief")

    assert effective(catalog, "namespace:default/brief") == {}


def test_every_change_of_a_policy_is_in_the_audit_trail_and_bumps_no_version(catalog: LocalCatalog) -> None:
    (before,) = catalog.rows("SELECT version FROM nunatak_policy")
    set_policy(catalog, "namespace:default/ns", EXPIRY)
    done(catalog.call("DELETE", at(POLICIES, "namespace:default/ns", type="snapshot-expiry")))

    rows = catalog.rows("SELECT action, principal, securable, detail FROM nunatak_audit WHERE action LIKE '%policy'")
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("set-policy", "anonymous", "default\x1fns."),
        ("drop-policy", "anonymous", "default\x1fns."),
    ]
    assert json.loads(rows[0][3]) == {"policy": EXPIRY}
    assert catalog.rows("SELECT version FROM nunatak_policy") == [before]


def test_a_request_that_is_sent_again_changes_nothing(catalog: LocalCatalog) -> None:
    key = {"Idempotency-Key": "0192d5a0-0000-7000-8000-000000000001"}
    body = {"securable": "namespace:default/ns", "policy": EXPIRY}

    done(catalog.call("POST", POLICIES, body, key))
    done(catalog.call("POST", POLICIES, body, key))

    assert len(catalog.rows("SELECT * FROM nunatak_audit WHERE action = 'set-policy'")) == 1


# Plans


def test_a_plan_says_which_policy_why_now_and_what_is_gained(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    write(catalog, "t", 1, data_files=2000, files_size=200 * MIB, delete_files=0, records=20_000)
    set_policy(catalog, "namespace:default/ns", {**COMPACTION, "strategy": "sort", "columns": ["id"]})

    due = decision(catalog, "table:default/ns/t", "data-compaction")

    assert due["state"] == "due"
    assert due["policy-on"] == "namespace:default/ns"
    assert due["measures"] == [
        {"trigger": "small-file-percent", "value": 100.0, "limit": 50.0, "reached": True},
    ]
    assert due["expected"] == [{"of": "data files", "before": 2000, "after": 1}]
    assert due["job"]["options"] == {
        "strategy": "sort",
        "columns": ["id"],
        "target-file-size-bytes": 512 * MIB,
    }
    assert due["job"]["policy"] == "namespace:default/ns"
    assert due["job"]["snapshot-id"] == 1
    assert decision(catalog, "table:default/ns/t", "snapshot-expiry")["state"] == "none"


def test_the_tables_own_properties_go_before_the_policy(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t", properties={"history.expire.min-snapshots-to-keep": "5"})
    write(catalog, "t", 1, data_files=1, files_size=MIB)
    ok(catalog.commit("ns", "t", a_commit(set_properties(**{"write.target-file-size-bytes": str(MIB)}))))
    set_policy(catalog, "warehouse:default", EXPIRY)
    set_policy(catalog, "warehouse:default", {**COMPACTION, "target-file-size-bytes": 64 * MIB})

    expiry = decision(catalog, "table:default/ns/t", "snapshot-expiry")
    compaction = decision(catalog, "table:default/ns/t", "data-compaction")

    assert expiry["overridden-by"] == {"min-snapshots-to-keep": "history.expire.min-snapshots-to-keep=5"}
    assert compaction["overridden-by"] == {"target-file-size-bytes": f"write.target-file-size-bytes={MIB}"}
    assert compaction["state"] == "idle", "the only file is as large as the table wants it"


def test_a_namespace_is_planned_page_by_page(catalog: LocalCatalog) -> None:
    for name in ("a", "b", "c"):
        catalog.table("ns", name)
        write(catalog, name, 1, data_files=100, files_size=100 * MIB)
    catalog.view("ns", "v")
    set_policy(catalog, "namespace:default/ns", COMPACTION)
    set_policy(catalog, "table:default/ns/b", {**COMPACTION, "enabled": False})

    found: list[tuple[str, str]] = []
    token: str | None = ""
    while token is not None:
        page = ok(catalog.call("GET", at(PLAN, "warehouse:default", pageSize="2", pageToken=token)))
        found += [(each["securable"][-1], _state(each, "data-compaction")) for each in page["tables"]]
        token = page.get("next-page-token")

    assert found == [("a", "due"), ("b", "off"), ("c", "due")]


def _state(table: Any, kind: str) -> str:
    return next(str(each["state"]) for each in table["decisions"] if each["type"] == kind)


def test_the_tables_of_one_plan_share_the_budget_of_their_policy(catalog: LocalCatalog) -> None:
    for name in ("a", "b", "c"):
        catalog.table("ns", name)
        write(catalog, name, 1, data_files=100, files_size=100 * MIB)
    set_policy(catalog, "namespace:default/ns", {**COMPACTION, "budget": {"bytes-per-hour": 150 * MIB}})

    tables = ok(catalog.call("GET", at(PLAN, "namespace:default/ns")))["tables"]

    jobs = [next(one for one in each["decisions"] if one["type"] == "data-compaction") for each in tables]
    assert [each["state"] for each in jobs] == ["due", "due", "held"]
    assert [each["job"] and each["job"]["max-bytes"] for each in jobs] == [150 * MIB, 50 * MIB, None]
    assert jobs[2]["holds"][0]["because"] == "budget"


# Who may


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    made.namespace("sales")
    ok(made.call("POST", path_of("sales", "tables"), a_table("orders")))
    made.principal("stranger")
    made.principal("reader", default__sales="READ")
    made.principal("appender", default__sales="READ,TABLE_WRITE")
    made.principal("writer", default__sales="WRITE")
    made.principal("keeper", default="WAREHOUSE_ADMIN")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("caller", "on_table", "on_namespace", "on_warehouse"),
    [
        ("stranger", 404, 404, 404),
        ("reader", 403, 403, 403),
        ("appender", 403, 403, 403),
        ("writer", 204, 204, 403),
        ("keeper", 204, 204, 204),
        ("root", 204, 204, 204),
    ],
)
def test_a_policy_is_set_by_those_who_may_change_all_it_counts_for(
    secured: LocalCatalog, caller: str, on_table: int, on_namespace: int, on_warehouse: int
) -> None:
    places = ("table:default/sales/orders", "namespace:default/sales", "warehouse:default")

    answers = [secured.call_as(caller, "POST", POLICIES, {"securable": each, "policy": EXPIRY}) for each in places]
    dropped = [secured.call_as(caller, "DELETE", at(POLICIES, each, type="snapshot-expiry")) for each in places]

    assert [each.status for each in answers] == [on_table, on_namespace, on_warehouse]
    assert [each.status for each in dropped] == [on_table, on_namespace, on_warehouse]


def test_policies_and_plans_are_shown_to_those_who_may_read_the_metadata(secured: LocalCatalog) -> None:
    set_policy(secured, "namespace:default/sales", EXPIRY)

    for path in (POLICIES, f"{POLICIES}/effective", PLAN):
        assert secured.call_as("reader", "GET", at(path, "table:default/sales/orders")).status == 200
        assert secured.call_as("reader", "GET", at(path, "namespace:default/sales")).status == 200
        assert secured.call_as("stranger", "GET", at(path, "namespace:default/sales")).status == 404
        assert secured.call_as("stranger", "GET", at(path, "table:default/sales/orders")).status == 404
