"""Fingerprints of table contents: equal for equal rows in any order and file layout, different if one value differs.

Planning is pure: a schema (Spark's JSON form) becomes SQL expressions, and their result row becomes a value. Each
column has the sum of a 64-bit hash of its values, and the table has the sum of a hash over whole rows. Sums detect
duplicates, which xor does not, and the row sum detects values that moved to another row. Sums of parts add up to the
sum of the whole.

After a change of an expression, measure the speed: `make bench BENCH="spark fingerprint"`.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.column_types import DECIMAL, Type, format_type
from nunatak_spark.errors import CannotRun
from nunatak_spark.installation import import_pyspark
from nunatak_spark.session_settings import temporary_settings
from nunatak_spark.sql_text import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Hashes are summed as bigints that wrap around; ANSI mode would raise an overflow error. Summing in pieces that cannot
# overflow costs 50 % more CPU and detects nothing more.
RING = 2**64
MAX_PARTITIONS = 100_000  # the driver holds one fingerprint each, some hundred bytes per column
SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.iceberg.aggregate-push-down.enabled": "false",  # counts from metadata prove nothing about the files
    "spark.sql.session.timeZone": "UTC",  # to_json prints the timestamps of a variant in the session's zone
}
# Types with one representation per value, hashed directly. Dates and timestamps are integers inside; Spark's hash of a
# double treats -0.0 as 0.0 and all NaNs as equal; a string is hashed by its bytes.
PLAIN = re.compile(
    r"boolean|long|double|string|(var)?char\(\d+\)|binary|date|time\(\d\)|timestamp|timestamp_ntz|void|interval( .*)?"
)
INTEGERS = {"byte", "short", "integer"}
VARIANT_LEVELS = 3  # nested arrays of mixed types; a deeper variant is refused, never skipped
TOO_DEEP = f"a variant has more than {VARIANT_LEVELS} levels of arrays of several types: it has no fingerprint"
SHORT_DIGITS = 18  # Spark stores and hashes decimals up to this precision as bigint, longer ones differently


class ColumnPrint(msgspec.Struct, frozen=True, rename="kebab"):
    """The fingerprint of one column: its type, the number of nulls, and the sum of the hashes of its values."""

    type: str
    nulls: int
    sum: str

    def __add__(self, other: "ColumnPrint") -> "ColumnPrint":
        return ColumnPrint(self.type, self.nulls + other.nulls, _add_sums(self.sum, other.sum))


class Fingerprint(msgspec.Struct, frozen=True, rename="kebab"):
    """The fingerprint of all rows of a table or of one partition."""

    rows: int
    sum: str
    columns: dict[str, ColumnPrint]

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        """Returns the fingerprint of both parts together."""
        columns = {name: column + other.columns[name] for name, column in self.columns.items()}
        return Fingerprint(self.rows + other.rows, _add_sums(self.sum, other.sum), columns)


# Planning


class Plan(msgspec.Struct, frozen=True):
    """Three steps of SQL expressions, each over the result of the one before: column hashes, row hashes, sums."""

    columns: tuple[str, ...]
    types: dict[str, str]
    keys: int
    hashes: tuple[str, ...]
    rows: tuple[str, ...]
    sums: tuple[str, ...]


def plan(schema: Mapping[str, Any], by: Sequence[str] = ()) -> Plan:
    """Plans the fingerprint of a table with this schema, for the whole table or per value of the expressions `by`.

    Columns are identified by name, so their order does not matter.
    """
    fields = sorted(schema["fields"], key=lambda field: str(field["name"]))
    if not fields:
        raise CannotRun("A table without columns has no fingerprint", fix="Count its rows instead.")
    types = {field["name"]: format_type(field["type"]) for field in fields}
    keys = [f"cast({expression} as string) as k{i}" for i, expression in enumerate(by)]
    hashes, nulls = [], []
    for i, field in enumerate(fields):
        name = quote_identifier(field["name"])
        hashes.append(f"{hash_expression(name, field['type'], field['name'])} as c{i}")
        nulls.append(f"{name} as n{i}")
    kept = [f"k{i}" for i in range(len(by))]
    all_hashes = [f"c{i}" for i in range(len(fields))]
    row = f"xxhash64({', '.join(all_hashes)}) as r"
    sums = ["count(*) as n", "sum(r) as s"]
    for i in range(len(fields)):
        sums += [f"sum(c{i}) as s{i}", f"count(n{i}) as v{i}"]
    return Plan(
        columns=tuple(types),
        types=types,
        keys=len(by),
        hashes=(*keys, *hashes, *nulls),
        rows=(*kept, *all_hashes, *(f"n{i}" for i in range(len(fields))), row),
        sums=tuple(sums),
    )


def hash_expression(value: str, kind: Type, column: str, depth: int = 0) -> str:
    """Returns SQL for the hash of a single value.

    A simple null hashes to a constant. A null struct, array or map needs a marker, see `hash_arguments`.
    """
    arguments = (
        canonical_expression(value, kind, column, depth)
        if isinstance(kind, str)
        else hash_arguments(value, kind, column, depth)
    )
    return f"xxhash64({arguments})"


def hash_arguments(value: str, kind: Type, column: str, depth: int = 0) -> str:
    """Returns a value as arguments of xxhash64, which skips nulls: a marker tells (null, 'a') from ('a', null)."""
    return f"isnull({value}), {canonical_expression(value, kind, column, depth)}"


def canonical_expression(value: str, kind: Type, column: str, depth: int = 0) -> str:
    """Returns SQL that is equal for equal values, also after Iceberg widened the column's type."""
    if isinstance(kind, str):
        return _canonical_simple(value, kind, column, depth)
    match kind["type"]:
        case "struct":
            # Sorted by name: field order has no meaning, and swapped fields have different values.
            by_name = sorted(kind["fields"], key=lambda field: str(field["name"]))
            fields = [(f"{value}.{quote_identifier(field['name'])}", field["type"]) for field in by_name]
            inner = ", ".join(hash_arguments(inside, inner_kind, column, depth) for inside, inner_kind in fields)
            return f"xxhash64({inner or 'true'})"
        case "array":
            item = f"e{depth}"
            each = hash_expression(item, kind["elementType"], column, depth + 1)
            # Hash the size too: [[1], [2]] is not [[1, 2]], and [] is not null.
            return f"xxhash64(size({value}), transform({value}, {item} -> {each}))"
        case "map":
            entry = f"e{depth}"
            key = hash_arguments(f"{entry}.key", kind["keyType"], column, depth + 1)
            held = hash_arguments(f"{entry}.value", kind["valueType"], column, depth + 1)
            hashes = f"transform(map_entries({value}), {entry} -> xxhash64({key}, {held}))"
            return f"xxhash64(size({value}), array_sort({hashes}))"  # a map has no order
        case other:
            raise _unknown(column, str(other))


