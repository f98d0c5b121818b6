"""Risks of moving a table, from its inventory entry; whether to refuse is decided while planning."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from nunatak.iceberg.conventions import LARGE_METADATA_FILE_BYTES
from nunatak_spark.migration.model import InventoryTable, MigrationFinding, table_title
from nunatak_spark.migration.source_files import SourceFile, int96_columns, location_segments

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MANAGED = "MANAGED_TABLE"
# Property of the metastore entry, which Iceberg's metadata does not have.
TABLE_TYPE = "hive.table-type"


def document_risks(found: InventoryTable) -> Iterator[MigrationFinding]:
    """Yields risks of an Iceberg table, from its metadata."""
    if found.format_version == 1:
        yield MigrationFinding("format-1", "is of format version 1: no row-level deletes; upgrade it after the move")
    properties = found.properties
    if properties.get("write.location-provider.impl"):
        provider = properties["write.location-provider.impl"]
        yield MigrationFinding(
            "location-provider", f"writes its files where {provider} says; engines need that class", provider
        )
    for key in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
        if properties.get(key):
            yield MigrationFinding("files-elsewhere", f"{key} puts files outside of its location", properties[key])
    if properties.get("gc.enabled") == "false":
        yield MigrationFinding(
            "gc-disabled", "gc.enabled is false: its files may belong to another table; expiry is refused"
        )
    if found.metadata_bytes is not None and found.metadata_bytes > LARGE_METADATA_FILE_BYTES:
        yield MigrationFinding(
            "large-metadata", f"its metadata file has {found.metadata_bytes >> 20} MiB; expire snapshots first"
        )
    yield from _managed_table_risk(found)


def declared_risks(found: InventoryTable) -> Iterator[MigrationFinding]:
    """Yields risks of a table that is not Iceberg, from its declared columns."""
    for column in found.columns:
        if re.match(r"(var)?char\(", column.type):
            yield MigrationFinding(
                "char",
                f"{column.name} is {column.type} and becomes string; char is padded by some engines",
                column.name,
            )
        if column.name in found.partitioned_by and column.type.startswith("timestamp"):
            text = f"is partitioned by the timestamp {column.name}, whose folders are text in some time zone"
            yield MigrationFinding("timestamp-partition", text, column.name)
    yield from _managed_table_risk(found)


def _managed_table_risk(found: InventoryTable) -> Iterator[MigrationFinding]:
    if found.properties.get(TABLE_TYPE) == MANAGED:
        yield MigrationFinding(
            "managed", "is a managed table of the metastore: dropping or renaming it there touches its files"
        )


def file_risks(found: InventoryTable, files: Sequence[SourceFile]) -> Iterator[MigrationFinding]:
    """Yields risks of a table of files, from their names and from the first file."""
    nulls = [file.path for file in files if NULL_PARTITION in file.path]
    if nulls:
        yield MigrationFinding("null-partition", f"has partitions {NULL_PARTITION}, which become null", nulls[0])
    old = int96_columns(files) if found.format == "parquet" else []
    if old:
        yield MigrationFinding("int96", "has timestamps of Parquet's old kind, which engines read differently", old[0])


def name_risks(found: InventoryTable) -> Iterator[MigrationFinding]:
    names = [*found.name, *(column.name for column in found.columns)]
    mixed = [name for name in names if name != name.lower()]
    if mixed:
        yield MigrationFinding(
            "mixed-case", f"has names with capitals, which some engines fold: {', '.join(mixed)}", mixed[0]
        )


def with_overlaps(tables: Sequence[InventoryTable]) -> list[InventoryTable]:
    """Returns all tables, with a risk for each location that equals, contains or lies in another one."""
    placed = sorted((location_segments(found.location), table_title(found)) for found in tables if found.location)
    others: dict[str, str] = {}
    open_places: list[tuple[tuple[str, ...], str]] = []  # each one contains those after it
    for place, name in placed:
        while open_places and place[: len(open_places[-1][0])] != open_places[-1][0]:
            open_places.pop()
        if open_places:
            others.setdefault(name, open_places[-1][1])
            others.setdefault(open_places[-1][1], name)
        open_places.append((place, name))
    return [_with_overlap(found, others) for found in tables]


def _with_overlap(found: InventoryTable, others: Mapping[str, str]) -> InventoryTable:
    kept = tuple(risk for risk in found.risks if risk.kind != "location-overlap")
    other = others.get(table_title(found))
    if other is None:
        return msgspec.structs.replace(found, risks=kept)
    text = f"shares its location with {other}: what one removes may belong to the other"
    return msgspec.structs.replace(found, risks=(*kept, MigrationFinding("location-overlap", text, found.location)))
