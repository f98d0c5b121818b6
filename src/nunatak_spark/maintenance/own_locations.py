"""Which files lie in the table's own places: its location and the folders that its write properties name.

Manifests are written by clients and may name any file. A job reads nothing in a place of another table, and deletes
nothing outside of its own. The server decides whose a folder is; of the many folders of a table it is asked only about
those that do not obviously lie in the table's own places.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nunatak.client import Json
from nunatak_spark.maintenance.job_context import Refused, Work
from nunatak_spark.maintenance.reachable_files import printed_name, refresh, sql_name
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDERS_PER_REQUEST = 10_000  # the server takes no more
MOST_FOLDERS = 100_000  # collected to the driver: some 20 MB
MOST_NAMED, MOST_LEFT = 5, 20  # in an error, and in a result
FOLDER = "left({0}, length({0}) - length(substring_index({0}, '/', -1)) - 1)"
LOCAL = "file:///"
# Segments that lead elsewhere, or that a store may read as such; a path with one of them is the server's to judge.
DOUBTFUL = r"//|/\.\.?(/|$)|\\|%2[eEfF]|%5[cC]|[\x00-\x1f]"


def securable(work: Work) -> str:
    """The table as the management API names it: of a level's characters only the percent sign and the slash change."""
    levels = (work.spec.warehouse, *work.spec.namespace, work.spec.table)
    return "table:" + "/".join(level.replace("%", "%25").replace("/", "%2F") for level in levels)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def normal(path: str) -> str:
    """One spelling for file:/x, file://x and file:///x, and for s3, s3a and s3n."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/+", LOCAL, path))


@dataclass(frozen=True)
class Folders:
    """What the server says of folders: `foreign` ones lie in another table's places, `outside` ones in nobody's."""

    foreign: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


class OwnPlaces:
    """The table's own places, as the server knows them at this moment."""

    def __init__(self, work: Work, places: Sequence[str], *, is_alone: bool) -> None:
        self._work = work
        known = [normal(place).rstrip("/") for place in places]
        self._local = tuple(place for place in known if place.startswith(LOCAL))
        # A folder in an own place may be another table's that lies deeper, or behind a link of this machine: ask.
        self._places = tuple(place for place in known if is_alone and place not in self._local)

    def holds(self, path: str) -> bool:
        """Whether the path obviously lies in one; else the server has to be asked."""
        text = normal(path)
        insides = (text.removeprefix(place) for place in self._places if text.startswith(f"{place}/"))
        return any(re.search(DOUBTFUL, inside) is None for inside in insides)

    def holds_sql(self, column: str) -> str:
        """The same as a condition of SQL."""
        text = f"regexp_replace(regexp_replace({column}, '^file:/+', {literal(LOCAL)}), '^s3[an]://', 's3://')"
        parts = [
            f"(startswith({text}, {literal(place + '/')}) "
            f"AND NOT regexp_like(substr({text}, length({literal(place)}) + 1), {literal(DOUBTFUL)}))"
            for place in self._places
        ]
        return " OR ".join(parts) or "false"

    def ask(self, folders: Iterable[str]) -> Folders:
        """Of these, those that are not the table's own."""
        foreign: list[str] = []
        outside: list[str] = []
        wanted = sorted(set(folders))
        outside += [folder for folder in wanted if not folder]  # a path without a slash lies in no folder
        named = [folder for folder in wanted if folder]
        for start in range(0, len(named), FOLDERS_PER_REQUEST):
            body: Json = {"securable": securable(self._work), "folders": named[start : start + FOLDERS_PER_REQUEST]}
            found = self._work.client.manage("POST", ("maintenance", "folders"), body)
            foreign += found["foreign"]
            outside += found["outside"]
        return Folders(tuple(foreign), tuple(outside))

    def suspects(self, paths: "DataFrame") -> list[str]:
        """The folders of those paths about which the server has to be asked."""
        return _folders(paths.where(f"NOT coalesce({self.holds_sql('path')}, false)"))

    def linked_folders(self, paths: "DataFrame") -> list[str]:
        """Folders on this machine that lie in an own place by name, and elsewhere by a symbolic link."""
        if not self._local:
            return []
        return [folder for folder in _folders(paths.where("path LIKE 'file:%'")) if self._is_linked(normal(folder))]

    def _is_linked(self, folder: str) -> bool:
        for place in self._local:
            if folder == place or folder.startswith(f"{place}/"):
                root, inside = place.removeprefix("file://"), folder.removeprefix(place)
                return os.path.realpath(root + inside) != os.path.realpath(root) + inside
        return False


