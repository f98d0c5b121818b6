"""A right cannot be had by another road: moves between namespaces, and every field by which a client names a place."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.wire import (
    SCHEMA,
    a_commit,
    a_table,
    a_version,
    a_view,
    add_snapshot,
    done,
    identifier,
    ok,
    path_of,
    rename,
    set_branch,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")
STEERING = ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"]
BUILD: list[dict[str, Any]] = [
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": -1},
]
CREATE = [{"type": "assert-create"}]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    secured = LocalCatalog(tmp_path / "data", auth=True)
    secured.namespace("ns")
    secured.table("ns", "t")
    secured.view("ns", "v")
    yield secured
    secured.close()


# Moving


@pytest.mark.parametrize(("kind", "name"), [("tables", "t"), ("views", "v")])
def test_a_move_to_another_namespace_needs_the_right_to_drop(catalog: LocalCatalog, kind: str, name: str) -> None:
    """Otherwise WRITE on a namespace would make one the administrator of everything in it."""
    catalog.principal("ann", default__ns="WRITE", default="NS_CREATE")
    for levels in (["hers"], ["ns", "inner"]):
        ok(catalog.call_as("ann", "POST", "/v1/namespaces", {"namespace": levels}))
    source = identifier("ns", name)

    for levels in (["hers"], ["ns", "inner"]):
        move = rename(source, {"namespace": levels, "name": name})
        answer = catalog.call_as("ann", "POST", f"/v1/{kind}/rename", move)
        assert answer.status == 403
        assert "TABLE_DROP" in answer.error[2]
    done(catalog.call_as("ann", "POST", f"/v1/{kind}/rename", rename(source, identifier("ns", "other"))))
    catalog.grant("ann", "default__ns", "TABLE_DROP")
    done(
        catalog.call_as("ann", "POST", f"/v1/{kind}/rename", rename(identifier("ns", "other"), identifier("hers", "x")))
    )


def test_register_with_overwrite_is_decided_on_what_it_overwrites(catalog: LocalCatalog) -> None:
    """Somebody else creates a table of that name after the right was checked, and before the pointer is moved."""
    catalog.principal("ann", default__ns="TABLE_CREATE,LOCATION_CHOOSE")
    ok(catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers")))
    hers = ok(catalog.call_as("ann", "GET", path_of("ns", "tables", "hers")))["metadata-location"]
    done(catalog.call_as("ann", "DELETE", path_of("ns", "tables", "hers")))
    ok(catalog.call_as("ann", "GET", "/v1/namespaces"))  # her rights are read anew after the drop, and not once more
    store, asked = catalog.app.catalog.store, []
    find_kind = store.find_kind

    async def find_and_lose_the_race(key: Any) -> Any:
        found = await find_kind(key)
        asked.append(key)
        if len(asked) == 1:
            theirs = a_table("theirs", properties={"holds": "classified"})
            await catalog.request("POST", path_of("ns", "tables"), theirs, catalog.headers("root"))
        return found

    store.find_kind = find_and_lose_the_race  # type: ignore[method-assign]
    body = {"name": "theirs", "metadata-location": hers, "overwrite": True}
    answer = catalog.call_as("ann", "POST", path_of("ns", "register"), body)
    store.find_kind = find_kind  # type: ignore[method-assign]

    assert answer.error == (404, "NoSuchTableException", "Table does not exist: ns.theirs")
    kept = ok(catalog.call("GET", path_of("ns", "tables", "theirs")))
    assert kept["metadata"]["properties"]["holds"] == "classified"
    ok(catalog.call_as("ann", "POST", path_of("ns", "register"), {**body, "name": "again"}))


def test_metadata_is_told_by_no_route_to_somebody_who_may_not_load_it(catalog: LocalCatalog) -> None:
    """A commit without a change, or an unregister, would be answered with it."""
    rights = "TABLE_LIST,TABLE_READ_DATA,TABLE_WRITE,TABLE_ALTER,TABLE_DROP,TABLE_CREATE,LOCATION_CHOOSE"
    catalog.principal("ann", default__ns=rights)
    before = catalog.state()
    where = ok(catalog.call("GET", T))["metadata-location"]

    for path, body in (
        (T, a_commit()),
        (T, a_commit(set_properties(a="b"))),
        (V, a_commit()),
        (V, a_commit(set_properties(a="b"))),
        (f"{T}/unregister", {}),
        (path_of("ns", "register"), {"name": "t", "metadata-location": where, "overwrite": True}),
    ):
        answer = catalog.call_as("ann", "POST", path, body)
        assert answer.status == 403, (path, answer.body)
        assert "lacks TABLE_READ_META" in answer.error[2]
    assert catalog.state() == before


# Places


def views_of(place: str) -> list[dict[str, Any]]:
    """Updates by which a view or a table is put somewhere, in every spelling."""
    return [
        {"action": "set-location", "location": place},
        *({"action": "set-properties", "updates": {name: place}} for name in STEERING),
        *({"action": "set-properties", "updated": {name: place}} for name in STEERING),
        {"action": "set-properties", "updates": None, "updated": {STEERING[0]: place}},
        {"action": "set-properties", "updates": {STEERING[0]: place}, "updated": {}},
    ]


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("path", [T, V])
def test_no_spelling_of_an_update_names_a_place_without_leave(catalog: LocalCatalog, path: str, number: int) -> None:
    catalog.principal("ann", default__ns="ADMIN")
    update = views_of(f"file://{catalog.warehouse}/elsewhere")[number]
    before = catalog.state()

    for updates in ([update], [set_properties(a="b"), update], [update, update]):
        answer = catalog.call_as("ann", "POST", path, a_commit(*updates))
        if path == V and update.get("updates", 0) is None:
            assert answer.status == 400  # a view's properties are no null
        else:
            assert answer.status == 403, answer.body
            assert "LOCATION_CHOOSE" in answer.error[2]
    assert catalog.state() == before


@pytest.mark.parametrize("path", [T, V])
def test_what_is_set_and_removed_again_counts_as_set(catalog: LocalCatalog, path: str) -> None:
    catalog.principal("ann", default__ns="ADMIN")
    place = f"file://{catalog.warehouse}/elsewhere"
    back = {"action": "remove-properties", "removals": [STEERING[0]]}
    here = ok(catalog.call("GET", path))["metadata"]["location"]

    for updates in (
        [set_properties(**{STEERING[0]: place}), back],
        [{"action": "set-location", "location": place}, {"action": "set-location", "location": here}],
    ):
        assert catalog.call_as("ann", "POST", path, a_commit(*updates)).status == 403
    catalog.grant("ann", "default__ns", "LOCATION_CHOOSE")
    outside = set_properties(**{STEERING[0]: "file:///etc"})
    assert catalog.call_as("ann", "POST", path, a_commit(outside, back)).status == 400


def test_a_key_sent_twice_is_read_once_by_everybody(catalog: LocalCatalog) -> None:
    """The right is decided on the very value that is applied."""
    catalog.principal("ann", default__ns="ADMIN")
    place = json.dumps(f"file://{catalog.warehouse}/elsewhere")
    name = json.dumps(STEERING[0])
    for path in (T, V):
        for body in (
            f'{{"requirements":[],"updates":[],"updates":[{{"action":"set-location","location":{place}}}]}}',
            f'{{"updates":[{{"action":"set-properties","updates":{{}},"updates":{{{name}:{place}}}}}]}}',
            f'{{"updates":[{{"action":"set-location","location":"x","location":{place}}}]}}',
        ):
            before = catalog.state()
            assert catalog.call_as("ann", "POST", path, body.encode()).status == 403
            assert catalog.state() == before
    twice = f'{{"name":"n","schema":{json.dumps(SCHEMA)},"location":null,"location":{place}}}'
    assert catalog.call_as("ann", "POST", path_of("ns", "tables"), twice.encode()).status == 403


def test_only_the_folder_that_was_offered_is_taken_by_a_creating_commit(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="WRITE")
    staged = ok(catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("new", stage_create=True)))["metadata"]
    offered = {"action": "set-location", "location": staged["location"]}
    uuid = {"action": "assign-uuid", "uuid": staged["table-uuid"]}
    elsewhere = {"action": "set-location", "location": f"file://{catalog.warehouse}/elsewhere"}
    steered = set_properties(**{STEERING[1]: f"file://{catalog.warehouse}/elsewhere"})
    old = {"action": "set-properties", "updated": {STEERING[1]: f"file://{catalog.warehouse}/elsewhere"}}
    path = path_of("ns", "tables", "new")

    for places in ([offered, elsewhere], [elsewhere, offered], [elsewhere], [offered, steered], [offered, old], [old]):
        commit = a_commit(uuid, *places, *BUILD, requires=CREATE)
        for where, body in (
            (path, commit),
            ("/v1/transactions/commit", {"table-changes": [{"identifier": identifier("ns", "new"), **commit}]}),
        ):
            answer = catalog.call_as("ann", "POST", where, body)
            assert answer.status == 403, places
            assert "LOCATION_CHOOSE" in answer.error[2]
    made = ok(catalog.call_as("ann", "POST", path, a_commit(uuid, offered, offered, *BUILD, requires=CREATE)))
    assert made["metadata"]["location"] == staged["location"]


def test_a_second_part_of_a_transaction_names_no_place_either(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="ADMIN")
    part = {"identifier": identifier("ns", "new"), **a_commit(*BUILD, requires=CREATE)}
    late = {
        "identifier": identifier("ns", "new"),
        **a_commit({"action": "set-location", "location": f"file://{catalog.warehouse}/elsewhere"}),
    }

    answer = catalog.call_as("ann", "POST", "/v1/transactions/commit", {"table-changes": [part, late]})

    assert answer.status in (403, 404)
    assert catalog.call("HEAD", path_of("ns", "tables", "new")).status == 404


@pytest.mark.parametrize("name", STEERING)
def test_a_view_is_created_nowhere_else(catalog: LocalCatalog, name: str) -> None:
    catalog.principal("ann", default__ns="ADMIN")
    place = f"file://{catalog.warehouse}/elsewhere"

    for body in (a_view("n", properties={name: place}), a_view("n", location=place)):
        answer = catalog.call_as("ann", "POST", path_of("ns", "views"), body)
        assert answer.status == 403
    catalog.grant("ann", "default__ns", "LOCATION_CHOOSE")
    ok(catalog.call_as("ann", "POST", path_of("ns", "views"), a_view("n", properties={name: place})))


def test_a_view_is_replaced_with_no_more_than_the_right_to_write(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns____v="TABLE_READ_META,TABLE_WRITE")
    version = {"action": "add-view-version", "view-version": a_version("SELECT 2", 2)}
    current = {"action": "set-current-view-version", "view-version-id": -1}

    ok(catalog.call_as("ann", "POST", V, a_commit(version, current, set_properties(a="b"))))


# A request that is sent again


def a_key(number: int) -> dict[str, str]:
    return {"Idempotency-Key": f"0190b6b1-0000-7000-8000-{number:012d}"}


def secret_commit(catalog: LocalCatalog, path: str) -> str:
    """Somebody else's commit, which also cleans up the metadata file before it; returns what it holds."""
    old = ok(catalog.call("GET", path))["metadata-location"]
    ok(catalog.call("POST", path, a_commit(set_properties(holds="classified"))))
    Path(old.removeprefix("file://")).unlink()
    return "classified"


