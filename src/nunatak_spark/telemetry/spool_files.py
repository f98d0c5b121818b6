"""The folder in which the server leaves telemetry: which files wait there, and how those that are ingested go."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nunatak_spark.errors import CannotRun
from nunatak_spark.telemetry.telemetry_tables import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDING = ".jsonl"
CHECKPOINTS = "_checkpoints"  # Spark looks at no name that begins so


@dataclass(frozen=True)
class Waiting:
    """Files of one day that were there when somebody looked: `<spool>/<kind>/<day>/…`.

    `elsewhere` tells how many of each kind only Spark can see; those have no names here and are never deleted.
    """

    day: str
    files: tuple[str, ...] = ()
    elsewhere: Mapping[str, int] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """In the order of KINDS, so that the same are ingested in the same order."""
        present = {*(place_of(file)[0] for file in self.files), *self.elsewhere}
        return [kind for kind in KINDS if kind in present]

    @property
    def count(self) -> int:
        return len(self.files) + sum(self.elsewhere.values())


def place_of(file: str) -> tuple[str, str]:
    """Kind and day of a file, which are its folders."""
    kind, day, _ = file.rsplit("/", 3)[-3:]
    return kind, day


def local_folder(spool: str) -> Path | None:
    """The spool as a folder of this machine; None if it lies elsewhere, or only Spark can see it."""
    if "://" in spool and not spool.startswith("file:///"):
        return None
    folder = Path(spool.removeprefix("file://").removeprefix("file:"))
    return folder if folder.is_dir() else None


def find_waiting(spark: "SparkSession", spool: str) -> list[Waiting]:
    """All finished files of the kinds we know, the oldest day first."""
    folder = local_folder(spool)
    if folder is None:
        return _counted_by_spark(spark, spool)
    # The server keeps the spool below the size that its settings allow, so these are not too many to list.
    found = [str(path) for path in folder.glob(f"*/*/*{ENDING}") if not path.name.startswith(".")]
    return by_day([file for file in found if place_of(file)[0] in KINDS])


def _counted_by_spark(spark: "SparkSession", spool: str) -> list[Waiting]:
    """Files elsewhere stay until somebody removes them, and may be very many: only their days reach the driver."""
    # Only names are asked for, so no file is read. It works wherever Spark can read, and over Connect.
    listed = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    paths = listed.option("pathGlobFilter", f"*{ENDING}").load(spool).selectExpr("split(path, '/') AS parts")
    places = paths.selectExpr("element_at(parts, -3) AS kind", "element_at(parts, -2) AS day")
    rows = places.where(places.kind.isin(list(KINDS))).groupBy("day", "kind").count().collect()
    days: dict[str, dict[str, int]] = {}
    for row in rows:
        days.setdefault(str(row["day"]), {})[str(row["kind"])] = int(row["count"])
    return [Waiting(day, elsewhere=days[day]) for day in sorted(days)]


def by_day(files: Sequence[str]) -> list[Waiting]:
    """The oldest day first."""
    days: dict[str, list[str]] = {}
    for file in files:
        days.setdefault(place_of(file)[1], []).append(file)
    return [Waiting(day, tuple(sorted(days[day]))) for day in sorted(days)]


def delete(waiting: Waiting) -> int:
    """Remove files that were ingested; returns how many could be, which are those of this machine."""
    removed = 0
    for file in waiting.files:
        with contextlib.suppress(OSError):  # somebody else's machine, or somebody was quicker
            Path(file).unlink()
            removed += 1
    return removed


def forget_days(folder: Path, checkpoints: Path | None, before: str) -> None:
    """Remove what was kept about days for which nothing can come any more: empty folders, and Spark's memory of them.

    Spark remembers every file it has seen; by the day, so that this does not grow for ever.
    """
    for day in (day for kind in KINDS for day in (folder / kind).glob("*-*-*")):
        if day.name < before:
            with contextlib.suppress(OSError):  # not empty
                day.rmdir()
    for memory in checkpoints.glob("*-*-*") if checkpoints is not None else ():
        if memory.name < before and not any((folder / kind / memory.name).exists() for kind in KINDS):
            shutil.rmtree(memory, ignore_errors=True)


@contextlib.contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """Nobody else ingests from this folder meanwhile."""
    if folder is None:
        yield
        return
    with (folder / ".ingesting").open("w") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotRun(f"Somebody ingests {folder} already", fix="Wait until it is done.") from error
        yield
