"""The request body of a commit: requirements and updates as tagged structs, decoded but not checked or applied."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from nunatak.errors import BadRequest
from nunatak.iceberg.shapes import Int, Json, Long, RefType, SchemaJson, described_by

LastAddedId = Annotated[Int, msgspec.Meta(description="An id, or -1 for the one added last in the same request.")]


class TableIdentifier(msgspec.Struct, frozen=True):
    namespace: list[str]
    name: str


class _Requirement(msgspec.Struct, frozen=True, rename="kebab", tag_field="type"):
    pass


class AssertCreate(_Requirement, frozen=True, tag="assert-create"):
    """The table does not exist; must be the only requirement."""


class AssertTableUuid(_Requirement, frozen=True, tag="assert-table-uuid"):
    """The table still has this UUID."""

    uuid: str


class AssertViewUuid(_Requirement, frozen=True, tag="assert-view-uuid"):
    """The view still has this UUID."""

    uuid: str


class AssertRefSnapshotId(_Requirement, frozen=True, tag="assert-ref-snapshot-id"):
    """A branch or tag still points at this snapshot; no snapshot id, null or -1 means that it does not exist."""

    ref: str
    snapshot_id: Long | None = None


class AssertCurrentSnapshotId(_Requirement, frozen=True, tag="assert-current-snapshot-id"):
    """`main` still points at this snapshot; a short form of assert-ref-snapshot-id."""

    snapshot_id: Long | None = None


class AssertLastAssignedFieldId(_Requirement, frozen=True, tag="assert-last-assigned-field-id"):
    """The last assigned column id is still this one: no column was added."""

    last_assigned_field_id: Int


class AssertCurrentSchemaId(_Requirement, frozen=True, tag="assert-current-schema-id"):
    """The current schema is still this one."""

    current_schema_id: Int


class AssertLastAssignedPartitionId(_Requirement, frozen=True, tag="assert-last-assigned-partition-id"):
    """The last assigned partition field id is still this one: no partition field was added."""

    last_assigned_partition_id: Int


class AssertDefaultSpecId(_Requirement, frozen=True, tag="assert-default-spec-id"):
    """The default spec is still this one."""

    default_spec_id: Int


class AssertDefaultSortOrderId(_Requirement, frozen=True, tag="assert-default-sort-order-id"):
    """The default sort order is still this one."""

    default_sort_order_id: Int


Requirement = (
    AssertCreate
    | AssertTableUuid
    | AssertViewUuid
    | AssertRefSnapshotId
    | AssertCurrentSnapshotId
    | AssertLastAssignedFieldId
    | AssertCurrentSchemaId
    | AssertLastAssignedPartitionId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
)


class _Update(msgspec.Struct, frozen=True, rename="kebab", tag_field="action"):
    pass


class AssignUuid(_Update, frozen=True, tag="assign-uuid"):
    """Set the UUID of a new table or view; it never changes."""

    uuid: str


class UpgradeFormatVersion(_Update, frozen=True, tag="upgrade-format-version"):
    """Raise the format version; it cannot be lowered."""

    format_version: Int


class AddSchema(_Update, frozen=True, tag="add-schema"):
    """Add a schema, or reuse an equal one.

    `last-column-id` is deprecated and ignored: the highest id is read from the schema.
    """

    schema: SchemaJson


class SetCurrentSchema(_Update, frozen=True, tag="set-current-schema"):
    """Set the current schema."""

    schema_id: LastAddedId


class AddSpec(_Update, frozen=True, tag="add-spec"):
    """Add a partition spec, or reuse an equal one."""

    spec: Annotated[Json, described_by("PartitionSpec")]


class SetDefaultSpec(_Update, frozen=True, tag="set-default-spec"):
    """Set the partition spec for new data."""

    spec_id: LastAddedId


class AddSortOrder(_Update, frozen=True, tag="add-sort-order"):
    """Add a sort order, or reuse an equal one."""

    sort_order: Annotated[Json, described_by("SortOrder")]


class SetDefaultSortOrder(_Update, frozen=True, tag="set-default-sort-order"):
    """Set the sort order for new data."""

    sort_order_id: LastAddedId


class AddSnapshot(_Update, frozen=True, tag="add-snapshot"):
    """Add a snapshot."""

    snapshot: Annotated[Json, described_by("Snapshot")]


class SetSnapshotRef(_Update, frozen=True, tag="set-snapshot-ref"):
    """Create or move a branch or tag; `main` is the table's current state."""

    ref_name: str
    snapshot_id: Long
    type: RefType
    min_snapshots_to_keep: Int | None = None
    max_snapshot_age_ms: Long | None = None
    max_ref_age_ms: Long | None = None


class SetCurrentSnapshot(_Update, frozen=True, tag="set-current-snapshot"):
    """Move `main`; a short form of set-snapshot-ref."""

    snapshot_id: Long


class RemoveSnapshots(_Update, frozen=True, tag="remove-snapshots"):
    """Remove snapshots."""

    snapshot_ids: list[Long]


class RemoveSnapshotRef(_Update, frozen=True, tag="remove-snapshot-ref"):
    """Remove a branch or tag."""

    ref_name: str


class SetLocation(_Update, frozen=True, tag="set-location"):
    """Set the location for new files."""

    location: str


class SetProperties(_Update, frozen=True, tag="set-properties"):
    """Set properties; old clients send `updates` as `updated`."""

    updates: dict[str, str] | None = None
    updated: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.updates is None and self.updated is None:
            raise ValueError("Object missing required field `updates`")


class RemoveProperties(_Update, frozen=True, tag="remove-properties"):
    """Remove properties, if they exist; old clients send `removals` as `removed`."""

    removals: list[str] | None = None
    removed: list[str] | None = None

    def __post_init__(self) -> None:
        if self.removals is None and self.removed is None:
            raise ValueError("Object missing required field `removals`")


