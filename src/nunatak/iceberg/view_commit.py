"""The requirements and updates of a commit to a view: metadata in, new metadata out. No clock, no I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import msgspec

from nunatak.errors import BadRequest, CommitFailed, IllegalArgument, InvalidMetadata
from nunatak.iceberg.definitions import Definitions, digest
from nunatak.iceberg.schema import check_size, content_digest, parse_schema, schema_digest, with_schema_id
from nunatak.iceberg.shapes import Int, Json, check
from nunatak.iceberg.view_metadata import (
    SUPPORTED_FORMAT_VERSION,
    ViewMetadata,
    check_version,
    dialects,
    parse_json,
    print_set,
)

LAST_ADDED = -1
FIRST_VERSION_ID = 1
MAX_ID = 2**31 - 1

VERSION_HISTORY_SIZE = "version.history.num-entries"
VERSION_HISTORY_SIZE_DEFAULT = 10  # as in the reference
REPLACE_DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"


class ViewIdentifier(msgspec.Struct, frozen=True):
    namespace: list[str]
    name: str


class AssertViewUUID(msgspec.Struct, frozen=True):
    uuid: str


class AssignUUID(msgspec.Struct, frozen=True):
    uuid: str


class UpgradeFormatVersion(msgspec.Struct, frozen=True, rename="kebab"):
    format_version: Int


class AddSchema(msgspec.Struct, frozen=True):
    schema: Json


class SetLocation(msgspec.Struct, frozen=True):
    location: str


class SetProperties(msgspec.Struct, frozen=True):
    updates: dict[str, str]


class RemoveProperties(msgspec.Struct, frozen=True):
    removals: list[str]


class AddViewVersion(msgspec.Struct, frozen=True, rename="kebab"):
    view_version: Json


class SetCurrentViewVersion(msgspec.Struct, frozen=True, rename="kebab"):
    view_version_id: Int


ViewRequirement = AssertViewUUID
ViewUpdate = (
    AssignUUID
    | UpgradeFormatVersion
    | AddSchema
    | SetLocation
    | SetProperties
    | RemoveProperties
    | AddViewVersion
    | SetCurrentViewVersion
)


class CommitViewRequest(msgspec.Struct, frozen=True):
    """Updates that are applied together, in order, if every requirement holds."""

    updates: list[ViewUpdate]
    requirements: list[ViewRequirement] = []
    identifier: ViewIdentifier | None = None


_UPDATES: dict[str, type[ViewUpdate]] = {
    "assign-uuid": AssignUUID,
    "upgrade-format-version": UpgradeFormatVersion,
    "add-schema": AddSchema,
    "set-location": SetLocation,
    "set-properties": SetProperties,
    "remove-properties": RemoveProperties,
    "add-view-version": AddViewVersion,
    "set-current-view-version": SetCurrentViewVersion,
}

ACTIONS = tuple(_UPDATES)

# The reference names its Java class when it refuses one of these, and its clients show that text.
_TABLE_UPDATES = {
    "set-current-schema": "SetCurrentSchema",
    "add-spec": "AddPartitionSpec",
    "set-default-spec": "SetDefaultPartitionSpec",
    "remove-partition-specs": "RemovePartitionSpecs",
    "remove-schemas": "RemoveSchemas",
    "add-sort-order": "AddSortOrder",
    "set-default-sort-order": "SetDefaultSortOrder",
    "set-statistics": "SetStatistics",
    "remove-statistics": "RemoveStatistics",
    "set-partition-statistics": "SetPartitionStatistics",
    "remove-partition-statistics": "RemovePartitionStatistics",
    "add-snapshot": "AddSnapshot",
    "remove-snapshots": "RemoveSnapshots",
    "set-snapshot-ref": "SetSnapshotRef",
    "remove-snapshot-ref": "RemoveSnapshotRef",
    "add-encryption-key": "AddEncryptionKey",
    "remove-encryption-key": "RemoveEncryptionKey",
}
_TABLE_REQUIREMENTS = {
    "assert-create": "AssertTableDoesNotExist",
    "assert-table-uuid": "AssertTableUUID",
    "assert-ref-snapshot-id": "AssertRefSnapshotID",
    "assert-last-assigned-field-id": "AssertLastAssignedFieldId",
    "assert-current-schema-id": "AssertCurrentSchemaID",
    "assert-last-assigned-partition-id": "AssertLastAssignedPartitionId",
    "assert-default-spec-id": "AssertDefaultSpecID",
    "assert-default-sort-order-id": "AssertDefaultSortOrderID",
}
# The fields that count when two versions are compared.
_COMPARED = ("summary", "representations", "default-catalog", "default-namespace", "schema-id")
# Clients before 1.4 use the first name of each field; the second wins if both are sent.
_LEGACY_FIELDS = {"set-properties": ("updated", "updates"), "remove-properties": ("removed", "removals")}


class _Envelope(msgspec.Struct):
    """The request before each update and requirement is decoded by its type."""

    updates: list[Json]
    requirements: list[Json] | None = None
    identifier: ViewIdentifier | None = None


def decode_commit(data: bytes) -> CommitViewRequest:
    """Decode a commit to a view; raise BadRequest for a part that is malformed, unknown or only for tables."""
    envelope = check(parse_json(data, "commit view request"), _Envelope, "commit view request")
    return CommitViewRequest(
        identifier=envelope.identifier,
        requirements=[_decode_requirement(requirement) for requirement in envelope.requirements or ()],
        updates=[_decode_update(update) for update in envelope.updates],
    )


def check_all(requirements: Sequence[ViewRequirement], base: ViewMetadata | None) -> None:
    """Raise CommitFailed for the first requirement that `base` does not meet; None is a view that does not exist."""
    for requirement in requirements:
        if base is None:
            raise CommitFailed(f"Requirement failed: view does not exist, expected UUID {requirement.uuid}")
        if requirement.uuid.lower() != base.view_uuid.lower():
            raise CommitFailed(
                f"Requirement failed: view UUID does not match: expected {base.view_uuid} != {requirement.uuid}"
            )


def apply_all(updates: Sequence[ViewUpdate], base: ViewMetadata | None, *, now_ms: int) -> ViewMetadata:
    """Return the metadata after `updates`, or `base` itself if they change nothing; without a base they create a view.

    The updates must be well-formed, as decode_commit returns them.
    """
    draft = _ViewDraft(base, now_ms)
    for update in updates:
        draft.apply(update)
    return draft.build()


def new_view(
    *,
    schema: Json,
    view_version: Json,
    location: str,
    properties: Mapping[str, str],
    view_uuid: str,
    now_ms: int,
) -> ViewMetadata:
    """Return a view's first metadata; the server assigns the ids of schema and version, whatever the client sent."""
    check_version(view_version)
    if not view_version["representations"]:
        raise IllegalArgument("Cannot create view without specifying a query")
    draft = _ViewDraft(None, now_ms)
    draft.apply(AssignUUID(view_uuid))
    draft.apply(SetLocation(location))
    draft.apply(SetProperties(check(dict(properties), dict[str, str], "properties")))
    draft.apply(AddSchema(schema))
    draft.apply(AddViewVersion({**view_version, "version-id": FIRST_VERSION_ID, "schema-id": LAST_ADDED}))
    draft.apply(SetCurrentViewVersion(LAST_ADDED))
    return draft.build()


