"""A table's content as a few numbers: equal for equal rows in any order and layout, different if one value differs.

Planning is pure: a schema (Spark's JSON form) becomes SQL expressions, and the row that they answer becomes a value.
Each column has the sum of a 64-bit hash of its values, and the rows one over all their columns: sums see duplicates,
which xor does not, and the row's sum sees values that moved from one row to another. Sums of parts add up to the whole.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.errors import CannotRun
from nunatak_spark.installation import import_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A sum of bigints overflows, and Spark 4 then throws: hashes are added up in three pieces, which take 2**41 rows each.
PIECES = ((42, 22), (21, 21), (0, 21))  # how far to shift right, and how many bits to keep
SETTINGS = {
    "spark.sql.iceberg.aggregate-push-down.enabled": "false",  # counts from metadata prove nothing about the data
    "spark.sql.session.timeZone": "UTC",  # a variant writes its timestamps in the session's zone
}
# Hashed as they are: each has one form, and the date and timestamp types are whole numbers inside.
PLAIN = re.compile(r"boolean|long|binary|date|time\(\d\)|timestamp|timestamp_ntz|void|interval( .*)?")
INTEGERS = {"byte", "short", "integer"}
FLOATS = {"float", "double"}

Type = str | Mapping[str, Any]


class ColumnPrint(msgspec.Struct, frozen=True, rename="kebab"):
    """One column: its type, how many values are null, and the sum of the hashes of all of them."""

    type: str
    nulls: int
    sum: str

    def __add__(self, other: "ColumnPrint") -> "ColumnPrint":
        return ColumnPrint(self.type, self.nulls + other.nulls, _added(self.sum, other.sum))


class Fingerprint(msgspec.Struct, frozen=True, rename="kebab"):
    """All rows of a table, or of one partition of it."""

    rows: int
    sum: str
    columns: dict[str, ColumnPrint]

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        """That of both together."""
        columns = {name: column + other.columns[name] for name, column in self.columns.items()}
        return Fingerprint(self.rows + other.rows, _added(self.sum, other.sum), columns)


# Planning


class Plan(msgspec.Struct, frozen=True):
    """Three steps of expressions, each over what the one before gives: hashes of columns, of rows, then sums."""

    columns: tuple[str, ...]
    types: dict[str, str]
    keys: int
    hashes: tuple[str, ...]
    rows: tuple[str, ...]
    sums: tuple[str, ...]


def plan(schema: Mapping[str, Any], by: Sequence[str] = ()) -> Plan:
    """How to fingerprint a table of this schema, whole or for each value of the expressions `by`.

    Columns count by name and not by place, so moving one changes nothing.
    """
    fields = sorted(schema["fields"], key=lambda field: str(field["name"]))
    if not fields:
        raise CannotRun("A table without columns has no fingerprint", fix="Count its rows instead.")
    types = {field["name"]: printed_type(field["type"]) for field in fields}
    keys = [f"cast({expression} as string) as k{i}" for i, expression in enumerate(by)]
    hashes, nulls = [], []
    for i, field in enumerate(fields):
        name = quoted(field["name"])
        hashes.append(f"xxhash64({marked(name, field['type'], field['name'])}) as c{i}")
        nulls.append(f"isnull({name}) as n{i}")
    kept = [f"k{i}" for i in range(len(by))]
    all_hashes = [f"c{i}" for i in range(len(fields))]
    row = f"xxhash64({', '.join(all_hashes)}) as r"
    sums = ["count(*) as n", *_pieces("r")]
    for i in range(len(fields)):
        sums += [*_pieces(f"c{i}"), f"count_if(n{i}) as z{i}"]
    return Plan(
        columns=tuple(types),
        types=types,
        keys=len(by),
        hashes=(*keys, *hashes, *nulls),
        rows=(*kept, *all_hashes, *(f"n{i}" for i in range(len(fields))), row),
        sums=tuple(sums),
    )


def marked(value: str, kind: Type, column: str, depth: int = 0) -> str:
    """A value as arguments of xxhash64, which skips nulls: a mark before each tells (null, 'a') from ('a', null)."""
    return f"isnull({value}), {canonical(value, kind, column, depth)}"


def canonical(value: str, kind: Type, column: str, depth: int = 0) -> str:
    """An expression with the same bytes for equal values, also after a column was widened as Iceberg allows."""
    if isinstance(kind, str):
        return _canonical_simple(value, kind, column)
    match kind["type"]:
        case "struct":
            fields = [(f"{value}.{quoted(field['name'])}", field["type"]) for field in kind["fields"]]
            inner = ", ".join(marked(inside, inner_kind, column, depth) for inside, inner_kind in fields)
            return f"xxhash64({inner or 'true'})"
        case "array":
            item = f"e{depth}"
            hashed = f"xxhash64({marked(item, kind['elementType'], column, depth + 1)})"
            # The size beside the hashes: [[1], [2]] is not [[1, 2]], and [] is not null.
            return f"xxhash64(size({value}), transform({value}, {item} -> {hashed}))"
        case "map":
            entry = f"e{depth}"
            key = marked(f"{entry}.key", kind["keyType"], column, depth + 1)
            held = marked(f"{entry}.value", kind["valueType"], column, depth + 1)
            hashes = f"transform(map_entries({value}), {entry} -> xxhash64({key}, {held}))"
            return f"xxhash64(size({value}), array_sort({hashes}))"  # a map has no order
        case other:
            raise _unknown(column, str(other))


def _canonical_simple(value: str, kind: str, column: str) -> str:
    if kind in INTEGERS:
        return f"cast({value} as bigint)"
    if kind in FLOATS:
        return f"case when {value} = 0 then 0D else cast({value} as double) end"  # -0.0 is 0.0
    if kind.startswith("decimal"):
        found = re.fullmatch(r"decimal\(\d+,\s*(-?\d+)\)", kind)
        return f"cast({value} as decimal(38,{found.group(1) if found else 0}))"  # hashed otherwise up to 18 digits
    if re.fullmatch(r"string( collate \w+)?|(var)?char\(\d+\)", kind):
        return f"cast({value} as binary)"  # never a collation's key
    if kind == "variant":
        # Its text does not tell a date from a string; its schema does.
        return f"cast(to_json({value}) as binary), cast(schema_of_variant({value}) as binary)"
    if PLAIN.fullmatch(kind):
        return value
    raise _unknown(column, kind)


def _unknown(column: str, kind: str) -> CannotRun:
    return CannotRun(
        f"Column {column} has the type {kind}, for which there is no fingerprint", fix="Leave the column out."
    )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def printed_type(kind: Type) -> str:
    """A type as people write it."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            fields = ", ".join(f"{field['name']}: {printed_type(field['type'])}" for field in kind["fields"])
            return f"struct<{fields}>"
        case "array":
            return f"array<{printed_type(kind['elementType'])}>"
        case "map":
            return f"map<{printed_type(kind['keyType'])}, {printed_type(kind['valueType'])}>"
        case other:
            return str(other)


