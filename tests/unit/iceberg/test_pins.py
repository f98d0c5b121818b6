"""Pins: the tags by which a maintenance job holds on to a snapshot while it works from it."""

import pytest

from nunatak.errors import CommitFailed
from nunatak.iceberg.table_metadata import TableMetadata
from tests.unit.iceberg.builders import NOW_MS, Json, a_table, commit, set_ref, update

HOUR_MS = 3_600_000
REMOVE_1: Json = update("remove-snapshots", snapshot_ids=[1])


def pinned(name: str = "nunatak-pin-7", **age: int) -> TableMetadata:
    """Two snapshots, made at NOW_MS + 1 and + 2, the first of them pinned."""
    return commit(a_table(snapshots=2), [set_ref(1, name, "tag", **age)])


def test_a_pinned_snapshot_is_not_removed() -> None:
    table = pinned(max_ref_age_ms=HOUR_MS)

    with pytest.raises(CommitFailed) as refused:
        commit(table, [update("remove-snapshots", snapshot_ids=[2, 1])])

    assert refused.value.message == "Cannot remove snapshot 1: the tag nunatak-pin-7 pins it"
    assert refused.value.status == 409


def test_a_pin_without_an_age_holds_until_it_is_dropped() -> None:
    with pytest.raises(CommitFailed):
        commit(pinned(), [REMOVE_1], now_ms=NOW_MS + 10**12)


def test_a_pin_holds_as_long_as_iceberg_keeps_the_tag_and_not_longer() -> None:
    """Its age counts from the snapshot's own time."""
    table = pinned(max_ref_age_ms=HOUR_MS)

    with pytest.raises(CommitFailed):
        commit(table, [REMOVE_1], now_ms=NOW_MS + 1 + HOUR_MS)
    after = commit(table, [REMOVE_1], now_ms=NOW_MS + 2 + HOUR_MS)

    assert [each["snapshot-id"] for each in after.snapshots] == [2]
    assert after.refs.keys() == {"main"}


def test_whoever_drops_the_pin_in_the_same_commit_may_remove_the_snapshot() -> None:
    drop = update("remove-snapshot-ref", ref_name="nunatak-pin-7")

    assert commit(pinned(), [drop, REMOVE_1]).refs.keys() == {"main"}
    with pytest.raises(CommitFailed):
        commit(pinned(), [REMOVE_1, drop])


def test_other_snapshots_and_other_tags_are_as_free_as_ever() -> None:
    beside = commit(pinned(), [set_ref(2, "nunatak-pin-of-a-branch", "branch")])

    assert commit(beside, [update("remove-snapshots", snapshot_ids=[2])]).current_snapshot_id is None
    assert commit(pinned("pin"), [REMOVE_1]).refs.keys() == {"main"}
    assert commit(pinned(), [update("remove-snapshots", snapshot_ids=[77])]).refs.keys() == {"main", "nunatak-pin-7"}
