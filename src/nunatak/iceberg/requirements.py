"""Checks the requirements of a commit against the table; the first one that fails refuses the commit."""

from collections.abc import Sequence
from typing import assert_never

from nunatak.errors import CommitFailed, IllegalArgument, InvalidMetadata
from nunatak.iceberg.commit_request import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertCurrentSnapshotId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUuid,
    AssertViewUuid,
    Requirement,
)
from nunatak.iceberg.snapshot import MAIN, NO_SNAPSHOT
from nunatak.iceberg.table_metadata import TableMetadata


def is_create(requirements: Sequence[Requirement]) -> bool:
    """Return whether the commit creates its table; raise IllegalArgument if it has other requirements as well."""
    if not any(isinstance(requirement, AssertCreate) for requirement in requirements):
        return False
    others = [requirement for requirement in requirements if not isinstance(requirement, AssertCreate)]
    if others:
        names = ", ".join(str(other.__struct_config__.tag) for other in others)
        raise IllegalArgument(f"Invalid create requirements: [{names}]")
    return True


def check_all(requirements: Sequence[Requirement], base: TableMetadata | None) -> None:
    """Raise CommitFailed for the first requirement, in the order given, that `base` does not meet."""
    is_create(requirements)  # raises if assert-create is not alone
    for requirement in requirements:
        _check(requirement, base)


def _check(requirement: Requirement, base: TableMetadata | None) -> None:
    if isinstance(requirement, AssertCreate):
        if base is not None:
            raise CommitFailed("Requirement failed: table already exists")
        return
    if base is None:
        raise CommitFailed("Requirement failed: table does not exist")
    match requirement:
        case AssertTableUuid(uuid=uuid):
            if uuid.lower() != base.table_uuid.lower():
                raise CommitFailed(f"Requirement failed: UUID does not match: expected {base.table_uuid} != {uuid}")
        case AssertRefSnapshotId(ref=ref, snapshot_id=snapshot_id):
            _check_ref(ref, snapshot_id, base)
        case AssertCurrentSnapshotId(snapshot_id=snapshot_id):
            _check_ref(MAIN, snapshot_id, base)
        case AssertCurrentSchemaId(current_schema_id=expected):
            _check_id("current schema", expected, base.current_schema_id)
        case AssertLastAssignedFieldId(last_assigned_field_id=expected):
            _check_id("last assigned field id", expected, base.last_column_id)
        case AssertDefaultSpecId(default_spec_id=expected):
            _check_id("default partition spec", expected, base.default_spec_id)
        case AssertLastAssignedPartitionId(last_assigned_partition_id=expected):
            _check_id("last assigned partition id", expected, base.last_partition_id)
        case AssertDefaultSortOrderId(default_sort_order_id=expected):
            _check_id("default sort order", expected, base.default_sort_order_id)
        case AssertViewUuid():
            raise InvalidMetadata("Cannot validate AssertViewUUID against a table")
        case _:
            assert_never(requirement)


def _check_id(what: str, expected: int, actual: int) -> None:
    if expected != actual:
        raise CommitFailed(f"Requirement failed: {what} changed: expected id {expected} != {actual}")


def _check_ref(name: str, expected: int | None, base: TableMetadata) -> None:
    # Some clients send -1 for a ref that must not exist; the REST spec says null.
    if expected == NO_SNAPSHOT:
        expected = None
    ref = base.refs.get(name)
    if ref is None:
        if expected is not None:
            raise CommitFailed(f"Requirement failed: branch or tag {name} is missing, expected {expected}")
    elif expected is None:
        raise CommitFailed(f"Requirement failed: {ref['type']} {name} was created concurrently")
    elif expected != ref["snapshot-id"]:
        raise CommitFailed(
            f"Requirement failed: {ref['type']} {name} has changed: expected id {expected} != {ref['snapshot-id']}"
        )
