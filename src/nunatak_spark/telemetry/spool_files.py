"""The spool folder where the server writes telemetry: finds waiting files, and deletes ingested ones."""

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
CHECKPOINTS = "_checkpoints"  # Spark skips names with a leading underscore


@dataclass(frozen=True)
class WaitingFiles:
    """The files of one day: `<spool>/<kind>/<day>/…`.

    `elsewhere` counts files by kind that only Spark can see; their names are unknown, and they are never deleted.
    """

    day: str
    files: tuple[str, ...] = ()
    elsewhere: Mapping[str, int] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """In the order of KINDS, so that runs ingest in the same order."""
        present = {*(kind_and_day(file)[0] for file in self.files), *self.elsewhere}
        return [kind for kind in KINDS if kind in present]

    @property
    def count(self) -> int:
        return len(self.files) + sum(self.elsewhere.values())


def kind_and_day(file: str) -> tuple[str, str]:
    """Returns kind and day of a file, which are its folders."""
    kind, day, _ = file.rsplit("/", 3)[-3:]
    return kind, day


def local_folder(spool: str) -> Path | None:
    """Returns the spool as a local folder; None if only Spark can see it."""
    if "://" in spool and not spool.startswith("file:///"):
        return None
    folder = Path(spool.removeprefix("file://").removeprefix("file:"))
    return folder if folder.is_dir() else None


def find_waiting(spark: "SparkSession", spool: str) -> list[WaitingFiles]:
    """Returns all finished files of known kinds, oldest day first."""
    folder = local_folder(spool)
    if folder is None:
        return _count_with_spark(spark, spool)
    # The server limits the size of the spool, so the list is short.
    found = [str(path) for path in folder.glob(f"*/*/*{ENDING}") if not path.name.startswith(".")]
    return group_by_day([file for file in found if kind_and_day(file)[0] in KINDS])


def _count_with_spark(spark: "SparkSession", spool: str) -> list[WaitingFiles]:
    """Counts files by day and kind with Spark: remote files are never deleted and may be very many."""
    # Only paths are selected, so no file is read. Works with every storage of Spark, and over Connect.
    listed = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    paths = listed.option("pathGlobFilter", f"*{ENDING}").load(spool).selectExpr("split(path, '/') AS parts")
    places = paths.selectExpr("element_at(parts, -3) AS kind", "element_at(parts, -2) AS day")
    rows = places.where(places.kind.isin(list(KINDS))).groupBy("day", "kind").count().collect()
    days: dict[str, dict[str, int]] = {}
    for row in rows:
        days.setdefault(str(row["day"]), {})[str(row["kind"])] = int(row["count"])
    return [WaitingFiles(day, elsewhere=days[day]) for day in sorted(days)]


def group_by_day(files: Sequence[str]) -> list[WaitingFiles]:
    """Groups files by day, oldest first."""
    days: dict[str, list[str]] = {}
    for file in files:
        days.setdefault(kind_and_day(file)[1], []).append(file)
    return [WaitingFiles(day, tuple(sorted(days[day]))) for day in sorted(days)]


def delete_files(waiting: WaitingFiles) -> int:
    """Deletes ingested local files; returns how many were deleted."""
    removed = 0
    for file in waiting.files:
        with contextlib.suppress(OSError):  # not permitted, or deleted already
            Path(file).unlink()
            removed += 1
    return removed


def forget_days(folder: Path, checkpoints: Path | None, before: str) -> None:
    """Removes empty folders and Spark checkpoints of days that get no more files.

    A checkpoint lists every file that it has seen; one per day, so that it does not grow forever.
    """
    for day in (day for kind in KINDS for day in (folder / kind).glob("*-*-*")):
        if day.name < before:
            with contextlib.suppress(OSError):  # not empty
                day.rmdir()
    for memory in checkpoints.glob("*-*-*") if checkpoints is not None else ():
        if memory.name < before and not any((folder / kind / memory.name).exists() for kind in KINDS):
            shutil.rmtree(memory, ignore_errors=True)


@contextlib.contextmanager
def lock_spool(folder: Path | None) -> Iterator[None]:
    """Locks the folder against a second ingest; raises CannotRun."""
    if folder is None:
        yield
        return
    with (folder / ".ingesting").open("w") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotRun(f"Another ingest uses {folder}", fix="Wait until it is done.") from error
        yield
