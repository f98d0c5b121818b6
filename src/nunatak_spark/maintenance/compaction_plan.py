"""Which partitions a compaction takes, and in which pieces: values in, values out. Iceberg chooses the files itself."""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from nunatak.client import Json
from nunatak_spark.sql_text import literal, quoted

# As Iceberg's own: what is smaller or larger than this part of the target is rewritten, if so many lie together.
SMALL, LARGE = 0.75, 1.8
MIN_INPUT_FILES = 5
LARGEST_GROUP_BYTES = 100 << 30
EQUALITY_GROUP_BYTES = 1 << 30  # each task holds the equality deletes of its group in memory
COMMIT_BYTES = 4 << 30  # what more is rewritten is committed in parts, so that a failure costs no more than this
MOST_COMMITS = 10
TRIES = 5
PARTIAL = "partial-progress.enabled"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


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

    `values` are those of the partition's fields by name. The higher `last_changed`, the later somebody wrote there.
    """

    values: Mapping[str, Any] | None
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

    place: Any
    is_data: bool
    size_bytes: int
    changed: int


def grouped(files: Iterable[File], sizes: Sizes) -> list[Partition]:
    """The files by partition; those that are neither too small nor too large are not counted."""
    found: dict[Any, Partition] = {}
    for file in files:
        before = found.get(file.place) or Partition(_values(file.place), 0, 0)
        taken = file.is_data and not sizes.small <= file.size_bytes <= sizes.large
        found[file.place] = Partition(
            before.values,
            before.files + taken,
            before.size_bytes + (file.size_bytes if taken else 0),
            before.delete_files + (not file.is_data),
            max(before.last_changed, file.changed),
        )
    return list(found.values())


def _values(place: Any) -> Mapping[str, Any] | None:
    return None if place is None else place.asDict()


def worth_it(partitions: Iterable[Partition], sizes: Sizes) -> list[Partition]:
    """What to rewrite, the partitions first in which nobody wrote for longest."""
    chosen = [each for each in partitions if each.is_worth_it(sizes)]
    return sorted(chosen, key=lambda each: (each.last_changed, each.size_bytes))


def files_within(sizes_bytes: Sequence[int], max_bytes: int) -> int:
    """How many files may be taken whichever they are, without going over; `sizes_bytes` largest first."""
    taken = 0
    for count, size in enumerate(sizes_bytes):
        taken += size
        if taken > max_bytes:
            return count
    return len(sizes_bytes)


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


def pieces(
    todo: Sequence[Partition], attempt: int, spec: Json, columns: Mapping[int, tuple[str, Any]]
) -> list[str | None]:
    """The conditions under which to rewrite one after the other; None stands for the whole table.

    The first attempt takes everything at once, later ones ever fewer partitions, if SQL can tell them apart.
    """
    if attempt == 1:
        return [None]
    conditions = [where(each.values, spec, columns) for each in todo]
    told = [each for each in conditions if each is not None]
    if len(told) < len(conditions) or not told:
        return [None]
    together = max(1, len(told) >> (2 * (attempt - 1)))
    return [" OR ".join(told[start : start + together]) for start in range(0, len(told), together)]


def where(values: Mapping[str, Any] | None, spec: Json, columns: Mapping[int, tuple[str, Any]]) -> str | None:
    """A condition on columns that all rows of the partition fulfil, and hardly any others; None if there is none.

    `columns` are the names, as SQL writes them, and types by field id.
    """
    if values is None:
        return None
    parts = []
    for field in spec["fields"]:
        column, kind = columns.get(field["source-id"], (None, None))
        part = None
        if column is not None and isinstance(kind, str) and field["name"] in values:
            part = _field_condition(column, kind, field["transform"], values[field["name"]])
        if part is not None:
            parts.append(part)
    return f"({' AND '.join(parts)})" if parts else None


def _field_condition(column: str, kind: str, transform: str, value: Any) -> str | None:
    if transform == "void":
        return None
    if value is None:
        return f"{column} IS NULL"
    if transform == "identity":
        text = sql_literal(value)
        return None if text is None else f"{column} = {text}"
    bounds = _time_bounds(transform, value)
    if bounds is None or kind not in ("date", "timestamp", "timestamptz"):
        return None
    first, end = (_moment(each, kind) for each in bounds)
    return f"{column} >= {first} AND {column} < {end}"


def _time_bounds(transform: str, value: Any) -> tuple[datetime.datetime, datetime.datetime] | None:
    """The first moment of a partition by time, and that after its last."""
    if transform in ("day", "days") and isinstance(value, datetime.date):
        first = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
        return first, first + datetime.timedelta(days=1)
    if not isinstance(value, int):
        return None
    if transform in ("hour", "hours"):
        return EPOCH + datetime.timedelta(hours=value), EPOCH + datetime.timedelta(hours=value + 1)
    if transform in ("month", "months"):
        return _month(value), _month(value + 1)
    if transform in ("year", "years"):
        return _month(12 * value), _month(12 * value + 12)
    return None


def _month(number: int) -> datetime.datetime:
    """The beginning of a month, counted from January 1970."""
    return datetime.datetime(1970 + number // 12, number % 12 + 1, 1, tzinfo=datetime.UTC)


def _moment(moment: datetime.datetime, kind: str) -> str:
    if kind == "date":
        return f"DATE '{moment:%Y-%m-%d}'"
    if kind == "timestamp":
        return f"TIMESTAMP_NTZ '{moment:%Y-%m-%d %H:%M:%S}'"
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}Z'"


def sql_literal(value: Any) -> str | None:
    """A value as SQL writes it; None for those that have no exact form."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return literal(value)
        case Decimal():
            return f"{value:f}BD"
        case datetime.datetime():
            return None  # whether it has a zone is not told by its type
        case datetime.date():
            return f"DATE '{value:%Y-%m-%d}'"
        case _:
            return None


def named_columns(fields: Sequence[Json], parents: tuple[str, ...] = ()) -> dict[int, tuple[str, Any]]:
    """Every column that SQL can name, also inside structs: its name and type by field id."""
    found: dict[int, tuple[str, Any]] = {}
    for field in fields:
        path = (*parents, field["name"])
        found[field["id"]] = (".".join(map(quoted, path)), field["type"])
        if isinstance(field["type"], dict) and field["type"].get("type") == "struct":
            found |= named_columns(field["type"]["fields"], path)
    return found
