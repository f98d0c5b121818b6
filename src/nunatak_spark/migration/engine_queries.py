"""The queries that engines answer about one table, and when answers are equal. Pure: a schema in, SQL out.

First measures of each column, then a few whole rows and filtered counts, which are chosen by the measures.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

from nunatak_spark.migration.metadata_comparison import current_schema
from nunatak_spark.migration.metadata_comparison import normalize_document as normal_document
from nunatak_spark.sql_text import literal, quote_identifier

Json = dict[str, Any]
Kind = Literal[
    "integer", "decimal", "float", "boolean", "date", "timestamp", "string", "binary", "uuid", "list", "map", "other"
]  # fmt: skip

COLUMNS_AT_MOST = 100  # fingerprints cover all columns; here engines are compared
DISTINCT_AT_MOST = 8  # Spark expands every row once per distinct aggregate
FILTERS_AT_MOST = 4
ROWS = 5
TOLERANCE = 1e-9  # relative; float sums depend on the order

KINDS: Mapping[str, Kind] = {
    "int": "integer", "long": "integer", "float": "float", "double": "float", "boolean": "boolean", "date": "date",
    "timestamp": "timestamp", "timestamptz": "timestamp", "string": "string", "binary": "binary", "uuid": "uuid",
}  # fmt: skip
MEASURES: Mapping[Kind, tuple[str, ...]] = {
    "integer": ("count", "least", "most", "sum", "distinct"),
    "decimal": ("count", "least", "most", "sum", "distinct"),
    "float": ("count", "least", "most", "sum", "not-a-number"),
    "boolean": ("count", "true"),
    "date": ("count", "least", "most", "distinct"),
    "timestamp": ("count", "least", "most", "distinct"),
    "string": ("count", "least", "most", "bytes", "distinct"),
    "binary": ("count", "least", "most", "bytes"),
    "uuid": ("count", "least", "most", "distinct"),
    "list": ("count", "elements"),
    "map": ("count", "elements"),
    "other": ("count",),
}
SORTABLE: tuple[Kind, ...] = ("integer", "decimal", "date", "timestamp", "string", "boolean")


@dataclass(frozen=True)
class QueryColumn:
    """A column, or a field inside structs."""

    path: tuple[str, ...]
    kind: Kind

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class ColumnMeasure:
    column: QueryColumn
    of: str

    @property
    def question(self) -> str:
        return f"{self.of} of {self.column.name}"


@dataclass(frozen=True)
class CountFilter:
    """Counts the rows up to a value; Iceberg prunes files by it."""

    column: QueryColumn
    value: int | str | date

    @property
    def question(self) -> str:
        return f"rows with {self.column.name} <= {self.value}"


@dataclass(frozen=True)
class SampleRows:
    """The first rows in the order of some columns; `columns` are those that are compared."""

    columns: tuple[QueryColumn, ...]
    order: tuple[QueryColumn, ...]

    @property
    def question(self) -> str:
        return f"first {ROWS} rows by {', '.join(column.name for column in self.order)}"


# Choosing queries


def columns_of(document: Json) -> tuple[QueryColumn, ...]:
    """Returns the columns of the current schema, with structs flattened."""
    return tuple(_leaves(current_schema(normal_document(document))["fields"], ()))[:COLUMNS_AT_MOST]


def _leaves(fields: Sequence[Json], path: tuple[str, ...]) -> Iterator[QueryColumn]:
    for field in fields:
        here, kind = (*path, str(field["name"])), field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _leaves(kind["fields"], here)
        else:
            yield QueryColumn(here, _kind(kind))


def _kind(kind: Any) -> Kind:
    if isinstance(kind, dict):
        return "list" if kind["type"] == "list" else "map" if kind["type"] == "map" else "other"
    if kind.startswith("decimal"):
        return "decimal"
    return "binary" if kind.startswith("fixed") else KINDS.get(kind, "other")


def choose_measures(columns: Sequence[QueryColumn]) -> tuple[ColumnMeasure, ...]:
    distinct = 0
    found = []
    for column in columns:
        for of in MEASURES[column.kind]:
            distinct += of == "distinct"
            if of != "distinct" or distinct <= DISTINCT_AT_MOST:
                found.append(ColumnMeasure(column, of))
    return tuple(found)


def choose_rows(columns: Sequence[QueryColumn], answers: Mapping[str, str | None], rows: int) -> SampleRows | None:
    """Returns whole rows if a column identifies rows; else only the sort columns, so that ties do not matter."""
    top = [column for column in columns if len(column.path) == 1]
    for column in top:
        unique = answers.get(ColumnMeasure(column, "distinct").question) == answers.get(
            ColumnMeasure(column, "count").question
        )
        if column.kind in SORTABLE and unique and answers.get(ColumnMeasure(column, "count").question) == str(rows):
            return SampleRows(tuple(columns), (column,))
    sortable = tuple(column for column in top if column.kind in SORTABLE)
    return SampleRows(sortable, sortable) if sortable else None


def choose_filters(columns: Sequence[QueryColumn], answers: Mapping[str, str | None]) -> tuple[CountFilter, ...]:
    """Returns filters at the middle of the value range, or at the minimum for strings."""
    found = []
    for column in columns:
        least, most = (answers.get(ColumnMeasure(column, of).question) for of in ("least", "most"))
        if len(column.path) > 1 or least is None or most is None:
            continue
        match column.kind:
            case "integer":
                found.append(CountFilter(column, (int(least) + int(most)) // 2))
            case "date":
                first, last = date.fromisoformat(least), date.fromisoformat(most)
                found.append(CountFilter(column, first + (last - first) / 2))
            case "string":
                found.append(CountFilter(column, least))
    return tuple(found[:FILTERS_AT_MOST])


# SQL


@dataclass(frozen=True)
class Dialect:
    """The differences between the SQL dialects."""

    quote: str
    text_bytes: str
    list_size: str
    map_size: str
    field: Callable[[str, str], str]
    escape: Callable[[str], str]

    def quote_name(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def value(self, column: QueryColumn) -> str:
        value = self.quote_name(column.path[0])
        for name in column.path[1:]:
            value = self.field(value, name)
        return f"CAST({value} AS VARCHAR(36))" if column.kind == "uuid" else value

    def literal(self, value: int | str | date) -> str:
        if isinstance(value, int):
            return str(value)
        return f"DATE '{value}'" if isinstance(value, date) else f"'{self.escape(value)}'"


SPARK = Dialect(
    quote="`",
    text_bytes="octet_length",
    list_size="size",
    map_size="size",
    field=lambda value, name: f"{value}.{quote_identifier(name)}",
    escape=lambda text: literal(text)[1:-1],
)
DUCKDB = Dialect(
    quote='"',
    text_bytes="strlen",
    list_size="len",
    map_size="cardinality",
    field=lambda value, name: "struct_extract({}, '{}')".format(value, name.replace("'", "''")),
    escape=lambda text: text.replace("'", "''"),
)


def measures_sql(asked: Sequence[ColumnMeasure], table: str, dialect: Dialect) -> str:
    """Returns one statement for all measures; its first column is the row count."""
    expressions = ["count(*) AS n", *(f"{_measure_sql(one, dialect)} AS m{i}" for i, one in enumerate(asked))]
    return f"SELECT {', '.join(expressions)} FROM {table}"


def _measure_sql(measure: ColumnMeasure, dialect: Dialect) -> str:
    value, kind = dialect.value(measure.column), measure.column.kind
    number = f"CASE WHEN NOT isnan({value}) THEN {value} END" if kind == "float" else value
    match measure.of:
        case "least":
            return f"min({number})"
        case "most":
            return f"max({number})"
        case "distinct":
            return f"count(DISTINCT {value})"
        case "sum" if kind == "integer":
            return f"CAST(sum(CAST({value} AS DECIMAL(38, 0))) AS DECIMAL(38, 0))"
        case "sum":
            return f"sum({number})"
        case "true":
            return f"count(CASE WHEN {value} THEN 1 END)"
        case "not-a-number":
            return f"count(CASE WHEN isnan({value}) THEN 1 END)"
        case "bytes":
            size = dialect.text_bytes if kind == "string" else "octet_length"
            return f"CAST(sum({size}({value})) AS DECIMAL(38, 0))"
        case "elements":
            size = dialect.list_size if kind == "list" else dialect.map_size
            return f"CAST(sum(CASE WHEN {value} IS NOT NULL THEN {size}({value}) END) AS DECIMAL(38, 0))"
        case _:
            return f"count({value})"


def rows_sql(asked: SampleRows, table: str, dialect: Dialect) -> str:
    values = ", ".join(f"{dialect.value(column)} AS v{i}" for i, column in enumerate(asked.columns))
    order = ", ".join(f"{dialect.value(column)} ASC NULLS FIRST" for column in asked.order)
    return f"SELECT {values} FROM {table} ORDER BY {order} LIMIT {ROWS}"


def filters_sql(asked: Sequence[CountFilter], table: str, dialect: Dialect) -> str:
    """Returns one UNION ALL statement, so that each filter prunes separately; rows are filter number and count."""
    return " UNION ALL ".join(
        f"SELECT {i} AS i, count(*) AS n FROM {table} WHERE {dialect.value(one.column)} <= {dialect.literal(one.value)}"
        for i, one in enumerate(asked)
    )


# Answers


def normalize_value(value: Any) -> str | None:
    """Returns one text per value, whatever engine it comes from."""
    if value is None:
        return None
    inner = _inner(value)
    return inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False, sort_keys=True)


def _inner(value: Any) -> Any:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return "NaN" if math.isnan(value) else repr(value + 0.0)  # -0.0 becomes 0.0
        case Decimal():
            return format(value.normalize(), "f") if value else "0"
        case bytes():
            return "0x" + value.hex()
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
        case dict():
            return {str(key): _inner(inside) for key, inside in value.items()}
        case list() if value and all(isinstance(one, tuple) for one in value):  # Arrow returns maps as lists of tuples
            return sorted(([_inner(key), _inner(inside)] for key, inside in value), key=json.dumps)
        case list():
            return [_inner(one) for one in value]
        case _:
            return str(value)


def answers_agree(
    measure: ColumnMeasure | None, left: str | None, right: str | None, answers: Mapping[str, str | None]
) -> bool:
    """Returns whether two answers are equal; float sums may differ by TOLERANCE."""
    if left == right:
        return True
    if measure is None or (measure.of, measure.column.kind) != ("sum", "float") or left is None or right is None:
        return False
    return math.isclose(
        float(left), float(right), rel_tol=TOLERANCE, abs_tol=TOLERANCE * _largest_sum(measure.column, answers)
    )


def _largest_sum(column: QueryColumn, answers: Mapping[str, str | None]) -> float:
    """Returns an upper bound of the sum of absolute values of a column."""
    count, least, most = (answers.get(ColumnMeasure(column, of).question) for of in ("count", "least", "most"))
    found = int(count or 0) * max((abs(float(end)) for end in (least, most) if end is not None), default=0.0)
    return found if math.isfinite(found) else 0.0
