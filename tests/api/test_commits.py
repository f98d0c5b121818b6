"""Commits over HTTP: stale ones that still fit, lost answers, races, several tables at once."""

from typing import Any

import pytest

from tests.api.wire import (
    SCHEMA,
    a_commit,
    a_table,
    a_version,
    add_snapshot,
    branch_is_at,
    done,
    identifier,
    ok,
    path_of,
    set_branch,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog, metadata_file

T = path_of("ns", "tables", "t")
TRANSACTION = "/v1/transactions/commit"


@pytest.fixture
def tables(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t")
    catalog.table("ns", "u")
    return catalog


def same_table(loaded: Any) -> dict[str, Any]:
    return {"type": "assert-table-uuid", "uuid": loaded["metadata"]["table-uuid"]}


def append(snapshot_id: int, *, parent: int | None = None, sequence: int = 1) -> dict[str, Any]:
    """What a writer sends to append: its snapshot, and that nobody else appended since."""
    added = add_snapshot(snapshot_id, parent=parent, sequence=sequence)
    return a_commit(added, set_branch(snapshot_id), requires=[branch_is_at(parent)])


# Stale, but still fitting


def test_a_commit_made_from_an_older_version_is_applied_if_its_requirements_hold(tables: LocalCatalog) -> None:
    stale = tables.load("ns", "t")
    ok(tables.call("POST", T, append(1)))

    late = a_commit(set_properties(late="yes"), requires=[same_table(stale)])
    answer = ok(tables.call("POST", T, late))

    assert answer["metadata"]["properties"]["late"] == "yes"
    assert answer["metadata"]["current-snapshot-id"] == 1
    assert len(answer["metadata"]["metadata-log"]) == 2


def test_two_writers_on_two_branches_do_not_disturb_each_other(tables: LocalCatalog) -> None:
    ok(tables.call("POST", T, append(1)))
    main = append(2, parent=1, sequence=2)
    side = a_commit(add_snapshot(3, parent=1, sequence=3), set_branch(3, "side"), requires=[branch_is_at(None, "side")])

    answers = tables.together(tables.request("POST", T, main), tables.request("POST", T, side))

    assert [answer.status for answer in answers] == [200, 200]
    refs = tables.load("ns", "t")["metadata"]["refs"]
    assert {name: ref["snapshot-id"] for name, ref in refs.items()} == {"main": 2, "side": 3}


def test_an_expiry_that_does_not_know_of_a_pin_is_told_to_look_again(tables: LocalCatalog) -> None:
    ok(tables.call("POST", T, append(1)))
    ok(tables.call("POST", T, append(2, parent=1, sequence=2)))
    stale = same_table(tables.load("ns", "t"))
    pin = {**set_branch(1, "nunatak-pin-7"), "type": "tag", "max-ref-age-ms": 3_600_000}
    ok(tables.call("POST", T, a_commit(pin)))

    expiry = {"action": "remove-snapshots", "snapshot-ids": [1]}
    refused = tables.call("POST", T, a_commit(expiry, requires=[stale]))

    assert refused.status == 409
    assert refused.json["error"]["type"] == "CommitFailedException"
    assert "nunatak-pin-7" in refused.json["error"]["message"]
    drop = {"action": "remove-snapshot-ref", "ref-name": "nunatak-pin-7"}
    metadata = ok(tables.call("POST", T, a_commit(drop, expiry)))["metadata"]
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [2]


def test_a_view_commit_made_from_an_older_version_is_applied_too(tables: LocalCatalog) -> None:
    view = tables.view("ns", "v")
    required = {"type": "assert-view-uuid", "uuid": view["metadata"]["view-uuid"]}
    path = path_of("ns", "views", "v")
    for number in (2, 3):
        version = {"action": "add-view-version", "view-version": a_version(f"SELECT {number}", 2)}
        current = {"action": "set-current-view-version", "view-version-id": -1}
        ok(tables.call("POST", path, a_commit(version, current, requires=[required])))

    metadata = tables.load("ns", "v", "views")["metadata"]
    assert metadata["current-version-id"] == 3
    assert [version["version-id"] for version in metadata["versions"]] == [1, 2, 3]


def test_many_writers_of_one_table_all_arrive(tables: LocalCatalog) -> None:
    commits = [a_commit(set_properties(**{f"writer{number}": "was here"})) for number in range(20)]

    answers = tables.together(*(tables.request("POST", T, commit) for commit in commits))

    assert {answer.status for answer in answers} == {200}
    properties = tables.load("ns", "t")["metadata"]["properties"]
    assert {f"writer{number}" for number in range(20)} <= set(properties)
    assert len({answer.json["metadata-location"] for answer in answers}) == 20


def test_of_writers_who_require_the_same_snapshot_one_arrives(tables: LocalCatalog) -> None:
    answers = tables.together(*(tables.request("POST", T, append(number)) for number in range(1, 9)))

    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    for answer in answers:
        if answer.status == 409:
            assert answer.error[1] == "CommitFailedException"
    assert len(tables.load("ns", "t")["metadata"]["snapshots"]) == 1
    # The losers wrote nothing: they were refused before a file was made.
    assert len([file for file in tables.files() if "/t-" in file]) == 2


def test_a_commit_that_changes_nothing_makes_no_new_version(tables: LocalCatalog) -> None:
    before = tables.load("ns", "t")
    state = tables.state()

    answer = ok(tables.call("POST", T, a_commit(requires=[same_table(before)])))

    assert answer == before
    assert tables.state() == state


def test_every_metadata_location_names_a_file_with_exactly_the_answer(tables: LocalCatalog) -> None:
    for number in range(3):
        answer = ok(tables.call("POST", T, a_commit(set_properties(number=str(number)))))
        raw = tables.call("GET", T).body
        assert metadata_file(answer).read_bytes() in raw
    names = [
        metadata_file({"metadata-location": entry["metadata-file"]}).name
        for entry in answer["metadata"]["metadata-log"]
    ]
    assert [name[:6] for name in names] == ["00000-", "00001-", "00002-"]
    assert metadata_file(answer).name.startswith("00003-")


# An answer that was lost, and no key


def test_the_same_append_sent_again_without_a_key_is_answered_as_done(tables: LocalCatalog) -> None:
    """A 409 here makes the client delete files of the live table."""
    body = append(7)
    ok(tables.call("POST", T, body))
    state = tables.state()

    again = ok(tables.call("POST", T, body))

    assert again == tables.load("ns", "t")
    assert again["metadata"]["current-snapshot-id"] == 7
    assert tables.state() == state


def test_it_is_answered_as_done_after_others_came_and_after_a_restart(tables: LocalCatalog) -> None:
    body = append(7)
    ok(tables.call("POST", T, body))
    ok(tables.call("POST", T, append(8, parent=7, sequence=2)))
    tables.restart()

    again = ok(tables.call("POST", T, body))

    assert [snapshot["snapshot-id"] for snapshot in again["metadata"]["snapshots"]] == [7, 8]


def test_another_append_with_the_same_snapshot_id_is_refused(tables: LocalCatalog) -> None:
    ok(tables.call("POST", T, append(7)))
    state = tables.state()
    other = append(7)
    other["updates"][0]["snapshot"]["manifest-list"] = "file:///elsewhere/another.avro"

    answer = tables.call("POST", T, other)

    assert answer.error[:2] == (409, "CommitFailedException")
    assert tables.state() == state


def test_the_same_append_to_another_table_is_not_a_replay(tables: LocalCatalog) -> None:
    body = append(7)
    ok(tables.call("POST", T, body))

    other = ok(tables.call("POST", path_of("ns", "tables", "u"), body))

    assert other["metadata"]["current-snapshot-id"] == 7
    assert other["metadata"]["table-uuid"] != tables.load("ns", "t")["metadata"]["table-uuid"]


def test_the_same_append_to_a_table_made_anew_is_not_a_replay(tables: LocalCatalog) -> None:
    body = append(7)
    ok(tables.call("POST", T, body))
    done(tables.call("DELETE", T))
    tables.table("ns", "t")

    assert ok(tables.call("POST", T, body))["metadata"]["current-snapshot-id"] == 7
    assert tables.rows("SELECT count(*) FROM nunatak_commits WHERE snapshot_id = 7") == [(2,)]


def test_a_refused_commit_without_a_snapshot_is_never_taken_for_a_replay(tables: LocalCatalog) -> None:
    schema = SCHEMA | {"fields": [*SCHEMA["fields"], {"id": 3, "name": "new", "type": "int", "required": False}]}
    required = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}
    body = a_commit({"action": "add-schema", "schema": schema}, requires=[required])
    ok(tables.call("POST", T, body))

    assert tables.call("POST", T, body).error[:2] == (409, "CommitFailedException")


def test_a_transaction_sent_again_without_a_key_is_answered_as_done(tables: LocalCatalog) -> None:
    changes = [append(7) | {"identifier": identifier("ns", name)} for name in ("t", "u")]
    done(tables.call("POST", TRANSACTION, {"table-changes": changes}))
    state = tables.state()

    done(tables.call("POST", TRANSACTION, {"table-changes": changes}))

    assert tables.state() == state


# Several tables at once


def change(name: str, *updates: dict[str, Any], requires: Any = ()) -> dict[str, Any]:
    return a_commit(*updates, requires=requires) | {"identifier": identifier("ns", name)}


def test_a_transaction_changes_all_of_its_tables(tables: LocalCatalog) -> None:
    body = {"table-changes": [change(name, set_properties(a="b")) for name in ("t", "u")]}

    done(tables.call("POST", TRANSACTION, body))

    for name in ("t", "u"):
        assert tables.load("ns", name)["metadata"]["properties"]["a"] == "b"


BREAKS = {
    "a requirement that fails": change("u", requires=[{"type": "assert-create"}]),
    "an update that cannot be": change("u", {"action": "set-current-schema", "schema-id": 9}),
    "a table that is missing": change("no", set_properties(a="b")),
    "a location outside": change("u", {"action": "set-location", "location": "file:///etc"}),
    "a taken location": change("u", {"action": "set-location", "location": "TAKEN"}),
}


@pytest.mark.parametrize("first", [True, False], ids=["last", "first"])
@pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS.keys())
def test_one_change_that_fails_leaves_all_tables_as_they_were(tables: LocalCatalog, broken: Any, first: bool) -> None:
    if "TAKEN" in str(broken):
        location = tables.table("ns", "w")["metadata"]["location"]
        broken = change("u", {"action": "set-location", "location": location})
    good = change("t", set_properties(a="b"))
    state = tables.state()

    answer = tables.call("POST", TRANSACTION, {"table-changes": [good, broken] if first else [broken, good]})

    assert 400 <= answer.status < 500
    assert tables.state() == state
    assert "a" not in tables.load("ns", "t")["metadata"]["properties"]


