"""Reads and lists files of a source: metadata documents and data files. Never changes a file.

Local files are read directly; for all others Spark is used, which knows the storage.
"""

import gzip
import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GZIP = b"\x1f\x8b"
MAX_FILES = 1_000_000  # per folder; some 200 bytes each on the driver

StartSpark = Callable[[], "SparkSession"]  # starts Spark on the first call


class UnreadableFile(Exception):
    """A file cannot be read, or has the wrong content."""


@dataclass(frozen=True)
class MetadataDocument:
    """A metadata file: its content and its size."""

    content: dict[str, Any]
    size_bytes: int


@dataclass(frozen=True)
class SourceFile:
    path: str
    size_bytes: int
    modified_ms: int


def local_path(location: str) -> Path | None:
    """Returns the local path of a location, or None if it is not on this machine."""
    if location.startswith("/"):
        return Path(location)
    if not location.startswith("file:"):
        return None
    path = location.removeprefix("file:")
    return Path("/" + path.lstrip("/"))  # Iceberg does not percent-decode paths


def location_segments(location: str) -> tuple[str, ...]:
    """Splits a location into segments, equal for file:/a, file:///a and /a, and for s3a and s3."""
    text = location if ":" in location.partition("/")[0] else f"file:{location}"
    scheme, _, path = text.partition(":")
    return (re.sub(r"^s3[an]$", "s3", scheme), *(piece for piece in path.split("/") if piece))


def read_document(spark: StartSpark, location: str) -> MetadataDocument:
    """Reads a metadata file of a table or view, compressed or not; raises UnreadableFile."""
    content = read_bytes(spark, location)
    try:
        found = json.loads(gzip.decompress(content) if content.startswith(GZIP) else content)
    except (OSError, ValueError, EOFError) as error:
        raise UnreadableFile(f"{location} is not a metadata document: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableFile(f"{location} is not a metadata document: it holds no object")
    return MetadataDocument(found, len(content))


def read_bytes(spark: StartSpark, location: str) -> bytes:
    """Reads a whole file, locally or through Spark; raises UnreadableFile."""
    path = local_path(location)
    try:
        if path is not None:
            return path.read_bytes()
        ((content,),) = spark().read.format("binaryFile").load(location).select("content").collect()
        return bytes(content)
    except CannotRun:  # Spark cannot start: a problem of this machine, not of the file
        raise
    except Exception as error:  # Spark's errors have no common base class without pyspark
        raise UnreadableFile(f"{location} cannot be read: {failure_reason(error)}") from error


def list_files(spark: StartSpark, location: str) -> list[SourceFile]:
    """Lists the data files below a folder, sorted by path; hidden files are skipped as engines do."""
    path = local_path(location)
    if path is None:
        return sorted(_list_files_with_spark(spark(), location), key=lambda file: file.path)
    if not path.is_dir():
        raise UnreadableFile(f"{location} is not a folder")
    return sorted(_list_local_files(path), key=lambda file: file.path)


def _list_local_files(folder: Path) -> Iterator[SourceFile]:
    for path in folder.rglob("*"):
        if path.is_file() and not any(map(_is_hidden, path.relative_to(folder).parts)):
            stat = path.stat()
            yield SourceFile(str(path), stat.st_size, stat.st_mtime_ns // 1_000_000)


def _list_files_with_spark(spark: "SparkSession", location: str) -> Iterator[SourceFile]:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    columns = (
        "path",
        "length",
        "unix_millis(modificationTime) as modified",
    )  # without the content column, files are not read
    try:
        rows = reader.load(location).selectExpr(*columns).limit(MAX_FILES + 1).collect()
    except Exception as error:
        raise UnreadableFile(f"{location} cannot be listed: {failure_reason(error)}") from error
    if len(rows) > MAX_FILES:
        raise UnreadableFile(
            f"{location} holds more than {MAX_FILES} files, which is more than this machine should list"
        )
    base = urlsplit(location).path.rstrip("/")
    for row in rows:
        inside = unquote(urlsplit(row["path"]).path).removeprefix(base)
        if not any(map(_is_hidden, inside.split("/"))):
            yield SourceFile(row["path"], row["length"], row["modified"])


def _is_hidden(part: str) -> bool:
    """Returns whether Spark and Hive skip the name; `_key=value` is a partition folder."""
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def files_digest(files: Sequence[SourceFile]) -> str:
    """Returns a digest that changes when a file is added, removed or rewritten."""
    lines = (f"{file.path}\0{file.size_bytes}\0{file.modified_ms}" for file in files)
    return "files:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def int96_columns(files: Sequence[SourceFile]) -> list[str]:
    """Returns the INT96 timestamp columns of the first file, if it is local and pyarrow is installed."""
    path = local_path(files[0].path) if files else None
    if path is None or importlib.util.find_spec("pyarrow") is None:
        return []
    try:
        schema = importlib.import_module("pyarrow.parquet").read_metadata(path).schema
    except (OSError, ValueError):  # includes pyarrow's errors; reading the data gives a better message
        return []
    columns = (schema.column(position) for position in range(len(schema)))
    return [str(column.path) for column in columns if column.physical_type == "INT96"]
