"""Which partitions a compaction takes, and in which pieces: values in, values out. Iceberg chooses the files itself."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nunatak.client import Json
from nunatak_spark.maintenance.partition_filters import Columns, Values, where

# As Iceberg's own: what is smaller or larger than this part of the target is rewritten, if so many lie together.
SMALL, LARGE = 0.75, 1.8
MIN_INPUT_FILES = 5
LARGEST_GROUP_BYTES = 100 << 30
EQUALITY_GROUP_BYTES = 1 << 30  # each task holds the equality deletes of its group in memory
COMMIT_BYTES = 4 << 30  # what more is rewritten is committed in parts, so that a failure costs no more than this
MOST_COMMITS = 10
TRIES = 5
PARTIAL = "partial-progress.enabled"
SMALLEST_PIECE, LARGEST_PIECE = 2, 100  # files that are rewritten by one call, where writers are in the way
MOST_PIECES = 100  # of one job; each takes seconds, and what is left waits for the next job


@dataclass(frozen=True)
class Sizes:
    """What the policy asks for."""

    target: int
    min_input_files: int = MIN_INPUT_FILES
    group: int = LARGEST_GROUP_BYTES
    deletes_count: bool = False  # whether a file is rewritten for its deletes alone

    @property
    def small(self) -> int:
        return int(self.target * SMALL)

    @property
    def large(self) -> int:
        return int(self.target * LARGE)


@dataclass(frozen=True)
class Partition:
    """The files of one partition that Iceberg would look at; those of an earlier layout are one of their own.

    `values` are those of the partition's fields, as text. The higher `last_changed`, the later somebody wrote there.
    """

    values: Values | None
    files: int
    size_bytes: int
    delete_files: int = 0
    last_changed: int = 0

    def is_worth_it(self, sizes: Sizes) -> bool:
        if sizes.deletes_count and self.delete_files:
            return True
        together = self.files > 1 and (self.files >= sizes.min_input_files or self.size_bytes > sizes.target)
        return together or (self.files > 0 and self.size_bytes > sizes.large)

    def files_after(self, sizes: Sizes) -> int:
        return max(1, math.ceil(self.size_bytes / sizes.target)) if self.files else 0


@dataclass(frozen=True)
class File:
    """A live file; `place` is its partition, None if that is of an earlier layout."""

    place: Values | None
    is_data: bool
    size_bytes: int
    changed: int


def grouped(files: Iterable[File], sizes: Sizes) -> list[Partition]:
    """The files by partition; those that are neither too small nor too large are not counted."""
    found: dict[Values | None, Partition] = {}
    for file in files:
        before = found.get(file.place) or Partition(file.place, 0, 0)
        taken = file.is_data and not sizes.small <= file.size_bytes <= sizes.large
        found[file.place] = Partition(
            before.values,
            before.files + taken,
            before.size_bytes + (file.size_bytes if taken else 0),
            before.delete_files + (not file.is_data),
            max(before.last_changed, file.changed),
        )
    return list(found.values())


def worth_it(partitions: Iterable[Partition], sizes: Sizes) -> list[Partition]:
    """What to rewrite, the partitions first in which nobody wrote for longest."""
    chosen = [each for each in partitions if each.is_worth_it(sizes)]
    return sorted(chosen, key=lambda each: (each.last_changed, each.size_bytes))


def rewrite_options(
    sizes: Sizes,
    todo: Sequence[Partition],
    attempt: int,
    *,
    has_deletes: bool,
    has_equality_deletes: bool,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, object]:
    """Iceberg's options. Each further attempt halves the groups and doubles the commits: a writer that commits while
    one is rewritten then spoils less."""
    total = sum(each.size_bytes for each in todo)
    group = min(sizes.group, max((each.size_bytes for each in todo), default=0) or sizes.group)
    if has_equality_deletes:
        group = min(group, EQUALITY_GROUP_BYTES)
    group = max(2 * sizes.target, group >> (attempt - 1))
    if max_bytes is not None:
        group = min(group, max_bytes)
    commits = min(MOST_COMMITS, math.ceil(total / COMMIT_BYTES)) if attempt == 1 else MOST_COMMITS << (attempt - 2)
    options: dict[str, object] = {
        "target-file-size-bytes": sizes.target,
        "min-input-files": sizes.min_input_files,
        "max-file-group-size-bytes": group,
        "rewrite-job-order": "bytes-asc",
    }
    if commits > 1:
        options |= {PARTIAL: "true", "partial-progress.max-commits": commits}
    if has_deletes:
        options["remove-dangling-deletes"] = "true"
    if sizes.deletes_count:
        options["delete-file-threshold"] = 1
    if has_equality_deletes:
        options["max-concurrent-file-group-rewrites"] = 1
    if max_files is not None:
        options["max-files-to-rewrite"] = max_files
    return options


def pieces(todo: Sequence[Partition], attempt: int, spec: Json, columns: Columns, functions: str) -> list[str | None]:
    """The conditions under which to rewrite one after the other; None stands for the whole table.

    The first attempt takes everything at once, later ones ever fewer partitions. Those that SQL cannot tell apart,
    as of an earlier layout, come last and with all others.
    """
    if attempt == 1:
        return [None]
    conditions = dict.fromkeys(where(each.values, spec, columns, functions) for each in todo)
    told = [each for each in conditions if each is not None]
    together = max(1, len(told) >> (2 * (attempt - 1)))
    chosen: list[str | None] = [" OR ".join(told[start : start + together]) for start in range(0, len(told), together)]
    return [*chosen, None] if None in conditions or not chosen else chosen


def can_shrink(todo: Sequence[Partition], sizes: Sizes) -> bool:
    """Whether a further attempt takes less at a time: there are several partitions, or several groups in one."""
    return len(todo) > 1 or any(each.size_bytes > 2 * sizes.target for each in todo)


def next_piece(files: int, *, got_through: bool) -> int:
    """How many files to rewrite by the next call: half as many after a conflict, slowly more again after a success."""
    return min(LARGEST_PIECE, files + files // 4 + 1) if got_through else max(SMALLEST_PIECE, files // 2)


def piece_options(sizes: Sizes, smallest: Sequence[int], *, has_deletes: bool) -> dict[str, object]:
    """Iceberg's options to rewrite these files and no others, by their sizes in ascending order.

    What a call writes is larger than what it read, so the next one does not choose that again.
    """
    options: dict[str, object] = {
        "target-file-size-bytes": sizes.target,
        "min-file-size-bytes": min(smallest[-1] + 1, sizes.small),
        "min-input-files": 2,
        "max-files-to-rewrite": len(smallest),
    }
    if has_deletes:
        options["remove-dangling-deletes"] = "true"
    if sizes.deletes_count:
        options["delete-file-threshold"] = 1
    return options
