"""Table properties that affect the metadata itself."""

from collections.abc import Mapping

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg.schema import Schema

FORMAT_VERSION = "format-version"
METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT = 100
PARQUET_COMPRESSION = "write.parquet.compression-codec"
_METRICS_MODE_COLUMN_PREFIX = "write.metadata.metrics.column."

# Values that other metadata fields hold. Clients may send them, but a copy in the properties would become stale.
RESERVED = frozenset(
    {
        FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
_COMMIT_PROPERTIES = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
_ENCRYPTION_PROPERTIES = ("encryption.key-id", "encryption.data-key-length")


def without_reserved(properties: Mapping[str, str]) -> dict[str, str]:
    if RESERVED.isdisjoint(properties):
        return dict(properties)
    return {key: value for key, value in properties.items() if key not in RESERVED}


def int_property(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    value = _parse_int(text)
    if value is None:
        raise IllegalArgument(f'Table property {name} must have integer value: "{text[:100]}"')
    return value


def check_new_table_properties(properties: Mapping[str, str], schema: Schema, format_version: int) -> None:
    """Raise for invalid properties of a new table; existing tables with such values keep working."""
    for name in properties:
        column = name.removeprefix(_METRICS_MODE_COLUMN_PREFIX)
        if column != name and schema.find_field(column) is None:
            raise InvalidMetadata(
                f"Invalid metrics config, could not find column {column} from table prop {name} in schema"
            )
    for name in _COMMIT_PROPERTIES:
        if name in properties:
            value = _parse_int(properties[name])
            if value is None:
                raise InvalidMetadata(f"Table property {name} must have integer value")
            if value < 0:
                raise InvalidMetadata(f"Table property {name} must have non negative integer value")
    encryption = [name for name in _ENCRYPTION_PROPERTIES if name in properties]
    if encryption and format_version < 3:
        raise IllegalArgument(f"Invalid properties for v{format_version}: [{', '.join(encryption)}]")


def _parse_int(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # int() alone would also accept spaces, underscores and digits of other scripts.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    value = int(text)
    return value if -(2**31) <= value < 2**31 else None
