"""The fields and JSON types of the objects in table metadata; their meaning is checked elsewhere."""

import re
from typing import Annotated, Any, TypeVar

import msgspec

from nunatak.errors import MAX_SHOWN_LENGTH, IllegalArgument

Json = dict[str, Any]
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NonNegativeLong = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

# Deep enough for 100 nested types, and far from Python's recursion limit when the metadata is read and written again.
MAX_JSON_DEPTH = 400

# The limits of a metadata file without its snapshots and logs, which stay bytes. A table of a thousand schemas with a
# thousand columns each reaches them; as Python objects it takes a few hundred megabytes.
MAX_OBJECTS = 1_000_000
MAX_VALUES = 5_000_000

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")
_NESTED = (dict, list)  # the types that JSON is decoded to, without subclasses

ShapeType = TypeVar("ShapeType")


def described_by(schema: str) -> msgspec.Meta:
    """Name the schema of our OpenAPI document for a value that is decoded as any JSON; decoders do not check it."""
    return msgspec.Meta(extra_json_schema={"$ref": f"#/components/schemas/{schema}"})


def one_of(*words: str) -> msgspec.Meta:
    """Name the allowed words in our OpenAPI document; decoders do not check them, later code does, ignoring case."""
    return msgspec.Meta(extra_json_schema={"enum": list(words)})


SchemaJson = Annotated[Json, described_by("Schema")]
RawSchema = Annotated[msgspec.Raw, described_by("Schema")]
Transform = Annotated[str, described_by("Transform")]
Direction = Annotated[str, one_of("asc", "desc")]
NullOrder = Annotated[str, one_of("nulls-first", "nulls-last")]
RefType = Annotated[str, one_of("branch", "tag")]


