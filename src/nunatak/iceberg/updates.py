"""Applies a commit's updates to table metadata: metadata in, new metadata out. No clock, no I/O."""

import operator
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, assert_never

from nunatak.errors import BadRequest, CommitFailed, IllegalArgument, InvalidMetadata
from nunatak.iceberg import partition_spec, schema, sort_order
from nunatak.iceberg.commit_request import (
    AddEncryptionKey,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AddViewVersion,
    AssignUuid,
    RemoveEncryptionKey,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetCurrentSnapshot,
    SetCurrentViewVersion,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    Update,
    UpgradeFormatVersion,
)
from nunatak.iceberg.conventions import PIN_PREFIX, PREVIOUS_VERSIONS_MAX
from nunatak.iceberg.definitions import Definitions, Keyed
from nunatak.iceberg.entries import Entries
from nunatak.iceberg.properties import (
    METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT,
    int_property,
    without_reserved,
)
from nunatak.iceberg.shapes import (
    EncryptedKeyShape,
    Json,
    PartitionStatisticsFileShape,
    StatisticsFileShape,
    is_base64,
    read_object,
)
from nunatak.iceberg.snapshot import MAIN, ChangedSnapshots, read_ref, read_snapshot, sequence_number
from nunatak.iceberg.table_metadata import (
    DEFAULT_FORMAT_VERSION,
    ROW_LINEAGE_FORMAT_VERSION,
    SUPPORTED_FORMAT_VERSION,
    TableMetadata,
    strip_trailing_slash,
)

LAST_ADDED = -1  # on the wire: the schema, spec or sort order added last in the same commit
CLOCK_TOLERANCE_MS = 60_000  # commits come from different machines; their clocks may differ by a minute
_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
# Fields that updates may change; the metadata log and last-updated-ms follow from a change.
_CHANGEABLE = tuple(
    name for name in TableMetadata.__struct_fields__ if name not in ("last_updated_ms", "metadata_log", "unknown")
)
_changeable = operator.attrgetter(*_CHANGEABLE)  # one call for all fields: every commit makes it twice
_all_fields = operator.attrgetter(*TableMetadata.__struct_fields__)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def apply_all(
    updates: Sequence[Update], base: TableMetadata | None, *, base_location: str | None, now_ms: int
) -> TableMetadata:
    """Apply `updates` in order; return `base` itself if they change nothing.

    Without a base the updates create the table. `base_location`, the file of `base`, goes into the metadata log.
    """
    draft = _TableDraft(base or _empty_table(updates, now_ms), is_new=base is None, now_ms=now_ms)
    for update in updates:
        draft.apply(update)
    return draft.finish(base_location)


def runs_back(before_ms: int, after_ms: int) -> bool:
    """Whether a log goes back by more than the tolerance, or forward by a step that overflows 64 bits in Java."""
    return not -CLOCK_TOLERANCE_MS <= after_ms - before_ms <= _MAX_LONG


def _empty_table(updates: Iterable[Update], now_ms: int) -> TableMetadata:
    """Return the metadata that a creating commit starts from: its own format version, and nothing else."""
    versions = (update.format_version for update in updates if isinstance(update, UpgradeFormatVersion))
    version = next(versions, DEFAULT_FORMAT_VERSION)
    _check_supported(version)
    if version < 1:
        raise IllegalArgument(f"Unsupported format version: v{version} (supported: v{SUPPORTED_FORMAT_VERSION})")
    return TableMetadata(
        format_version=version,
        table_uuid="",
        location="",
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=0,
        schemas=(),
        current_schema_id=0,
        partition_specs=(),
        default_spec_id=0,
        last_partition_id=partition_spec.UNPARTITIONED_LAST_FIELD_ID,
        sort_orders=(),
        default_sort_order_id=0,
        properties={},
    )


def _check_supported(version: int) -> None:
    if version > SUPPORTED_FORMAT_VERSION:
        raise IllegalArgument(
            f"Cannot upgrade table to unsupported format version: v{version} (supported: v{SUPPORTED_FORMAT_VERSION})"
        )


def _within(number: int, largest: int, what: str) -> int:
    """Return `number`; raise IllegalArgument if it is too large: the table could be written, but never read again."""
    if number > largest:
        raise IllegalArgument(f"Cannot assign a {what} after {largest}")
    return number