def _pieces(name: str) -> list[str]:
    return [f"sum(shiftrightunsigned({name}, {shift}) & {2**bits - 1}L) as {name}_{shift}" for shift, bits in PIECES]


# Reading the answer


def fingerprint_of(plan: Plan, row: Mapping[str, Any]) -> Fingerprint:
    """The value behind one row of sums; the sums over no rows are null."""
    columns = {
        name: ColumnPrint(plan.types[name], int(row[f"z{i}"] or 0), _total(row, f"c{i}"))
        for i, name in enumerate(plan.columns)
    }
    return Fingerprint(int(row["n"]), _total(row, "r"), columns)


def _total(row: Mapping[str, Any], name: str) -> str:
    return f"{sum(int(row[f'{name}_{shift}'] or 0) << shift for shift, _ in PIECES):x}"


def _added(left: str, right: str) -> str:
    return f"{int(left, 16) + int(right, 16):x}"


# Running


def fingerprint(spark: "SparkSession", source: "str | DataFrame", *, snapshot_id: int | None = None) -> Fingerprint:
    """Of a table by name, now or at a snapshot, or of a DataFrame; every value of it is read."""
    frame = _frame(spark, source, snapshot_id)
    planned = plan(frame.schema.jsonValue())
    with _settings(spark):
        (row,) = _summed(frame, planned).collect()
    return fingerprint_of(planned, row.asDict())


def fingerprint_by(
    spark: "SparkSession", source: "str | DataFrame", by: Sequence[str], *, snapshot_id: int | None = None
) -> dict[str, Fingerprint]:
    """One for each value of the SQL expressions `by`, which are best those of the partitions."""
    frame = _frame(spark, source, snapshot_id)
    planned = plan(frame.schema.jsonValue(), by)
    with _settings(spark):
        rows = [row.asDict() for row in _summed(frame, planned).collect()]
    return {partition_name(by, [row[f"k{i}"] for i in range(len(by))]): fingerprint_of(planned, row) for row in rows}


def partition_name(by: Sequence[str], values: Sequence[str | None]) -> str:
    """As people read it: `day=2026-01-01/region is null`; no two partitions have the same."""
    return "/".join(
        f"{expression} is null" if value is None else f"{expression}={value.replace('%', '%25').replace('/', '%2F')}"
        for expression, value in zip(by, values, strict=True)
    )


def _frame(spark: "SparkSession", source: "str | DataFrame", snapshot_id: int | None) -> "DataFrame":
    if not isinstance(source, str):
        return source
    return spark.table(source) if snapshot_id is None else spark.read.option("versionAsOf", snapshot_id).table(source)


def _summed(frame: "DataFrame", planned: Plan) -> "DataFrame":
    hashed = frame.selectExpr(*planned.hashes).selectExpr(*planned.rows)
    keys = [f"k{i}" for i in range(planned.keys)]
    if not keys:
        return hashed.selectExpr(*planned.sums)
    functions = import_pyspark("pyspark.sql.functions")
    return hashed.groupBy(*keys).agg(*map(functions.expr, planned.sums))


@contextmanager
def _settings(spark: "SparkSession") -> Iterator[None]:
    """What a fingerprint needs from the session, which then gets its own settings back."""
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
