"""What a commit may require and change, one requirement and one update at a time."""

import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mission.wire import Answer, created, is_part_of, send
from tests.support.catalogs.process import RunningServer

BASE = "/apis/iceberg/v1/default"
TABLES = f"{BASE}/namespaces/shop/tables"
ORDERS = f"{TABLES}/orders"
FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "placed", "required": False, "type": "date"},
]
CREATE_ORDERS = {
    "name": "orders",
    "schema": {"type": "struct", "schema-id": 0, "fields": FIELDS},
    "partition-spec": {
        "spec-id": 0,
        "fields": [{"source-id": 2, "field-id": 1000, "name": "month", "transform": "month"}],
    },
    "properties": {"owner": "ops"},
}
ASCENDING = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}

Metadata = dict[str, Any]


@pytest.fixture
def orders(catalog: RunningServer) -> RunningServer:
    """A catalog with the table `shop.orders`: two columns, one partition field, no snapshot."""
    created(send(catalog, "POST", f"{BASE}/namespaces", {"namespace": ["shop"]}))
    created(send(catalog, "POST", TABLES, CREATE_ORDERS))
    return catalog


def load(server: RunningServer) -> Any:
    return created(send(server, "GET", ORDERS))


def commit(server: RunningServer, *updates: Metadata, requirements: tuple[Metadata, ...] = ()) -> Answer:
    return send(server, "POST", ORDERS, {"requirements": list(requirements), "updates": list(updates)})


def changed(server: RunningServer, *updates: Metadata) -> Metadata:
    """The metadata after a commit that has to succeed, as a later load sees it."""
    answer = created(commit(server, *updates))
    assert load(server)["metadata"] == answer["metadata"]
    return dict(answer["metadata"])


def a_snapshot(snapshot_id: int, number: int = 1, parent: int | None = None) -> Metadata:
    return {
        "snapshot-id": snapshot_id,
        "sequence-number": number,
        "timestamp-ms": int(time.time() * 1000),
        "summary": {"operation": "append"},
        "manifest-list": f"s3://my-bucket/warehouse/snap-{snapshot_id}.avro",
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }


def add_snapshot(snapshot_id: int, number: int = 1, parent: int | None = None) -> Metadata:
    return {"action": "add-snapshot", "snapshot": a_snapshot(snapshot_id, number, parent)}


def set_ref(name: str, snapshot_id: int, kind: str = "branch") -> Metadata:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}


SET_OWNER = {"action": "set-properties", "updates": {"owner": "somebody else"}}


# Requirements


def requires(kind: str, **fields: Callable[[Metadata], Any]) -> Callable[[Metadata], Metadata]:
    """A requirement whose fields are read from the table's metadata."""
    return lambda metadata: {
        "type": kind,
        **{name.replace("_", "-"): value(metadata) for name, value in fields.items()},
    }


HELD = {
    "assert-table-uuid": requires("assert-table-uuid", uuid=lambda table: table["table-uuid"]),
    "assert-ref-snapshot-id, null": requires(
        "assert-ref-snapshot-id", ref=lambda _: "main", snapshot_id=lambda _: None
    ),
    "assert-ref-snapshot-id, -1": requires("assert-ref-snapshot-id", ref=lambda _: "main", snapshot_id=lambda _: -1),
    "assert-current-schema-id": requires("assert-current-schema-id", current_schema_id=lambda _: 0),
    "assert-last-assigned-field-id": requires("assert-last-assigned-field-id", last_assigned_field_id=lambda _: 2),
    "assert-last-assigned-partition-id": requires(
        "assert-last-assigned-partition-id", last_assigned_partition_id=lambda _: 1000
    ),
    "assert-default-spec-id": requires("assert-default-spec-id", default_spec_id=lambda _: 0),
    "assert-default-sort-order-id": requires("assert-default-sort-order-id", default_sort_order_id=lambda _: 0),
}
BROKEN = {
    "assert-create": requires("assert-create"),
    "assert-table-uuid": requires("assert-table-uuid", uuid=lambda _: str(uuid.uuid4())),
    "assert-ref-snapshot-id": requires("assert-ref-snapshot-id", ref=lambda _: "main", snapshot_id=lambda _: 17),
    "assert-ref-snapshot-id, tag": requires("assert-ref-snapshot-id", ref=lambda _: "v1", snapshot_id=lambda _: 17),
    "assert-current-schema-id": requires("assert-current-schema-id", current_schema_id=lambda _: 1),
    "assert-last-assigned-field-id": requires("assert-last-assigned-field-id", last_assigned_field_id=lambda _: 3),
    "assert-last-assigned-partition-id": requires(
        "assert-last-assigned-partition-id", last_assigned_partition_id=lambda _: 999
    ),
    "assert-default-spec-id": requires("assert-default-spec-id", default_spec_id=lambda _: 1),
    "assert-default-sort-order-id": requires("assert-default-sort-order-id", default_sort_order_id=lambda _: 1),
}