class _ViewDraft:
    """View metadata while updates are applied; the base is never mutated."""

    def __init__(self, base: ViewMetadata | None, now_ms: int) -> None:
        self.base = base
        self.now_ms = now_ms
        self.view_uuid = base.view_uuid if base else None
        self.format_version = base.format_version if base else SUPPORTED_FORMAT_VERSION
        self.location = base.location if base else None
        self.schemas = Definitions("schema", base.schemas if base else (), _schema_id, schema_digest)
        self.versions = Definitions("version", base.versions if base else (), _version_id, _version_digest)
        self.properties = dict(base.properties) if base else {}
        self.current_version_id = base.current_version_id if base else None
        self.log_entry: Json | None = None
        self.added_version_ids: set[int] = set()
        self.last_added_schema_id: int | None = None
        self.last_added_version_id: int | None = None

    def apply(self, update: ViewUpdate) -> None:
        match update:
            case AssignUUID(uuid):
                if self.view_uuid not in (None, uuid):
                    raise IllegalArgument("Cannot reassign uuid")
                self.view_uuid = uuid
            case UpgradeFormatVersion(format_version):
                # There is only one version yet, so an accepted upgrade changes nothing.
                if format_version < self.format_version:
                    raise IllegalArgument(f"Cannot downgrade v{self.format_version} view to v{format_version}")
                if format_version > SUPPORTED_FORMAT_VERSION:
                    raise IllegalArgument(f"Unsupported format version: {format_version}")
            case SetLocation(location):
                self.location = location
            case SetProperties(updates):
                self.properties.update(updates)
            case RemoveProperties(removals):
                for name in removals:
                    self.properties.pop(name, None)
            case AddSchema(schema):
                self.last_added_schema_id = self._add_schema(schema)
            case AddViewVersion(view_version):
                self.last_added_version_id = self._add_version(view_version)
            case SetCurrentViewVersion(version_id):
                self._set_current_version(version_id)
            case _:
                assert_never(update)

    def build(self) -> ViewMetadata:
        if self.location is None:
            raise IllegalArgument("Invalid location: null")
        if self.view_uuid is None:
            raise IllegalArgument("Cannot set uuid to null")
        if not len(self.versions):
            raise IllegalArgument("Invalid view: no versions were added")
        if self.current_version_id is None:
            raise IllegalArgument("Invalid view: no current version was set")
        base_log = self.base.version_log if self.base else ()
        updated = ViewMetadata(
            view_uuid=self.view_uuid,
            format_version=self.format_version,
            location=self.location,
            schemas=self.schemas.finished(),
            current_version_id=self.current_version_id,
            versions=self.versions.finished(),
            version_log=(*base_log, self.log_entry) if self.log_entry else base_log,
            properties=self.properties,
            unknown=self.base.unknown if self.base else {},
        )
        # Comes first: expiring versions could change a view that the commit leaves as it is.
        if self.base == updated:
            return self.base
        self._check_dialects(self.versions[self.current_version_id])
        return self._expire_versions(updated)

    # A schema or version that exists already counts as added: the client cannot know that another client was first, or
    # that its own lost request had arrived, and its -1 means this one in both cases. (The reference refuses the -1.)

    def _add_schema(self, schema: Json) -> int:
        added = parse_schema(schema)
        check_size(added)
        content = content_digest(added)
        found = self.schemas.find_equal(content)
        if found is not None:
            return found
        new_id = _assignable(self.schemas.next_id(0), "schema")
        self.schemas.add(new_id, with_schema_id(added, new_id), content)
        return new_id

    def _add_version(self, sent: Json) -> int:
        version = {**sent, "schema-id": self._resolve_schema_id(sent["schema-id"])}
        if version.get("default-catalog", "") is None:
            del version["default-catalog"]
        content = _version_digest(version)
        found = self.versions.find_equal(content)
        if found is not None:
            return found
        _check_distinct_dialects(version)
        new_id = _assignable(max(sent["version-id"], self.versions.next_id(FIRST_VERSION_ID)), "version")
        self.versions.add(new_id, {**version, "version-id": new_id}, content)
        self.added_version_ids.add(new_id)
        return new_id

    def _resolve_schema_id(self, sent_id: int) -> int:
        if sent_id != LAST_ADDED:
            if sent_id not in self.schemas:
                raise IllegalArgument(f"Cannot add version with unknown schema: {sent_id}")
            return sent_id
        if self.last_added_schema_id is None:
            raise InvalidMetadata("Cannot set last added schema: no schema has been added")
        return self.last_added_schema_id

    def _set_current_version(self, version_id: int) -> None:
        if version_id == LAST_ADDED:
            if self.last_added_version_id is None:
                raise InvalidMetadata("Cannot set last version id: no current version id has been set")
            version_id = self.last_added_version_id
        if version_id == self.current_version_id:
            return
        if version_id not in self.versions:
            raise IllegalArgument(f"Cannot set current version to unknown version: {version_id}")
        self.current_version_id = version_id
        # A version that becomes current again is older: its own timestamp would put the log out of order.
        added_now = version_id in self.added_version_ids
        timestamp_ms = self.versions[version_id]["timestamp-ms"] if added_now else self.now_ms
        # A commit adds one log entry, however often it switches: only its last choice is ever visible.
        self.log_entry = {"timestamp-ms": timestamp_ms, "version-id": version_id}

    def _check_dialects(self, current: Json) -> None:
        """Raise IllegalArgument if a dialect is lost: engines that use it could no longer read the view."""
        if self.base is None or self.properties.get(REPLACE_DROP_DIALECT_ALLOWED, "false").lower() == "true":
            return
        before = next(v for v in self.base.versions if v["version-id"] == self.base.current_version_id)
        if not dialects(before) <= dialects(current):
            raise IllegalArgument(
                f"Cannot replace view due to loss of view dialects ({REPLACE_DROP_DIALECT_ALLOWED}=false):\n"
                f"Previous dialects: {print_set(dialects(before))}\nNew dialects: {print_set(dialects(current))}"
            )

    def _expire_versions(self, metadata: ViewMetadata) -> ViewMetadata:
        """Keep the current version and the newest others; the log keeps the entries after the last expired version."""
        protected = self.added_version_ids | {metadata.current_version_id}
        size = max(len(protected), _history_size(metadata.properties))
        if len(metadata.versions) <= size:
            return metadata
        others = sorted({_version_id(each) for each in metadata.versions} - {metadata.current_version_id}, reverse=True)
        kept = dict.fromkeys([metadata.current_version_id, *others[: size - 1]])
        log: list[Json] = []
        for entry in metadata.version_log:
            if entry["version-id"] in kept:
                log.append(entry)
            else:
                # Across a gap, the entry before it would seem to have been current for longer than it was.
                log.clear()
        return replace(metadata, versions=tuple(self.versions[id] for id in kept), version_log=tuple(log))


