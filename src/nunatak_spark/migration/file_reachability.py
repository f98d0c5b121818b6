"""L1: checks that every file of a table can be opened from Spark's executors with the target's credentials.

Checked are manifest lists, manifests, data and delete files of all snapshots, and statistics. Each file is opened, its
size compared, and its last byte read, so that a file that only appears in a listing is found missing.
"""

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nunatak_spark.installation import import_pyspark
from nunatak_spark.migration.model import LevelResult, MigrationFinding, TablePair
from nunatak_spark.migration.target_access import file_access
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Json = dict[str, Any]

NAMED_PER_TASK = 100  # if a whole bucket is unreachable, the first hundred are enough
FILES_PER_TASK = 2_000
TASKS_AT_MOST = 500
TOGETHER_TASKS = 8  # for a batch of small tables
OPEN_AT_ONCE = 16  # per task: opening files waits for the storage
FILES = "table_number int, kind string, path string, size bigint"
CHECKED = "table_number int, kind string, path string, problem string, detail string, files bigint, bytes bigint"
CONTENTS = {0: "data file", 1: "position delete file", 2: "equality delete file"}  # Spec, content of a data file


def check_reachability(pair: TablePair, document: Json, metadata_location: str) -> LevelResult:
    """Checks all files in one job; if Spark fails at a missing manifest, one kind of file after the other."""
    statements = _statements(pair.target_name)
    named = [(0, *file) for file in metadata_files(document, metadata_location)]
    steps = [pair.spark.createDataFrame(named, FILES), *(pair.spark.sql(statement) for statement in statements)]
    check, tasks = reachability_checker([file_access(pair)]), tasks_for(document)
    seen = ReachabilityCounts()
    try:
        seen.add(functools.reduce(lambda left, right: left.unionAll(right), steps).repartition(tasks), check)
    except Exception:  # Spark stops at the first missing manifest
        seen = ReachabilityCounts()
        for step in steps:
            seen.add(step.repartition(tasks), check)
            if seen.problems:
                seen.facts["not-looked-at"] = "what the files name that are missing"
                break
    data_files = [row["path"] for row in seen.problems if row["kind"] in CONTENTS.values()]
    needed = _find_refs_using(pair, document, data_files) if "not-looked-at" not in seen.facts else {}
    findings = tuple(_finding(row, needed) for row in seen.problems)
    return LevelResult(findings, seen.numbers(), statements)


def check_reachability_together(tables: Sequence[tuple[TablePair, Json, str]]) -> list[LevelResult | None]:
    """Checks many small tables in one job; each is given with its metadata document and location.

    Returns None for every table that has to be checked alone, because it or another one has a problem.
    """
    if not tables:
        return []
    spark = tables[0][0].spark
    by_table = [_statements(pair.target_name, number) for number, (pair, _, _) in enumerate(tables)]
    try:
        access = [file_access(pair) for pair, _, _ in tables]
        named = [
            (number, *file)
            for number, (_, document, location) in enumerate(tables)
            for file in metadata_files(document, location)
        ]
        # One DISTINCT for all tables: each one would be a separate shuffle.
        files = " UNION ALL ".join(one.replace("DISTINCT ", "", 1) for statements in by_table for one in statements)
        whole = spark.createDataFrame(named, FILES).unionAll(spark.sql(files)).distinct().repartition(TOGETHER_TASKS)
        check: Callable[[Any], Any] = reachability_checker(access)
        rows = [row.asDict() for row in whole.mapInArrow(check, CHECKED).collect()]
    except Exception:  # checking the tables one by one finds the cause
        return [None] * len(tables)
    seen = [ReachabilityCounts() for _ in tables]
    for row in rows:
        seen[row["table_number"]].add_row(row)
    return [
        None
        if one.problems
        else LevelResult((), {**one.numbers(), "looked-at": f"with {len(tables) - 1} others"}, statements)
        for one, statements in zip(seen, by_table, strict=True)
    ]


def is_small(document: Json) -> bool:
    """Returns whether the table may be checked together with others."""
    return tasks_for(document) == 1