@pytest.mark.parametrize("requirement", HELD)
def test_a_requirement_that_holds_lets_the_commit_pass(orders: RunningServer, requirement: str) -> None:
    """MISSION: 000-41, 000-42, 000-43, 000-44, 000-45, 000-46, 000-47, 000-66"""
    held = HELD[requirement](load(orders)["metadata"])

    answer = created(commit(orders, SET_OWNER, requirements=(held,)))

    assert answer["metadata"]["properties"]["owner"] == "somebody else"


@pytest.mark.parametrize("requirement", BROKEN)
def test_a_requirement_that_does_not_hold_changes_nothing(orders: RunningServer, requirement: str) -> None:
    """MISSION: 000-33, 000-40, 000-41, 000-42, 000-43, 000-44, 000-45, 000-46, 000-47, 000-69, 000-76"""
    before = load(orders)

    answer = commit(orders, SET_OWNER, requirements=(BROKEN[requirement](before["metadata"]),))

    assert answer.error == (409, "CommitFailedException")
    assert load(orders) == before


def test_one_broken_requirement_among_many_refuses_the_commit(orders: RunningServer) -> None:
    """MISSION: 000-33"""
    before = load(orders)
    held = tuple(requirement(before["metadata"]) for requirement in HELD.values())

    answer = commit(orders, SET_OWNER, requirements=(*held, BROKEN["assert-default-spec-id"](before["metadata"])))

    assert answer.error == (409, "CommitFailedException")
    assert load(orders) == before


def test_a_ref_is_required_at_its_snapshot(orders: RunningServer) -> None:
    """For `main` the current snapshot counts. MISSION: 000-42"""
    changed(orders, add_snapshot(11), set_ref("main", 11), set_ref("v1", 11, "tag"))

    for ref in ("main", "v1"):
        requirement: dict[str, Any] = {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": 11}
        assert commit(orders, SET_OWNER, requirements=(requirement,)).status == 200
        for stale in (12, None, -1):
            requirement = {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": stale}
            assert commit(orders, SET_OWNER, requirements=(requirement,)).error == (409, "CommitFailedException")


def test_a_commit_that_asserts_creation_creates(orders: RunningServer) -> None:
    """MISSION: 000-40, 000-48"""
    chosen = str(uuid.uuid4())
    location = load(orders)["metadata"]["location"] + "-made"
    updates = [
        {"action": "assign-uuid", "uuid": chosen},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": CREATE_ORDERS["schema"], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": {"owner": "ops"}},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}

    metadata = created(send(orders, "POST", f"{TABLES}/made", body))["metadata"]

    assert metadata["table-uuid"] == chosen
    assert metadata["location"] == location
    assert metadata["current-schema-id"] == 0
    assert metadata["properties"]["owner"] == "ops"
    assert send(orders, "POST", f"{TABLES}/made", body).error == (409, "CommitFailedException")


# Updates


def test_assign_uuid_confirms_the_uuid_and_never_swaps_it(orders: RunningServer) -> None:
    """MISSION: 000-48"""
    own = load(orders)["metadata"]["table-uuid"]
    assert changed(orders, {"action": "assign-uuid", "uuid": own})["table-uuid"] == own

    answer = commit(orders, {"action": "assign-uuid", "uuid": str(uuid.uuid4())})

    assert answer.status == 400
    assert load(orders)["metadata"]["table-uuid"] == own


def test_the_format_version_goes_up_and_never_down(orders: RunningServer) -> None:
    """MISSION: 000-49"""
    created(send(orders, "POST", TABLES, {**CREATE_ORDERS, "name": "old", "properties": {"format-version": "1"}}))
    upgrade = {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 2}]}
    assert created(send(orders, "POST", f"{TABLES}/old", upgrade))["metadata"]["format-version"] == 2

    downgrade = {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 1}]}
    assert send(orders, "POST", f"{TABLES}/old", downgrade).status == 400
    assert created(send(orders, "GET", f"{TABLES}/old"))["metadata"]["format-version"] == 2


