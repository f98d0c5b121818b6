"""Table metadata as a value: read from and written to the JSON of format versions 1, 2 and 3."""

import operator
from collections.abc import Iterable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg import partition_spec, snapshot
from nunatak.iceberg.definitions import Digested
from nunatak.iceberg.entries import Entries
from nunatak.iceberg.schema import parse_schema
from nunatak.iceberg.shapes import (
    MAX_OBJECTS,
    Json,
    MetadataLogEntryShape,
    SnapshotLogEntryShape,
    SnapshotShape,
    TableMetadataShape,
    check_marks,
    count_marks,
)
from nunatak.iceberg.sort_order import UNSORTED

SUPPORTED_FORMAT_VERSION = 3
DEFAULT_FORMAT_VERSION = 2
ROW_LINEAGE_FORMAT_VERSION = 3

_shape_decoder = msgspec.json.Decoder(TableMetadataShape)
_snapshot_decoder = msgspec.json.Decoder(SnapshotShape)
_snapshot_log_decoder = msgspec.json.Decoder(SnapshotLogEntryShape)
_metadata_log_decoder = msgspec.json.Decoder(MetadataLogEntryShape)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()
_LONG_FIELDS = ("snapshots", "snapshot-log", "metadata-log")  # grow with every commit; stay encoded JSON
_KNOWN_FIELDS = frozenset(TableMetadataShape.__struct_encode_fields__)

Piece = bytes | memoryview


class TableMetadata(msgspec.Struct, frozen=True):
    """One version of a table's metadata. Nested objects are the JSON as it was written, and are never mutated.

    `unknown` holds top-level fields that this code does not know; they are written back as they were read.
    """

    format_version: int
    table_uuid: str
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Json, ...]
    current_schema_id: int
    partition_specs: tuple[Json, ...]
    default_spec_id: int
    last_partition_id: int
    sort_orders: tuple[Json, ...]
    default_sort_order_id: int
    properties: dict[str, str]
    current_snapshot_id: int | None = None
    snapshots: snapshot.Snapshots = msgspec.field(default_factory=snapshot.Snapshots)
    snapshot_log: Entries = msgspec.field(default_factory=Entries)
    metadata_log: Entries = msgspec.field(default_factory=Entries)
    refs: dict[str, Json] = msgspec.field(default_factory=dict)
    statistics: tuple[Json, ...] = ()
    partition_statistics: tuple[Json, ...] = ()
    encryption_keys: tuple[Json, ...] = ()
    next_row_id: int = 0
    unknown: Json = msgspec.field(default_factory=dict)

    @property
    def current_schema(self) -> Json:
        return next(schema for schema in self.schemas if schema["schema-id"] == self.current_schema_id)

    @property
    def default_spec(self) -> Json:
        return next(spec for spec in self.partition_specs if spec["spec-id"] == self.default_spec_id)

    @property
    def current_snapshot(self) -> Json | None:
        return None if self.current_snapshot_id is None else self.find_snapshot(self.current_snapshot_id)

    def find_snapshot(self, snapshot_id: int) -> Json | None:
        return self.snapshots.find(snapshot_id)


def decode(data: bytes | memoryview) -> TableMetadata:
    """Read a metadata file and fill in fields that older writers left out. Raises InvalidMetadata."""
    try:
        _check_size(data)
        shape = _shape_decoder.decode(data)
        _check_long(shape)
        json = _read_fields(data)
    except msgspec.MsgspecError as error:
        raise InvalidMetadata(f"Cannot parse table metadata: {error}") from error
    except UnicodeDecodeError as error:
        raise InvalidMetadata("Cannot parse table metadata: not valid UTF-8") from error
    except RecursionError as error:
        raise InvalidMetadata("Cannot parse table metadata: nested too deeply") from error
    except IllegalArgument as error:
        raise InvalidMetadata(error.message) from error
    try:
        return _normalise(shape, json)
    except IllegalArgument as error:
        raise InvalidMetadata(error.message) from error


