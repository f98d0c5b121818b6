"""Primitive types, their canonical spelling, the format version that knows them, and the defaults they may have."""

import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from nunatak.errors import IllegalArgument
from nunatak.iceberg.shapes import print_json

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
    """The spelling the reference writes: `Decimal(9,2)` becomes `decimal(9, 2)`."""
    lower = text.lower()
    if lower in _PLAIN:
        return lower
    if match := _GEOMETRY.fullmatch(text):
        crs = _crs(match[1])
        return f"geometry({crs})" if crs else "geometry"
    if match := _GEOGRAPHY.fullmatch(text):
        return _geography(match[1], match[2])
    if match := _FIXED.fullmatch(lower):
        return f"fixed[{_bounded(match[1], text)}]"
    if match := _DECIMAL.fullmatch(lower):
        precision, scale = _bounded(match[1], text), _bounded(match[2], text)
        if precision > _MAX_DECIMAL_PRECISION:
            raise IllegalArgument(f"Decimals with precision larger than 38 are not supported: {precision}")
        return f"decimal({precision}, {scale})"
    raise IllegalArgument(f"Cannot parse type string to primitive: {text}")


def _bounded(digits: str, text: str) -> int:
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
    """The type without its parameters: `decimal(9, 2)` is a `decimal`."""
    for stop in "([":
        canonical = canonical.partition(stop)[0]
    return canonical


def min_format_version(canonical: str) -> int:
    return _MIN_FORMAT_VERSIONS.get(type_name(canonical), 1)


def check_default(canonical: str, value: object) -> None:
    """Refuse a default that is not a single value of the type, as the spec's JSON serialization writes it."""
    if not _is_default(canonical, value):
        raise IllegalArgument(f"Cannot parse default as a {canonical} value: {print_json(value)}")


def _is_default(canonical: str, value: object) -> bool:
    match type_name(canonical):
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _is_int(value, 2**31)
        case "long":
            return _is_int(value, 2**63)
        case "float" | "double":
            # The reference takes 1.0 only, but some writers print it as 1, which means the same.
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "variant" | "unknown" | "geometry" | "geography":
            return False
        case name:
            return isinstance(value, str) and _is_text_default(name, canonical, value)


def _is_int(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def _is_text_default(name: str, canonical: str, text: str) -> bool:
    try:
        match name:
            case "decimal":
                scale = int(canonical.rpartition(" ")[2].rstrip(")"))
                return re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]{1,4})?", text) is not None and (
                    Decimal(text).as_tuple().exponent == -scale
                )
            case "uuid":
                return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None
            case "fixed":
                return len(text) == 2 * int(canonical[6:-1]) and re.fullmatch(r"[0-9a-fA-F]*", text) is not None
            case "binary":
                return len(text) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]*", text) is not None
            case "date":
                date.fromisoformat(text)
            case "time":
                time.fromisoformat(text)
            case "timestamp" | "timestamptz":
                zone = datetime.fromisoformat(text).utcoffset()
                return (zone is not None and not zone) if name == "timestamptz" else zone is None
            case "timestamp_ns" | "timestamptz_ns":
                # Python reads microseconds; three more digits do not change whether the rest is a timestamp.
                return _is_text_default(name[:-3], canonical, re.sub(r"(\.[0-9]{6})[0-9]{1,3}", r"\1", text))
    except (ValueError, InvalidOperation):
        return False
    return True
