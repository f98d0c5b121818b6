"""Primitive types: canonical spelling and lowest format version. Their values are in default_values.py."""

import re
from functools import lru_cache

from nunatak.errors import IllegalArgument

_NUMBERS = ("boolean", "int", "long", "float", "double")
_TIMES = ("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_OTHERS = ("string", "uuid", "binary", "unknown", "variant", "geometry", "geography")
_PLAIN = frozenset({*_NUMBERS, *_TIMES, *_OTHERS})
_FIXED = re.compile(r"fixed\[\s*([0-9]+)\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_GEOMETRY = re.compile(r"geometry\s*(?:\(\s*([^)]*?)\s*\))?", re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography\s*(?:\(\s*([^,]*?)\s*(?:,\s*(\w*)\s*)?\))?", re.IGNORECASE)
_EDGE_ALGORITHMS = frozenset({"spherical", "vincenty", "thomas", "andoyer", "karney"})
_DEFAULT_CRS = "OGC:CRS84"
_MAX_INT = 2**31 - 1
_MAX_DECIMAL_PRECISION = 38  # the spec's limit: 38 decimal digits fit 16 bytes

_MIN_FORMAT_VERSIONS = {
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "unknown": 3,
    "variant": 3,
    "geometry": 3,
    "geography": 3,
}


@lru_cache(maxsize=4096)
def canonical_type(text: str) -> str:
    """Return the spelling that the reference writes: `Decimal(9,2)` becomes `decimal(9, 2)`. Raises IllegalArgument."""
    lower = text.lower()
    if lower in _PLAIN:
        return lower
    if match := _GEOMETRY.fullmatch(text):
        crs = _crs(match[1])
        return f"geometry({crs})" if crs else "geometry"
    if match := _GEOGRAPHY.fullmatch(text):
        return _geography(match[1], match[2])
    if match := _FIXED.fullmatch(lower):
        return f"fixed[{_parse_bounded_int(match[1], text)}]"
    if match := _DECIMAL.fullmatch(lower):
        precision, scale = _parse_bounded_int(match[1], text), _parse_bounded_int(match[2], text)
        if precision > _MAX_DECIMAL_PRECISION:
            raise IllegalArgument(f"Decimals with precision larger than 38 are not supported: {precision}")
        return f"decimal({precision}, {scale})"
    raise IllegalArgument(f"Cannot parse type string to primitive: {text}")


def _parse_bounded_int(digits: str, text: str) -> int:
    # The length comes first: int() refuses very long text with an error of its own.
    if len(digits) > 10 or int(digits) > _MAX_INT:
        raise IllegalArgument(f"Cannot parse type string to primitive: {text}")
    return int(digits)


def _crs(crs: str | None) -> str | None:
    if crs == "":
        raise IllegalArgument("Invalid CRS: (empty string)")
    return None if crs is None or crs.upper() == _DEFAULT_CRS else crs


def _geography(crs: str | None, algorithm: str | None) -> str:
    known = _crs(crs)
    if algorithm is None:
        return f"geography({known})" if known else "geography"
    if algorithm.lower() not in _EDGE_ALGORITHMS:
        raise IllegalArgument(f"Invalid edge interpolation algorithm: {algorithm}")
    return f"geography({known or _DEFAULT_CRS}, {algorithm.lower()})"


def type_name(canonical: str) -> str:
    """Return the type without its parameters: `decimal(9, 2)` is a `decimal`."""
    for stop in "([":
        canonical = canonical.partition(stop)[0]
    return canonical


def min_format_version(canonical: str) -> int:
    return _MIN_FORMAT_VERSIONS.get(type_name(canonical), 1)