def encode(metadata: TableMetadata) -> bytes:
    """Return the metadata file: the fields of its format version, in the order in which the reference writes them."""
    return b"".join(pieces(metadata))


SETTLED = 1  # index of the piece that most commits leave unchanged: schemas, specs, properties


def pieces(metadata: TableMetadata, settled: Piece | None = None) -> list[Piece]:
    """Return the metadata file in pieces, so that the caller copies the long ones only once, to their destination.

    `settled` is the SETTLED piece of another version, for which `shares_settled` must be true.
    """
    try:
        return [
            _encoder.encode(_first_fields(metadata))[:-1],
            _encode_following_fields(_stable_fields(metadata)) if settled is None else settled,
            _encode_following_fields(_changing_fields(metadata)),
            b',"snapshots":[',
            *metadata.snapshots.pieces(),
            b'],"statistics":',
            _encoder.encode(metadata.statistics),
            b',"partition-statistics":',
            _encoder.encode(metadata.partition_statistics),
            b',"snapshot-log":[',
            *metadata.snapshot_log.pieces(),
            b'],"metadata-log":[',
            *metadata.metadata_log.pieces(),
            b"]," + _encoder.encode(metadata.unknown)[1:] if metadata.unknown else b"]}",
        ]
    except RecursionError as error:
        raise InvalidMetadata("Cannot write table metadata: nested too deeply") from error


def shares_settled(one: TableMetadata, other: TableMetadata) -> bool:
    """Whether both have the same SETTLED piece; objects that are equal but not identical may encode differently."""
    return all(map(operator.is_, _settled_objects(one), _settled_objects(other))) and (
        _settled_numbers(one) == _settled_numbers(other)
    )


_settled_objects = operator.attrgetter("schemas", "partition_specs", "sort_orders", "properties")
_settled_numbers = operator.attrgetter(
    "format_version", "last_column_id", "current_schema_id", "default_spec_id", "last_partition_id",
    "default_sort_order_id",
)  # fmt: skip


def _encode_following_fields(fields: Json) -> bytes:
    """Encode fields that follow other fields of the same object."""
    return b"," + _encoder.encode(fields)[1:-1]


def _first_fields(metadata: TableMetadata) -> Json:
    json: Json = {
        "format-version": metadata.format_version,
        "table-uuid": metadata.table_uuid,
        "location": metadata.location,
    }
    if metadata.format_version > 1:
        json["last-sequence-number"] = metadata.last_sequence_number
    json["last-updated-ms"] = metadata.last_updated_ms
    return json


def _stable_fields(metadata: TableMetadata) -> Json:
    json: Json = {"last-column-id": metadata.last_column_id}
    if metadata.format_version == 1:
        json["schema"] = metadata.current_schema
    json["current-schema-id"] = metadata.current_schema_id
    json["schemas"] = metadata.schemas
    if metadata.format_version == 1:
        json["partition-spec"] = metadata.default_spec["fields"]
    json["default-spec-id"] = metadata.default_spec_id
    json["partition-specs"] = metadata.partition_specs
    json["last-partition-id"] = metadata.last_partition_id
    json["default-sort-order-id"] = metadata.default_sort_order_id
    json["sort-orders"] = metadata.sort_orders
    json["properties"] = metadata.properties
    return json


def _changing_fields(metadata: TableMetadata) -> Json:
    """Return the fields between the SETTLED piece and the snapshots."""
    has_lineage = metadata.format_version >= ROW_LINEAGE_FORMAT_VERSION
    json: Json = {"current-snapshot-id": metadata.current_snapshot_id}
    if metadata.current_snapshot_id is None and not has_lineage:
        json["current-snapshot-id"] = snapshot.NO_SNAPSHOT
    if has_lineage:
        json["next-row-id"] = metadata.next_row_id
    if metadata.encryption_keys:
        json["encryption-keys"] = metadata.encryption_keys
    json["refs"] = metadata.refs
    return json