def _decode_update(sent: Json) -> ViewUpdate:
    action = _tag(sent, "action", "metadata update")
    if action in _TABLE_UPDATES:
        raise BadRequest(f"Cannot apply update {_TABLE_UPDATES[action]} to a view")
    if action not in _UPDATES:
        raise BadRequest(f"Unknown update action: {action}", hint=f"A view accepts {', '.join(_UPDATES)}")
    if action in _LEGACY_FIELDS:
        legacy, field = _LEGACY_FIELDS[action]
        if field not in sent and legacy in sent:
            sent = {**sent, field: sent[legacy]}
    update = check(sent, _UPDATES[action], f"{action} update")
    if isinstance(update, AddViewVersion):
        check_version(update.view_version)
    elif isinstance(update, AddSchema):
        parse_schema(update.schema)
    return update


def _decode_requirement(sent: Json) -> ViewRequirement:
    type = _tag(sent, "type", "update requirement")
    if type in _TABLE_REQUIREMENTS:
        raise InvalidMetadata(f"Cannot validate {_TABLE_REQUIREMENTS[type]} against a view")
    if type != "assert-view-uuid":
        raise BadRequest(f"Unknown update requirement: {type}", hint="A view accepts assert-view-uuid")
    return check(sent, AssertViewUUID, f"{type} requirement")


