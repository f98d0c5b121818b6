"""Checks which files lie in the table's own locations: its location and the folders of its write properties.

Manifests are written by clients and may name any file. A job reads nothing in locations of another table, and deletes
nothing outside of its own. The server decides who owns a folder; it is asked only about folders that are not clearly
inside the table's own locations.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nunatak.client import Json
from nunatak_spark.failure_reason import safe_str
from nunatak_spark.maintenance.job_context import JobContext, JobRefused
from nunatak_spark.maintenance.reachable_files import display_name, refresh, sql_name
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDERS_PER_REQUEST = 10_000  # the server's limit
RESOLUTIONS = 5  # of a statement that a writer made inconsistent
SCAN_INCONSISTENT = "Failed to enforce scan consistency"
MAX_FOLDERS = 100_000  # collected on the driver: some 20 MB
MAX_NAMES, MAX_LEFT = 5, 20  # in an error, and in a result
FOLDER = "left({0}, length({0}) - length(substring_index({0}, '/', -1)) - 1)"
LOCAL = "file:///"
# Path segments that a store may resolve to another folder; the server decides about such paths.
AMBIGUOUS_PATH = r"//|/\.\.?(/|$)|\\|%2[eEfF]|%5[cC]|[\x00-\x1f]"


def table_securable(context: JobContext) -> str:
    """Returns the securable of the table for the management API; only percent sign and slash are escaped."""
    levels = (context.spec.warehouse, *context.spec.namespace, context.spec.table)
    return "table:" + "/".join(level.replace("%", "%25").replace("/", "%2F") for level in levels)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def normalize_path(path: str) -> str:
    """Returns one spelling for file:/x, file://x and file:///x, and for s3, s3a and s3n."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/+", LOCAL, path))


@dataclass(frozen=True)
class FolderOwnership:
    """The server's answer about folders: `foreign` ones belong to another table, `outside` ones to none."""

    foreign: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


class OwnLocations:
    """The table's own locations, as the server knows them at this moment."""

    def __init__(self, context: JobContext, locations: Sequence[str], *, is_alone: bool) -> None:
        self._context = context
        known = [normalize_path(place).rstrip("/") for place in locations]
        self._local = tuple(place for place in known if place.startswith(LOCAL))
        # Folders inside may belong to another table that lies deeper, or be symbolic links: then ask the server.
        self._locations = tuple(place for place in known if is_alone and place not in self._local)

    def contains(self, path: str) -> bool:
        """Returns whether the path is clearly inside; otherwise the server has to be asked."""
        text = normalize_path(path)
        insides = (text.removeprefix(place) for place in self._locations if text.startswith(f"{place}/"))
        return any(re.search(AMBIGUOUS_PATH, inside) is None for inside in insides)

    def contains_sql(self, column: str) -> str:
        """Returns `contains` as an SQL condition."""
        text = f"regexp_replace(regexp_replace({column}, '^file:/+', {literal(LOCAL)}), '^s3[an]://', 's3://')"
        parts = [
            f"(startswith({text}, {literal(place + '/')}) "
            f"AND NOT regexp_like(substr({text}, length({literal(place)}) + 1), {literal(AMBIGUOUS_PATH)}))"
            for place in self._locations
        ]
        return " OR ".join(parts) or "false"

    def classify_folders(self, folders: Iterable[str]) -> FolderOwnership:
        """Asks the server; returns the folders that are not the table's own."""
        foreign: list[str] = []
        outside: list[str] = []
        wanted = sorted(set(folders))
        outside += [folder for folder in wanted if not folder]  # a path without a slash has no folder
        named = [folder for folder in wanted if folder]
        for start in range(0, len(named), FOLDERS_PER_REQUEST):
            body: Json = {
                "securable": table_securable(self._context),
                "folders": named[start : start + FOLDERS_PER_REQUEST],
            }
            found = self._context.client.manage("POST", ("maintenance", "folders"), body)
            foreign += found["foreign"]
            outside += found["outside"]
        return FolderOwnership(tuple(foreign), tuple(outside))

    def unclear_folders(self, paths: "DataFrame") -> list[str]:
        """Returns the folders of the paths about which the server has to be asked."""
        return _folders(paths.where(f"NOT coalesce({self.contains_sql('path')}, false)"))

    def linked_folders(self, paths: "DataFrame") -> list[str]:
        """Returns local folders that are inside by name, but elsewhere by a symbolic link."""
        if not self._local:
            return []
        return [
            folder for folder in _folders(paths.where("path LIKE 'file:%'")) if self._is_linked(normalize_path(folder))
        ]

    def _is_linked(self, folder: str) -> bool:
        for place in self._local:
            if folder == place or folder.startswith(f"{place}/"):
                root, inside = place.removeprefix("file://"), folder.removeprefix(place)
                return os.path.realpath(root + inside) != os.path.realpath(root) + inside
        return False


