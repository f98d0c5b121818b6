"""Snapshots, the references to them, and the log of what was current when."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nunatak.errors import BadRequest, CommitFailed, IllegalArgument, InvalidMetadata
from nunatak.iceberg.snapshot import Snapshots
from nunatak.iceberg.table_metadata import only_referenced_snapshots
from tests.unit.iceberg.builders import (
    NOW_MS,
    Json,
    a_snapshot,
    a_table,
    add_snapshot,
    append,
    commit,
    requirement,
    set_ref,
    update,
)


def ids(entries: Iterable[Json]) -> list[int]:
    return [entry["snapshot-id"] for entry in entries]


def test_an_append_moves_main_and_is_written_to_the_log() -> None:
    """000-56, 000-57."""
    table = a_table(snapshots=2)

    assert ids(table.snapshots) == [1, 2]
    assert table.refs == {"main": {"snapshot-id": 2, "type": "branch"}}
    assert (table.current_snapshot_id, table.last_sequence_number) == (2, 2)
    assert table.snapshot_log == (
        {"timestamp-ms": NOW_MS + 1, "snapshot-id": 1},
        {"timestamp-ms": NOW_MS + 2, "snapshot-id": 2},
    )


def test_the_simplest_client_leaves_the_sequence_number_to_the_catalog() -> None:
    """000-64: no sequence number, no schema id, an old timestamp, and -1 for an empty main."""
    snapshot = {
        "snapshot-id": 3051729675574597004,
        "timestamp-ms": NOW_MS - 10**9,
        "summary": {"operation": "append"},
        "manifest-list": "s3://bucket/table/metadata/snap.avro",
    }
    empty = requirement("assert-ref-snapshot-id", ref="main", snapshot_id=-1)

    table = commit(a_table(), [{"action": "add-snapshot", "snapshot": snapshot}, set_ref(3051729675574597004)], empty)

    assert table.current_snapshot == snapshot | {"sequence-number": 1}
    assert table.last_sequence_number == 1


def test_setting_the_current_snapshot_is_an_old_name_for_setting_main() -> None:
    table = commit(a_table(), [add_snapshot(1), update("set-current-snapshot", snapshot_id=1)])

    assert table.refs == {"main": {"snapshot-id": 1, "type": "branch"}}
    assert table.current_snapshot_id == 1


def test_snapshot_ids_are_never_reused() -> None:
    with pytest.raises(InvalidMetadata, match="Snapshot already exists for id: 2"):
        commit(a_table(snapshots=3), [add_snapshot(2, 3, sequence_number=4)])


def test_a_stale_sequence_number_is_a_conflict_and_not_a_mistake() -> None:
    table = a_table(snapshots=2)

    with pytest.raises(CommitFailed) as refused:
        commit(table, [add_snapshot(3, 1, sequence_number=2)])
    assert refused.value.message == (
        "Validation failed, please retry: Cannot add snapshot with sequence number 2 older than last sequence number 2"
    )


def test_a_snapshot_without_a_parent_may_repeat_the_last_sequence_number() -> None:
    replaced = commit(a_table(snapshots=2), [add_snapshot(3, sequence_number=2), set_ref(3)])

    assert (replaced.current_snapshot_id, replaced.last_sequence_number) == (3, 2)


def test_a_new_start_may_not_fall_behind_existing_snapshots() -> None:
    with pytest.raises(InvalidMetadata) as refused:
        commit(a_table(snapshots=3), [add_snapshot(4, sequence_number=1), set_ref(4)])
    assert refused.value.message == "Invalid snapshot with sequence number 3 greater than last sequence number 1"


def test_the_last_sequence_number_never_falls() -> None:
    table = commit(a_table(snapshots=3), [update("remove-snapshots", snapshot_ids=[1, 2, 3])])

    table = commit(table, [add_snapshot(4, sequence_number=1), set_ref(4)])

    assert table.last_sequence_number == 3


def test_a_v1_table_has_no_sequence_numbers() -> None:
    table = a_table(1, snapshots=1)

    assert "sequence-number" not in table.snapshots[0]
    with pytest.raises(IllegalArgument, match="Sequence number must be 0 in v1: 5"):
        commit(table, [add_snapshot(2, 1, sequence_number=5)])


def test_a_v3_table_counts_its_rows() -> None:
    table = a_table(3, snapshots=2)
    assert table.next_row_id == 20

    with pytest.raises(CommitFailed) as refused:
        commit(table, [add_snapshot(3, 2, sequence_number=3, first_row_id=19, added_rows=1)])
    assert refused.value.message == (
        "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table next-row-id: 19 < 20"
    )
    with pytest.raises(InvalidMetadata, match="Cannot add a snapshot: first-row-id is null"):
        commit(table, [add_snapshot(3, 2, sequence_number=3)])


def test_a_gap_before_a_snapshots_rows_never_makes_two_rows_share_an_id() -> None:
    table = commit(a_table(3), [add_snapshot(1, first_row_id=100, added_rows=5)])

    assert table.next_row_id == 105


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (a_snapshot(1, first_row_id=-1, added_rows=1), "Invalid first-row-id (cannot be negative): -1"),
        (a_snapshot(1, first_row_id=1), "Invalid added-rows (required when first-row-id is set): null"),
        (a_snapshot(1, first_row_id=1, added_rows=-1), "Invalid added-rows (cannot be negative): -1"),
        (
            a_snapshot(1, first_row_id=2**63 - 1, added_rows=1),
            "Invalid added-rows: row ids would exceed 9223372036854775807",
        ),
        (a_snapshot(-1, first_row_id=0, added_rows=1), "Invalid snapshot id: -1 means that there is no snapshot"),
        ({"snapshot-id": 1, "timestamp-ms": 1}, "Cannot parse missing list: manifests"),
        ({"timestamp-ms": 1}, "Cannot parse snapshot: Object missing required field `snapshot-id`"),
        (
            {"snapshot-id": 2**63, "timestamp-ms": 1},
            "Cannot parse snapshot: Expected `int` <= 9223372036854775807 - at `$.snapshot-id`",
        ),
    ],
)
def test_a_malformed_snapshot_is_refused(snapshot: Json, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        commit(a_table(3), [{"action": "add-snapshot", "snapshot": snapshot}])
    assert refused.value.message == message


def test_what_the_format_does_not_know_of_a_snapshot_is_kept_and_nulls_are_not() -> None:
    snapshot = a_snapshot(1, sequence_number=1, x_trace={"id": [1, None]}, key_id=None)
    snapshot["parent-snapshot-id"] = None
    snapshot["summary"] = {"written-by": "somebody"}

    table = commit(a_table(), [{"action": "add-snapshot", "snapshot": snapshot}])

    stored = table.snapshots[0]
    assert stored["x-trace"] == {"id": [1, None]}
    assert stored["summary"] == {"operation": "overwrite", "written-by": "somebody"}
    assert not {"parent-snapshot-id", "key-id"} & stored.keys()


def test_branches_and_tags_keep_their_retention() -> None:
    audit = set_ref(1, "audit", min_snapshots_to_keep=3, max_snapshot_age_ms=4, max_ref_age_ms=5)

    table = commit(a_table(snapshots=1), [audit, set_ref(1, "release", "TAG", max_ref_age_ms=6)])

    assert table.refs["audit"] == {
        "snapshot-id": 1,
        "type": "branch",
        "min-snapshots-to-keep": 3,
        "max-snapshot-age-ms": 4,
        "max-ref-age-ms": 5,
    }
    assert table.refs["release"] == {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 6}
    assert ids(table.snapshot_log) == [1]


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (set_ref(9), "Cannot set main to unknown snapshot: 9"),
        (set_ref(1, "main", "tag"), "Cannot set main to a tag: main is always a branch"),
        (set_ref(1, "b", "bookmark"), "Invalid snapshot ref type: bookmark"),
        (set_ref(1, "b", min_snapshots_to_keep=0), "Min snapshots to keep must be greater than 0"),
        (set_ref(1, "b", max_snapshot_age_ms=0), "Max snapshot age must be greater than 0 ms"),
        (set_ref(1, "b", max_ref_age_ms=0), "Max reference age must be greater than 0"),
        (set_ref(1, "t", "tag", min_snapshots_to_keep=1), "Tags do not support setting minSnapshotsToKeep"),
        (set_ref(1, "t", "tag", max_snapshot_age_ms=1), "Tags do not support setting maxSnapshotAgeMs"),
    ],
)
def test_a_reference_that_cannot_be_is_refused(ref: Json, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        commit(a_table(snapshots=1), [ref])
    assert refused.value.message == message


def test_going_back_to_an_old_snapshot_is_logged_as_of_now() -> None:
    table = a_table(snapshots=3)

    back = commit(table, [set_ref(1)], now_ms=NOW_MS + 5_000)

    assert back.current_snapshot_id == 1
    assert back.snapshot_log[-1] == {"timestamp-ms": NOW_MS + 5_000, "snapshot-id": 1}


def test_removing_main_keeps_the_snapshots_and_the_log() -> None:
    """000-59; how a table is replaced."""
    table = commit(a_table(snapshots=2), [update("remove-snapshot-ref", ref_name="main")])
    assert (table.current_snapshot_id, table.refs) == (None, {})
    assert ids(table.snapshot_log) == ids(table.snapshots) == [1, 2]

    replaced = commit(table, append(table, 3))
    assert ids(replaced.snapshot_log) == [1, 2, 3]
    assert "parent-snapshot-id" not in replaced.snapshots[-1]


def test_a_snapshot_superseded_in_its_own_commit_was_never_current() -> None:
    table = a_table(snapshots=1)
    both = [
        add_snapshot(2, 1, sequence_number=2),
        set_ref(2),
        add_snapshot(3, 2, sequence_number=3),
        set_ref(3),
    ]

    assert ids(commit(table, both).snapshot_log) == [1, 3]
    assert ids(commit(table, [*both, set_ref(2)]).snapshot_log) == [1, 2, 2]


def test_removing_a_snapshot_forgets_the_log_before_it() -> None:
    """000-58."""
    table = a_table(snapshots=4)

    table = commit(table, [update("remove-snapshots", snapshot_ids=[2, 77])])

    assert ids(table.snapshots) == [1, 3, 4]
    assert ids(table.snapshot_log) == [3, 4]


def test_removing_a_snapshot_removes_the_references_to_it() -> None:
    table = commit(a_table(snapshots=2), [set_ref(1, "old", "tag"), set_ref(2, "new", "tag")])

    assert commit(table, [update("remove-snapshots", snapshot_ids=[1])]).refs.keys() == {"main", "new"}
    without_current = commit(table, [update("remove-snapshots", snapshot_ids=[2])])
    assert without_current.refs.keys() == {"old"}
    assert without_current.current_snapshot_id is None
    assert without_current.snapshot_log == ()


def test_a_snapshot_from_long_before_the_last_one_is_refused() -> None:
    later = NOW_MS + 100_000
    table = commit(a_table(), append(a_table(), 100_000), now_ms=later)
    within_a_minute = [add_snapshot(40_000, 100_000, sequence_number=2), set_ref(40_000)]

    with pytest.raises(InvalidMetadata) as refused:
        commit(table, [add_snapshot(39_999, 100_000, sequence_number=2), set_ref(39_999)], now_ms=later)
    assert refused.value.message == (
        f"Invalid snapshot timestamp {NOW_MS + 39_999}: before last snapshot log entry at {later}"
    )
    assert commit(table, within_a_minute, now_ms=later).current_snapshot_id == 40_000


def test_a_snapshot_from_the_future_is_refused_beyond_a_minute() -> None:
    assert commit(a_table(), [add_snapshot(59_000), set_ref(59_000)]).current_snapshot_id == 59_000
    with pytest.raises(IllegalArgument) as refused:
        commit(a_table(), [add_snapshot(61_000), set_ref(61_000)])
    assert refused.value.message == (
        f"Invalid update timestamp {NOW_MS + 1}: before last snapshot log entry at {NOW_MS + 61_000}"
    )


def test_a_snapshot_from_before_all_time_is_refused() -> None:
    """Java subtracts in 64 bits, and would find the last update before it."""
    moment, added = -(2**63), add_snapshot(1)
    added["snapshot"]["timestamp-ms"] = moment

    with pytest.raises(IllegalArgument) as refused:
        commit(a_table(), [added, set_ref(1)])
    assert refused.value.message == f"Invalid update timestamp {NOW_MS + 1}: before last snapshot log entry at {moment}"
    added["snapshot"]["timestamp-ms"] = -(2**62)
    assert commit(a_table(), [added, set_ref(1)]).current_snapshot_id == 1


def test_only_referenced_snapshots_keeps_the_logs_whole() -> None:
    table = commit(a_table(snapshots=4), [set_ref(2, "release", "tag")])

    small = only_referenced_snapshots(table)

    assert ids(small.snapshots) == [2, 4]
    assert (small.snapshot_log, small.metadata_log, small.refs) == (table.snapshot_log, table.metadata_log, table.refs)
    assert (small.find_snapshot(4), small.find_snapshot(3)) == (table.snapshots[3], None)
    assert only_referenced_snapshots(a_table(snapshots=1)).snapshots == a_table(snapshots=1).snapshots


class TestSiblings:
    """Two commits from one base share what they know about its snapshots, and must not see each other's."""

    def test_a_snapshot_of_a_sibling_is_not_ones_own(self) -> None:
        base = a_table(snapshots=2)
        one = commit(base, append(base, 10))
        other = commit(base, append(base, 20))

        assert (one.find_snapshot(20), other.find_snapshot(10), base.find_snapshot(10)) == (None, None, None)
        assert one.find_snapshot(10) == one.snapshots[2]
        with pytest.raises(InvalidMetadata, match="Cannot set main to unknown snapshot: 20"):
            commit(one, [set_ref(20)])

    def test_a_commit_that_lost_a_race_can_be_applied_again_on_the_winner(self) -> None:
        base = a_table(snapshots=2)
        lost = commit(base, append(base, 10))
        winner = commit(base, append(base, 20))

        again = commit(winner, append(winner, 10))

        assert ids(again.snapshots) == [1, 2, 20, 10]
        assert again.find_snapshot(10) == again.snapshots[3]
        assert lost.find_snapshot(10) == lost.snapshots[2]
        with pytest.raises(InvalidMetadata, match="Snapshot already exists for id: 10"):
            commit(lost, [add_snapshot(10, sequence_number=9)])


def test_an_append_looks_at_none_of_the_snapshots_before_it() -> None:
    history = Snapshots.of(a_snapshot(number, sequence_number=3) for number in range(10, 60))
    long = replace(a_table(snapshots=3), snapshots=history, refs={}, current_snapshot_id=None)
    long = commit(long, append(long, 5_000))
    unreadable = Snapshots([*[b"?"] * 50, *long.snapshots.written()[50:]])
    unreadable._positions = long.snapshots._positions
    long = replace(long, snapshots=unreadable)

    longer = commit(long, append(long, 5_001))

    assert longer.snapshots.array().startswith(unreadable.array()[:-1])
    assert longer.find_snapshot(5_001) == longer.snapshots[51]