def _tag(sent: Json, field: str, what: str) -> str:
    tag = sent.get(field)
    if not isinstance(tag, str):
        raise BadRequest(f"Cannot parse {what}. Missing field: {field}")
    return tag.lower()


def _version_digest(version: Json) -> bytes:
    """Return a digest of the compared fields; the version id and timestamp do not count."""
    return digest([version.get(field) for field in _COMPARED])


def _schema_id(schema: Json) -> int:
    return schema.get("schema-id") or 0


def _version_id(version: Json) -> int:
    version_id: int = version["version-id"]
    return version_id


def _check_distinct_dialects(version: Json) -> None:
    seen: set[str] = set()
    for representation in version["representations"]:
        dialect = representation["dialect"].lower()
        if dialect in seen:
            raise IllegalArgument(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        seen.add(dialect)


def _history_size(properties: Mapping[str, str]) -> int:
    text = properties.get(VERSION_HISTORY_SIZE, str(VERSION_HISTORY_SIZE_DEFAULT))
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or not 0 < int(text) <= MAX_ID:
        raise IllegalArgument(f"{VERSION_HISTORY_SIZE} must be positive but was {text}")
    return int(text)


def _assignable(new_id: int, what: str) -> int:
    if new_id > MAX_ID:
        raise IllegalArgument(f"Cannot add {what}: no {what} id is left after {MAX_ID}")
    return new_id
