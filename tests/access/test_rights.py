"""What rights mean, request by request: ownership, bodies, filtered lists, what may be known, and what it costs."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.api.wire import (
    SCHEMA,
    a_commit,
    a_table,
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


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    secured = LocalCatalog(tmp_path / "data", auth=True)
    secured.namespace("ns")
    secured.table("ns", "t")
    yield secured
    secured.close()


def names(answer: Any) -> list[str]:
    return [found["name"] for found in ok(answer)["identifiers"]]


def namespaces(answer: Any) -> list[list[str]]:
    listed: list[list[str]] = ok(answer)["namespaces"]
    return listed


# Ownership


def test_whoever_creates_something_owns_it_and_nobody_else_gains(catalog: LocalCatalog) -> None:
    for name in ("ann", "ben"):
        catalog.principal(name, default__ns="TABLE_CREATE,NS_CREATE")

    ok(catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers")))
    ok(catalog.call_as("ann", "POST", path_of("ns", "views"), a_view("her view")))
    ok(catalog.call_as("ann", "POST", "/v1/namespaces", {"namespace": ["ns", "hers"]}))

    assert names(catalog.call_as("ann", "GET", path_of("ns", "tables"))) == ["hers"]
    assert names(catalog.call_as("ben", "GET", path_of("ns", "tables"))) == []
    assert catalog.call_as("ben", "GET", path_of("ns", "tables", "hers")).status == 404
    ok(catalog.call_as("ann", "POST", path_of("ns", "tables", "hers"), a_commit(set_properties(a="b"))))
    done(
        catalog.call_as(
            "ann", "POST", "/v1/tables/rename", rename(identifier("ns", "hers"), identifier("ns", "still hers"))
        )
    )
    done(catalog.call_as("ann", "DELETE", path_of("ns", "tables", "still hers")))
    done(catalog.call_as("ann", "DELETE", path_of("ns", "views", "her view")))
    done(catalog.call_as("ann", "DELETE", path_of(["ns", "hers"])))


def test_a_table_made_by_a_commit_is_owned_too(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="TABLE_CREATE")
    staged = ok(catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("ctas", stage_create=True)))["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    commit = a_commit(*updates, requires=[{"type": "assert-create"}])

    ok(catalog.call_as("ann", "POST", path_of("ns", "tables", "ctas"), commit))

    assert names(catalog.call_as("ann", "GET", path_of("ns", "tables"))) == ["ctas"]
    elsewhere = [*updates[:-1], {"action": "set-location", "location": f"file://{catalog.warehouse}/mine"}]
    chosen = a_commit(*elsewhere, requires=[{"type": "assert-create"}])
    answer = catalog.call_as("ann", "POST", path_of("ns", "tables", "chosen"), chosen)
    assert answer.status == 403
    assert "LOCATION_CHOOSE" in answer.error[2]


def test_a_name_that_is_used_again_brings_no_old_rights(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="TABLE_CREATE", default__ns____t="READ")
    ok(catalog.call_as("ann", "GET", T))

    done(catalog.call("DELETE", T))
    catalog.table("ns", "t")
    assert catalog.call_as("ann", "GET", T).status == 404

    catalog.grant("ann", "default__ns____t", "READ")
    done(catalog.call("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("ns", "u"))))
    catalog.table("ns", "t")
    assert catalog.call_as("ann", "GET", T).status == 404
    ok(catalog.call_as("ann", "GET", path_of("ns", "tables", "u")))

    catalog.namespace("gone")
    catalog.principal("ben", default__gone="READ")
    done(catalog.call("DELETE", path_of("gone")))
    catalog.namespace("gone")
    assert catalog.call_as("ben", "GET", path_of("gone")).status == 404


def test_what_another_client_dropped_leaves_no_right_to_the_next_of_that_name(catalog: LocalCatalog) -> None:
    """A client of the JDBC tables deletes rows of its own, and knows of no grants."""
    catalog.namespace("inner")
    catalog.table("inner", "t")
    catalog.principal("ann", default__ns____t="READ", default__inner="READ", default__inner____t="WRITE")
    ok(catalog.call_as("ann", "GET", T))
    with closing(apsw.Connection(str(catalog.data / "nunatak.db"))) as other:
        other.set_busy_timeout(5000)
        other.execute("DELETE FROM iceberg_tables")
        other.execute("DELETE FROM iceberg_namespace_properties WHERE namespace = 'inner'")

    catalog.table("ns", "t")
    catalog.namespace("inner")
    catalog.table("inner", "t")

    assert catalog.call_as("ann", "GET", T).status == 404
    assert catalog.call_as("ann", "GET", path_of("inner")).status == 404
    assert catalog.call_as("ann", "GET", path_of("inner", "tables", "t")).status == 404


# What only the body tells


def test_a_pure_writer_adds_snapshots_and_nothing_else(catalog: LocalCatalog) -> None:
    catalog.principal("etl", default__ns____t="TABLE_READ_META,TABLE_WRITE")
    append = a_commit(add_snapshot(1), set_branch(1), requires=[branch_is_at(None)])

    ok(catalog.call_as("etl", "POST", T, append))

    for update in (
        set_properties(a="b"),
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "set-location", "location": f"file://{catalog.warehouse}/x"},
    ):
        answer = catalog.call_as("etl", "POST", T, a_commit(update))
        assert answer.status == 403, update
        assert "TABLE_ALTER" in answer.error[2]
    assert "a" not in ok(catalog.call("GET", T))["metadata"]["properties"]


@pytest.mark.parametrize("path", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_nobody_steers_files_elsewhere_without_leave(catalog: LocalCatalog, path: str) -> None:
    catalog.principal("ann", default__ns="ADMIN")
    elsewhere = f"file://{catalog.warehouse}/elsewhere"
    tries = [
        (T, a_commit(set_properties(**{path: elsewhere}))),
        (path_of("ns", "tables"), a_table("n", properties={path: elsewhere})),
        (path_of("ns", "tables"), a_table("n", location=elsewhere)),
        (path_of("ns", "tables"), a_table("n", location=elsewhere, stage_create=True)),
        (path_of("ns", "views"), a_view("n", location=elsewhere)),
        (path_of("ns", "properties"), {"updates": {"location": elsewhere}}),
        ("/v1/namespaces", {"namespace": ["ns", "n"], "properties": {"location": elsewhere}}),
        (path_of("ns", "register"), {"name": "n", "metadata-location": f"{elsewhere}/v1.metadata.json"}),
        (path_of("ns", "register-view"), {"name": "n", "metadata-location": f"{elsewhere}/v1.metadata.json"}),
    ]
    before = catalog.state()

    for where, body in tries:
        answer = catalog.call_as("ann", "POST", where, body)
        assert answer.status == 403, (where, answer.body)
        assert "LOCATION_CHOOSE" in answer.error[2]
    assert catalog.state() == before


def test_a_transaction_needs_the_right_on_every_table(catalog: LocalCatalog) -> None:
    catalog.table("ns", "u")
    catalog.principal("etl", default__ns____t="WRITE")
    changes = [{"identifier": identifier("ns", name), **a_commit(set_properties(a="b"))} for name in ("t", "u")]
    before = catalog.state()

    hidden = catalog.call_as("etl", "POST", "/v1/transactions/commit", {"table-changes": changes})
    catalog.grant("etl", "default__ns____u", "READ")
    forbidden = catalog.call_as("etl", "POST", "/v1/transactions/commit", {"table-changes": changes})

    assert hidden.error == (404, "NoSuchTableException", "Table does not exist: ns.u")
    assert forbidden.status == 403
    assert catalog.state() == before
    done(catalog.call_as("etl", "POST", "/v1/transactions/commit", {"table-changes": changes[:1]}))


def test_a_rename_needs_the_source_and_the_destination(catalog: LocalCatalog) -> None:
    catalog.namespace("to")
    catalog.principal("ann", default__ns="WRITE,TABLE_DROP")

    assert catalog.call_as(
        "ann", "POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("to", "t"))
    ).error == (
        404,
        "NoSuchNamespaceException",
        "Namespace does not exist: to",
    )
    catalog.grant("ann", "default__to", "READ")
    assert (
        catalog.call_as("ann", "POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("to", "t"))).status
        == 403
    )
    catalog.grant("ann", "default__to", "TABLE_CREATE")
    done(catalog.call_as("ann", "POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("to", "t"))))


# Lists


def test_lists_and_search_show_what_may_be_seen_page_by_page(catalog: LocalCatalog) -> None:
    for number in range(7):
        catalog.table("ns", f"a{number}")
        catalog.namespace("ns", f"inner{number}")
    catalog.namespace("hidden")
    catalog.table("hidden", "a9")
    catalog.principal("ann", default__ns____a1="READ", default__ns____a3="TABLE_WRITE", default__ns____a5="READ")
    catalog.grant("ann", "default__ns__inner2", "READ")
    catalog.grant("ann", "default__ns__inner4____t", "READ")

    assert names(catalog.call_as("ann", "GET", path_of("ns", "tables"))) == ["a1", "a3", "a5"]
    first = ok(catalog.call_as("ann", "GET", path_of("ns", "tables") + "?pageSize=2"))
    assert [found["name"] for found in first["identifiers"]] == ["a1", "a3"]
    token = first["next-page-token"]
    rest = catalog.call_as("ann", "GET", path_of("ns", "tables") + f"?pageSize=2&pageToken={token}")
    assert names(rest) == ["a5"]
    assert "next-page-token" not in rest.json
    assert (
        catalog.call("GET", path_of("ns", "tables") + f"?pageSize=2&pageToken={token}").status == 400
    )  # somebody else's
    assert namespaces(catalog.call_as("ann", "GET", "/v1/namespaces")) == [["ns"]]
    inner = [["ns", "inner2"], ["ns", "inner4"]]
    assert namespaces(catalog.call_as("ann", "GET", "/v1/namespaces?parent=ns")) == inner
    page = ok(catalog.call_as("ann", "GET", "/v1/namespaces?parent=ns&pageSize=1"))
    assert page["namespaces"] == inner[:1]
    after = f"/v1/namespaces?parent=ns&pageSize=1&pageToken={page['next-page-token']}"
    assert namespaces(catalog.call_as("ann", "GET", after)) == inner[1:]
    found = ok(catalog.call_as("ann", "GET", "/v1/default/search?query=a"))["results"]
    assert [each["identifier"]["name"] for each in found] == ["a1", "a3", "a5"]
    catalog.grant("ann", "default__hidden", "TABLE_LIST")
    found = ok(catalog.call_as("ann", "GET", "/v1/default/search?query=a"))["results"]
    assert [each["identifier"]["name"] for each in found] == ["a9", "a1", "a3", "a5"]


def test_a_search_shows_what_lies_in_something_that_may_be_listed_or_was_granted_itself(
    catalog: LocalCatalog,
) -> None:
    catalog.namespace("ns", "in")
    for namespace, name in (("ns", "a1"), ("ns", "a2"), ("ns\x1fin", "a3")):
        catalog.table(namespace, name)
    catalog.principal("ann", default__ns="TABLE_READ_DATA", default__ns____a2="TABLE_DROP")

    def found() -> list[str]:
        results = ok(catalog.call_as("ann", "GET", "/v1/default/search?query=a"))["results"]
        return [each["identifier"]["name"] for each in results]

    assert found() == ["a2"]
    catalog.grant("ann", "default__ns__in", "TABLE_LIST")
    assert found() == ["a2", "a3"]
    catalog.grant("ann", "default", "WAREHOUSE_ADMIN")
    assert found() == ["a1", "a2", "a3"]


def test_a_search_does_not_compare_every_name_with_every_grant(catalog: LocalCatalog) -> None:
    """Names times grants would be a million comparisons in the event loop."""
    catalog.principal("ann", default__other="TABLE_LIST")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
    catalog.rows(f"{numbers} INSERT INTO iceberg_tables SELECT 'default', 'ns', 't' || i, 'x', NULL, 'TABLE' FROM n")
    granted = "'default' || char(31) || 'ns.' || char(30) || 'u' || i"
    catalog.rows(f"{numbers} INSERT INTO nunatak_grants SELECT 'p:ann', {granted}, 1024, 'root', 0 FROM n")
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    catalog.store._reader.set_progress_handler(count, 1000)
    found = ok(catalog.call_as("ann", "GET", "/v1/default/search?query=t"))["results"]
    catalog.store._reader.set_progress_handler(None)

    assert found == []
    assert steps < 300


def test_a_grant_on_an_inner_namespace_says_nothing_of_its_neighbours(catalog: LocalCatalog) -> None:
    catalog.namespace("ns", "a")
    catalog.namespace("ns", "ab")
    catalog.namespace("ns", "a.b")
    catalog.principal("ann", default__ns__a="READ")

    assert namespaces(catalog.call_as("ann", "GET", "/v1/namespaces?parent=ns")) == [["ns", "a"]]
    assert catalog.call_as("ann", "GET", path_of(["ns", "ab"])).status == 404
    assert catalog.call_as("ann", "GET", path_of(["ns", "a.b"])).status == 404
    ok(catalog.call_as("ann", "GET", path_of(["ns", "a"])))
    assert catalog.call_as("ann", "GET", path_of("ns")).status == 403  # known by what lies inside


# What may be known


def test_what_may_not_be_seen_is_answered_byte_for_byte_like_what_is_not_there(catalog: LocalCatalog) -> None:
    catalog.view("ns", "v")
    catalog.table("ns", "T")
    catalog.namespace("mine")
    catalog.principal("ann", default__mine="ADMIN")
    asked = [
        ("GET", "tables", None),
        ("HEAD", "tables", None),
        ("DELETE", "tables", None),
        ("POST", "tables", a_commit(set_properties(a="b"))),
        ("GET", "views", None),
        ("HEAD", "views", None),
        ("DELETE", "views", None),
    ]

    for method, kind, body in asked:
        there = catalog.call_as("ann", method, path_of("ns", kind, "t" if kind == "tables" else "v"), body)
        absent = catalog.call_as("ann", method, path_of("ns", kind, "x"), body)
        assert there.status == absent.status == 404
        hidden = there.body.replace(b"ns.t", b"ns.x").replace(b"ns.v", b"ns.x")
        assert hidden == absent.body
        assert {name: value for name, value in there.headers.items() if name != "content-length"} == {
            name: value for name, value in absent.headers.items() if name != "content-length"
        }
    for method, path, other in (
        ("GET", path_of("ns"), path_of("xx")),
        ("DELETE", path_of("ns"), path_of("xx")),
        ("GET", path_of("ns", "tables"), path_of("xx", "tables")),
        ("GET", "/v1/elsewhere/namespaces", "/v1/elsewherf/namespaces"),
    ):
        there, absent = catalog.call_as("ann", method, path), catalog.call_as("ann", method, other)
        assert (there.status, absent.status) == (404, 404)
        assert there.body.replace(b"ns", b"xx").replace(b"elsewhere", b"elsewherf") == absent.body


def test_what_may_not_be_seen_takes_as_many_statements_as_what_is_not_there(catalog: LocalCatalog) -> None:
    catalog.view("ns", "v")
    catalog.namespace("mine")
    catalog.principal("ann", default__mine="ADMIN")
    counts = catalog.store.counts

    def reads(method: str, path: str, body: Any = None) -> int:
        before = counts["read"]
        assert catalog.call_as("ann", method, path, body).status == 404
        return counts["read"] - before

    reads("GET", path_of("ns", "tables", "t"))  # now she is known
    for method, body in (("GET", None), ("HEAD", None), ("DELETE", None), ("POST", a_commit(set_properties(a="b")))):
        assert reads(method, path_of("ns", "tables", "t"), body) == reads(method, path_of("ns", "tables", "x"), body)
    assert reads("GET", path_of("ns")) == reads("GET", path_of("xx"))
    assert reads("GET", path_of("ns", "tables")) == reads("GET", path_of("xx", "tables"))


def test_no_hint_names_what_was_not_asked_for(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default="READ")

    answer = catalog.call_as("ann", "GET", path_of("ns", "tables", "T"))

    assert answer.status == 404
    assert "hint" not in answer.json["error"]
    assert "hint" not in catalog.call_as("ann", "GET", "/v1/nowhere/namespaces").json["error"]


# Revocation, and what it all costs


def test_a_right_that_was_taken_away_is_gone_with_the_next_request(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="WRITE")
    ok(catalog.call_as("ann", "GET", T))
    ok(catalog.call_as("ann", "POST", T, a_commit(set_properties(a="b"))))

    catalog.revoke("ann", "default__ns", "TABLE_WRITE")
    assert catalog.call_as("ann", "POST", T, a_commit(set_properties(a="c"))).status == 403
    ok(catalog.call_as("ann", "GET", T))
    catalog.revoke("ann", "default__ns", "WRITE")
    assert catalog.call_as("ann", "GET", T).status == 404
    assert catalog.call_as("ann", "POST", T, a_commit(set_properties(a="c"))).status == 404
    catalog.grant("ann", "default__ns", "READ")
    ok(catalog.call_as("ann", "GET", T))
    assert ok(catalog.call("GET", T))["metadata"]["properties"]["a"] == "b"


def test_a_table_is_not_made_by_a_commit_with_a_right_that_was_taken_away(catalog: LocalCatalog) -> None:
    """There is no pointer yet that could bring the policy's version along."""
    catalog.principal("ann", default__ns="TABLE_CREATE")
    requires = [{"type": "assert-create"}]
    updates: list[dict[str, Any]] = [
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    ok(catalog.call_as("ann", "POST", path_of("ns", "tables", "first"), a_commit(*updates, requires=requires)))

    catalog.revoke("ann", "default__ns", "TABLE_CREATE")
    late = catalog.call_as("ann", "POST", path_of("ns", "tables", "late"), a_commit(*updates, requires=requires))

    assert late.status == 403  # what she made shows her the namespace
    assert catalog.call("HEAD", path_of("ns", "tables", "late")).status == 404


def test_an_answer_is_not_repeated_for_somebody_who_was_disabled(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="TABLE_CREATE")
    key = {"Idempotency-Key": "0190b6b1-0000-7000-8000-000000000003"}
    catalog.call("GET", "/v1/namespaces")  # the administrator knows the policy, and will not make the server look again
    made = catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers"), key)
    again = catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers"), key)
    assert (made.status, again.status) == (200, 200)

    done(catalog.call("PATCH", "/management/v1/principals/ann", {"disabled": True}))

    assert catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers"), key).status == 401


def test_a_principal_that_was_disabled_is_refused_with_the_next_request(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="READ")
    ok(catalog.call_as("ann", "GET", T))

    done(catalog.call("PATCH", "/management/v1/principals/ann", {"disabled": True}))
    assert catalog.call_as("ann", "GET", T).status == 401
    done(catalog.call("PATCH", "/management/v1/principals/ann", {"disabled": False}))
    ok(catalog.call_as("ann", "GET", T))


def test_a_load_and_a_commit_by_somebody_known_cost_no_statement_more(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="WRITE")
    counts = catalog.store.counts

    def reads(method: str, path: str, body: Any = None) -> int:
        before = counts["read"]
        assert catalog.call_as("ann", method, path, body).status in (200, 204)
        return counts["read"] - before

    reads("GET", T)
    commit = a_commit(set_properties(a="b"))
    reads("POST", T, commit)

    assert reads("GET", T) == 1
    assert reads("POST", T, a_commit(set_properties(a="c"))) == 1
    assert reads("HEAD", T) == 2
    assert reads("GET", path_of("ns")) <= 3


def test_a_repeated_request_gets_its_answer_although_the_table_and_every_grant_on_it_are_gone(
    catalog: LocalCatalog,
) -> None:
    catalog.principal("ann", default__ns="TABLE_CREATE")
    ok(catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers")))
    key = {"Idempotency-Key": "0190b6b1-0000-7000-8000-000000000001"}
    hers = path_of("ns", "tables", "hers")

    done(catalog.call_as("ann", "DELETE", hers, headers=key))

    done(catalog.call_as("ann", "DELETE", hers, headers=key))
    assert catalog.call_as("ann", "DELETE", hers).status == 404
    catalog.principal("ben", default__ns="TABLE_CREATE")
    assert catalog.call_as("ben", "DELETE", hers, headers=key).status == 404  # somebody else's key is another key


def test_a_refusal_for_lack_of_rights_is_not_remembered_for_its_key(catalog: LocalCatalog) -> None:
    catalog.principal("ann")
    key = {"Idempotency-Key": "0190b6b1-0000-7000-8000-000000000002"}

    assert catalog.call_as("ann", "DELETE", T, headers=key).status == 404
    catalog.grant("ann", "default__ns", "ADMIN")
    done(catalog.call_as("ann", "DELETE", T, headers=key))


@pytest.mark.parametrize(
    "key", ["s3.secret-access-key", "s3.session-token", "adls.sas-token.account", "jdbc.password", "token"]
)
def test_a_secret_is_no_property_since_everybody_who_loads_it_would_read_it(catalog: LocalCatalog, key: str) -> None:
    before = catalog.state()
    for path, body in (
        (T, a_commit(set_properties(**{key: "x"}))),
        (path_of("ns", "tables"), a_table("n", properties={key: "x"})),
        (path_of("ns", "properties"), {"updates": {key: "x"}}),
        ("/v1/namespaces", {"namespace": ["n"], "properties": {key: "x"}}),
    ):
        assert catalog.call("POST", path, body).status == 400
    assert catalog.state() == before
