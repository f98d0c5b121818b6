"""Counts the records of text files with Python's strict parsers instead of Spark's.

Spark ignores what follows a JSON value on its line, keeps the last of two equal keys, and replaces invalid bytes. A
second read by Spark would do the same.
"""

import bz2
import csv
import gzip
import importlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nunatak_spark.migration.model import InventoryTable, MigrationFinding
from nunatak_spark.session_settings import temporary_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTED = "path string, records bigint, problem string"
MAX_BYTES = 256 << 20  # a task reads a whole file
NAMED_FILES = 20
ONE_FILE_EACH = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
ALONE = threading.Lock()  # the setting belongs to the session, which threads share
PACKED = (".zst", ".snappy", ".lz4")  # Python needs extra packages for these
# Options that Python's parsers support or that do not matter. Others may change what a record is: then do not count.
UNDERSTOOD = frozenset(
    ("mode", "timezone", "header", "multiline", "escape", "enforceschema", "primitivesasstring", "inferschema",
     "sep", "delimiter", "quote", "nullvalue", "emptyvalue", "encoding", "charset", "dateformat", "timestampformat",
     "timestampntzformat", "prefersdecimal", "samplingratio")
)  # fmt: skip


@dataclass(frozen=True)
class RecordCount:
    """The result: `records` is None if counting was not possible, for the reason in `note`."""

    records: int | None
    note: str
    findings: tuple[MigrationFinding, ...] = ()


def count_records(spark: "SparkSession", found: InventoryTable) -> RecordCount:
    """Counts the records of all files of a table."""
    strange = sorted(key for key in found.read_options if key.lower() not in UNDERSTOOD)
    if strange:
        return RecordCount(None, f"not counted by a second parser: the option {strange[0]} is Spark's alone")
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    files = reader.load(found.location)
    ends = " OR ".join(f"path LIKE '%{end}'" for end in PACKED)
    others = files.where(f"length > {MAX_BYTES} OR {ends}").count()
    if others:
        return RecordCount(
            None, f"not counted by a second parser: {others} files are too large, or packed by Spark's codecs"
        )
    with ALONE, temporary_settings(spark, ONE_FILE_EACH):
        rows = files.select("path", "content").mapInArrow(record_counter(found.format, found.read_options), COUNTED)
        total = rows.selectExpr("sum(records) AS n").collect()[0].n or 0
        wrong = rows.where("problem IS NOT NULL").limit(NAMED_FILES).collect()
    findings = tuple(MigrationFinding("unreadable-text", f"{row.path}: {row.problem}", row.path) for row in wrong)
    return RecordCount(int(total), "counted by a second parser as well", findings)


def record_counter(kind: str, options: Mapping[str, str]) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Returns the function that each task runs; it is pickled whole, so executors need PyArrow, but not
    this package.
    """
    said = {key.lower(): value for key, value in options.items()}
    encoding = said.get("encoding") or said.get("charset") or "utf-8"
    quote, escape = said.get("quote", '"'), said.get("escape", "\\")
    separator = said.get("sep") or said.get("delimiter") or ","
    has_header = said.get("header", "false").lower() == "true"
    is_whole = said.get("multiline", "false").lower() == "true"

    def text_of(path: str, content: bytes) -> str:
        if path.endswith(".gz"):
            content = gzip.decompress(content)
        elif path.endswith(".bz2"):
            content = bz2.decompress(content)
        return content.decode("utf-8-sig" if encoding.lower().replace("-", "") == "utf8" else encoding)

    def csv_records(text: str) -> int:
        csv.field_size_limit(2**31 - 1)
        quoting: dict[str, Any] = (
            {"quotechar": quote, "doublequote": escape == quote, "escapechar": None if escape == quote else escape}
            if quote
            else {"quoting": csv.QUOTE_NONE}
        )
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, **quoting)
        width, count = 0, 0
        for row in rows:
            if not row:
                continue  # Spark skips empty lines too
            if width and len(row) != width:
                raise ValueError(f"record {count + 1} has {len(row)} values, and the first one {width}")
            width = width or len(row)
            count += 1
        return count - has_header if count else 0

    def json_records(text: str) -> int:
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            if len({name for name, _ in pairs}) != len(pairs):
                raise ValueError("an object has two members of one name")
            return dict(pairs)

        count = 0
        for number, part in enumerate([text] if is_whole else re.split("\r\n|\r|\n", text), 1):
            if part.strip():
                try:
                    value = json.loads(part, object_pairs_hook=once)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
                count += len(value) if isinstance(value, list) else 1
        return count

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        pyarrow = importlib.import_module("pyarrow")
        for batch in batches:
            rows: list[tuple[str, int, str | None]] = []
            for file in batch.to_pylist():
                try:
                    text = text_of(file["path"], file["content"])
                    rows.append((file["path"], csv_records(text) if kind == "csv" else json_records(text), None))
                except Exception as error:  # parsers have no common error class
                    rows.append((file["path"], 0, " ".join(str(error).split())[:300] or type(error).__name__))
            names = ["path", "records", "problem"]
            types = [pyarrow.string(), pyarrow.int64(), pyarrow.string()]
            columns = zip(*rows, strict=True) if rows else [()] * len(names)
            arrays = [pyarrow.array(column, kind_) for column, kind_ in zip(columns, types, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, names)

    return count