def _canonical_simple(value: str, kind: str, column: str, depth: int) -> str:
    if kind in INTEGERS:
        return f"cast({value} as bigint)"
    if kind == "float":
        return f"cast({value} as double)"
    if found := DECIMAL.fullmatch(kind):
        return _canonical_decimal(value, precision=int(found.group(1)), scale=int(found.group(2)))
    if kind.startswith("string collate "):
        return f"cast({value} as binary)"  # never a collation's key
    if kind == "variant":
        return _canonical_variant(value, depth)
    if PLAIN.fullmatch(kind):
        return value
    raise _unknown(column, kind)


def _canonical_decimal(value: str, *, precision: int, scale: int) -> str:
    """Hashes a small decimal in its short form, whatever precision its column has.

    The scale is hashed too, because Spark hashes the digits alone: those of 1.50 and 0.150 are the same.
    """
    if precision <= SHORT_DIGITS or scale > SHORT_DIGITS:
        return f"xxhash64({value}, {scale})"
    short = f"xxhash64(cast({value} as decimal({SHORT_DIGITS},{scale})), {scale})"
    return f"if(abs({value}) < 1{'0' * (SHORT_DIGITS - scale)}BD, {short}, xxhash64({value}, {scale}))"


def _canonical_variant(value: str, depth: int, levels: int = VARIANT_LEVELS) -> str:
    """Hashes text and schema of a variant: the text alone does not tell a date from a string.

    The schema of an array of mixed types is ARRAY<VARIANT>. Its elements are hashed one by one, each with its own
    schema.
    """
    text = f"cast(to_json({value}) as binary), cast(schema_of_variant({value}) as binary)"
    is_mixed = f"contains(schema_of_variant({value}), 'VARIANT')"
    if not levels:
        return f"{text}, if({is_mixed}, raise_error('{TOO_DEEP}'), null)"
    item = f"e{depth}"
    each = f"{item} -> xxhash64({_canonical_variant(item, depth + 1, levels - 1)})"
    elements = f"transform(try_variant_get({value}, '$', 'array<variant>'), {each})"
    fields = f"transform(map_values(try_variant_get({value}, '$', 'map<string,variant>')), {each})"
    return f"{text}, if({is_mixed}, coalesce({elements}, {fields}), null)"


def _unknown(column: str, kind: str) -> CannotRun:
    return CannotRun(
        f"Column {column} has the type {kind}, for which there is no fingerprint", fix="Leave the column out."
    )


# Reading the result