def test_one_table_may_be_changed_twice_in_a_transaction(tables: LocalCatalog) -> None:
    """The second change meets what the first one made."""
    second = change("t", set_branch(1, "kept"), requires=[branch_is_at(1)])
    body = {
        "table-changes": [append(1) | {"identifier": identifier("ns", "t")}, change("u", set_properties(a="b")), second]
    }

    done(tables.call("POST", TRANSACTION, body))

    metadata = tables.load("ns", "t")["metadata"]
    assert set(metadata["refs"]) == {"main", "kept"}
    assert len(metadata["metadata-log"]) == 1


def test_the_second_change_of_one_table_is_refused_for_what_the_first_made(tables: LocalCatalog) -> None:
    second = change("t", set_properties(a="b"), requires=[branch_is_at(None)])
    state = tables.state()

    answer = tables.call(
        "POST", TRANSACTION, {"table-changes": [append(1) | {"identifier": identifier("ns", "t")}, second]}
    )

    refusal = "ns.t: Requirement failed: branch main was created concurrently"
    assert answer.error == (409, "CommitFailedException", refusal)
    assert tables.state() == state


def staged(catalog: LocalCatalog, name: str) -> dict[str, Any]:
    """The commit by which a client creates the table that it staged."""
    metadata = ok(catalog.call("POST", path_of("ns", "tables"), a_table(name, stage_create=True)))["metadata"]
    return change(
        name,
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        requires=[{"type": "assert-create"}],
    )