class _TableDraft:
    """Table metadata while updates are applied. Collections are replaced, never mutated: the base shares them."""

    # Built when an update first needs them; `_finish_lists` writes the changed lists back into the metadata.
    _schemas: Definitions | None = None
    _specs: Definitions | None = None
    _orders: Definitions | None = None
    _snapshots: ChangedSnapshots | None = None
    _refs_of: dict[int, set[str]] | None = None
    _partition_fields: partition_spec.PartitionFields | None = None

    last_added_schema_id: int | None = None
    last_added_spec_id: int | None = None
    last_added_order_id: int | None = None
    has_removed_snapshots = False
    has_started_over = False

    def __init__(self, base: TableMetadata, *, is_new: bool, now_ms: int) -> None:
        self.base = base
        self.is_new = is_new
        self.now_ms = now_ms
        # Spec, last-updated-ms: must not go back, whatever the clock does.
        next_ms = _within(base.last_updated_ms + 1, _MAX_LONG, "timestamp")
        self.last_updated_ms = now_ms if is_new else max(now_ms, next_ms)

        self.format_version = base.format_version
        self.table_uuid = base.table_uuid
        self.location = base.location
        self.last_sequence_number = base.last_sequence_number
        self.last_column_id = base.last_column_id
        self.schemas = base.schemas
        self.current_schema_id = base.current_schema_id
        self.partition_specs = base.partition_specs
        self.default_spec_id = base.default_spec_id
        self.last_partition_id = base.last_partition_id
        self.sort_orders = base.sort_orders
        self.default_sort_order_id = base.default_sort_order_id
        self.properties = base.properties
        self.current_snapshot_id = base.current_snapshot_id
        self.snapshots = base.snapshots
        self.snapshot_log = base.snapshot_log
        self.refs = base.refs
        self.statistics = base.statistics
        self.partition_statistics = base.partition_statistics
        self.encryption_keys = base.encryption_keys
        self.next_row_id = base.next_row_id
        self.metadata_log = base.metadata_log
        self.unknown = base.unknown

        self._files: dict[str, Keyed] = {}
        self._parsed: dict[int, schema.Schema] = {}
        self._owned: set[str] = set()
        self.added_schema_ids: set[int] = set()
        self.added_snapshots: dict[int, Json] = {}
        self.set_as_main: list[int] = []

    def apply(self, update: Update) -> None:
        match update:
            case AddSnapshot():
                self.add_snapshot(read_snapshot(update.snapshot))
            case SetSnapshotRef():
                ref = read_ref(
                    update.ref_name,
                    update.snapshot_id,
                    update.type,
                    min_snapshots_to_keep=update.min_snapshots_to_keep,
                    max_snapshot_age_ms=update.max_snapshot_age_ms,
                    max_ref_age_ms=update.max_ref_age_ms,
                )
                self.set_ref(update.ref_name, ref)
            case SetCurrentSnapshot():
                self.set_ref(MAIN, read_ref(MAIN, update.snapshot_id, "branch"))
            case RemoveSnapshots():
                self.remove_snapshots(set(update.snapshot_ids))
            case RemoveSnapshotRef():
                self.remove_ref(update.ref_name)
            case SetProperties():
                self.set_properties((update.updates if update.updates is not None else update.updated) or {})
            case RemoveProperties():
                self.remove_properties((update.removals if update.removals is not None else update.removed) or [])
            case AssignUuid():
                self.assign_uuid(update.uuid)
            case UpgradeFormatVersion():
                self.upgrade_format_version(update.format_version)
            case SetLocation():
                self.location = strip_trailing_slash(update.location)
            case AddSchema():
                self.add_schema(schema.parse_schema(update.schema))
            case SetCurrentSchema():
                self.set_current_schema(update.schema_id)
            case RemoveSchemas():
                self.remove_schemas(set(update.schema_ids))
            case AddSpec():
                self.add_spec(partition_spec.read_spec(update.spec))
            case SetDefaultSpec():
                self.set_default_spec(update.spec_id)
            case RemovePartitionSpecs():
                self.remove_partition_specs(set(update.spec_ids))
            case AddSortOrder():
                self.add_sort_order(sort_order.read_order(update.sort_order))
            case SetDefaultSortOrder():
                self.set_default_sort_order(update.sort_order_id)
            case SetStatistics():
                added = read_object(update.statistics, StatisticsFileShape, "statistics")
                self._keyed("statistics", "snapshot-id").put(added)
            case RemoveStatistics():
                self._keyed("statistics", "snapshot-id").remove({update.snapshot_id})
            case SetPartitionStatistics():
                added = read_object(update.partition_statistics, PartitionStatisticsFileShape, "partition statistics")
                self._keyed("partition_statistics", "snapshot-id").put(added)
            case RemovePartitionStatistics():
                self._keyed("partition_statistics", "snapshot-id").remove({update.snapshot_id})
            case AddEncryptionKey():
                self.add_encryption_key(update.encryption_key)
            case RemoveEncryptionKey():
                self._keyed("encryption_keys", "key-id").remove({update.key_id})
            case AddViewVersion():
                raise BadRequest("Cannot apply update AddViewVersion to a table")
            case SetCurrentViewVersion():
                raise BadRequest("Cannot apply update SetCurrentViewVersion to a table")
            case _:
                assert_never(update)

    def finish(self, base_location: str | None) -> TableMetadata:
        # The checks below read the finished lists, so this comes first.
        self._finish_lists()
        if self.is_new:
            self._check_complete()
        self._check_current_schema()
        self._finish_sequence_number()
        self.snapshot_log = self._finished_snapshot_log()
        base = self.base
        # A commit that changes nothing adds no entry to the metadata log and keeps last-updated-ms.
        if not self.is_new and _changeable(self) == _changeable(base):
            return base
        self._check_clock()
        if not self.is_new:
            self.metadata_log = self._metadata_log(base_location)
        return TableMetadata(*_all_fields(self))

    # The table itself

    def assign_uuid(self, uuid: str) -> None:
        if not _UUID.fullmatch(uuid):
            raise IllegalArgument(f"Invalid UUID string: {uuid[:100]}")
        if self.table_uuid and uuid.lower() != self.table_uuid.lower():
            # REST spec, assign-uuid: it is not safe to re-assign the UUID of a table that has one.
            raise IllegalArgument(f"Cannot reassign table UUID: {self.table_uuid} to {uuid}")
        # The stored spelling stays: the other one differs at most in case.
        self.table_uuid = self.table_uuid or uuid

    def upgrade_format_version(self, version: int) -> None:
        _check_supported(version)
        if version < self.format_version:
            raise IllegalArgument(f"Cannot downgrade v{self.format_version} table to v{version}")
        self.format_version = version

    def set_properties(self, updates: dict[str, str]) -> None:
        self._own("properties").update(without_reserved(updates))

    def remove_properties(self, removals: Collection[str]) -> None:
        properties = self._own("properties")
        for name in removals:
            properties.pop(name, None)

    def add_encryption_key(self, sent: Json) -> None:
        key = read_object(sent, EncryptedKeyShape, "encryption key")
        if not is_base64(key["encrypted-key-metadata"]):
            raise IllegalArgument("Cannot parse encryption key: encrypted-key-metadata is not base64")
        keys = self._keyed("encryption_keys", "key-id")
        if key["key-id"] not in keys:
            keys.put(key)

    # Lists and maps while they change

    def _own(self, name: Literal["properties", "refs"]) -> dict[str, Any]:
        """Return a map that this commit may change: the map of the base is copied once, not with every update."""
        if name not in self._owned:
            self._owned.add(name)
            setattr(self, name, dict(getattr(self, name)))
        owned: dict[str, Any] = getattr(self, name)
        return owned

    def _keyed(self, name: str, field: str) -> Keyed:
        files = self._files.get(name)
        if files is None:
            files = self._files[name] = Keyed(getattr(self, name), field)
        return files

    def all_schemas(self) -> Definitions:
        if self._schemas is None:
            self._schemas = Definitions("schema", self.schemas, _schema_id, schema.schema_digest)
        return self._schemas

    def all_specs(self) -> Definitions:
        if self._specs is None:
            self._specs = Definitions("partition spec", self.partition_specs, _spec_id, partition_spec.content_digest)
        return self._specs

    def all_orders(self) -> Definitions:
        if self._orders is None:
            self._orders = Definitions("sort order", self.sort_orders, _order_id, sort_order.content_digest)
        return self._orders

    def all_snapshots(self) -> ChangedSnapshots:
        if self._snapshots is None:
            self._snapshots = ChangedSnapshots(self.snapshots)
        return self._snapshots

    def _finish_lists(self) -> None:
        if self._schemas is not None:
            self.schemas = self._schemas.finished()
        if self._specs is not None:
            self.partition_specs = self._specs.finished()
        if self._orders is not None:
            self.sort_orders = self._orders.finished()
        if self._snapshots is not None:
            self.snapshots = self._snapshots.finished()
        for name, files in self._files.items():
            setattr(self, name, files.finished())

    # Schemas

    def add_schema(self, added: schema.Schema) -> None:
        schema.check_compatibility(added, self.format_version)
        schemas, content = self.all_schemas(), schema.content_digest(added)
        found = schemas.find_equal(content)
        self.last_column_id = max(self.last_column_id, added.highest_field_id)
        if found is not None:
            # The last added schema must be one that this commit added, and no older one may be reused in between.
            if found not in self.added_schema_ids or self.last_added_schema_id is None:
                self.last_added_schema_id = None
            else:
                self.last_added_schema_id = found
            return
        schema_id = _within(schemas.next_id(self.current_schema_id), _MAX_INT, "schema id")
        schemas.add(schema_id, schema.with_schema_id(added, schema_id), content)
        self.added_schema_ids.add(schema_id)
        self.last_added_schema_id = schema_id

    def set_current_schema(self, schema_id: int) -> None:
        if schema_id == LAST_ADDED:
            if self.last_added_schema_id is None:
                raise InvalidMetadata("Cannot set last added schema: no schema has been added")
            schema_id = self.last_added_schema_id
        if schema_id != self.current_schema_id and schema_id not in self.all_schemas():
            raise IllegalArgument(f"Cannot set current schema to unknown schema: {schema_id}")
        if schema_id != self.current_schema_id:
            self.current_schema_id = schema_id
            self._check_all_fit()

    def remove_schemas(self, schema_ids: set[int]) -> None:
        if self.current_schema_id in schema_ids:
            raise IllegalArgument("Cannot remove the current schema")
        self.all_schemas().remove(schema_ids)
        for schema_id in schema_ids:
            self._parsed.pop(schema_id, None)
            if self._partition_fields is not None:
                self._partition_fields.forget_schema(schema_id)

    def current_schema(self) -> schema.Schema:
        current = self._parsed.get(self.current_schema_id)
        if current is None:
            if self.current_schema_id not in self.all_schemas():
                raise InvalidMetadata("Cannot bind to the current schema: no schema has been added")
            current = schema.parse_schema(self.all_schemas()[self.current_schema_id])
            self._parsed[self.current_schema_id] = current
        return current

    # Partition specs

    def add_spec(self, spec: Json) -> None:
        current, specs = self.current_schema(), self.all_specs()
        if partition_spec.lacks_field_ids(spec):
            known = self.partition_fields()
            spec = partition_spec.with_field_ids(spec, known, self.last_partition_id, self.format_version)
        partition_spec.check_names(spec, current)
        partition_spec.check_compatibility(spec, current)
        content = partition_spec.content_digest(spec)
        found = specs.find_equal(content)
        if found is not None:
            if self.last_added_spec_id is not None:
                self.last_added_spec_id = found
            return
        if self.format_version == 1:
            partition_spec.check_sequential_ids(spec)
        last_field_id = _within(partition_spec.last_field_id(spec), _MAX_INT, "partition field id")
        self.last_partition_id = max(self.last_partition_id, last_field_id)
        spec_id = _within(specs.next_id(0), _MAX_INT, "partition spec id")
        spec = spec | {"spec-id": spec_id}
        specs.add(spec_id, spec, content)
        if self._partition_fields is not None:
            self._partition_fields.add(spec)
        self.last_added_spec_id = spec_id

    def partition_fields(self) -> partition_spec.PartitionFields:
        if self._partition_fields is None:
            self._partition_fields = partition_spec.PartitionFields(self.all_specs().values())
        return self._partition_fields

    def set_default_spec(self, spec_id: int) -> None:
        if spec_id == LAST_ADDED:
            if self.last_added_spec_id is None:
                raise InvalidMetadata("Cannot set last added spec: no spec has been added")
            spec_id = self.last_added_spec_id
        self.default_spec_id = spec_id

    def remove_partition_specs(self, spec_ids: set[int]) -> None:
        if self.default_spec_id in spec_ids:
            raise IllegalArgument("Cannot remove the default partition spec")
        specs = self.all_specs()
        for spec_id in spec_ids:
            if self._partition_fields is not None and spec_id in specs:
                self._partition_fields.remove(specs[spec_id])
        specs.remove(spec_ids)

    # Sort orders

    def add_sort_order(self, order: Json) -> None:
        sort_order.check_compatibility(order, self.current_schema())
        orders, content = self.all_orders(), sort_order.content_digest(order)
        found = orders.find_equal(content)
        if found is not None:
            if self.last_added_order_id is not None:
                self.last_added_order_id = found
            return
        # Spec, sort-orders: id 0 is reserved for the unsorted order.
        order_id = orders.next_id(sort_order.FIRST_ORDER_ID) if order["fields"] else 0
        _within(order_id, _MAX_INT, "sort order id")
        orders.add(order_id, order | {"order-id": order_id}, content)
        self.last_added_order_id = order_id

    def set_default_sort_order(self, order_id: int) -> None:
        if order_id == LAST_ADDED:
            if self.last_added_order_id is None:
                raise InvalidMetadata("Cannot set last added sort order: no sort order has been added")
            order_id = self.last_added_order_id
        self.default_sort_order_id = order_id

    # Snapshots and references

    def add_snapshot(self, added: Json) -> None:
        for existing, changed, what in (
            (self.schemas, self._schemas, "schema"),
            (self.partition_specs, self._specs, "partition spec"),
            (self.sort_orders, self._orders, "sort order"),
        ):
            if not (existing if changed is None else changed):
                raise InvalidMetadata(f"Attempting to add a snapshot before a {what} is added")
        snapshot_id, snapshots = added["snapshot-id"], self.all_snapshots()
        if snapshots.holds(snapshot_id):
            raise InvalidMetadata(f"Snapshot already exists for id: {snapshot_id}")
        added = self._with_sequence_number(added)
        if self.format_version >= ROW_LINEAGE_FORMAT_VERSION:
            self._assign_rows(added)
        snapshots.add(added)
        self.added_snapshots[snapshot_id] = added

    def _with_sequence_number(self, added: Json) -> Json:
        if self.format_version == 1:
            if sequence_number(added) != 0:
                raise IllegalArgument(f"Sequence number must be 0 in v1: {added['sequence-number']}")
            return added
        if "sequence-number" not in added and self.base.format_version == 1:
            # The snapshot was written for v1, where all have the number 0; its manifests assign none to their files.
            added = {"sequence-number": 0, **added}
        elif "sequence-number" not in added:
            # Simple clients leave the sequence number to the catalog; it can only be the next one.
            number = _within(self.last_sequence_number + 1, _MAX_LONG, "sequence number")
            added = {"sequence-number": number, **added}
        number = sequence_number(added)
        if number <= self.last_sequence_number:
            if "parent-snapshot-id" in added:
                raise CommitFailed(
                    "Validation failed, please retry: Cannot add snapshot with sequence number "
                    f"{number} older than last sequence number {self.last_sequence_number}"
                )
            # A snapshot without a parent starts a new history, as replacing a table does; its children count from it.
            self.has_started_over = True
        self.last_sequence_number = number
        return added

    def _assign_rows(self, added: Json) -> None:
        first_row_id = added.get("first-row-id")
        if first_row_id is None:
            raise InvalidMetadata("Cannot add a snapshot: first-row-id is null")
        if first_row_id < self.next_row_id:
            raise CommitFailed(
                "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table next-row-id: "
                f"{first_row_id} < {self.next_row_id}"
            )
        # Counts from the snapshot's own first row, so that a gap before it can never give two rows the same id.
        self.next_row_id = first_row_id + added["added-rows"]
        if self.next_row_id > _MAX_LONG:
            raise IllegalArgument(f"Invalid added-rows: row ids would exceed {_MAX_LONG}")

    def set_ref(self, name: str, ref: Json) -> None:
        if self.refs.get(name) == ref:
            return
        snapshot_id = ref["snapshot-id"]
        if not self.all_snapshots().holds(snapshot_id):
            raise InvalidMetadata(f"Cannot set {name} to unknown snapshot: {snapshot_id}")
        if name == MAIN:
            self.current_snapshot_id = snapshot_id
            # A rollback to an existing snapshot happens now; a new snapshot became current at its own timestamp.
            added = self.added_snapshots.get(snapshot_id)
            timestamp_ms = added["timestamp-ms"] if added is not None else self.last_updated_ms
            self.snapshot_log = self.snapshot_log.with_last({"timestamp-ms": timestamp_ms, "snapshot-id": snapshot_id})
            self.set_as_main.append(snapshot_id)
        if self._refs_of is not None:
            self._forget_ref(name)
            self._refs_of.setdefault(snapshot_id, set()).add(name)
        self._own("refs")[name] = ref

    def remove_ref(self, name: str) -> None:
        if name == MAIN:
            self.current_snapshot_id = None
        if self._refs_of is not None:
            self._forget_ref(name)
        self._own("refs").pop(name, None)

    def _forget_ref(self, name: str) -> None:
        before = self.refs.get(name)
        if before is not None and self._refs_of is not None:
            self._refs_of[before["snapshot-id"]].discard(name)

    def _refs_to(self, snapshot_ids: Collection[int]) -> list[str]:
        """Return the sorted names of the references to these snapshots."""
        if self._refs_of is None:
            self._refs_of = {}
            for name, ref in self.refs.items():
                self._refs_of.setdefault(ref["snapshot-id"], set()).add(name)
        return sorted(name for snapshot_id in snapshot_ids for name in self._refs_of.get(snapshot_id, ()))

    def remove_snapshots(self, snapshot_ids: set[int]) -> None:
        snapshots = self.all_snapshots()
        snapshot_ids = snapshots.present(snapshot_ids)
        if not snapshot_ids:
            return
        # Before the removal: a pin is compared with the timestamp of its snapshot.
        names = self._refs_to(snapshot_ids)
        self._refuse_pinned(names)
        snapshots.remove(snapshot_ids)
        self.has_removed_snapshots = True
        self._keyed("statistics", "snapshot-id").remove(snapshot_ids)
        self._keyed("partition_statistics", "snapshot-id").remove(snapshot_ids)
        for name in names:
            self.remove_ref(name)

    def _refuse_pinned(self, names: Iterable[str]) -> None:
        """Raise CommitFailed if a reference is an unexpired pin, which the client may not have seen yet.

        A commit that removes the tag before the snapshot is allowed.
        """
        for name in names:
            ref = self.refs[name]
            if not name.startswith(PIN_PREFIX) or ref["type"] != "tag":
                continue
            pinned = self.all_snapshots().find(ref["snapshot-id"])
            # Iceberg counts the age of a tag from the time of its snapshot.
            age_ms = 0 if pinned is None else self.now_ms - pinned["timestamp-ms"]
            if age_ms <= ref.get("max-ref-age-ms", _MAX_LONG):
                raise CommitFailed(
                    f"Cannot remove snapshot {ref['snapshot-id']}: the tag {name} pins it",
                    hint="A maintenance job is at work on the table: try again when it is done, or drop the tag.",
                )

    # Finishing

    def _check_complete(self) -> None:
        if not self.schemas:
            raise InvalidMetadata("Cannot create table: no schema has been added")
        if not self.partition_specs:
            raise IllegalArgument("Partition specs cannot be null or empty")
        if not self.sort_orders:
            raise IllegalArgument("Sort orders cannot be null or empty")
        if not self.table_uuid:
            raise IllegalArgument("Cannot create table: no UUID has been assigned")
        if not self.location:
            raise IllegalArgument("Cannot create table: no location has been set")

    def _check_all_fit(self) -> None:
        """Raise IllegalArgument if a partition spec does not fit the current schema.

        Iceberg's own readers bind every spec to it, also the unused ones, and cannot load a table if one fails.
        """
        current = self.current_schema()
        if self.partition_fields().fit(self.current_schema_id, current):
            return
        for spec in self.all_specs().values():  # raises for the first one that does not fit
            partition_spec.check_names(spec, current)
            partition_spec.check_transforms(spec["fields"], current)
        self._partition_fields = None  # only a removed spec does not fit: build anew without it

    def _check_current_schema(self) -> None:
        """Check that the default spec and sort order exist and fit the current schema, if one of the three changed."""
        base = self.base
        if (
            self.schemas is base.schemas
            and self.partition_specs is base.partition_specs
            and self.sort_orders is base.sort_orders
            and self.current_schema_id == base.current_schema_id
            and self.default_spec_id == base.default_spec_id
            and self.default_sort_order_id == base.default_sort_order_id
        ):
            return
        current = self.current_schema()
        spec = next((each for each in self.partition_specs if each["spec-id"] == self.default_spec_id), None)
        if spec is None:
            raise IllegalArgument(f"Cannot set default partition spec to unknown spec: {self.default_spec_id}")
        partition_spec.check_compatibility(spec, current)
        order = next((each for each in self.sort_orders if each["order-id"] == self.default_sort_order_id), None)
        if order is None:
            raise IllegalArgument(f"Cannot set default sort order to unknown sort order: {self.default_sort_order_id}")
        sort_order.check_compatibility(order, current)

    def _finish_sequence_number(self) -> None:
        """Set last-sequence-number to the highest number assigned so far, as the spec asks.

        Raises InvalidMetadata if a new history ends below the number of a snapshot that the table still has.
        """
        if not self.has_started_over:
            return
        highest = max(map(sequence_number, self.snapshots), default=0)
        if highest > self.last_sequence_number:
            raise InvalidMetadata(
                f"Invalid snapshot with sequence number {highest} greater than last sequence number "
                f"{self.last_sequence_number}"
            )
        self.last_sequence_number = max(self.last_sequence_number, self.base.last_sequence_number)

    def _finished_snapshot_log(self) -> Entries:
        """Return the log without snapshots that this commit both added and superseded: they were never current."""
        intermediate = {
            snapshot_id
            for snapshot_id in self.set_as_main
            if snapshot_id in self.added_snapshots and snapshot_id != self.current_snapshot_id
        }
        if not intermediate and not self.has_removed_snapshots:
            return self.snapshot_log
        log: list[Json] = []
        present = set(self.snapshots.ids())
        for entry in self.snapshot_log:
            snapshot_id = entry["snapshot-id"]
            if snapshot_id in present:
                if snapshot_id not in intermediate:
                    log.append(entry)
            elif self.has_removed_snapshots:
                # Across a gap, time travel would take the entry before it as current for longer than it was.
                log.clear()
        if log and self.current_snapshot_id is not None and log[-1]["snapshot-id"] != self.current_snapshot_id:
            raise InvalidMetadata("Cannot set invalid snapshot log: latest entry is not the current snapshot")
        return Entries.of(log)

    def _check_clock(self) -> None:
        """Raise if an entry that this commit adds to the snapshot log goes back in time or lies in the future.

        Readers search the log by time.
        """
        if not self.set_as_main or not self.snapshot_log:
            return
        times = [entry["timestamp-ms"] for entry in self.snapshot_log.tail(len(self.set_as_main) + 1)]
        for before, after in pairwise(times):
            if runs_back(before, after):
                raise InvalidMetadata(f"Invalid snapshot timestamp {after}: before last snapshot log entry at {before}")
        if runs_back(times[-1], self.last_updated_ms):
            raise IllegalArgument(
                f"Invalid update timestamp {self.last_updated_ms}: before last snapshot log entry at {times[-1]}"
            )

    def _metadata_log(self, base_location: str | None) -> Entries:
        log = self.base.metadata_log
        if base_location is None:
            return log
        limit = int_property(self.properties, PREVIOUS_VERSIONS_MAX, METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT)
        # Leaves room for the new entry; the reference, too, keeps at least one.
        kept = log.without_first(len(log) - max(1, limit) + 1)
        return kept.with_last({"timestamp-ms": self.base.last_updated_ms, "metadata-file": base_location})


def _schema_id(item: Json) -> int:
    schema_id: int = item["schema-id"]
    return schema_id


def _spec_id(item: Json) -> int:
    spec_id: int = item["spec-id"]
    return spec_id


def _order_id(item: Json) -> int:
    order_id: int = item["order-id"]
    return order_id