def metadata_files(document: Json, metadata_location: str) -> list[tuple[str, str, int | None]]:
    """Returns kind, path and size of every file that the metadata document names, except earlier metadata files."""
    found: list[tuple[str, str, int | None]] = [("metadata file", metadata_location, None)]
    snapshots = document.get("snapshots") or []
    found += [("manifest list", one["manifest-list"], None) for one in snapshots if "manifest-list" in one]
    for member, kind in (("statistics", "statistics file"), ("partition-statistics", "partition statistics file")):
        found += [(kind, one["statistics-path"], one["file-size-in-bytes"]) for one in document.get(member) or []]
    return list(dict.fromkeys(found))


def tasks_for(document: Json) -> int:
    """Returns the number of tasks, estimated from the snapshot summaries."""
    summaries = [snapshot.get("summary", {}) for snapshot in document.get("snapshots") or []]
    totals = [int(one.get("total-data-files", 0)) + int(one.get("total-delete-files", 0)) for one in summaries]
    return min(TASKS_AT_MOST, 1 + max(totals, default=0) // FILES_PER_TASK)


def _statements(target: str, number: int = 0) -> tuple[str, ...]:
    kinds = " ".join(f"WHEN {content} THEN '{kind}'" for content, kind in CONTENTS.items())
    return (
        f"SELECT DISTINCT {number} AS table_number, 'manifest' AS kind, path, length AS size "
        f"FROM {target}.all_manifests",
        f"SELECT DISTINCT {number} AS table_number, CASE content {kinds} END AS kind, file_path AS path, "
        f"file_size_in_bytes AS size FROM {target}.all_files",
    )


@dataclass
class ReachabilityCounts:
    """The results of the executors so far."""

    files: int = 0
    bytes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    problems: list[Json] = field(default_factory=list)
    facts: Json = field(default_factory=dict)

    def add(self, files: "DataFrame", check: Callable[[Any], Any]) -> None:
        for row in self._check_rows(files, check):
            self.add_row(row)

    def add_row(self, row: Json) -> None:
        """Adds one row: an unreachable file, or a count of opened files of one kind."""
        if row["path"] is not None:
            self.problems.append(row)
        else:
            self.files += row["files"]
            self.bytes += row["bytes"]
            self.kinds[row["kind"]] = self.kinds.get(row["kind"], 0) + row["files"]

    def numbers(self) -> Json:
        return {"files": self.files, "bytes": self.bytes, "by-kind": self.kinds, **self.facts}

    def _check_rows(self, files: "DataFrame", check: Callable[[Any], Any]) -> list[Json]:
        """Runs the check on the executors, or here if their Python lacks a package."""
        if "not-from-executors" not in self.facts:
            try:
                # At most NAMED_PER_TASK rows and a count of each kind from each of TASKS_AT_MOST tasks.
                return [row.asDict() for row in files.mapInArrow(check, CHECKED).collect()]
            except import_pyspark("pyspark.errors").PythonException as error:
                self.facts["not-from-executors"] = f"opened from this machine: {python_error(str(error))}"
        return [row for told in check(_batches(files)) for row in told.to_pylist()]


def _batches(files: "DataFrame") -> Iterator[Any]:
    """Yields the rows in batches; only one partition at a time is on this machine."""
    arrow = importlib.import_module("pyarrow")
    rows = (row.asDict() for row in files.toLocalIterator())
    while batch := list(itertools.islice(rows, FILES_PER_TASK)):
        yield arrow.RecordBatch.from_pylist(batch)


def python_error(text: str) -> str:
    """Returns the line of a traceback with the error."""
    lines = [line.strip() for line in text.splitlines()]
    return next(
        (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception): ", line)), lines[0] if lines else ""
    )


def reachability_checker(
    access: Sequence[Sequence[tuple[str, Mapping[str, str]]]],
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns the function that each task runs: one row per unreachable file, and counts of all.

    `access` are file access settings by prefix, per table. The function is self-contained, because it is pickled for
    the executors: they need PyIceberg and PyArrow, but not this package.
    """
    given, named_at_most, open_at_once = list(access), NAMED_PER_TASK, OPEN_AT_ONCE

    def problem_of(io: Any, path: str, size: int | None) -> tuple[str, str, int]:
        try:
            file = io.new_input(path)
            with file.open(seekable=True) as stream:
                found = len(file)
                stream.seek(max(found - 1, 0))
                stream.read(1)
        except FileNotFoundError:
            return "missing-file", "", 0
        except Exception as error:  # any error of the store means that the file is unreachable
            return "unreachable-file", " ".join(str(error).split())[:300] or type(error).__name__, 0
        if size is not None and found != size:
            return "wrong-size", f"{found} bytes instead of {size}", found
        return "", "", found

    def check(batches: Iterator[Any]) -> Iterator[Any]:
        load_file_io = importlib.import_module("pyiceberg.io").load_file_io
        arrow = importlib.import_module("pyarrow")
        stores: dict[tuple[int, str, str], Any] = {}
        counts: dict[tuple[int, str], list[int]] = {}
        rows: list[tuple[Any, ...]] = []

        def place_of(file: Any) -> tuple[int, str, str]:
            table, path = file["table_number"], file["path"]
            return table, path.partition(":")[0], next(one for one, _ in given[table] if path.startswith(one))

        def check_file(file: Any) -> tuple[str, str, int]:
            return problem_of(stores[place_of(file)], file["path"], file["size"])

        with ThreadPoolExecutor(open_at_once) as pool:
            for batch in batches:
                files = batch.to_pylist()
                for file in files:
                    place = place_of(file)
                    if place not in stores:
                        stores[place] = load_file_io(dict(given[place[0]])[place[2]], file["path"])
                for file, (problem, detail, size) in zip(files, pool.map(check_file, files), strict=True):
                    count = counts.setdefault((file["table_number"], file["kind"]), [0, 0])
                    count[0] += 1
                    count[1] += size
                    if problem and len(rows) < named_at_most:
                        rows.append((file["table_number"], file["kind"], file["path"], problem, detail, 1, size))
        rows += [(*of, None, None, None, files_, bytes_) for of, (files_, bytes_) in counts.items()]
        names = ["table_number", "kind", "path", "problem", "detail", "files", "bytes"]
        types = [arrow.int32()] + [arrow.string()] * 4 + [arrow.int64()] * 2
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        arrays = [arrow.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        yield arrow.RecordBatch.from_arrays(arrays, names)

    return check


def _find_refs_using(pair: TablePair, document: Json, paths: list[str]) -> dict[str, list[str]]:
    """Returns the branches and tags that need these files; files without one belong to earlier snapshots only."""
    refs = {name: ref["snapshot-id"] for name, ref in (document.get("refs") or {}).items()}
    if not paths or not refs:
        return {}
    parts = [
        f"SELECT DISTINCT {literal(name)} AS ref, file_path FROM {pair.target_name}.files VERSION AS OF {snapshot_id}"
        for name, snapshot_id in sorted(refs.items())[:NAMED_PER_TASK]
    ]
    wanted = ", ".join(map(literal, paths))
    rows = pair.spark.sql(f"SELECT * FROM ({' UNION ALL '.join(parts)}) WHERE file_path IN ({wanted})").collect()
    needed: dict[str, list[str]] = {path: [] for path in paths}
    for row in rows:
        needed[row.file_path].append(row.ref)
    return needed


def _finding(row: Json, needed: Mapping[str, list[str]]) -> MigrationFinding:
    path, detail = row["path"], row["detail"]
    said = {
        "missing-file": "is missing",
        "unreachable-file": f"cannot be opened with the target's credentials: {detail}",
        "wrong-size": f"has {detail}",
    }[row["problem"]]
    refs = sorted(needed.get(path, ()))
    if refs:
        who = f"; {', '.join(refs)} need{'s' if len(refs) == 1 else ''} it"
    else:
        who = "; only earlier snapshots need it, which can be expired at the source" if path in needed else ""
    return MigrationFinding(row["problem"], f"{row['kind']} {path} {said}{who}", path)
