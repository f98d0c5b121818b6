"""A commit that expects another table than it meets is refused, with the words clients look for."""

import pytest

from nunatak.errors import CommitFailed, IllegalArgument, InvalidMetadata
from tests.unit.iceberg.builders import UUID, Json, a_creation, a_table, append, commit, requirement, set_ref, update

A_CHANGE = [update("set-properties", updates={"color": "red"})]
OTHER_UUID = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    "met",
    [
        requirement("assert-table-uuid", uuid=UUID),
        requirement("assert-table-uuid", uuid=UUID.upper()),
        requirement("assert-ref-snapshot-id", ref="main", snapshot_id=2),
        requirement("assert-current-snapshot-id", snapshot_id=2),
        requirement("assert-ref-snapshot-id", ref="audit", snapshot_id=None),
        requirement("assert-ref-snapshot-id", ref="audit"),
        requirement("assert-ref-snapshot-id", ref="audit", snapshot_id=-1),
        requirement("assert-current-schema-id", current_schema_id=0),
        requirement("assert-last-assigned-field-id", last_assigned_field_id=3),
        requirement("assert-default-spec-id", default_spec_id=0),
        requirement("assert-last-assigned-partition-id", last_assigned_partition_id=999),
        requirement("assert-default-sort-order-id", default_sort_order_id=0),
    ],
)
def test_a_commit_whose_requirement_is_met_is_applied(met: Json) -> None:
    """000-41 to 000-47; 000-42: -1 means that there is no snapshot."""
    assert commit(a_table(snapshots=2), A_CHANGE, met).properties["color"] == "red"


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (requirement("assert-create"), "Requirement failed: table already exists"),
        (
            requirement("assert-table-uuid", uuid=OTHER_UUID),
            f"Requirement failed: UUID does not match: expected {UUID} != {OTHER_UUID}",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="main", snapshot_id=1),
            "Requirement failed: branch main has changed: expected id 1 != 2",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="release", snapshot_id=2),
            "Requirement failed: tag release has changed: expected id 2 != 1",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="main", snapshot_id=None),
            "Requirement failed: branch main was created concurrently",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="main", snapshot_id=-1),
            "Requirement failed: branch main was created concurrently",
        ),
        (
            requirement("assert-current-snapshot-id", snapshot_id=1),
            "Requirement failed: branch main has changed: expected id 1 != 2",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="audit", snapshot_id=1),
            "Requirement failed: branch or tag audit is missing, expected 1",
        ),
        (
            requirement("assert-current-schema-id", current_schema_id=1),
            "Requirement failed: current schema changed: expected id 1 != 0",
        ),
        (
            requirement("assert-last-assigned-field-id", last_assigned_field_id=2),
            "Requirement failed: last assigned field id changed: expected id 2 != 3",
        ),
        (
            requirement("assert-default-spec-id", default_spec_id=1),
            "Requirement failed: default partition spec changed: expected id 1 != 0",
        ),
        (
            requirement("assert-last-assigned-partition-id", last_assigned_partition_id=1000),
            "Requirement failed: last assigned partition id changed: expected id 1000 != 999",
        ),
        (
            requirement("assert-default-sort-order-id", default_sort_order_id=1),
            "Requirement failed: default sort order changed: expected id 1 != 0",
        ),
    ],
)
def test_a_commit_whose_requirement_fails_is_refused(failing: Json, message: str) -> None:
    """000-33, 000-40 to 000-47."""
    table = commit(a_table(snapshots=2), [set_ref(1, "release", "tag")])

    with pytest.raises(CommitFailed) as refused:
        commit(table, A_CHANGE, failing)
    assert refused.value.message == message


def test_requirements_are_checked_in_order_and_the_first_failure_is_reported() -> None:
    failing = [
        requirement("assert-table-uuid", uuid=UUID),
        requirement("assert-current-schema-id", current_schema_id=7),
        requirement("assert-default-spec-id", default_spec_id=7),
    ]

    with pytest.raises(CommitFailed, match="current schema changed"):
        commit(a_table(), A_CHANGE, *failing)
    with pytest.raises(CommitFailed, match="default partition spec changed"):
        commit(a_table(), A_CHANGE, *reversed(failing))


def test_nothing_else_can_be_required_of_a_table_that_must_not_exist() -> None:
    with pytest.raises(IllegalArgument) as refused:
        commit(
            None, a_creation(), requirement("assert-create"), requirement("assert-default-spec-id", default_spec_id=0)
        )
    assert refused.value.message == "Invalid create requirements: [assert-default-spec-id]"


def test_a_table_that_does_not_exist_meets_no_requirement_but_its_absence() -> None:
    assert commit(None, a_creation(), requirement("assert-create"), location=None).table_uuid == UUID
    with pytest.raises(CommitFailed, match="Requirement failed: table does not exist"):
        commit(None, a_creation(), requirement("assert-table-uuid", uuid=UUID))


def test_a_views_uuid_cannot_be_required_of_a_table() -> None:
    with pytest.raises(InvalidMetadata, match="Cannot validate AssertViewUUID against a table"):
        commit(a_table(), A_CHANGE, requirement("assert-view-uuid", uuid=UUID))


def test_of_two_appends_on_the_same_base_the_second_is_refused() -> None:
    """000-36: concurrent writers never overwrite each other."""
    table = a_table(snapshots=1)
    expected = requirement("assert-ref-snapshot-id", ref="main", snapshot_id=1)
    winner = commit(table, append(table, 2), expected)

    with pytest.raises(CommitFailed, match="branch main has changed: expected id 1 != 2"):
        commit(winner, append(table, 3), expected)
