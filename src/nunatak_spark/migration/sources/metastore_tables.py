"""Tables that a metastore declares over folders of files: Hive's own tables, in a Hive metastore or in Glue."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.metadata_facts import with_files
from nunatak_spark.migration.model import InventoryTable, MigrationFinding, SourceColumn
from nunatak_spark.migration.reader_options import STRICT
from nunatak_spark.migration.risks import declared_risks, file_risks
from nunatak_spark.migration.source_files import SourceFile, StartSpark, UnreadableFile, files_digest, list_files
from nunatak_spark.migration.sources.folder import ambiguous_names, field_names, schema_of, unreadable_text

# By a part of the SerDe's class name.
FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "opencsv": "csv",
    "json": "json",
    "lazysimple": "csv",
}
COLUMNAR = {"parquet", "orc"}  # their files contain column names
HIVE_NULL, HIVE_SEPARATOR = "\\N", "\x01"  # defaults of Hive's text files


@dataclass(frozen=True)
class Declaration:
    """A table as the metastore declares it; `partitions` are the locations of all partitions."""

    location: str
    serde: str
    serde_properties: Mapping[str, str]
    columns: Sequence[SourceColumn]
    keys: Sequence[SourceColumn]
    partitions: Sequence[str]
    properties: Mapping[str, str]


def describe_declared_table(spark: StartSpark, found: InventoryTable, said: Declaration) -> InventoryTable:
    """Returns the table with format, columns, files and risks."""
    kind, options = format_and_options(said.serde, said.serde_properties, said.properties)
    declared = msgspec.structs.replace(
        found,
        kind="hive",
        location=said.location,
        format=kind,
        columns=(*said.columns, *said.keys),
        partitioned_by=tuple(column.name for column in said.keys),
        properties={**found.properties, **said.properties},
        read_options=options,
    )
    try:
        files = list_files(spark, said.location)
    except UnreadableFile as error:
        return msgspec.structs.replace(declared, risks=(MigrationFinding("unreadable", str(error)),))
    known = with_files(declared, files, files_digest(files))
    risks = (
        *declared_risks(known),
        *file_risks(known, files),
        *_partition_location_risks(said, files),
        *_name_case_risks(spark, known),
    )
    return msgspec.structs.replace(known, risks=risks)


def _name_case_risks(spark: StartSpark, found: InventoryTable) -> Iterator[MigrationFinding]:
    """Yields a risk if files spell columns differently from the metastore or from each other.

    Hive and Spark match columns case-insensitively. Iceberg matches the exact name, and otherwise reads nulls.
    """
    if found.format not in COLUMNAR or not found.files:
        return
    merging = msgspec.structs.replace(found, read_options={**found.read_options, "mergeSchema": "true"})
    try:
        schema = schema_of(spark(), merging).jsonValue()
    except CannotRun:  # Spark cannot start: a problem of this machine, not of the files
        raise
    except Exception as error:
        if "MERGE_SCHEMAS" in str(error):  # reading the rows reports other problems better
            yield MigrationFinding("mixed-types", unreadable_text(found, error))
        return
    for path, names in ambiguous_names(schema):
        text = f"its files write one column as {' and '.join(names)}, and Iceberg reads one of them alone"
        yield MigrationFinding("name-case", text, path)
        return
    declared = {column.name.lower(): f"{column.name} {column.type}" for column in found.columns}
    for levels in field_names(schema):
        said, name = declared.get(levels[0].lower()), levels[-1]
        if said is not None and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said):
            text = (
                f"its files write {'.'.join(levels)} in another case than the metastore, and Iceberg would read nulls"
            )
            yield MigrationFinding("name-case", text, ".".join(levels))
            return


def format_and_options(
    serde: str, properties: Mapping[str, str], of_table: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, dict[str, str]]:
    """Returns the file format and reader options of a SerDe; an empty format if Spark has no reader.

    Hive returns null for values that do not fit the declared type, which hides them. Here it is an error.
    """
    name = serde.lower()
    kind = next((kind for part, kind in FORMATS.items() if part in name), "")
    if kind != "csv":
        return kind, dict(STRICT) if kind == "json" else {}
    header = of_table.get("skip.header.line.count", "0").strip()
    if header not in {"0", "1"}:
        return "", {}  # Spark can skip one header line only
    separator = properties.get("field.delim") or properties.get("separatorChar")
    options = {**STRICT, "header": "true" if header == "1" else "false"}
    if "opencsv" in name:
        quote, escape = properties.get("quoteChar", '"'), properties.get("escapeChar", "\\")
        return kind, {**options, "sep": separator or ",", "quote": quote, "escape": escape}
    # Hive's text format has no quotes.
    null = properties.get("serialization.null.format", HIVE_NULL)
    return kind, {**options, "sep": separator or HIVE_SEPARATOR, "nullValue": null, "quote": ""}


def _partition_location_risks(said: Declaration, files: Sequence[SourceFile]) -> Iterator[MigrationFinding]:
    """Yields a risk for partitions outside of the table's folder, or with names that do not match their values."""
    base = said.location.rstrip("/")
    wanted = [f"{key.name}=" for key in said.keys]
    for place in said.partitions:
        inside = place.removeprefix(base).strip("/").split("/")
        if not place.startswith(f"{base}/") or not _match_partition_keys(inside, wanted):
            yield MigrationFinding("partition-elsewhere", "partition locations do not match partition names", place)
            return
    folders = {file.path.rpartition("/")[0] for file in files}
    if said.keys and len(folders) > len(said.partitions):
        text = "its folder holds partitions that the metastore does not know, and Hive does not read"
        yield MigrationFinding("partition-unknown", text, base)


def _match_partition_keys(folders: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(folders) == len(wanted) and all(one.startswith(key) for one, key in zip(folders, wanted, strict=True))
