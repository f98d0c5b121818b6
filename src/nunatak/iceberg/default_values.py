"""Default values of columns: which values a type accepts, and the canonical spelling in which they are stored."""

import re
import struct
from datetime import date
from decimal import Decimal
from math import isfinite

from nunatak.errors import IllegalArgument
from nunatak.iceberg.shapes import print_json
from nunatak.iceberg.types import type_name

# An exponent of four digits is more than any scale needs, and small enough to print the number without exponent.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?0*[0-9]{1,4})?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")

# The reference reads these with ISO_LOCAL_DATE, ISO_LOCAL_TIME and ISO_DATE_TIME of java.time: a year has four digits,
# or more after a sign; no plus is allowed before four digits, and no minus before zero.
_DATE_PATTERN = r"([0-9]{4}|\+[0-9]{5,10}|-(?!0+-)[0-9]{4,10})-([0-9]{2})-([0-9]{2})"
_TIME_PATTERN = r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{0,9}))?)?"
_DATE = re.compile(_DATE_PATTERN)
_TIME = re.compile(_TIME_PATTERN)
_TIMESTAMP = re.compile(f"{_DATE_PATTERN}[Tt]{_TIME_PATTERN}")
_TIMESTAMPTZ = re.compile(r"(.*?)(?:[Zz]|[+-]00:00(?::00)?)")

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
# Python's dates end with the year 9999, but the calendar repeats every 400 years.
_CYCLE_DAYS = 146_097
_CYCLE_ORDINAL = date(2000, 1, 1).toordinal()
_SECOND_NANOS = 10**9
_DAY_NANOS = 86_400 * _SECOND_NANOS
_MICRO_NANOS = 1000


def canonical_default(canonical: str, value: object) -> object:
    """Return the default as the reference would write it, for readers that accept fewer spellings than the reference.

    Raises IllegalArgument for a value that the reference could not read, or would read as another day or as infinity.
    """
    try:
        return _spell(canonical, value)
    except (ValueError, ArithmeticError) as error:
        raise IllegalArgument(f"Cannot parse default as a {canonical} value: {print_json(value)}") from error


def _spell(canonical: str, value: object) -> object:
    match type_name(canonical), value:
        case "boolean", bool():
            return value
        case _, bool():
            raise ValueError("a boolean, which to Python is an integer too")
        case "int", int():
            return _within(value, bits=32)
        case "long", int():
            return _within(value, bits=64)
        case "float", int() | float():
            return _spell_float(value, struct_format="<f")
        case "double", int() | float():
            return _spell_float(value, struct_format="<d")
        case name, str():
            return _spell_text(name, canonical, value)
        case _:
            raise ValueError("JSON of another type")


def _spell_text(name: str, canonical: str, text: str) -> str:
    match name:
        case "string":
            return text
        case "decimal":
            return _spell_decimal(text, scale=int(canonical.rpartition(" ")[2].rstrip(")")))
        case "uuid":
            return _require_match(_UUID, text)[0].lower()
        case "fixed":
            if len(text) != 2 * int(canonical[6:-1]):
                raise ValueError("another length")
            return _require_match(_HEX, text)[0].upper()
        case "binary":
            return _require_match(_HEX, text)[0].upper()
        case "date":
            return _print_date(_within(_days(_require_match(_DATE, text).groups()), bits=32))
        case "time":
            nanos = _nanos_of_day(_require_match(_TIME, text).groups())
            return _print_time(nanos - nanos % _MICRO_NANOS)
        case "timestamp":
            return _spell_timestamp(text, unit_nanos=_MICRO_NANOS)
        case "timestamp_ns":
            return _spell_timestamp(text, unit_nanos=1)
        case "timestamptz" | "timestamptz_ns":
            local = _require_match(_TIMESTAMPTZ, text)[1]
            return _spell_text(name.replace("tz", ""), canonical, local) + "+00:00"
        case _:
            raise ValueError("a type without defaults")


def _require_match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    if (match := pattern.fullmatch(text)) is None:
        raise ValueError("another format")
    return match


def _within(number: int, *, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not -limit <= number < limit:
        raise OverflowError(f"more than {bits} bits")
    return number


def _spell_float(number: float, *, struct_format: str) -> float:
    # The reference reads only 1.0, but some writers print 1, which means the same.
    spelled = float(number)
    struct.pack(struct_format, spelled)  # raises OverflowError if only a double can hold it
    if not isfinite(spelled):
        raise ValueError("no number of JSON")
    return spelled


def _spell_decimal(text: str, *, scale: int) -> str:
    number = Decimal(_require_match(_DECIMAL, text)[0])
    if number.as_tuple().exponent != -scale:
        raise ValueError("another scale")
    return format(number if number else number.copy_abs(), "f")  # the reference has no -0.00


def _spell_timestamp(text: str, *, unit_nanos: int) -> str:
    groups = _require_match(_TIMESTAMP, text).groups()
    nanos = _days(groups[:3]) * _DAY_NANOS + _nanos_of_day(groups[3:])
    # The reference truncates digits that the type cannot hold, towards 1970.
    units = nanos // unit_nanos if nanos >= 0 else -(-nanos // unit_nanos)
    days, nanos_of_day = divmod(_within(units, bits=64) * unit_nanos, _DAY_NANOS)
    return f"{_print_date(days)}T{_print_time(nanos_of_day)}"


def _days(groups: tuple[str, ...]) -> int:
    """Return the days since 1970 of a year, month and day; raise ValueError if there is no such day."""
    year, month, day = map(int, groups)
    cycle, year_of_cycle = divmod(year - 2000, 400)
    return date(2000 + year_of_cycle, month, day).toordinal() + cycle * _CYCLE_DAYS - _EPOCH_ORDINAL


def _print_date(days: int) -> str:
    cycle, day_of_cycle = divmod(days + _EPOCH_ORDINAL - _CYCLE_ORDINAL, _CYCLE_DAYS)
    day = date.fromordinal(_CYCLE_ORDINAL + day_of_cycle)
    year = day.year + cycle * 400
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{day:%m-%d}"


def _nanos_of_day(groups: tuple[str | None, ...]) -> int:
    hour, minute, second, fraction = (group or "0" for group in groups)
    seconds = (int(hour) * 60 + int(minute)) * 60 + int(second)
    return seconds * _SECOND_NANOS + int(fraction.ljust(9, "0"))


def _print_time(nanos_of_day: int) -> str:
    seconds, nanos = divmod(nanos_of_day, _SECOND_NANOS)
    whole = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{whole}.{nanos:09}".rstrip("0") if nanos else whole
