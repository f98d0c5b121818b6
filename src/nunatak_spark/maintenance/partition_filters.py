"""Partition values as exact text, and as conditions for Iceberg's procedures: values in, SQL out.

Spark turns each partition value into text, and the text becomes a literal of the same type. So values never pass
through Python, where NaN differs from itself, 0.0 equals -0.0, and years end at 9999.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nunatak.client import Json
from nunatak_spark.sql_text import literal, quote_identifier

Columns = Mapping[int, tuple[str, Any]]
"""SQL name and type of each column, by field id."""
Values = tuple[str | None, ...]
"""The values of a partition as text, in the order of the partition spec's fields."""

MONTHS_PER_YEAR, HOURS_PER_DAY, MICROS_PER_HOUR = 12, 24, 3_600_000_000
INTEGERS = {"int": "INT", "long": "BIGINT"}
CAST = {**INTEGERS, "boolean": "BOOLEAN", "float": "FLOAT", "double": "DOUBLE"}
PERIODS = ("year", "month", "day", "hour")


def partition_values_sql(spec: Json, columns: Columns, partition: str) -> str:
    """Returns SQL for an array of the partition's values as text; equal exactly if Iceberg takes two
    partitions as one.
    """
    texts = [
        _text(f"{partition}.{quote_identifier(field['name'])}", _result_type(field, columns))
        for field in spec["fields"]
    ]
    return f"array({', '.join(texts)})" if texts else "CAST(array() AS ARRAY<STRING>)"


def partition_condition(values: Values | None, spec: Json, columns: Columns, functions: str) -> str | None:
    """Returns a condition for the rows of this partition; it may include others if SQL cannot tell them apart.

    Returns None if no condition is possible. `functions` is the namespace of Iceberg's functions, such as
    `lake`.`system`.
    """
    if values is None:
        return None
    parts = []
    for field, text in zip(spec["fields"], values, strict=True):
        column, kind = columns.get(field["source-id"], (None, None))
        if column is not None and isinstance(kind, str):
            parts.append(_field_condition(column, kind, field["transform"], text, functions))
    told = [part for part in parts if part is not None]
    return f"({' AND '.join(told)})" if told else None


def columns_by_id(fields: Sequence[Json], parents: tuple[str, ...] = ()) -> dict[int, tuple[str, Any]]:
    """Returns SQL name and type of every column by field id, also of those inside structs."""
    found: dict[int, tuple[str, Any]] = {}
    for field in fields:
        path = (*parents, field["name"])
        found[field["id"]] = (".".join(map(quote_identifier, path)), field["type"])
        if isinstance(field["type"], dict) and field["type"].get("type") == "struct":
            found |= columns_by_id(field["type"]["fields"], path)
    return found


# From values to text


def _result_type(field: Json, columns: Columns) -> str:
    """Returns the type of a partition field's values; empty if unknown, as for a dropped column."""
    transform = _singular(field["transform"])
    if transform == "day":
        return "date"
    if transform == "identity" or transform.startswith("truncate"):
        _, kind = columns.get(field["source-id"], (None, None))
        return kind if isinstance(kind, str) else ""
    return "int"


def _text(value: str, kind: str) -> str:
    if kind == "date":
        return f"CAST(unix_date({value}) AS STRING)"
    if kind == "timestamptz":  # its text would depend on the session's time zone
        return f"CAST(unix_micros({value}) AS STRING)"
    if kind == "binary" or kind.startswith("fixed"):
        return f"hex({value})"
    return f"CAST({value} AS STRING)"


# From text to conditions


def _field_condition(column: str, kind: str, transform: str, text: str | None, functions: str) -> str | None:
    transform = _singular(transform)
    if transform == "void":
        return None
    if text is None:
        return f"{column} IS NULL"
    if transform == "identity":
        value = _literal(text, kind)
        return None if value is None else f"{column} = {value}"
    if transform in PERIODS:
        first, end = (_moment(hours, kind) for hours in _hours(transform, int(text)))
        return None if first is None or end is None else f"{column} >= {first} AND {column} < {end}"
    parsed = re.fullmatch(r"(bucket|truncate)\[(\d+)\]", transform)
    value = _literal(text, "int" if transform.startswith("bucket") else kind)
    if parsed is None or value is None:
        return None
    return f"{functions}.{parsed[1]}({parsed[2]}, {column}) = {value}"


def _literal(text: str, kind: str) -> str | None:
    """Returns a value as an SQL literal; None for an unknown type."""
    match kind:
        case "string" | "uuid":
            return literal(text)
        case "date":
            return f"date_from_unix_date({int(text)})"
        case "timestamptz":
            return f"timestamp_micros({int(text)})"
        case "timestamp":
            return f"TIMESTAMP_NTZ {literal(text)}"
        case _ if kind in CAST:
            return f"CAST({literal(text)} AS {CAST[kind]})"
        case _ if kind.startswith("decimal"):
            return f"CAST({literal(text)} AS {kind})"
        case _ if kind == "binary" or kind.startswith("fixed"):
            return f"X'{text}'"
        case _:
            return None


def _hours(period: str, number: int) -> tuple[int, int]:
    """Returns the first hour since 1970 of a year, month, day or hour, and the first hour after it."""
    match period:
        case "hour":
            return number, number + 1
        case "day":
            return number * HOURS_PER_DAY, (number + 1) * HOURS_PER_DAY
        case "month":
            return _days(number) * HOURS_PER_DAY, _days(number + 1) * HOURS_PER_DAY
        case _:
            return _hours("month", number * MONTHS_PER_YEAR)[0], _hours("month", (number + 1) * MONTHS_PER_YEAR)[0]


def _days(month: int) -> int:
    """Returns the days from 1970-01-01 to the first of a month, counted from then; works for any year,
    unlike Python's dates.
    """
    year, number = 1970 + month // MONTHS_PER_YEAR, month % MONTHS_PER_YEAR + 1
    # Years start in March here, so that the leap day is the last day of a year.
    year, shifted = (year - 1, number + 9) if number < 3 else (year, number - 3)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * shifted + 2) // 5 - 719_468


def _moment(hours: int, kind: str) -> str | None:
    match kind:
        case "date":
            return f"date_from_unix_date({hours // HOURS_PER_DAY})"
        case "timestamptz":
            return f"timestamp_micros({hours * MICROS_PER_HOUR})"
        case "timestamp":
            days, rest = divmod(hours, HOURS_PER_DAY)
            return f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, {rest})"
        case _:
            return None


def _singular(transform: str) -> str:
    """Returns the transform's name; `days` is an old spelling of `day`."""
    return transform.removesuffix("s") if transform.removesuffix("s") in PERIODS else transform
