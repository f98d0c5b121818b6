"""Plain folders of Parquet, ORC, Avro, CSV or JSON files; every folder that holds such files is a table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.documents import Document, File, Spark, digest, first_line, list_files, local_path
from nunatak_spark.migration.facts import with_files
from nunatak_spark.migration.risks import declared_risks, file_risks
from nunatak_spark.migration.values import Column, Finding, Found, Source
from nunatak_spark.sql_text import quoted, require_type_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# By the end of a file's name, after a compression was taken off.
FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
READ = "read."  # before the options that files are read with
COMPRESSIONS = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
DEFAULTS = {
    "csv": {"header": "true", "inferSchema": "true"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}


def folder_source(name: str, path: str, kind: str | None, options: Mapping[str, str]) -> Source:
    given = {"format": kind} if kind else {}
    return Source(
        kind="folder", name=name, address=path, options={**given, **{f"read.{k}": v for k, v in options.items()}}
    )


class FileFolder:
    def __init__(self, source: Source, spark: Spark, secrets: Mapping[str, str]) -> None:
        self.source = source
        self.spark = spark

    def list_tables(self) -> Iterator[tuple[Found, Document | None]]:
        listed = list_files(self.spark, self.source.address)
        if not listed:
            raise CannotRun(f"{self.source.address} holds no files", fix="Name a folder that holds tables.")
        for levels, files in group(self._root(), listed).items():
            yield self._table(levels, files), None

    def _root(self) -> str:
        path = local_path(self.source.address)
        return (self.source.address if path is None else str(path)).rstrip("/")

    def _table(self, levels: tuple[str, ...], files: list[File]) -> Found:
        root = self._root()
        # With its scheme: on a cluster a bare path means another file system.
        location = ("file:" if root.startswith("/") else "") + "/".join((root, *levels))
        name = levels or (PurePosixPath(root).name,)
        kind = self.source.options.get("format") or format_of(files)
        given = {key.removeprefix(READ): v for key, v in self.source.options.items() if key.startswith(READ)}
        found = Found(
            source=self.source.name,
            name=name,
            kind="files",
            location=location,
            format=kind,
            read_options={**DEFAULTS.get(kind, {}), **given},
        )
        return declared(self.spark(), with_files(found, files, digest(files)), files)

    def find_pointer(self, found: Found, name: tuple[str, ...]) -> str:
        return digest(list_files(self.spark, found.location))

    def look_again(self, found: Found, name: tuple[str, ...]) -> Found:
        files = list_files(self.spark, found.location)
        return declared(self.spark(), with_files(found, files, digest(files)), files)

    def find_document(self, found: Found, name: tuple[str, ...]) -> Document | None:
        return None

    def rows(self, found: Found, name: tuple[str, ...]) -> "DataFrame":
        return read_files(self.spark(), found)

    def freezing(self, found: Found) -> tuple[str, str]:
        return "", "nobody looks after a folder: stop the writers yourself; later writes are noticed"

    def rename(self, found: Found, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        raise NotImplementedError("a folder is not renamed")

    def block(self, found: Found, pointer: str) -> bool:
        raise NotImplementedError("a folder cannot be blocked")

    def is_blocked(self, found: Found, pointer: str) -> bool:
        raise NotImplementedError("a folder cannot be blocked")

    def unblock(self, found: Found, pointer: str) -> None:
        raise NotImplementedError("a folder cannot be blocked")

    def close(self) -> None:
        """Nothing is held open."""


def group(root: str, files: Sequence[File]) -> dict[tuple[str, ...], list[File]]:
    """The files by the folders that are tables: levels below the root, up to the first `key=value`."""
    tables: dict[tuple[str, ...], list[File]] = {}
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


def format_of(files: Sequence[File]) -> str:
    """The one format that all files have by their names, or nothing."""
    found = {_format(file.path) for file in files}
    return found.pop() if len(found) == 1 else ""


def _format(path: str) -> str:
    name = path.lower()
    for end in COMPRESSIONS:
        name = name.removesuffix(end)
    return FORMATS.get(name.rpartition(".")[2], "")


def declared(spark: "SparkSession", found: Found, files: Sequence[File]) -> Found:
    """The same with its columns, as Spark finds them now; from now on they are what the table is read with."""
    if not found.format:
        risk = Finding("unreadable", "its files have no format in common; name it with --format")
        return msgspec.structs.replace(found, risks=(risk,))
    try:
        schema = _reader(spark, found).load(found.location).schema
    except Exception as error:
        return msgspec.structs.replace(
            found, risks=(Finding("unreadable", f"Spark cannot read it: {first_line(error)}"),)
        )
    columns = tuple(Column(field.name, field.dataType.simpleString()) for field in schema.fields)
    partitions = partition_keys(found.location, files)
    known = msgspec.structs.replace(found, columns=columns, partitioned_by=partitions)
    risks = (*declared_risks(known), *file_risks(known, files))
    return msgspec.structs.replace(known, risks=risks)


def partition_keys(location: str, files: Sequence[File]) -> tuple[str, ...]:
    """The keys of `key=value` folders, in order; all files have the same or Spark refuses to read them."""
    if not files:
        return ()
    inside = files[0].path.removeprefix("file:").removeprefix(location.removeprefix("file:"))
    return tuple(re.findall(r"/([^/=]+)=[^/]*(?=/)", inside))


def read_files(spark: "SparkSession", found: Found) -> "DataFrame":
    """All rows of a table that is nothing but files, with the columns that were found or declared."""
    schema = ", ".join(f"{quoted(column.name)} {plain_type(column.type)}" for column in found.columns)
    options = {key: value for key, value in found.read_options.items() if key not in {"inferSchema", "mergeSchema"}}
    return spark.read.format(found.format).options(**options).schema(schema).load(found.location)


def _reader(spark: "SparkSession", found: Found) -> Any:
    return spark.read.format(found.format).options(**found.read_options)


def plain_type(kind: str) -> str:
    """A declared type as Iceberg has it: characters of any length are strings, small integers are integers."""
    kind = re.sub(r"\b(var)?char\(\d+\)", "string", require_type_text(kind))
    return re.sub(r"\b(tinyint|smallint)\b", "int", kind)
