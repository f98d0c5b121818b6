"""Tables that a metastore declares over folders of files: Hive's own, in a Hive metastore or in Glue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from nunatak_spark.migration.documents import File, Spark, Unreadable, digest, list_files
from nunatak_spark.migration.facts import with_files
from nunatak_spark.migration.risks import declared_risks, file_risks
from nunatak_spark.migration.values import Column, Finding, Found

# By a part of the name of the class that reads the rows.
FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "opencsv": "csv",
    "json": "json",
    "lazysimple": "csv",
}
HIVE_NULL, HIVE_SEPARATOR = "\\N", "\x01"  # how Hive's text files write them unless told otherwise


@dataclass(frozen=True)
class Declaration:
    """What the metastore says; `partitions` are the places of all of them."""

    location: str
    serde: str
    serde_properties: Mapping[str, str]
    columns: Sequence[Column]
    keys: Sequence[Column]
    partitions: Sequence[str]
    properties: Mapping[str, str]


def declared_table(spark: Spark, found: Found, said: Declaration) -> Found:
    """The same table, as files with columns."""
    kind, options = how_to_read(said.serde, said.serde_properties)
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
    except Unreadable as error:
        return msgspec.structs.replace(declared, risks=(Finding("unreadable", str(error)),))
    known = with_files(declared, files, digest(files))
    risks = (*declared_risks(known), *file_risks(known, files), *_elsewhere(said, files))
    return msgspec.structs.replace(known, risks=risks)


def how_to_read(serde: str, properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The format of the files, and the options to read them with; nothing if Spark has no reader for them."""
    name = serde.lower()
    kind = next((kind for part, kind in FORMATS.items() if part in name), "")
    if kind != "csv":
        return kind, {}
    separator = properties.get("field.delim") or properties.get("separatorChar")
    if "opencsv" in name:
        return kind, {"sep": separator or ",", "header": "false"}
    # Hive's own text knows no quotes.
    null = properties.get("serialization.null.format", HIVE_NULL)
    return kind, {"sep": separator or HIVE_SEPARATOR, "header": "false", "nullValue": null, "quote": ""}


def _elsewhere(said: Declaration, files: Sequence[File]) -> Iterator[Finding]:
    """Partitions that lie outside of the table's folder, or under names that do not tell their values."""
    base = said.location.rstrip("/")
    wanted = [f"{key.name}=" for key in said.keys]
    for place in said.partitions:
        inside = place.removeprefix(base).strip("/").split("/")
        if not place.startswith(f"{base}/") or not _is_named(inside, wanted):
            yield Finding("partition-elsewhere", "partitions lie elsewhere than their names say", place)
            return
    folders = {file.path.rpartition("/")[0] for file in files}
    if said.keys and len(folders) > len(said.partitions):
        text = "its folder holds partitions that the metastore does not know, and Hive does not read"
        yield Finding("partition-unknown", text, base)


def _is_named(folders: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(folders) == len(wanted) and all(one.startswith(key) for one, key in zip(folders, wanted, strict=True))