def test_a_schema_is_added_and_made_current(orders: RunningServer) -> None:
    """MISSION: 000-50, 000-51"""
    wider = [*FIELDS, {"id": 7, "name": "total", "required": False, "type": "double"}]
    added = changed(orders, {"action": "add-schema", "schema": {"type": "struct", "schema-id": 1, "fields": wider}})
    assert added["last-column-id"] == 7
    assert [schema["schema-id"] for schema in added["schemas"]] == [0, 1]
    assert added["current-schema-id"] == 0

    current = changed(orders, {"action": "set-current-schema", "schema-id": 1})
    assert current["current-schema-id"] == 1
    assert commit(orders, {"action": "set-current-schema", "schema-id": 5}).status == 400


def test_a_partition_spec_is_added_and_made_the_default(orders: RunningServer) -> None:
    """MISSION: 000-52, 000-53"""
    field = {"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[8]"}
    added = changed(orders, {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}})
    assert added["last-partition-id"] == 1001
    assert is_part_of([{"spec-id": 1, "fields": [field]}], added["partition-specs"])
    assert added["default-spec-id"] == 0

    assert changed(orders, {"action": "set-default-spec", "spec-id": 1})["default-spec-id"] == 1
    assert commit(orders, {"action": "set-default-spec", "spec-id": 5}).status == 400


def test_a_sort_order_is_added_and_made_the_default(orders: RunningServer) -> None:
    """MISSION: 000-54, 000-55"""
    order = {"order-id": 1, "fields": [ASCENDING]}
    added = changed(orders, {"action": "add-sort-order", "sort-order": order})
    assert is_part_of([order], added["sort-orders"])
    assert added["default-sort-order-id"] == 0

    assert changed(orders, {"action": "set-default-sort-order", "sort-order-id": 1})["default-sort-order-id"] == 1
    assert commit(orders, {"action": "set-default-sort-order", "sort-order-id": 5}).status == 400


def test_a_snapshot_is_added_and_main_moves_to_it(orders: RunningServer) -> None:
    """MISSION: 000-56, 000-57"""
    added = changed(orders, add_snapshot(11))
    assert [snapshot["snapshot-id"] for snapshot in added["snapshots"]] == [11]
    assert added["last-sequence-number"] == 1
    assert added.get("current-snapshot-id", -1) in (None, -1)
    assert added.get("snapshot-log", []) == []

    current = changed(orders, set_ref("main", 11))
    assert current["current-snapshot-id"] == 11
    assert [entry["snapshot-id"] for entry in current["snapshot-log"]] == [11]

    following = changed(orders, add_snapshot(12, 2, parent=11), set_ref("main", 12))
    assert following["current-snapshot-id"] == 12
    assert following["last-sequence-number"] == 2
    assert [entry["snapshot-id"] for entry in following["snapshot-log"]] == [11, 12]


def test_other_refs_leave_the_current_snapshot_alone(orders: RunningServer) -> None:
    """MISSION: 000-57"""
    changed(orders, add_snapshot(11), set_ref("main", 11))

    metadata = changed(orders, add_snapshot(12, 2, parent=11), set_ref("audit", 12), set_ref("v1", 11, "tag"))

    assert metadata["current-snapshot-id"] == 11
    assert is_part_of(
        {"audit": {"snapshot-id": 12, "type": "branch"}, "v1": {"snapshot-id": 11, "type": "tag"}}, metadata["refs"]
    )
    assert commit(orders, set_ref("nowhere", 99)).status == 400


def test_snapshots_and_refs_are_removed(orders: RunningServer) -> None:
    """MISSION: 000-58, 000-59"""
    changed(orders, add_snapshot(11), set_ref("main", 11))
    changed(orders, add_snapshot(12, 2, parent=11), set_ref("main", 12), set_ref("v1", 11, "tag"))

    without_ref = changed(orders, {"action": "remove-snapshot-ref", "ref-name": "v1"})
    assert sorted(without_ref["refs"]) == ["main"]
    assert len(without_ref["snapshots"]) == 2

    without_snapshot = changed(orders, {"action": "remove-snapshots", "snapshot-ids": [11]})
    assert [snapshot["snapshot-id"] for snapshot in without_snapshot["snapshots"]] == [12]
    assert without_snapshot["current-snapshot-id"] == 12


def test_the_location_of_a_table_is_set(orders: RunningServer) -> None:
    """MISSION: 000-60"""
    location = load(orders)["metadata"]["location"] + "-moved"

    assert changed(orders, {"action": "set-location", "location": location})["location"] == location


def test_properties_are_merged_and_removed(orders: RunningServer) -> None:
    """MISSION: 000-10, 000-61, 000-62"""
    merged = changed(orders, {"action": "set-properties", "updates": {"tier": "gold", "comment": "of the shop"}})
    assert is_part_of({"owner": "ops", "tier": "gold", "comment": "of the shop"}, merged["properties"])

    removed = changed(orders, {"action": "remove-properties", "removals": ["tier", "absent"]})
    assert "tier" not in removed["properties"]
    assert is_part_of({"owner": "ops", "comment": "of the shop"}, removed["properties"])


