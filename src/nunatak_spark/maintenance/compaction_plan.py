"""Plans a compaction: which partitions, and in which pieces. Values in, values out; Iceberg itself picks the files."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nunatak.client import Json
from nunatak_spark.maintenance.partition_filters import Columns, Values, partition_condition

# Iceberg's defaults: files below or above these fractions of the target are rewritten, if enough are in one partition.
SMALL, LARGE = 0.75, 1.8
MIN_INPUT_FILES = 5
MAX_GROUP_BYTES = 100 << 30
EQUALITY_GROUP_BYTES = 1 << 30  # a task keeps the equality deletes of its group in memory
COMMIT_BYTES = 4 << 30  # larger rewrites are committed in parts, so that a failure loses at most this much
MAX_COMMITS = 10
TRIES = 5
PARTIAL = "partial-progress.enabled"
MIN_PIECE_FILES, MAX_PIECE_FILES = 2, 100  # files per call, if larger rewrites conflict with writers
MAX_PIECES = 100  # calls per job; each takes seconds, the next job continues


@dataclass(frozen=True)
class FileSizes:
    """The file sizes that the policy asks for, in bytes."""

    target: int
    min_input_files: int = MIN_INPUT_FILES
    group: int = MAX_GROUP_BYTES
    rewrite_for_deletes: bool = False  # whether a file is rewritten for its deletes alone

    @property
    def small(self) -> int:
        return int(self.target * SMALL)

    @property
    def large(self) -> int:
        return int(self.target * LARGE)


@dataclass(frozen=True)
class Partition:
    """The files of one partition that Iceberg would consider. All files of earlier specs form one Partition.

    `values` are the partition values as text. `last_changed` is the highest sequence number of a file in it.
    """

    values: Values | None
    files: int
    size_bytes: int
    delete_files: int = 0
    last_changed: int = 0

    def needs_rewrite(self, sizes: FileSizes) -> bool:
        if sizes.rewrite_for_deletes and self.delete_files:
            return True
        together = self.files > 1 and (self.files >= sizes.min_input_files or self.size_bytes > sizes.target)
        return together or (self.files > 0 and self.size_bytes > sizes.large)

    def files_after(self, sizes: FileSizes) -> int:
        return max(1, math.ceil(self.size_bytes / sizes.target)) if self.files else 0


@dataclass(frozen=True)
class CompactionFile:
    """A live file; `place` are its partition values, None for a file of an earlier spec."""

    place: Values | None
    is_data: bool
    size_bytes: int
    changed: int


def group_by_partition(files: Iterable[CompactionFile], sizes: FileSizes) -> list[Partition]:
    """Groups files by partition; files within the size limits are not counted."""
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


def select_partitions(partitions: Iterable[Partition], sizes: FileSizes) -> list[Partition]:
    """Returns the partitions to rewrite, the least recently changed first."""
    chosen = [each for each in partitions if each.needs_rewrite(sizes)]
    return sorted(chosen, key=lambda each: (each.last_changed, each.size_bytes))


def rewrite_options(
    sizes: FileSizes,
    todo: Sequence[Partition],
    attempt: int,
    *,
    has_deletes: bool,
    has_equality_deletes: bool,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, object]:
    """Returns Iceberg's rewrite options.

    Each attempt halves the group size and doubles the commits: a conflicting commit then invalidates less work.
    """
    total = sum(each.size_bytes for each in todo)
    group = min(sizes.group, max((each.size_bytes for each in todo), default=0) or sizes.group)
    if has_equality_deletes:
        group = min(group, EQUALITY_GROUP_BYTES)
    group = max(2 * sizes.target, group >> (attempt - 1))
    if max_bytes is not None:
        group = min(group, max_bytes)
    commits = min(MAX_COMMITS, math.ceil(total / COMMIT_BYTES)) if attempt == 1 else MAX_COMMITS << (attempt - 2)
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
    if sizes.rewrite_for_deletes:
        options["delete-file-threshold"] = 1
    if has_equality_deletes:
        options["max-concurrent-file-group-rewrites"] = 1
    if max_files is not None:
        options["max-files-to-rewrite"] = max_files
    return options


def rewrite_conditions(
    todo: Sequence[Partition], attempt: int, spec: Json, columns: Columns, functions: str
) -> list[str | None]:
    """Returns the conditions to rewrite one after the other; None stands for the whole table.

    The first attempt rewrites everything at once, later ones fewer partitions at a time. Partitions without an SQL
    condition, such as those of an earlier spec, come last and together with all others.
    """
    if attempt == 1:
        return [None]
    conditions = dict.fromkeys(partition_condition(each.values, spec, columns, functions) for each in todo)
    told = [each for each in conditions if each is not None]
    together = max(1, len(told) >> (2 * (attempt - 1)))
    chosen: list[str | None] = [" OR ".join(told[start : start + together]) for start in range(0, len(told), together)]
    return [*chosen, None] if None in conditions or not chosen else chosen


def can_shrink(todo: Sequence[Partition], sizes: FileSizes) -> bool:
    """Returns whether a further attempt can rewrite less at a time: several partitions, or several groups in one."""
    return len(todo) > 1 or any(each.size_bytes > 2 * sizes.target for each in todo)


def next_piece_size(files: int, *, got_through: bool) -> int:
    """Returns the number of files for the next call: half after a conflict, slightly more after a success."""
    return min(MAX_PIECE_FILES, files + files // 4 + 1) if got_through else max(MIN_PIECE_FILES, files // 2)


def piece_options(sizes: FileSizes, smallest: Sequence[int], *, has_deletes: bool) -> dict[str, object]:
    """Returns Iceberg's options to rewrite exactly these files, given their sizes in ascending order.

    The result of a call is larger than its inputs, so the next call does not pick it again.
    """
    options: dict[str, object] = {
        "target-file-size-bytes": sizes.target,
        "min-file-size-bytes": min(smallest[-1] + 1, sizes.small),
        "min-input-files": 2,
        "max-files-to-rewrite": len(smallest),
    }
    if has_deletes:
        options["remove-dangling-deletes"] = "true"
    if sizes.rewrite_for_deletes:
        options["delete-file-threshold"] = 1
    return options