def _folders(paths: "DataFrame") -> list[str]:
    rows = paths.selectExpr(f"{FOLDER.format('path')} AS folder").distinct().limit(MOST_FOLDERS + 1).collect()
    if len(rows) > MOST_FOLDERS:
        raise Refused(f"The server would have to be asked about more than {MOST_FOLDERS} folders of the table's files")
    return [str(row["folder"] or "") for row in rows]


# Reading


def refuse_foreign(work: Work, places: OwnPlaces, metadata: Json) -> None:
    """Refused if anything that the table leads to lies in another table's places.

    What names the files is itself looked at before it is opened: metadata, then manifest lists, then manifests.
    """
    named = [path for path in named_files(metadata, work.spec.type) if not places.holds(path)]
    _refuse(work, metadata, places.ask(map(folder_of, named)))
    if not metadata.get("snapshots"):
        return
    name = sql_name(work)
    refresh(work)
    for statement in (f"SELECT path FROM {name}.all_manifests", f"SELECT file_path AS path FROM {name}.all_files"):
        _refuse(work, metadata, places.ask(places.suspects(work.spark.sql(statement))))


def named_files(metadata: Json, job_type: str) -> Iterator[str]:
    """Every file that the metadata itself names; earlier metadata files only for the job that has them deleted."""
    for snapshot in metadata.get("snapshots") or ():
        if snapshot.get("manifest-list"):
            yield snapshot["manifest-list"]
        yield from snapshot.get("manifests") or ()
    for file in (*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())):
        yield file["statistics-path"]
    if job_type == "metadata-retention":
        for entry in metadata.get("metadata-log") or ():
            yield entry["metadata-file"]


def _refuse(work: Work, metadata: Json, found: Folders) -> None:
    if found.foreign:
        raise Refused(
            f"The metadata of {printed_name(work)} leads to files of another table: {_some(found.foreign)}. Nothing "
            "was changed. Remove the snapshots that name them."
        )
    is_local = normal(str(metadata["location"])).startswith(LOCAL)
    here = [folder for folder in found.outside if is_of_this_machine(folder)]
    if here and not is_local:
        raise Refused(
            f"The metadata of {printed_name(work)} leads to files of the machine that runs the job: {_some(here)}. "
            "Nothing was changed."
        )


def is_of_this_machine(folder: str) -> bool:
    """Whether a path means the worker's own disk, or whatever its Hadoop takes for the default file system."""
    return folder.startswith("file:") or ":" not in folder.partition("/")[0]


def _some(folders: Sequence[str]) -> str:
    named = ", ".join(folder[:200] for folder in folders[:MOST_NAMED])
    return named + (f" and {len(folders) - MOST_NAMED} more" if len(folders) > MOST_NAMED else "")


# Deleting


@dataclass(frozen=True)
class Split:
    """Paths that may be deleted, and those that are left because they lie outside of the table's own places."""

    own: "DataFrame"
    outside: "DataFrame | None" = None

    def some_outside(self) -> list[str]:
        """A few of those that are left, for the job's result."""
        if self.outside is None:
            return []
        return [str(row["path"]) for row in self.outside.select("path").limit(MOST_LEFT).collect()]


def split(work: Work, places: OwnPlaces, paths: "DataFrame") -> Split:
    """By the server's word at this moment. The frame has to name the same paths each time it is evaluated."""
    found = places.ask(places.suspects(paths))
    not_own = {*found.foreign, *found.outside, *places.linked_folders(paths)}
    if not not_own:
        return Split(paths)
    marked = paths.selectExpr("*", f"{FOLDER.format('path')} AS its_folder")
    excluded = work.spark.createDataFrame([(each,) for each in sorted(not_own)], "its_folder STRING")
    own, outside = (marked.join(excluded, "its_folder", how).drop("its_folder") for how in ("left_anti", "left_semi"))
    return Split(own, outside)
