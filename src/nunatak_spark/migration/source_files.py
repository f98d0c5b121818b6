"""Files of a source that are read as they are: metadata documents, and lists of data files; none is ever changed.

What lies on this machine is read here; for everything else Spark is asked, which knows the storage.
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
MOST_FILES = 1_000_000  # of one folder, some two hundred bytes each on the driver

StartSpark = Callable[[], "SparkSession"]  # starts one when somebody first needs it


class UnreadableFile(Exception):
    """A file cannot be read, or is not what it should be."""


@dataclass(frozen=True)
class MetadataDocument:
    """A metadata file: what it says, and how many bytes it has."""

    content: dict[str, Any]
    size_bytes: int


@dataclass(frozen=True)
class SourceFile:
    path: str
    size_bytes: int
    modified_ms: int


def local_path(location: str) -> Path | None:
    """The path on this machine that a location means, or None if it lies elsewhere."""
    if location.startswith("/"):
        return Path(location)
    if not location.startswith("file:"):
        return None
    path = location.removeprefix("file:")
    return Path("/" + path.lstrip("/"))  # Iceberg takes what follows the scheme as it stands, so nothing is decoded


def location_segments(location: str) -> tuple[str, ...]:
    """A location in pieces, alike for file:/a, file:///a and /a, and for s3a and s3."""
    text = location if ":" in location.partition("/")[0] else f"file:{location}"
    scheme, _, path = text.partition(":")
    return (re.sub(r"^s3[an]$", "s3", scheme), *(piece for piece in path.split("/") if piece))


def read_document(spark: StartSpark, location: str) -> MetadataDocument:
    """A metadata file of a table or view, compressed or not."""
    content = read_bytes(spark, location)
    try:
        found = json.loads(gzip.decompress(content) if content.startswith(GZIP) else content)
    except (OSError, ValueError, EOFError) as error:
        raise UnreadableFile(f"{location} is not a metadata document: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableFile(f"{location} is not a metadata document: it holds no object")
    return MetadataDocument(found, len(content))


def read_bytes(spark: StartSpark, location: str) -> bytes:
    """A whole file, on this machine or through Spark; Unreadable if it cannot be had."""
    path = local_path(location)
    try:
        if path is not None:
            return path.read_bytes()
        ((content,),) = spark().read.format("binaryFile").load(location).select("content").collect()
        return bytes(content)
    except CannotRun:  # no Spark: that is to be mended here, and says nothing about the file
        raise
    except Exception as error:  # Spark's have no common base that could be named without pyspark
        raise UnreadableFile(f"{location} cannot be read: {failure_reason(error)}") from error


def list_files(spark: StartSpark, location: str) -> list[SourceFile]:
    """Every file below a folder that engines take for data, sorted by path."""
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
    columns = "path", "length", "unix_millis(modificationTime) as modified"  # the content is not among them, nor read
    try:
        rows = reader.load(location).selectExpr(*columns).limit(MOST_FILES + 1).collect()
    except Exception as error:
        raise UnreadableFile(f"{location} cannot be listed: {failure_reason(error)}") from error
    if len(rows) > MOST_FILES:
        raise UnreadableFile(
            f"{location} holds more than {MOST_FILES} files, which is more than this machine should list"
        )
    base = urlsplit(location).path.rstrip("/")
    for row in rows:
        inside = unquote(urlsplit(row["path"]).path).removeprefix(base)
        if not any(map(_is_hidden, inside.split("/"))):
            yield SourceFile(row["path"], row["length"], row["modified"])


def _is_hidden(part: str) -> bool:
    """What Spark and Hive pass over; a folder `_key=value` is a partition all the same."""
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def files_digest(files: Sequence[SourceFile]) -> str:
    """Another one as soon as a file is added, removed or written anew."""
    lines = (f"{file.path}\0{file.size_bytes}\0{file.modified_ms}" for file in files)
    return "files:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def int96_columns(files: Sequence[SourceFile]) -> list[str]:
    """Columns of Parquet's old kind of timestamps in the first of the files, if it lies here and pyarrow is there."""
    path = local_path(files[0].path) if files else None
    if path is None or importlib.util.find_spec("pyarrow") is None:
        return []
    try:
        schema = importlib.import_module("pyarrow.parquet").read_metadata(path).schema
    except (OSError, ValueError):  # pyarrow's own errors are among them; whoever reads the data will say it better
        return []
    columns = (schema.column(position) for position in range(len(schema)))
    return [str(column.path) for column in columns if column.physical_type == "INT96"]