@pytest.mark.parametrize("path", [T, V])
@pytest.mark.parametrize("cleaned", [True, False])
def test_a_commit_sent_again_after_its_right_was_revoked_tells_nothing(
    catalog: LocalCatalog, path: str, cleaned: bool
) -> None:
    """It is no refusal either: the commit stands, and a client that is refused deletes its files."""
    catalog.principal("ann", default__ns="WRITE")
    commit = a_commit(set_properties(mark="hers"))
    ok(catalog.call_as("ann", "POST", path, commit, a_key(1)))
    if cleaned:
        secret_commit(catalog, path)
    ok(catalog.call_as("ann", "POST", path, commit, a_key(1)))

    catalog.revoke("ann", "default__ns", "WRITE")
    again = catalog.call_as("ann", "POST", path, commit, a_key(1))

    assert again.error[0] == 500
    assert b"classified" not in again.body
    assert b"hers" not in again.body
    catalog.grant("ann", "default__ns", "WRITE")
    assert ok(catalog.call_as("ann", "POST", path, commit, a_key(1)))["metadata"]["properties"]["mark"] == "hers"


@pytest.mark.parametrize(("kind", "body"), [("tables", a_table("hers")), ("views", a_view("hers"))])
def test_a_create_sent_again_is_answered_by_the_right_to_read_what_was_made(
    catalog: LocalCatalog, kind: str, body: dict[str, Any]
) -> None:
    catalog.principal("ann", default__ns="TABLE_CREATE")
    made = catalog.call_as("ann", "POST", path_of("ns", kind), body, a_key(1))
    catalog.revoke("ann", "default__ns", "TABLE_CREATE")
    assert ok(catalog.call_as("ann", "POST", path_of("ns", kind), body, a_key(1))) == ok(made)

    catalog.grant("ann", "default__ns", "TABLE_CREATE")
    catalog.revoke("ann", "default__ns____hers", "ADMIN")
    again = catalog.call_as("ann", "POST", path_of("ns", kind), body, a_key(1))

    assert again.error[0] == 500
    assert b"metadata-location" not in again.body


