"""Partition and sort transforms: their canonical spelling, and the source types each can be applied to."""

import re

from nunatak.errors import IllegalArgument
from nunatak.iceberg.types import type_name

_PLAIN = frozenset({"identity", "year", "month", "day", "hour", "void"})
_WITH_WIDTH = re.compile(r"([A-Za-z0-9_]+)\[([0-9]+)\]")
_MAX_INT = 2**31 - 1

_DATES = frozenset({"date"})
_TIMESTAMPS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_TRUNCATABLE = frozenset({"int", "long", "string", "binary", "decimal"})
_SOURCES = {
    "bucket[N]": _TRUNCATABLE | _DATES | _TIMESTAMPS | {"time", "fixed", "uuid"},
    "truncate[N]": _TRUNCATABLE,
    "year": _DATES | _TIMESTAMPS,
    "month": _DATES | _TIMESTAMPS,
    "day": _DATES | _TIMESTAMPS,
    "hour": _TIMESTAMPS,
}
_NOT_FOR_IDENTITY = frozenset({"variant", "geometry", "geography"})


def canonical_transform(text: str) -> str:
    """Return the spelling that the reference writes. An unknown transform is kept as it is: readers must ignore it."""
    lower = text.lower()
    if lower in _PLAIN:
        return lower
    if match := _WITH_WIDTH.fullmatch(lower):
        digits = match[2].lstrip("0")
        if len(digits) > 10 or int(digits or 0) > _MAX_INT:  # the reference checks the number first
            raise IllegalArgument(f"Invalid transform, not an integer: {text}")
        if match[1] not in ("bucket", "truncate"):
            return text
        if not digits:
            what = "number of buckets" if match[1] == "bucket" else "truncate width"
            raise IllegalArgument(f"Invalid {what}: 0 (must be > 0)")
        return f"{match[1]}[{digits}]"
    return text


def can_transform(transform: str, source_type: str) -> bool:
    """Return whether a transform fits a type, both in canonical spelling. Unknown transforms fit, as the spec asks."""
    source = type_name(source_type)
    if transform == "identity":
        return source not in _NOT_FOR_IDENTITY
    sources = _SOURCES.get(_WITH_WIDTH.sub(r"\1[N]", transform))
    return sources is None or source in sources