def test_a_staged_table_is_created_inside_a_transaction(tables: LocalCatalog) -> None:
    creation = staged(tables, "new")
    assert tables.call("HEAD", path_of("ns", "tables", "new")).status == 404

    done(tables.call("POST", TRANSACTION, {"table-changes": [creation, change("t", set_properties(a="b"))]}))

    metadata = tables.load("ns", "new")["metadata"]
    assert metadata["table-uuid"] == creation["updates"][0]["uuid"]
    assert metadata["metadata-log"] == []
    assert tables.load("ns", "t")["metadata"]["properties"]["a"] == "b"


def test_a_staged_table_is_not_created_if_another_change_fails(tables: LocalCatalog) -> None:
    creation = staged(tables, "new")
    state = tables.state()

    answer = tables.call("POST", TRANSACTION, {"table-changes": [creation, BREAKS["a requirement that fails"]]})

    assert answer.error[:2] == (409, "CommitFailedException")
    assert tables.state() == state
    assert tables.call("HEAD", path_of("ns", "tables", "new")).status == 404


@pytest.mark.parametrize("in_transaction", [False, True], ids=["by itself", "in a transaction"])
@pytest.mark.parametrize("since", ["renamed", "dropped"])
def test_a_creation_sent_again_makes_no_second_table_of_the_same_files(
    tables: LocalCatalog, since: str, in_transaction: bool
) -> None:
    """Nor may it be refused as if it had not happened: the client would delete the files of the first."""
    creation, new = staged(tables, "new"), path_of("ns", "tables", "new")
    creation["updates"] += [add_snapshot(7, sequence=1), set_branch(7)]

    def send() -> Any:
        if in_transaction:
            body = {"table-changes": [creation, change("t", set_properties(a="b"))]}
            return tables.call("POST", TRANSACTION, body)
        return tables.call("POST", new, creation)

    assert send().status in (200, 204)
    assert send().status in (200, 204)
    if since == "dropped":
        done(tables.call("DELETE", new))
    else:
        body = {"source": identifier("ns", "new"), "destination": identifier("ns", "moved")}
        done(tables.call("POST", "/v1/tables/rename", body))
    state = tables.state()

    answer = send()

    assert answer.error[:2] == (500, "CommitStateUnknownException")
    assert tables.state() == state