def test_a_creating_commit_without_a_key_tells_nothing_either_once_the_table_may_not_be_read(
    catalog: LocalCatalog,
) -> None:
    catalog.principal("ann", default__ns="TABLE_CREATE")
    path = path_of("ns", "tables", "hers")
    uuid = {"action": "assign-uuid", "uuid": "0190b6b1-0000-7000-8000-0000000000aa"}
    commit = a_commit(uuid, *BUILD, add_snapshot(7), set_branch(7), requires=CREATE)
    ok(catalog.call_as("ann", "POST", path, commit))
    ok(catalog.call_as("ann", "POST", path, commit))
    ok(catalog.call("POST", path, a_commit(set_properties(holds="classified"))))

    catalog.revoke("ann", "default__ns____hers", "ADMIN")
    again = catalog.call_as("ann", "POST", path, commit)

    assert again.error[0] == 500
    assert b"classified" not in again.body


def test_an_unregister_sent_again_still_says_where_the_metadata_is(catalog: LocalCatalog) -> None:
    """The request itself has ended every grant on the table."""
    catalog.principal("ann", default__ns="TABLE_CREATE")
    ok(catalog.call_as("ann", "POST", path_of("ns", "tables"), a_table("hers")))
    path = path_of("ns", "tables", "hers") + "/unregister"
    first = ok(catalog.call_as("ann", "POST", path, {}, a_key(1)))

    assert ok(catalog.call_as("ann", "POST", path, {}, a_key(1))) == first
    ok(catalog.call("POST", path_of("ns", "tables"), a_table("hers")))
    assert catalog.call_as("ann", "POST", path, {}, a_key(1)).error[0] == 500


def test_what_tells_nothing_is_answered_again_without_the_right(catalog: LocalCatalog) -> None:
    catalog.principal("ann", default__ns="ADMIN")
    move = rename(identifier("ns", "t"), identifier("ns", "u"))
    done(catalog.call_as("ann", "POST", "/v1/tables/rename", move, a_key(1)))
    catalog.revoke("ann", "default__ns", "ADMIN")

    done(catalog.call_as("ann", "POST", "/v1/tables/rename", move, a_key(1)))