def only_referenced_snapshots(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata for `?snapshots=refs`: only snapshots that a ref points at; the logs stay whole."""
    referenced = {ref["snapshot-id"] for ref in metadata.refs.values()}
    if len(referenced) == len(metadata.snapshots):
        return metadata
    return msgspec.structs.replace(metadata, snapshots=metadata.snapshots.only(referenced))


def strip_trailing_slash(location: str) -> str:
    if not location:
        raise IllegalArgument("path must not be null or empty")
    # A bare scheme such as `s3://` keeps its slashes.
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def _read_fields(data: bytes | memoryview) -> Json:
    """Decode all fields to plain values, except the long ones, which stay encoded JSON."""
    raw = _fields_decoder.decode(data)
    return {name: value if name in _LONG_FIELDS else msgspec.json.decode(value) for name, value in raw.items()}


def decode_fields(data: bytes | memoryview) -> Json:
    """Return the fields of a file as they are written; snapshots and logs are Entries, decoded piece by piece."""
    fields = _read_fields(data)
    for name in _LONG_FIELDS:
        if name in fields:
            fields[name] = None if bytes(fields[name]) == b"null" else Entries.split(fields[name])
    return fields


def _check_size(data: bytes | memoryview) -> None:
    """Raise if the file would take too much memory as Python objects.

    The long fields do not count: they stay bytes or are decoded piece by piece.
    """
    # Each object takes at least one byte, so a smaller file needs no count.
    if len(data) <= MAX_OBJECTS:
        return
    long = _long_fields_decoder.decode(data)
    objects, values = count_marks(bytes(data))
    for each in (long.snapshots, long.snapshot_log, long.metadata_log):
        inside_objects, inside_values = count_marks(bytes(each))
        objects, values = objects - inside_objects, values - inside_values
    check_marks(objects, values, "table metadata")
    for name, entries in (("snapshots", long.snapshots), ("snapshot-log", long.snapshot_log)):
        if bytes(entries).count(b'"snapshot-id"') > MAX_OBJECTS:
            raise InvalidMetadata(f"Cannot parse table metadata: it has more than {MAX_OBJECTS} {name}")


class _LongFields(msgspec.Struct, frozen=True, rename="kebab"):
    snapshots: msgspec.Raw = msgspec.Raw(b"")
    snapshot_log: msgspec.Raw = msgspec.Raw(b"")
    metadata_log: msgspec.Raw = msgspec.Raw(b"")


_long_fields_decoder = msgspec.json.Decoder(_LongFields)


def _check_long(shape: TableMetadataShape) -> None:
    """Check each entry by itself: decoding all of them at once would take many times their bytes."""
    for name, entries, decoder in (
        ("snapshots", shape.snapshots, _snapshot_decoder),
        ("snapshot-log", shape.snapshot_log, _snapshot_log_decoder),
        ("metadata-log", shape.metadata_log, _metadata_log_decoder),
    ):
        number = 0
        try:
            for number, entry in enumerate(entries or ()):  # noqa: B007 - used in the error below
                decoder.decode(entry)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(str(error).replace("`$", f"`$.{name}[{number}]", 1)) from error


def _normalise(shape: TableMetadataShape, json: Json) -> TableMetadata:
    version = shape.format_version
    if not 1 <= version <= SUPPORTED_FORMAT_VERSION:
        raise InvalidMetadata(f"Cannot read unsupported version {version}")
    schemas, current_schema_id = _schemas(shape, json)
    specs, default_spec_id = _partition_specs(shape, json)
    orders, default_sort_order_id = _sort_orders(shape, json)
    snapshots = snapshot.Snapshots.split(json.get("snapshots"))
    if not snapshots.are_unique():
        raise _not_unique("snapshots")
    current_snapshot_id = shape.current_snapshot_id
    # Before v3, a table without a current snapshot has the id -1.
    if current_snapshot_id is not None and current_snapshot_id < 0 and not snapshots.holds(current_snapshot_id):
        current_snapshot_id = None
    return TableMetadata(
        format_version=version,
        table_uuid=_table_uuid(shape),
        location=strip_trailing_slash(shape.location),
        last_sequence_number=_require_field(shape.last_sequence_number, "last-sequence-number", version) or 0,
        last_updated_ms=shape.last_updated_ms,
        last_column_id=shape.last_column_id,
        schemas=Digested.of(schemas),
        current_schema_id=current_schema_id,
        partition_specs=Digested.of(specs),
        default_spec_id=default_spec_id,
        last_partition_id=_last_partition_id(shape, specs),
        sort_orders=Digested.of(orders),
        default_sort_order_id=default_sort_order_id,
        properties=json.get("properties") or {},
        current_snapshot_id=current_snapshot_id,
        snapshots=snapshots,
        snapshot_log=Entries.split(json.get("snapshot-log")),
        metadata_log=Entries.split(json.get("metadata-log")),
        refs=_refs(json, current_snapshot_id, snapshots),
        statistics=tuple(json.get("statistics") or ()),
        partition_statistics=tuple(json.get("partition-statistics") or ()),
        encryption_keys=tuple(json.get("encryption-keys") or ()),
        next_row_id=_next_row_id(shape),
        unknown={key: value for key, value in json.items() if key not in _KNOWN_FIELDS},
    )


def _require_field(value: Any, name: str, version: int) -> Any:
    """Return a field that v1 lacked, at least at first; raise InvalidMetadata if it is missing in a later version."""
    if version == 1:
        return value if name != "last-sequence-number" else 0
    if value is None:
        raise InvalidMetadata(f"{name} must exist in format v{version}")
    return value


def with_uuid(data: bytes, metadata: TableMetadata) -> bytes:
    """Return the JSON of a file with the UUID of its table: a client that finds none generates one, and asserts it.

    Only v1 files may lack it, and few do.
    """
    if metadata.format_version > 1 or msgspec.json.decode(data, type=_Uuid).table_uuid is not None:
        return data
    # The file may hold a null before it: of two fields with the same name, parsers take the last.
    return data.rstrip()[:-1] + b',"table-uuid":"%b"}' % metadata.table_uuid.encode()


class _Uuid(msgspec.Struct, frozen=True, rename="kebab"):
    table_uuid: str | None = None


def _table_uuid(shape: TableMetadataShape) -> str:
    if shape.table_uuid is not None:
        return shape.table_uuid
    if shape.format_version > 1:
        raise InvalidMetadata(f"UUID is required in format v{shape.format_version}")
    # Spec, table-uuid: a UUID that differs after a refresh is an error. Until a commit stores one, it is derived from
    # the location, so that each read returns the same.
    return str(uuid5(NAMESPACE_URL, shape.location))


def _schemas(shape: TableMetadataShape, json: Json) -> tuple[tuple[Json, ...], int]:
    if shape.schemas is None:
        if shape.format_version > 1:
            raise InvalidMetadata(f"schemas must exist in format v{shape.format_version}")
        if shape.schema is None:
            raise InvalidMetadata("Cannot parse missing field: schema")
        schema_id = parse_schema(shape.schema).schema_id
        return ({**json["schema"], "schema-id": schema_id},), schema_id
    current = shape.current_schema_id
    if current is None:
        raise InvalidMetadata("Cannot parse missing int: current-schema-id")
    ids = [parse_schema(schema).schema_id for schema in json["schemas"]]
    _check_unique(ids, "schemas")
    if current not in ids:
        raise InvalidMetadata(f"Cannot find schema with current-schema-id={current} from schemas")
    if any(schema.get("schema-id") is None for schema in json["schemas"]):
        return tuple({**schema, "schema-id": id_} for schema, id_ in zip(json["schemas"], ids, strict=True)), current
    return tuple(json["schemas"]), current


def _partition_specs(shape: TableMetadataShape, json: Json) -> tuple[tuple[Json, ...], int]:
    if shape.partition_specs is None:
        if shape.format_version > 1:
            raise InvalidMetadata(f"partition-specs must exist in format v{shape.format_version}")
        if shape.partition_spec is None:
            raise InvalidMetadata("Cannot parse missing field: partition-spec")
        specs: list[Json] = [{"spec-id": 0, "fields": json["partition-spec"]}]
        default_spec_id = 0
    else:
        if shape.default_spec_id is None:
            raise InvalidMetadata("Cannot parse missing int: default-spec-id")
        specs, default_spec_id = json["partition-specs"], shape.default_spec_id
    _check_unique([spec["spec-id"] for spec in specs], "partition-specs")
    if all(spec["spec-id"] != default_spec_id for spec in specs):
        raise InvalidMetadata(f"Cannot find partition spec with default-spec-id={default_spec_id} from partition-specs")
    return tuple(_with_all_field_ids(spec) for spec in specs), default_spec_id


def _with_all_field_ids(spec: Json) -> Json:
    # Old writers left out the ids of partition fields; they always counted from 1000.
    missing = sum(field.get("field-id") is None for field in spec["fields"])
    if missing not in (0, len(spec["fields"])):
        raise InvalidMetadata(
            f"Cannot parse spec with missing field IDs: {missing} missing of {len(spec['fields'])} fields."
        )
    return partition_spec.with_field_ids(spec, partition_spec.PartitionFields(()), 0, 1) if missing else spec


def _last_partition_id(shape: TableMetadataShape, specs: Iterable[Json]) -> int:
    known = _require_field(shape.last_partition_id, "last-partition-id", shape.format_version)
    return known if known is not None else max(map(partition_spec.last_field_id, specs))


def _sort_orders(shape: TableMetadataShape, json: Json) -> tuple[tuple[Json, ...], int]:
    if shape.sort_orders is None:
        if shape.format_version > 1:
            raise InvalidMetadata(f"sort-orders must exist in format v{shape.format_version}")
        return (UNSORTED,), 0
    default = shape.default_sort_order_id
    if default is None:
        raise InvalidMetadata("Cannot parse missing int: default-sort-order-id")
    ids = [order.order_id for order in shape.sort_orders]
    if not ids:
        raise InvalidMetadata("Sort orders cannot be null or empty")
    _check_unique(ids, "sort-orders")
    if default not in ids:
        raise InvalidMetadata(f"Cannot find sort order with default-sort-order-id={default} from sort-orders")
    return tuple(json["sort-orders"]), default


def _check_unique(ids: list[int], name: str) -> None:
    if len(set(ids)) != len(ids):
        raise _not_unique(name)


def _not_unique(name: str) -> InvalidMetadata:
    return InvalidMetadata(f"Invalid table metadata: {name} share an id")


def _refs(json: Json, current_snapshot_id: int | None, snapshots: snapshot.Snapshots) -> dict[str, Json]:
    if current_snapshot_id is not None and not snapshots.holds(current_snapshot_id):
        raise InvalidMetadata("Invalid table metadata: Cannot find current version")
    refs: dict[str, Json] | None = json.get("refs")
    if refs is None:
        # The file was written before branches and tags existed: its only history is the main branch.
        if current_snapshot_id is None:
            return {}
        return {snapshot.MAIN: {"snapshot-id": current_snapshot_id, "type": "branch"}}
    for name, ref in refs.items():
        if ref["type"].lower() not in ("branch", "tag"):
            raise InvalidMetadata(f"Invalid snapshot ref type: {ref['type']}")
        if not snapshots.holds(ref["snapshot-id"]):
            raise InvalidMetadata(f"Snapshot for reference {name} does not exist in the existing snapshots list")
    main = refs.get(snapshot.MAIN)
    if main is not None:
        if current_snapshot_id is None:
            raise InvalidMetadata("Current snapshot is not set, but main branch exists")
        if main["snapshot-id"] != current_snapshot_id:
            raise InvalidMetadata(
                f"Current snapshot ID does not match main branch ({current_snapshot_id} != {main['snapshot-id']})"
            )
    return refs


def _next_row_id(shape: TableMetadataShape) -> int:
    if shape.format_version < ROW_LINEAGE_FORMAT_VERSION:
        return 0
    if shape.next_row_id is None:
        raise InvalidMetadata("Cannot parse missing long: next-row-id")
    return shape.next_row_id