class SetStatistics(_Update, frozen=True, tag="set-statistics"):
    """Set the statistics of a snapshot; `snapshot-id` beside the statistics is deprecated and ignored."""

    statistics: Annotated[Json, described_by("StatisticsFile")]


class RemoveStatistics(_Update, frozen=True, tag="remove-statistics"):
    """Remove a snapshot's statistics."""

    snapshot_id: Long


class SetPartitionStatistics(_Update, frozen=True, tag="set-partition-statistics"):
    """Set the partition statistics of a snapshot."""

    partition_statistics: Annotated[Json, described_by("PartitionStatisticsFile")]


class RemovePartitionStatistics(_Update, frozen=True, tag="remove-partition-statistics"):
    """Remove a snapshot's partition statistics."""

    snapshot_id: Long


class RemovePartitionSpecs(_Update, frozen=True, tag="remove-partition-specs"):
    """Remove partition specs; the default one cannot be removed."""

    spec_ids: list[Int]


class RemoveSchemas(_Update, frozen=True, tag="remove-schemas"):
    """Remove schemas; the current one cannot be removed."""

    schema_ids: list[Int]


class AddEncryptionKey(_Update, frozen=True, tag="add-encryption-key"):
    """Add an encrypted key."""

    encryption_key: Annotated[Json, described_by("EncryptedKey")]


class RemoveEncryptionKey(_Update, frozen=True, tag="remove-encryption-key"):
    """Remove an encrypted key."""

    key_id: str


class AddViewVersion(_Update, frozen=True, tag="add-view-version"):
    """Add a view version, or reuse an equal one."""

    view_version: Annotated[Json, described_by("ViewVersion")]


class SetCurrentViewVersion(_Update, frozen=True, tag="set-current-view-version"):
    """Set the version that queries use."""

    view_version_id: LastAddedId


Update = (
    AssignUuid
    | UpgradeFormatVersion
    | AddSchema
    | SetCurrentSchema
    | AddSpec
    | SetDefaultSpec
    | AddSortOrder
    | SetDefaultSortOrder
    | AddSnapshot
    | SetSnapshotRef
    | SetCurrentSnapshot
    | RemoveSnapshots
    | RemoveSnapshotRef
    | SetLocation
    | SetProperties
    | RemoveProperties
    | SetStatistics
    | RemoveStatistics
    | SetPartitionStatistics
    | RemovePartitionStatistics
    | RemovePartitionSpecs
    | RemoveSchemas
    | AddEncryptionKey
    | RemoveEncryptionKey
    | AddViewVersion
    | SetCurrentViewVersion
)


class CommitTableRequest(msgspec.Struct, frozen=True):
    """Updates that are applied together, in order, if every requirement holds."""

    updates: list[Annotated[Update, described_by("TableUpdate")]]
    requirements: list[Annotated[Requirement, described_by("TableRequirement")]] = []
    identifier: TableIdentifier | None = None


class TableChange(CommitTableRequest, frozen=True, kw_only=True):
    """A commit to one of several tables; the identifier is required, because no URL names the table."""

    identifier: TableIdentifier


class CommitTransactionRequest(msgspec.Struct, frozen=True, rename="kebab"):
    """Commits to several tables: all of them are applied, or none."""

    table_changes: Annotated[list[TableChange], msgspec.Meta(extra_json_schema={"minItems": 1})]


_commit_decoder = msgspec.json.Decoder(CommitTableRequest)
_transaction_decoder = msgspec.json.Decoder(CommitTransactionRequest)
_REQUIREMENT_TYPES = frozenset(each.__struct_config__.tag for each in Requirement.__args__)
_UPDATE_ACTIONS = frozenset(each.__struct_config__.tag for each in Update.__args__)

Request = TypeVar("Request")


def decode_commit(data: bytes) -> CommitTableRequest:
    """Decode a commit to one table; raise BadRequest, which names an unknown requirement type or update action."""
    return _decode(data, _commit_decoder, lambda json: [json])


def decode_transaction(data: bytes) -> CommitTransactionRequest:
    return _decode(data, _transaction_decoder, lambda json: json.get("table-changes"))


def check_utf8(data: bytes) -> None:
    """Raise UnicodeDecodeError if JSON is not UTF-8: the decoder does not check the text of unknown fields."""
    if not data.isascii():
        data.decode()


def _decode(data: bytes, decoder: msgspec.json.Decoder[Request], commits: Callable[[Json], object]) -> Request:
    try:
        check_utf8(data)
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise BadRequest(_unknown_tag(data, commits) or f"Malformed commit request: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"Malformed commit request: not valid JSON: {error}") from error
    except RecursionError as error:
        raise BadRequest("Malformed commit request: nested too deeply") from error


def _unknown_tag(data: bytes, commits: Callable[[Json], object]) -> str | None:
    """Return an error text for the first unknown tag, or None; the decoder only says where a tag is invalid."""
    try:
        json = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # The part after the decoder's error is not valid JSON.
    found = commits(json) if isinstance(json, dict) else None
    for commit in found if isinstance(found, list) else ():
        for list_name, tag_field, known, text in (
            ("requirements", "type", _REQUIREMENT_TYPES, "Unknown requirement type"),
            ("updates", "action", _UPDATE_ACTIONS, "Unknown update action"),
        ):
            items = commit.get(list_name) if isinstance(commit, dict) else None
            for item in items if isinstance(items, list) else ():
                tag = item.get(tag_field) if isinstance(item, dict) else None
                if isinstance(tag, str) and tag not in known:
                    return f"{text}: {tag[:100]}"
    return None
