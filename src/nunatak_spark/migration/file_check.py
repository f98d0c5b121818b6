"""Checks whether the files that a source needs still exist, and names missing ones. Changes nothing.

Checked are the files of the current snapshot, the branches and the tags: manifest lists, manifests, data and delete
files. Few files are checked from here, many by Spark's executors.
"""

import importlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import fastavro

from nunatak_spark.installation import import_pyspark
from nunatak_spark.migration.file_reachability import python_error
from nunatak_spark.migration.source_files import StartSpark, UnreadableFile, local_path, read_bytes, read_document

Json = dict[str, Any]
Access = Sequence[tuple[str, Mapping[str, str]]]

FEW_FILES = 10_000  # checked from here: starting Spark would take longer
FILES_PER_TASK, TASKS_AT_MOST = 20_000, 500
NAMED_PER_TASK = 20  # missing files that a task names: at most 10,000 in all
MANIFESTS_AT_ONCE = 8
SNAPSHOTS_AT_MOST = 1_000  # of the current snapshot, branches and tags
DELETED = 2  # Spec, status of a manifest entry
CHECKED = "path string, files bigint, missing bigint"


@dataclass(frozen=True)
class FileCounts:
    """How many files were checked and how many are missing; `named` are some of the missing ones."""

    files: int = 0
    missing: int = 0
    named: tuple[str, ...] = ()

    def __add__(self, other: "FileCounts") -> "FileCounts":
        return FileCounts(self.files + other.files, self.missing + other.missing, (*self.named, *other.named))


def check_files(spark: StartSpark, metadata_location: str, access: Callable[[], Access]) -> FileCounts:
    """Checks every file that a metadata file needs; `access` returns file access settings by prefix, for
    object stores.
    """
    try:
        document = read_document(spark, metadata_location).content
    except UnreadableFile:
        return FileCounts(1, 1, (metadata_location,))
    found, manifests = _read_manifest_lists(spark, _needed_snapshots(document))
    return FileCounts(1) + found + _check_manifests(spark, list(manifests), sum(manifests.values()), access)


def _needed_snapshots(document: Json) -> list[Json]:
    wanted = {document.get("current-snapshot-id")}
    wanted |= {ref.get("snapshot-id") for ref in (document.get("refs") or {}).values()}
    needed = [one for one in document.get("snapshots") or () if one.get("snapshot-id") in wanted]
    return needed[-SNAPSHOTS_AT_MOST:]


def _read_manifest_lists(spark: StartSpark, snapshots: Iterable[Json]) -> tuple[FileCounts, dict[str, int]]:
    """Returns each manifest once, with the number of files that it names."""
    found, manifests = FileCounts(), dict[str, int]()
    for snapshot in snapshots:
        manifests |= dict.fromkeys(snapshot.get("manifests") or (), 0)  # a v1 snapshot may list manifests itself
        location = snapshot.get("manifest-list")
        if location is None:
            continue
        try:
            content = read_bytes(spark, location)
        except UnreadableFile:
            found += FileCounts(1, 1, (location,))
            continue
        found += FileCounts(1)
        entries: Iterable[Any] = fastavro.reader(io.BytesIO(content))
        for entry in entries:
            counts = [entry.get(f"{kind}_files_count") or 0 for kind in ("added", "existing")]
            manifests[str(entry["manifest_path"])] = sum(counts)
    return found, manifests


def _check_manifests(spark: StartSpark, paths: list[str], files: int, access: Callable[[], Access]) -> FileCounts:
    is_local = all(local_path(path) is not None for path in paths)
    if is_local and files <= FEW_FILES:
        return _sum_counts(manifest_checker(())(paths))
    check = manifest_checker(access() if not is_local else ())
    tasks = min(TASKS_AT_MOST, 1 + files // FILES_PER_TASK)
    rows = spark().createDataFrame([(path,) for path in paths], "path string").repartition(tasks)
    try:
        told = rows.mapInArrow(as_arrow_function(check), CHECKED).collect()
    except import_pyspark("pyspark.errors").PythonException as error:
        # The executors' Python lacks a package: check from here.
        if "ModuleNotFoundError" not in python_error(str(error)):
            raise
        return _sum_counts(check(paths))
    return _sum_counts((row["path"], row["files"], row["missing"]) for row in told)


def _sum_counts(rows: Iterable[tuple[str | None, int, int]]) -> FileCounts:
    total = FileCounts()
    for path, files, missing in rows:
        total += FileCounts(files, missing, () if path is None else (path,))
    return total


def as_arrow_function(check: Callable[[Iterable[str]], Iterator[Any]]) -> Callable[[Any], Any]:
    """Returns the check as a function for mapInArrow."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        arrow = importlib.import_module("pyarrow")
        rows = list(check(path for batch in batches for path in batch.column(0).to_pylist()))
        columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
        types = [arrow.string(), arrow.int64(), arrow.int64()]
        arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield arrow.RecordBatch.from_arrays(arrays, ["path", "files", "missing"])

    return run


def manifest_checker(access: Access) -> Callable[[Iterable[str]], Iterator[tuple[str | None, int, int]]]:
    """Returns a function that checks manifests and their files: yields (path, 0, 0) per named file, and one row of
    counts.

    It is self-contained, because it is pickled for the executors: they need fastavro, and PyIceberg for object stores,
    but not this package.
    """
    given, named_at_most, at_once, deleted = list(access), NAMED_PER_TASK, MANIFESTS_AT_ONCE, DELETED
    stores: dict[tuple[str, str], Any] = {}

    def plain_path(path: str) -> str | None:
        if path.startswith("/"):
            return path
        return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else None

    def input_of(path: str) -> Any:
        prefix = next(prefix for prefix, _ in given if path.startswith(prefix))
        place = path.partition(":")[0], prefix
        if place not in stores:
            load_file_io = importlib.import_module("pyiceberg.io").load_file_io
            stores[place] = load_file_io(dict(given)[prefix], path)
        return stores[place].new_input(path)

    def exists(path: str) -> bool:
        here = plain_path(path)
        return importlib.import_module("os").path.isfile(here) if here else bool(input_of(path).exists())

    def entries(path: str) -> list[str]:
        here = plain_path(path)
        with open(here, "rb") if here else input_of(path).open() as stream:
            read = importlib.import_module("fastavro").reader(stream)
            return [one["data_file"]["file_path"] for one in read if one["status"] != deleted]

    def check(paths: Iterable[str]) -> Iterator[tuple[str | None, int, int]]:
        files, missing = 0, 0
        named: list[str] = []
        with ThreadPoolExecutor(at_once) as pool:
            for path in paths:
                wanted = [path, *(entries(path) if exists(path) else ())]
                lost = [one for one, there in zip(wanted, pool.map(exists, wanted), strict=True) if not there]
                files, missing = files + len(wanted), missing + len(lost)
                named += lost[: named_at_most - len(named)]
        yield from ((path, 0, 0) for path in named)
        yield None, files, missing

    return check


def describe_files(found: FileCounts) -> str:
    """Returns the result as a sentence."""
    if not found.missing:
        return f"every file is still there ({found.files} looked for)"
    shown = ", ".join(found.named[:5])
    more = f" and {found.missing - 5} more" if found.missing > 5 else ""
    return f"{found.missing} of {found.files} files are missing: {shown}{more}"