class Shape(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    """Decoding into a shape checks an object; the object itself stays a dict, so that unknown fields survive."""


class PartitionFieldShape(Shape, frozen=True):
    name: str
    transform: Transform
    source_id: Int
    field_id: Int | None = None


class PartitionSpecShape(Shape, frozen=True):
    fields: list[PartitionFieldShape]
    spec_id: Int | None = None


class StoredPartitionSpecShape(Shape, frozen=True):
    spec_id: Int
    fields: list[PartitionFieldShape]


class SortFieldShape(Shape, frozen=True):
    transform: Transform
    source_id: Int
    direction: Direction
    null_order: NullOrder


class SortOrderShape(Shape, frozen=True):
    fields: list[SortFieldShape]
    order_id: Int | None = None


class StoredSortOrderShape(Shape, frozen=True):
    order_id: Int
    fields: list[SortFieldShape]


class SnapshotShape(Shape, frozen=True):
    """The state of a table at one time."""

    snapshot_id: Long
    timestamp_ms: Long
    parent_snapshot_id: Long | None = None
    sequence_number: NonNegativeLong | None = None
    summary: Annotated[
        dict[str, str] | None,
        msgspec.Meta(description="What the snapshot did; `operation` is append, replace, overwrite or delete."),
    ] = None
    manifest_list: Annotated[str | None, msgspec.Meta(description="The file that lists the snapshot's manifests.")] = (
        None
    )
    manifests: list[str] | None = None
    schema_id: Int | None = None
    first_row_id: Long | None = None
    added_rows: Long | None = None
    key_id: str | None = None


class SnapshotRefShape(Shape, frozen=True):
    """A branch or a tag."""

    snapshot_id: Long
    type: RefType
    min_snapshots_to_keep: Int | None = None
    max_snapshot_age_ms: Long | None = None
    max_ref_age_ms: Long | None = None


class SnapshotLogEntryShape(Shape, frozen=True):
    timestamp_ms: Long
    snapshot_id: Long


class MetadataLogEntryShape(Shape, frozen=True):
    timestamp_ms: Long
    metadata_file: str


class BlobMetadataShape(Shape, frozen=True):
    type: str
    snapshot_id: Long
    sequence_number: Long
    fields: list[Int]
    properties: dict[str, str] | None = None


class StatisticsFileShape(Shape, frozen=True):
    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Long
    file_footer_size_in_bytes: Long
    blob_metadata: list[BlobMetadataShape]


class PartitionStatisticsFileShape(Shape, frozen=True):
    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Long


class EncryptedKeyShape(Shape, frozen=True):
    key_id: str
    encrypted_key_metadata: Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None


class TableMetadataShape(Shape, frozen=True):
    """The content of a table's metadata file, exactly as it is stored."""

    # All fields of all format versions; which ones a version requires is checked after decoding. Snapshots and logs are
    # decoded entry by entry, and schemas by `parse_schema`.

    format_version: Int
    location: str
    last_updated_ms: Long
    last_column_id: Int
    table_uuid: str | None = None
    last_sequence_number: Long | None = None
    schema: SchemaJson | None = None
    schemas: list[RawSchema] | None = None
    current_schema_id: Int | None = None
    partition_spec: list[PartitionFieldShape] | None = None
    partition_specs: list[StoredPartitionSpecShape] | None = None
    default_spec_id: Int | None = None
    last_partition_id: Int | None = None
    sort_orders: list[StoredSortOrderShape] | None = None
    default_sort_order_id: Int | None = None
    properties: dict[str, str] | None = None
    current_snapshot_id: Long | None = None
    snapshots: list[Annotated[msgspec.Raw, described_by("Snapshot")]] | None = None
    snapshot_log: list[Annotated[msgspec.Raw, described_by("SnapshotLogEntry")]] | None = None
    metadata_log: list[Annotated[msgspec.Raw, described_by("MetadataLogEntry")]] | None = None
    refs: dict[str, SnapshotRefShape] | None = None
    statistics: list[StatisticsFileShape] | None = None
    partition_statistics: list[PartitionStatisticsFileShape] | None = None
    encryption_keys: list[EncryptedKeyShape] | None = None
    next_row_id: Long | None = None


def check(value: object, shape: type[ShapeType], what: str) -> ShapeType:
    """Return `value` decoded into `shape`; raise IllegalArgument, which names the malformed field."""
    try:
        checked = msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise IllegalArgument(f"Cannot parse {what}: {error}") from error
    check_depth(value, what)
    return checked


def is_base64(text: str) -> bool:
    """Return whether Java's decoder can read the text: padding may be missing, but if present must be exact."""
    return _BASE64.fullmatch(text) is not None


def read_object(value: object, shape: type[Shape], what: str) -> Json:
    """Return a copy without nulls, its own and those of the objects in its lists; raise IllegalArgument if malformed.

    The reference rejects a null where it accepts a missing field: stored nulls would make the table unreadable.
    """
    check(value, shape, what)
    assert isinstance(value, dict)
    return {
        name: [_without_nulls(item) for item in inner] if isinstance(inner, list) else inner
        for name, inner in value.items()
        if inner is not None
    }


def _without_nulls(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if inner is not None}


def check_depth(value: object, what: str) -> None:
    """Raise IllegalArgument for JSON nested so deeply that it could be stored but perhaps not be read back."""
    # Level by level: recursion would hit the limit that this protects from.
    level: list[Any] = [value] if type(value) in _NESTED else []
    for _ in range(MAX_JSON_DEPTH):
        deeper: list[Any] = []
        for item in level:
            inside = item.values() if isinstance(item, dict) else item
            deeper += [inner for inner in inside if type(inner) in _NESTED]
        if not deeper:
            return
        level = deeper
    raise IllegalArgument(f"Cannot parse {what}: nested more than {MAX_JSON_DEPTH} levels deep")


def count_marks(json: bytes) -> tuple[int, int]:
    """Count brackets and commas: at least as many as the JSON has objects and lists, and (but for one) other values."""
    return json.count(b"{") + json.count(b"["), json.count(b",")


def check_marks(objects: int, values: int, what: str) -> None:
    """Raise IllegalArgument for JSON that would take many times its bytes as Python objects; called before decoding."""
    if objects > MAX_OBJECTS or values > MAX_VALUES:
        raise IllegalArgument(
            f"Cannot parse {what}: it holds {objects} objects and lists and {values} other values, "
            f"at most {MAX_OBJECTS} and {MAX_VALUES} can be read"
        )


def print_json(value: object) -> str:
    """Return `value` as JSON for an error message, cut after MAX_SHOWN_LENGTH characters."""
    try:
        text = msgspec.json.encode(value).decode()
    except (RecursionError, UnicodeEncodeError):
        return "(unprintable)"
    return text if len(text) <= MAX_SHOWN_LENGTH else text[:MAX_SHOWN_LENGTH] + "…"