def _folders(paths: "DataFrame") -> list[str]:
    rows = paths.selectExpr(f"{FOLDER.format('path')} AS folder").distinct().limit(MAX_FOLDERS + 1).collect()
    if len(rows) > MAX_FOLDERS:
        raise JobRefused(
            f"The server would have to be asked about more than {MAX_FOLDERS} folders of the table's files"
        )
    return [str(row["folder"] or "") for row in rows]


# Reading


def refuse_foreign_files(context: JobContext, places: OwnLocations, metadata: Json) -> None:
    """Raises JobRefused if the table references a file in another table's locations.

    Files that name other files are checked before they are opened: metadata, then manifest lists, then manifests.
    """
    named = [path for path in files_in_metadata(metadata, context.spec.type) if not places.contains(path)]
    _refuse_folders(context, metadata, places.classify_folders(map(folder_of, named)))
    if not metadata.get("snapshots"):
        return
    name = sql_name(context)
    refresh(context)
    for statement in (f"SELECT path FROM {name}.all_manifests", f"SELECT file_path AS path FROM {name}.all_files"):
        _refuse_folders(context, metadata, places.classify_folders(_unclear_folders_of(context, places, statement)))


def _unclear_folders_of(context: JobContext, places: OwnLocations, statement: str) -> list[str]:
    """Returns the unclear folders of the paths that the statement selects, also beside a writer that goes on.

    Iceberg refuses a scan if the table was changed after Spark resolved its name; then the statement is resolved again.
    """
    for attempt in range(RESOLUTIONS):
        try:
            return places.unclear_folders(context.spark.sql(statement))
        except Exception as error:
            if SCAN_INCONSISTENT not in safe_str(error) or attempt == RESOLUTIONS - 1:
                raise
            refresh(context)
    raise AssertionError("the loop returns or raises")


def files_in_metadata(metadata: Json, job_type: str) -> Iterator[str]:
    """Yields every file that the metadata names; earlier metadata files only for the job that deletes them."""
    for snapshot in metadata.get("snapshots") or ():
        if snapshot.get("manifest-list"):
            yield snapshot["manifest-list"]
        yield from snapshot.get("manifests") or ()
    for file in (*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())):
        yield file["statistics-path"]
    if job_type == "metadata-retention":
        for entry in metadata.get("metadata-log") or ():
            yield entry["metadata-file"]


def _refuse_folders(context: JobContext, metadata: Json, found: FolderOwnership) -> None:
    if found.foreign:
        raise JobRefused(
            f"The metadata of {display_name(context)} references files of another table: "
            f"{_first_folders(found.foreign)}. Nothing was changed. Remove the snapshots that name them."
        )
    is_local = normalize_path(str(metadata["location"])).startswith(LOCAL)
    here = [folder for folder in found.outside if is_local_path(folder)]
    if here and not is_local:
        raise JobRefused(
            f"The metadata of {display_name(context)} references files of the machine that runs the job: "
            f"{_first_folders(here)}. Nothing was changed."
        )


def is_local_path(folder: str) -> bool:
    """Returns whether the path is on the worker's own disk, or on Hadoop's default file system."""
    return folder.startswith("file:") or ":" not in folder.partition("/")[0]


def _first_folders(folders: Sequence[str]) -> str:
    named = ", ".join(folder[:200] for folder in folders[:MAX_NAMES])
    return named + (f" and {len(folders) - MAX_NAMES} more" if len(folders) > MAX_NAMES else "")


# Deleting


@dataclass(frozen=True)
class OwnershipSplit:
    """Paths that may be deleted, and paths that are kept because they are outside of the table's own locations."""

    own: "DataFrame"
    outside: "DataFrame | None" = None

    def some_outside(self) -> list[str]:
        """Returns a few of the kept paths, for the job's result."""
        if self.outside is None:
            return []
        return [str(row["path"]) for row in self.outside.select("path").limit(MAX_LEFT).collect()]


def split_by_ownership(context: JobContext, places: OwnLocations, paths: "DataFrame") -> OwnershipSplit:
    """Splits paths by the server's answer of this moment.

    The frame must return the same paths each time it is evaluated.
    """
    found = places.classify_folders(places.unclear_folders(paths))
    not_own = {*found.foreign, *found.outside, *places.linked_folders(paths)}
    if not not_own:
        return OwnershipSplit(paths)
    marked = paths.selectExpr("*", f"{FOLDER.format('path')} AS its_folder")
    excluded = context.spark.createDataFrame([(each,) for each in sorted(not_own)], "its_folder STRING")
    own, outside = (marked.join(excluded, "its_folder", how).drop("its_folder") for how in ("left_anti", "left_semi"))
    return OwnershipSplit(own, outside)
