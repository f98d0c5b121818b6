"""A commit is planned from what the server remembers of a table; what others did to the database meanwhile counts."""

import json
from typing import Any

import pytest

from tests.api.wire import Answer, a_commit, add_snapshot, ok, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog, metadata_file

T = path_of("ns", "tables", "t")
MINE, THEIRS = 1, 2


def main_at(snapshot_id: int | None) -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot_id}


def append(snapshot_id: int, *, parent: int | None = None, sequence: int = 1) -> list[dict[str, Any]]:
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    return [add_snapshot(snapshot_id, parent=parent, sequence=sequence), ref]


def commit(catalog: LocalCatalog, *updates: dict[str, Any], requires: Any = ()) -> Answer:
    return catalog.commit("ns", "t", a_commit(*updates, requires=requires))


@pytest.fixture
def remembered(catalog: LocalCatalog) -> LocalCatalog:
    """With a table whose main branch is at MINE, as this server remembers it."""
    catalog.table("ns", "t")
    assert commit(catalog, *append(MINE)).status == 200
    return catalog


def move(catalog: LocalCatalog) -> str:
    """Another client of the database appends THEIRS; this server is not told."""
    before = catalog.load("ns", "t")
    metadata = before["metadata"]
    snapshot = append(THEIRS, parent=MINE, sequence=2)[0]["snapshot"]
    changed = metadata | {
        "snapshots": [*metadata["snapshots"], snapshot],
        "refs": {"main": {"type": "branch", "snapshot-id": THEIRS}},
        "current-snapshot-id": THEIRS,
        "last-sequence-number": 2,
        "last-updated-ms": snapshot["timestamp-ms"],
    }
    theirs = metadata_file(before).with_name("00002-theirs.metadata.json")
    theirs.write_text(json.dumps(changed))
    location = f"file://{theirs}"
    catalog.rows("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 't'", location)
    return location


def test_a_remembered_table_is_not_looked_up(remembered: LocalCatalog) -> None:
    reads = remembered.store.counts["read"]
    assert commit(remembered, set_properties(a="b")).status == 200
    assert remembered.store.counts["read"] == reads


def test_a_requirement_that_holds_only_since_then_is_met(remembered: LocalCatalog) -> None:
    move(remembered)
    answer = ok(commit(remembered, *append(3, parent=THEIRS, sequence=3), requires=[main_at(THEIRS)]))
    assert [each["snapshot-id"] for each in answer["metadata"]["snapshots"]] == [MINE, THEIRS, 3]


def test_one_that_holds_no_longer_is_refused(remembered: LocalCatalog) -> None:
    moved = move(remembered)
    answer = commit(remembered, *append(3, parent=MINE, sequence=2), requires=[main_at(MINE)])
    assert answer.error[:2] == (409, "CommitFailedException")
    assert remembered.load("ns", "t")["metadata-location"] == moved


def test_a_change_of_something_else_is_applied_to_what_is_there(remembered: LocalCatalog) -> None:
    move(remembered)
    answer = ok(commit(remembered, set_properties(a="b")))
    assert answer["metadata"]["current-snapshot-id"] == THEIRS
    assert answer["metadata"]["properties"]["a"] == "b"


def test_nothing_to_change_is_answered_with_what_is_there(remembered: LocalCatalog) -> None:
    moved = move(remembered)
    assert ok(commit(remembered))["metadata-location"] == moved


def test_a_table_that_is_gone_is_not_there(remembered: LocalCatalog) -> None:
    files = remembered.files()
    remembered.rows("DELETE FROM iceberg_tables")
    answer = commit(remembered, set_properties(a="b"))
    assert answer.error[:2] == (404, "NoSuchTableException")
    assert remembered.files() == files


def test_a_commit_sent_again_is_known_although_somebody_moved_on(remembered: LocalCatalog) -> None:
    """Its reply was lost, another client appended: it is refused by its own effect, and answered as done."""
    body = a_commit(*append(5, parent=MINE, sequence=2), requires=[main_at(MINE)])
    first = ok(remembered.commit("ns", "t", body))
    again = ok(remembered.commit("ns", "t", body))
    assert again["metadata-location"] == first["metadata-location"]


def test_tables_of_a_transaction_are_planned_alike(remembered: LocalCatalog) -> None:
    remembered.table("ns", "u")
    assert remembered.commit("ns", "u", a_commit(set_properties(a="a"))).status == 200
    move(remembered)
    changes = [
        {"identifier": {"namespace": ["ns"], "name": name}, **a_commit(set_properties(a="b"))} for name in ("u", "t")
    ]
    assert remembered.call("POST", "/v1/transactions/commit", {"table-changes": changes}).status == 204
    found = remembered.load("ns", "t")["metadata"]
    assert (found["current-snapshot-id"], found["properties"]["a"]) == (THEIRS, "b")