def fingerprint_of(plan: Plan, row: Mapping[str, Any]) -> Fingerprint:
    """Returns the fingerprint in one row of sums; sums over no rows are null."""
    rows = int(row["n"])
    columns = {
        name: ColumnPrint(plan.types[name], rows - int(row[f"v{i}"]), _format_sum(row[f"s{i}"] or 0))
        for i, name in enumerate(plan.columns)
    }
    return Fingerprint(rows, _format_sum(row["s"] or 0), columns)


def _format_sum(number: int) -> str:
    return f"{number % RING:x}"


def _add_sums(left: str, right: str) -> str:
    return _format_sum(int(left, 16) + int(right, 16))


# Running


def fingerprint(spark: "SparkSession", source: "str | DataFrame", *, snapshot_id: int | None = None) -> Fingerprint:
    """Reads every value of a table (now or at a snapshot) or of a DataFrame, and returns its fingerprint."""
    frame = _frame(spark, source, snapshot_id)
    planned = plan(frame.schema.jsonValue())
    with fingerprint_settings(spark):
        (row,) = _aggregate(frame, planned).collect()
    return fingerprint_of(planned, row.asDict())


def fingerprints(spark: "SparkSession", frames: "Sequence[DataFrame]") -> list[Fingerprint]:
    """Returns the fingerprints of several tables, computed by one Spark job, in the given order."""
    plans = [plan(frame.schema.jsonValue()) for frame in frames]
    with fingerprint_settings(spark):
        parts = [
            _aggregate(frame, planned).selectExpr(
                f"{number} AS i", "n", "s", _array_column("s", planned), _array_column("v", planned)
            )
            for number, (frame, planned) in enumerate(zip(frames, plans, strict=True))
        ]
        rows = {row["i"]: row for row in reduce(lambda left, right: left.unionAll(right), parts).collect()}
    return [fingerprint_of(planned, _expand_arrays(rows[number].asDict())) for number, planned in enumerate(plans)]


def _array_column(name: str, planned: Plan) -> str:
    return f"array({', '.join(f'{name}{i}' for i in range(len(planned.columns)))}) AS {name}s"


def _expand_arrays(row: Mapping[str, Any]) -> dict[str, Any]:
    """Turns the arrays of `_array_column` back into columns."""
    spread = {f"{name}{i}": value for name in ("s", "v") for i, value in enumerate(row[f"{name}s"])}
    return {"n": row["n"], "s": row["s"], **spread}


class TooManyPartitions(CannotRun):
    """The fingerprints of all partitions would not fit into the driver's memory."""


def fingerprint_by(
    spark: "SparkSession", source: "str | DataFrame", by: Sequence[str], *, snapshot_id: int | None = None
) -> dict[str, Fingerprint]:
    """Returns one fingerprint per value of the SQL expressions `by`, usually the partition expressions.

    Raises TooManyPartitions if there are more values than the driver should hold.
    """
    frame = _frame(spark, source, snapshot_id)
    planned = plan(frame.schema.jsonValue(), by)
    with fingerprint_settings(spark):
        rows = [row.asDict() for row in _aggregate(frame, planned).limit(MAX_PARTITIONS + 1).collect()]
    if len(rows) > MAX_PARTITIONS:
        raise TooManyPartitions(
            f"There are more than {MAX_PARTITIONS} different values of {', '.join(by)}",
            fix="Compare by something coarser, or without partitions.",
        )
    return {partition_name(by, [row[f"k{i}"] for i in range(len(by))]): fingerprint_of(planned, row) for row in rows}


def partition_name(by: Sequence[str], values: Sequence[str | None]) -> str:
    """Returns a readable, unique name of a partition, such as `day=2026-01-01/region is null`."""
    return "/".join(
        f"{expression} is null" if value is None else f"{expression}={value.replace('%', '%25').replace('/', '%2F')}"
        for expression, value in zip(by, values, strict=True)
    )


def _frame(spark: "SparkSession", source: "str | DataFrame", snapshot_id: int | None) -> "DataFrame":
    if not isinstance(source, str):
        return source
    return spark.table(source) if snapshot_id is None else spark.read.option("versionAsOf", snapshot_id).table(source)


def _aggregate(frame: "DataFrame", planned: Plan) -> "DataFrame":
    hashed = frame.selectExpr(*planned.hashes).selectExpr(*planned.rows)
    keys = [f"k{i}" for i in range(planned.keys)]
    if not keys:
        return hashed.selectExpr(*planned.sums)
    functions = import_pyspark("pyspark.sql.functions")
    return hashed.groupBy(*keys).agg(*map(functions.expr, planned.sums))


def fingerprint_settings(spark: "SparkSession") -> AbstractContextManager[None]:
    """Sets the session settings that a fingerprint needs; restores the old ones at the end."""
    return temporary_settings(spark, SETTINGS)
