"""Folders of Parquet, ORC, Avro, CSV or JSON files; every folder with such files is a table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.column_types import Type, ddl_type
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.migration.metadata_facts import with_files
from nunatak_spark.migration.model import InventoryTable, MigrationFinding, MigrationSource, SourceColumn
from nunatak_spark.migration.reader_options import (
    INFER_PARTITIONS,
    OF_INFERENCE,
    SETTINGS,
    infers_types,
    read_options,
    require_strict,
)
from nunatak_spark.migration.risks import declared_risks, file_risks
from nunatak_spark.migration.source_files import (
    MetadataDocument,
    SourceFile,
    StartSpark,
    files_digest,
    list_files,
    local_path,
)
from nunatak_spark.session_settings import temporary_settings
from nunatak_spark.sql_text import quote_identifier, require_type_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# By file extension, without that of a compression.
FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
READ_PREFIX = "read."  # prefix of reader options
COMPRESSIONS = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
INFER = "infer-types"
# Simple types that Iceberg supports; `void` is the type of a partition column with nulls only.
SUPPORTED_TYPES = re.compile(
    r"boolean|byte|short|integer|long|float|double|decimal\(.*\)|string( collate .*)?|(var)?char\(\d+\)|binary|date|"
    r"timestamp|timestamp_ntz|variant|void"
)


def folder_source(
    name: str, path: str, kind: str | None, options: Mapping[str, str], *, infer_types: bool = False
) -> MigrationSource:
    """Returns the source. Without `infer_types`, numbers, dates and folder names in text stay strings."""
    require_strict(options)
    given = {"format": kind} if kind else {}
    if infer_types:
        given[INFER] = "true"
    return MigrationSource(
        kind="folder", name=name, address=path, options={**given, **{f"read.{k}": v for k, v in options.items()}}
    )


class FolderSourceCatalog:
    def __init__(self, source: MigrationSource, spark: StartSpark, secrets: Mapping[str, str]) -> None:
        self.source = source
        self.spark = spark

    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        listed = list_files(self.spark, self.source.address)
        if not listed:
            raise CannotRun(f"{self.source.address} holds no files", fix="Name a folder that holds tables.")
        for levels, files in group_by_table(self._root(), listed).items():
            yield self._table(levels, files), None

    def _root(self) -> str:
        path = local_path(self.source.address)
        return (self.source.address if path is None else str(path)).rstrip("/")

    def _table(self, levels: tuple[str, ...], files: list[SourceFile]) -> InventoryTable:
        root = self._root()
        # With its scheme: on a cluster a plain path means the default file system.
        location = ("file:" if root.startswith("/") else "") + "/".join((root, *levels))
        name = levels or (PurePosixPath(root).name,)
        kind = self.source.options.get("format") or common_format(files)
        given = {
            key.removeprefix(READ_PREFIX): v for key, v in self.source.options.items() if key.startswith(READ_PREFIX)
        }
        found = InventoryTable(
            source=self.source.name,
            name=name,
            kind="files",
            location=location,
            format=kind,
            read_options=read_options(kind, given, infer_types=self._infers()),
        )
        return self._describe(found, files)

    def _infers(self) -> bool:
        return self.source.options.get(INFER) == "true"

    def _describe(self, found: InventoryTable, files: list[SourceFile]) -> InventoryTable:
        return with_columns(
            self.spark(), with_files(found, files, files_digest(files)), files, infer_types=self._infers()
        )

    def namespace_properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        return {}

    def find_pointer(self, found: InventoryTable, name: tuple[str, ...]) -> str:
        return files_digest(list_files(self.spark, found.location))

    def reload(self, found: InventoryTable, name: tuple[str, ...]) -> InventoryTable:
        return self._describe(found, list_files(self.spark, found.location))

    def metadata_at(self, found: InventoryTable, name: tuple[str, ...], pointer: str) -> MetadataDocument | None:
        return None

    def rows(self, found: InventoryTable, name: tuple[str, ...]) -> "DataFrame":
        return read_files(self.spark(), found)

    def rows_at(self, found: InventoryTable, name: tuple[str, ...], snapshot_id: int | None) -> "DataFrame":
        raise NotImplementedError("files have no snapshots")

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        return "", "a folder has no catalog to freeze: stop the writers yourself; later writes are detected"

    def rename(self, found: InventoryTable, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        raise NotImplementedError("a folder is not renamed")

    def block(self, found: InventoryTable, pointer: str) -> bool:
        raise NotImplementedError("a folder cannot be blocked")

    def is_blocked(self, found: InventoryTable, pointer: str) -> bool:
        raise NotImplementedError("a folder cannot be blocked")

    def unblock(self, found: InventoryTable, pointer: str) -> None:
        raise NotImplementedError("a folder cannot be blocked")

    def close(self) -> None:
        """Nothing is held open."""


def group_by_table(root: str, files: Sequence[SourceFile]) -> dict[tuple[str, ...], list[SourceFile]]:
    """Groups files by table folder: the levels below the root, up to the first `key=value`."""
    tables: dict[tuple[str, ...], list[SourceFile]] = {}
    prefix = root.removeprefix("file:")
    for file in files:
        path = file.path.removeprefix("file:")
        inside = path[path.index(prefix) + len(prefix) :].strip("/") if prefix in path else path
        levels: list[str] = []
        for part in inside.split("/")[:-1]:
            if "=" in part:
                break
            levels.append(part)
        tables.setdefault(tuple(levels), []).append(file)
    return tables


def common_format(files: Sequence[SourceFile]) -> str:
    """Returns the format that all files have by extension, or an empty text."""
    found = {_format(file.path) for file in files}
    return found.pop() if len(found) == 1 else ""


def _format(path: str) -> str:
    name = path.lower()
    for end in COMPRESSIONS:
        name = name.removesuffix(end)
    return FORMATS.get(name.rpartition(".")[2], "")


def with_columns(
    spark: "SparkSession", found: InventoryTable, files: Sequence[SourceFile], *, infer_types: bool = False
) -> InventoryTable:
    """Returns the table with its columns as Spark finds them now; reads use these columns from now on."""
    if not found.format:
        risk = MigrationFinding("unreadable", "its files have no format in common; name it with --format")
        return msgspec.structs.replace(found, risks=(risk,))
    try:
        schema = schema_of(spark, found, infer_types=infer_types)
    except Exception as error:
        return msgspec.structs.replace(found, risks=(MigrationFinding("unreadable", unreadable_text(found, error)),))
    partitions = partition_keys(found.location, files)
    columns = tuple(SourceColumn(field.name, _declared_type(field.dataType.jsonValue())) for field in schema.fields)
    known = msgspec.structs.replace(found, columns=columns, partitioned_by=partitions)
    inferred = infers_types(found.read_options) or (infer_types and bool(partitions))
    risks = (*_schema_risks(schema.jsonValue(), inferred), *declared_risks(known), *file_risks(known, files))
    return msgspec.structs.replace(known, risks=risks)


def schema_of(spark: "SparkSession", found: InventoryTable, *, infer_types: bool = False) -> "StructType":
    """Returns the merged schema of all files; case-sensitive, so that names differing in case alone are found."""
    settings = {**SETTINGS, **(INFER_PARTITIONS if infer_types else {}), "spark.sql.caseSensitive": "true"}
    with temporary_settings(spark, settings):
        return spark.read.format(found.format).options(**found.read_options).load(found.location).schema


def _declared_type(kind: Type) -> str:
    """Returns the SQL type; a partition column with nulls only becomes a string."""
    return "string" if kind == "void" else ddl_type(kind)


def unreadable_text(found: InventoryTable, error: Exception) -> str:
    """Returns why Spark cannot read the files, with advice for the most likely cause."""
    text = str(error)
    if "MERGE_SCHEMAS" in text:
        schemas = " and ".join(re.findall(r'"(STRUCT<.*>)"', text)) or failure_reason(error)
        return f"its files do not agree about the type of a column, rewrite those that differ: {schemas}"
    if found.format == "json" and "multiline" not in {key.lower() for key in found.read_options}:
        return (
            f"Spark cannot read it; if a record has several lines, say --read multiLine=true: {failure_reason(error)}"
        )
    return f"Spark cannot read it: {failure_reason(error)}"


def _schema_risks(schema: Mapping[str, Any], inferred: bool) -> Iterator[MigrationFinding]:
    for path, names in ambiguous_names(schema):
        text = f"its files write one column as {' and '.join(names)}; Iceberg would read one of them alone: rewrite it"
        yield MigrationFinding("unreadable", text, path)
    for path, kind in leaf_types(schema):
        if not SUPPORTED_TYPES.fullmatch(kind):
            yield MigrationFinding("unreadable", f"column {path} has the type {kind}, which Iceberg has not", path)
    if inferred:
        text = "types were guessed from text: 00123 became 123, and the table does not show the original text"
        yield MigrationFinding("inferred-types", text)


def leaf_types(kind: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields every simple type inside a schema, with its path."""
    if not isinstance(kind, Mapping):
        yield path, str(kind)
        return
    inner = [(field["name"], field["type"]) for field in kind.get("fields", ())]
    inner += [(part, kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind]
    for name, one in inner:
        yield from leaf_types(one, f"{path}.{name}" if path else name)


def field_names(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the path of every column and of every struct field."""
    if not isinstance(kind, Mapping):
        return
    for field in kind.get("fields", ()):
        yield (*path, field["name"])
        yield from field_names(field["type"], (*path, field["name"]))
    for part in ("elementType", "keyType", "valueType"):
        yield from field_names(kind.get(part), path)


def ambiguous_names(kind: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yields struct fields, at any depth, whose names differ in case alone; the schema is Spark's JSON form."""
    if not isinstance(kind, Mapping):
        return
    by_name: dict[str, list[str]] = {}
    for field in kind.get("fields", ()):
        by_name.setdefault(field["name"].lower(), []).append(field["name"])
        yield from ambiguous_names(field["type"], f"{path}{field['name']}.")
    for name, spellings in by_name.items():
        if len(spellings) > 1:
            yield f"{path}{name}", spellings
    for part in ("elementType", "keyType", "valueType"):
        yield from ambiguous_names(kind.get(part), path)


def partition_keys(location: str, files: Sequence[SourceFile]) -> tuple[str, ...]:
    """Returns the keys of `key=value` folders in order; Spark refuses files with different keys."""
    if not files:
        return ()
    inside = files[0].path.removeprefix("file:").removeprefix(location.removeprefix("file:"))
    return tuple(re.findall(r"/([^/=]+)=[^/]*(?=/)", inside))


def read_files(spark: "SparkSession", found: InventoryTable) -> "DataFrame":
    """Reads all rows of a table of files, with the columns that were found or declared."""
    schema = ", ".join(f"{quote_identifier(column.name)} {plain_type(column.type)}" for column in found.columns)
    options = {key: value for key, value in found.read_options.items() if key.lower() not in OF_INFERENCE}
    return spark.read.format(found.format).options(**options).schema(schema).load(found.location)


def plain_type(kind: str) -> str:
    """Returns the declared type as Iceberg stores it: char and varchar as string, small integers as int."""
    kind = re.sub(r"\b(var)?char\(\d+\)", "string", require_type_text(kind))
    return re.sub(r"\b(tinyint|smallint)\b", "int", kind)