def test_a_creation_takes_neither_the_folder_nor_the_files_of_a_table(tables: LocalCatalog) -> None:
    """Whoever knows its uuid could else have it under a name of their own."""
    creation = staged(tables, "new")
    ok(tables.call("POST", path_of("ns", "tables", "new"), creation))
    state = tables.state()

    stolen = creation | {"identifier": identifier("ns", "thief")}
    thief = tables.call("POST", path_of("ns", "tables", "thief"), stolen)
    other = staged(tables, "one")
    twins = [other, other | {"identifier": identifier("ns", "two")}]
    both = tables.call("POST", TRANSACTION, {"table-changes": twins})

    for answer in (thief, both):
        assert answer.error[:2] == (400, "BadRequestException")
        assert "overlaps" in answer.error[2]
    assert tables.state() == state


def test_a_staged_table_that_somebody_created_meanwhile_is_refused(tables: LocalCatalog) -> None:
    creation = staged(tables, "new")
    tables.table("ns", "new")
    state = tables.state()

    answer = tables.call("POST", path_of("ns", "tables", "new"), creation)

    assert answer.error == (409, "CommitFailedException", "Requirement failed: table already exists")
    assert tables.state() == state


def test_transactions_over_the_same_tables_do_not_block_each_other(tables: LocalCatalog) -> None:
    def body(number: int) -> dict[str, Any]:
        names = ("t", "u") if number % 2 else ("u", "t")
        return {"table-changes": [change(name, set_properties(**{f"n{number}": "x"})) for name in names]}

    answers = tables.together(*(tables.request("POST", TRANSACTION, body(number)) for number in range(16)))

    assert {answer.status for answer in answers} == {204}
    for name in ("t", "u"):
        properties = tables.load("ns", name)["metadata"]["properties"]
        assert {f"n{number}" for number in range(16)} <= set(properties)


def test_a_transaction_is_one_entry_per_table_in_one_database_commit(tables: LocalCatalog) -> None:
    before = dict(tables.store.counts)

    done(
        tables.call(
            "POST", TRANSACTION, {"table-changes": [change(name, set_properties(a="b")) for name in ("t", "u")]}
        )
    )

    assert tables.store.counts["group"] - before["group"] == 1
    assert tables.store.counts["transaction"] - before["transaction"] == 1


def test_thousands_of_snapshots_are_removed_one_update_each(catalog: LocalCatalog) -> None:
    """Java's expire_snapshots sends an update for every snapshot."""
    catalog.namespace("many")
    catalog.table("many", "t")
    snapshots = [add_snapshot(number, sequence=number) for number in range(1, 1502)]
    for start in range(0, 1501, 900):
        ok(catalog.commit("many", "t", a_commit(*snapshots[start : start + 900])))
    ok(catalog.commit("many", "t", a_commit(set_branch(1501))))
    removals = [{"action": "remove-snapshots", "snapshot-ids": [number]} for number in range(1, 1501)]

    ok(catalog.commit("many", "t", a_commit(set_properties(a="b"), *removals, set_properties(c="d"))))

    metadata = catalog.load("many", "t")["metadata"]
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [1501]
    assert (metadata["properties"]["a"], metadata["properties"]["c"]) == ("b", "d")