# One commit, one version


def test_every_commit_is_one_new_version_and_the_older_ones_stay(orders: RunningServer) -> None:
    """MISSION: 000-09, 000-34, 003-08"""
    locations, contents = [load(orders)["metadata-location"]], [load(orders)["metadata"]]
    for number in range(3):
        updates = [
            {"action": "set-properties", "updates": {"step": str(number)}},
            {"action": "set-properties", "updates": {"step again": str(number)}},
        ]
        answer = created(commit(orders, *updates))
        locations.append(answer["metadata-location"])
        contents.append(answer["metadata"])

    assert len(set(locations)) == 4
    assert [json.loads(Path(location.removeprefix("file://")).read_bytes()) for location in locations] == contents
    assert [entry["metadata-file"] for entry in contents[-1]["metadata-log"]] == locations[:-1]


def test_a_commit_with_one_impossible_update_applies_none(orders: RunningServer) -> None:
    """MISSION: 000-34"""
    before = load(orders)

    answer = commit(orders, SET_OWNER, add_snapshot(11), {"action": "set-current-schema", "schema-id": 99})

    assert answer.status == 400
    assert load(orders) == before


def test_writers_that_race_never_overwrite_each_other(orders: RunningServer) -> None:
    """Each reloads and retries after a 409, as the document advises. MISSION: 000-35, 000-36, 000-38"""
    writers, commits_each = 4, 5
    conflicts: list[int] = []
    failures: list[str] = []
    start = threading.Barrier(writers)

    def write(writer: int) -> None:
        start.wait(30)
        for number in range(commits_each):
            for _ in range(200):
                metadata = load(orders)["metadata"]
                current = metadata.get("refs", {}).get("main", {}).get("snapshot-id")
                mine = 1000 * (writer + 1) + number
                requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current}
                snapshot = add_snapshot(mine, metadata["last-sequence-number"] + 1, current)
                answer = commit(orders, snapshot, set_ref("main", mine), requirements=(requirement,))
                if answer.status == 200:
                    break
                if answer.status != 409:
                    failures.append(answer.body.decode())
                conflicts.append(answer.status)
            else:
                failures.append(f"writer {writer} never won")

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert failures == []
    metadata = load(orders)["metadata"]
    log = [entry["snapshot-id"] for entry in metadata["snapshot-log"]]
    assert sorted(log) == sorted(
        1000 * (writer + 1) + number for writer in range(writers) for number in range(commits_each)
    )
    parents = {snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id") for snapshot in metadata["snapshots"]}
    assert [parents[snapshot] for snapshot in log] == [None, *log[:-1]]


@pytest.mark.parametrize(
    ("path", "body"), [(TABLES, {**CREATE_ORDERS, "name": "new"}), (f"{BASE}/namespaces", {"namespace": ["new"]})]
)
def test_of_many_who_create_the_same_name_exactly_one_succeeds(
    orders: RunningServer, path: str, body: Metadata
) -> None:
    """MISSION: 000-74"""
    askers = 6
    answers: list[Answer] = []
    start = threading.Barrier(askers)

    def ask() -> None:
        start.wait(30)
        answers.append(send(orders, "POST", path, body))

    threads = [threading.Thread(target=ask) for _ in range(askers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(answer.status for answer in answers) == [200] + [409] * (askers - 1)
    assert {answer.error for answer in answers if answer.status == 409} == {(409, "AlreadyExistsException")}


def test_a_rename_shows_the_table_under_exactly_one_name_at_any_moment(orders: RunningServer) -> None:
    """MISSION: 000-87"""
    names = ["orders", "purchases"]
    done = threading.Event()
    failures: list[Any] = []

    def rename_to_and_fro() -> None:
        try:
            for number in range(40):
                source, destination = names[number % 2], names[(number + 1) % 2]
                body = {
                    "source": {"namespace": ["shop"], "name": source},
                    "destination": {"namespace": ["shop"], "name": destination},
                }
                if (answer := send(orders, "POST", f"{BASE}/tables/rename", body)).status != 204:
                    failures.append(answer)
        finally:
            done.set()

    renamer = threading.Thread(target=rename_to_and_fro)
    renamer.start()
    looks = 0
    while looks < 2000 and not done.is_set():
        listed = [identifier["name"] for identifier in created(send(orders, "GET", TABLES))["identifiers"]]
        if len(listed) != 1:
            failures.append(listed)
        looks += 1
    renamer.join(60)

    assert failures == []
    assert looks > 0
