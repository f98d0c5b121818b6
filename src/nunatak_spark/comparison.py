"""Compares two fingerprints: whether two tables hold the same rows and, if not, which columns and partitions differ."""

from collections.abc import Iterator, Mapping

import msgspec

from nunatak_spark.column_types import keeps_values, parse_type
from nunatak_spark.fingerprint import Fingerprint


class TypeChange(msgspec.Struct, frozen=True, rename="kebab"):
    column: str
    left: str
    right: str


class Difference(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """How the right table differs from the left one; every field is empty if they are equal.

    `retyped` alone is no difference of the data: Iceberg widens columns. A column in `other_types` has a type that does
    not keep the values, such as bigint for a timestamp, whatever its sum is. `rows_paired_differently` means that every
    column holds the same values as before, but in other rows.
    """

    rows_left: int
    rows_right: int
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    rows_paired_differently: bool = False
    retyped: tuple[TypeChange, ...] = ()
    other_types: tuple[TypeChange, ...] = ()

    @property
    def same_data(self) -> bool:
        return not (
            self.rows_left != self.rows_right
            or self.only_left
            or self.only_right
            or self.changed
            or self.other_types
            or self.rows_paired_differently
        )

    def sentences(self) -> Iterator[str]:
        """Yields one sentence per difference."""
        if self.rows_left != self.rows_right:
            yield f"{self.rows_left} rows became {self.rows_right}"
        if self.only_left:
            yield f"columns are missing: {', '.join(self.only_left)}"
        if self.only_right:
            yield f"columns are new: {', '.join(self.only_right)}"
        if self.changed:
            yield f"values differ in: {', '.join(self.changed)}"
        for one in self.other_types:
            yield f"{one.column} was {one.left} and is {one.right}, which does not keep the values"
        if self.rows_paired_differently:
            yield "every column holds the same values, but in other rows"
        for one in self.retyped:
            yield f"{one.column} was {one.left} and is {one.right}"


class PartitionDifferences(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """Partitions that exist on one side only, and those whose contents differ."""

    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()
    changed: dict[str, Difference] = msgspec.field(default_factory=dict)

    @property
    def same_data(self) -> bool:
        return not (self.only_left or self.only_right or self.changed)


def compare(left: Fingerprint, right: Fingerprint) -> Difference:
    """Returns how `right` differs from `left`; columns are matched by name."""
    both = [name for name in left.columns if name in right.columns]
    only_left = tuple(name for name in left.columns if name not in right.columns)
    only_right = tuple(name for name in right.columns if name not in left.columns)
    changed = tuple(
        name
        for name in both
        if (left.columns[name].nulls, left.columns[name].sum) != (right.columns[name].nulls, right.columns[name].sum)
    )
    changes = [
        TypeChange(name, left.columns[name].type, right.columns[name].type)
        for name in both
        if left.columns[name].type != right.columns[name].type
    ]
    retyped = tuple(one for one in changes if _is_wider(one))
    other_types = tuple(one for one in changes if not _is_wider(one))
    # If columns are missing or changed, the row sums differ too and add no information.
    comparable = not (only_left or only_right or changed) and left.rows == right.rows
    paired = comparable and left.sum != right.sum
    return Difference(left.rows, right.rows, only_left, only_right, changed, paired, retyped, other_types)


def _is_wider(change: TypeChange) -> bool:
    return keeps_values(parse_type(change.left), parse_type(change.right))


def compare_partitions(left: Mapping[str, Fingerprint], right: Mapping[str, Fingerprint]) -> PartitionDifferences:
    differences = {name: compare(left[name], right[name]) for name in sorted(left.keys() & right.keys())}
    return PartitionDifferences(
        tuple(sorted(left.keys() - right.keys())),
        tuple(sorted(right.keys() - left.keys())),
        {name: difference for name, difference in differences.items() if not difference.same_data},
    )
