"""View metadata as a value, read from and written to its JSON file. Commits are in view_commit.py."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from nunatak.errors import BadRequest, IllegalArgument, InvalidMetadata, show_list
from nunatak.iceberg.definitions import Digested
from nunatak.iceberg.schema import parse_schema
from nunatak.iceberg.shapes import (
    MAX_OBJECTS,
    Int,
    Json,
    Long,
    SchemaJson,
    Shape,
    check,
    check_marks,
    count_marks,
    one_of,
)

SUPPORTED_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ViewMetadata:
    """Schemas, versions and log entries stay JSON as it was read, so that unknown fields are never lost."""

    view_uuid: str
    format_version: int
    location: str
    schemas: tuple[Json, ...]
    current_version_id: int
    versions: tuple[Json, ...]
    version_log: tuple[Json, ...]
    properties: dict[str, str]
    unknown: Json


class RepresentationShape(Shape, frozen=True):
    """One query text; a version has at most one for each dialect, whatever its case."""

    type: Annotated[str, one_of("sql")]
    sql: str | None = None
    dialect: str | None = None


class ViewVersionShape(Shape, frozen=True):
    version_id: Int
    schema_id: Annotated[Int, msgspec.Meta(description="An id, or -1 for the one added last in the same request.")]
    timestamp_ms: Long
    summary: dict[str, str]
    representations: list[RepresentationShape]
    default_namespace: list[str]
    default_catalog: str | None = None


class VersionLogEntryShape(Shape, frozen=True):
    version_id: Int
    timestamp_ms: Long


class ViewMetadataShape(Shape, frozen=True):
    """The content of a view's metadata file, exactly as it is stored."""

    view_uuid: str
    format_version: Int
    location: str
    schemas: list[SchemaJson]
    current_version_id: Int
    versions: list[ViewVersionShape]
    version_log: list[VersionLogEntryShape]
    properties: dict[str, str] | None = None


_KNOWN = frozenset(ViewMetadataShape.__struct_encode_fields__)


def decode(data: bytes | memoryview) -> ViewMetadata:
    """Read a metadata file; raise InvalidMetadata if it is malformed."""
    try:
        # Each object takes at least one byte, so a smaller file needs no count.
        if len(data) > MAX_OBJECTS:
            check_marks(*count_marks(bytes(data)), "view metadata")
        document = parse_json(data, "view metadata")
        checked = check(document, ViewMetadataShape, "view metadata")
        for version in checked.versions:
            _check_representations(version)
        schema_ids = [parse_schema(schema).schema_id for schema in checked.schemas]
    except BadRequest as error:
        raise InvalidMetadata(error.message) from error
    _check_references(checked, schema_ids)
    return ViewMetadata(
        view_uuid=checked.view_uuid,
        format_version=checked.format_version,
        location=checked.location,
        schemas=Digested.of(document["schemas"]),
        current_version_id=checked.current_version_id,
        versions=Digested.of(document["versions"]),
        version_log=tuple(document["version-log"]),
        properties=checked.properties or {},
        unknown={name: value for name, value in document.items() if name not in _KNOWN},
    )


def encode(metadata: ViewMetadata) -> bytes:
    document: Json = {
        "view-uuid": metadata.view_uuid,
        "format-version": metadata.format_version,
        "location": metadata.location,
        "schemas": metadata.schemas,
        "current-version-id": metadata.current_version_id,
        "versions": metadata.versions,
        "version-log": metadata.version_log,
    }
    if metadata.properties:
        document["properties"] = metadata.properties
    return msgspec.json.encode({**document, **metadata.unknown})


def check_version(version: object) -> None:
    """Raise IllegalArgument for a version from a client that could not be read back."""
    checked = check(version, ViewVersionShape, "view version")
    _check_representations(checked)
    check_namespace(checked.default_namespace)
    unsupported = {entry.type for entry in checked.representations if entry.type.lower() != "sql"}
    if unsupported:
        raise IllegalArgument(f"Found unsupported view representations: {print_set(unsupported)}")


def check_namespace(levels: Collection[str]) -> None:
    """Raise IllegalArgument for a default namespace that the reference cannot read."""
    if any("\0" in level for level in levels):
        raise IllegalArgument("Cannot create a namespace with the null-byte character")


def dialects(version: Json) -> set[str]:
    """Return the SQL dialects of a version in lower case: case does not distinguish them."""
    return {entry["dialect"].lower() for entry in version["representations"] if entry["type"].lower() == "sql"}


def print_set(names: Collection[str]) -> str:
    """Return the names as the reference prints a set, but in a fixed order."""
    return f"[{show_list(sorted(names))}]"


def parse_json(data: bytes | memoryview, what: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:  # msgspec's errors and bad UTF-8 are ValueErrors
        raise BadRequest(f"Cannot parse {what}: {error}") from error


def _check_representations(version: ViewVersionShape) -> None:
    for entry in version.representations:
        if entry.type.lower() == "sql" and (entry.sql is None or entry.dialect is None):
            missing = "sql" if entry.sql is None else "dialect"
            raise IllegalArgument(f"Cannot parse view version: SQL representation misses the string `{missing}`")


def _check_references(document: ViewMetadataShape, schema_ids: list[int]) -> None:
    if document.format_version != SUPPORTED_FORMAT_VERSION:
        raise InvalidMetadata(f"Unsupported format version: {document.format_version}")
    versions = {version.version_id: version for version in document.versions}
    if len(versions) < len(document.versions):
        raise InvalidMetadata(f"Invalid view metadata: version ids are not unique: {sorted(versions)}")
    if len(set(schema_ids)) < len(schema_ids):
        raise InvalidMetadata(f"Invalid view metadata: schema ids are not unique: {schema_ids}")
    current = versions.get(document.current_version_id)
    if current is None:
        raise InvalidMetadata(
            f"Cannot find current version {document.current_version_id} in view versions: {sorted(versions)}"
        )
    if current.schema_id not in schema_ids:
        raise InvalidMetadata(f"Cannot find current schema with id {current.schema_id} in schemas: {schema_ids}")
