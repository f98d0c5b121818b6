"""L2, whether both tables hold the same rows: every value of both is read, and what differs is named down to rows.

Fingerprints of all rows and of each column are compared first. Only if they differ are the partitions looked at, and
only inside those that differ are rows told apart, by the hash of each: unlike EXCEPT ALL that works for every type.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nunatak_spark.comparison import Difference, PartitionDifferences, compare, compare_partitions
from nunatak_spark.fingerprint import (
    SETTINGS,
    Plan,
    TooManyPartitions,
    fingerprint_by,
    fingerprint_settings,
    fingerprints,
    partition_name,
    plan,
)
from nunatak_spark.migration.metadata_comparison import DECLARED, current_schema, default_spec, normal
from nunatak_spark.migration.model import Finding, Looked, Pair
from nunatak_spark.migration.reader_options import TEXT
from nunatak_spark.migration.text_records import count_records
from nunatak_spark.sql_text import literal, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Json = dict[str, Any]

SHOWN_ROWS = 5  # of each side
SHOWN_PARTITIONS = 20
SEARCHED_PARTITIONS = 10  # for rows: the first few tell what went wrong


def look(pair: Pair, document: Json) -> Looked:
    spark = pair.spark
    rows = pair.source_rows()
    trimmed = padded_columns(rows.schema.jsonValue(), {one.name: one.type for one in pair.table.found.columns})
    source = rows.selectExpr(*selected(rows.columns, rows.columns, trimmed))
    table = spark.table(pair.target_name)
    target = table.selectExpr(*selected(table.columns, rows.columns, trimmed))
    before, after = fingerprints(spark, (source, target))
    difference = compare(before, after)
    facts: Json = {
        "rows": after.rows,
        "source": msgspec.to_builtins(before),
        "target": msgspec.to_builtins(after),
        "settings": SETTINGS,
    }
    if trimmed:
        facts["compared-without-trailing-spaces"] = sorted(trimmed)
    if difference.retyped:
        facts["retyped"] = [f"{one.column} was {one.left} and is {one.right}" for one in difference.retyped]
    name = f"{pair.table.found.source}.{'.'.join(pair.table.found.name)}"
    statements = (
        statement(plan(source.schema.jsonValue()), name),
        statement(plan(target.schema.jsonValue()), pair.target_name),
    )
    findings = list(_findings(difference))
    if pair.table.found.format in TEXT and pair.table.found.kind != "iceberg":
        more, wrong = _look_at_text(pair, before.rows)
        findings += wrong
        facts |= more
    if not difference.same_data:
        by = partition_expressions(document, pair.catalog)
        common = [quote_identifier(column) for column in before.columns if column in after.columns]
        more, where = _look_deeper(spark, source.selectExpr(*common), target.selectExpr(*common), by, pair.catalog)
        findings += where
        facts |= more
    return Looked(tuple(findings), facts, statements)


def _look_at_text(pair: Pair, rows: int) -> tuple[Json, list[Finding]]:
    """Text has no types, so the comparison is with what Spark reads from it; a second parser counts the records."""
    found = pair.table.found
    counted = count_records(pair.spark, found)
    options = ", ".join(f"{key}={value!r}" for key, value in sorted(found.read_options.items()))
    facts: Json = {
        "shows": f"the target holds what Spark reads from the {found.format} files with {options or 'no options'}; "
        "not that this is what their writer meant",
        "records": counted.note if counted.records is None else f"{counted.records}, {counted.note}",
    }
    findings = list(counted.findings)
    if counted.records is not None and not findings and counted.records != rows:
        text = f"a second parser counts {counted.records} records in the files, and Spark {rows} rows"
        findings.append(Finding("other-record-count", text))
    return facts, findings


# What is compared


def padded_columns(schema: Json, declared: Mapping[str, str]) -> set[str]:
    """Columns of type char, which are padded with spaces or not depending on who reads them."""
    types = {field["name"]: field.get("metadata", {}).get(DECLARED, field["type"]) for field in schema["fields"]}
    of_catalog = {name.lower(): kind for name, kind in declared.items()}
    return {name for name, kind in types.items() if str(of_catalog.get(name.lower(), kind)).startswith("char(")}


def selected(columns: Sequence[str], source_columns: Sequence[str], trimmed: Collection[str]) -> list[str]:
    """Expressions for all columns of one side, under the names they have at the source: Hive knows no upper case."""
    names = {name.lower(): name for name in source_columns}
    expressions = []
    for column in columns:
        name = names.get(column.lower(), column)
        value = f"rtrim({quote_identifier(column)})" if name in trimmed else quote_identifier(column)
        expressions.append(f"{value} AS {quote_identifier(name)}")
    return expressions


def partition_expressions(document: Json, catalog: str) -> list[str]:
    """The target's default partition spec as SQL, for rows of any table with the same columns."""
    known = normal(document)
    paths = dict(_paths(current_schema(known)["fields"], ""))
    found = [
        _transformed(str(field["transform"]), paths[field["source-id"]], f"{quote_identifier(catalog)}.system.")
        for field in default_spec(known)["fields"]
        if field.get("source-id") in paths
    ]
    return [expression for expression in found if expression]


def _paths(fields: Sequence[Json], path: str) -> Iterator[tuple[int, str]]:
    for field in fields:
        here = path + quote_identifier(field["name"])
        yield field["id"], here
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _paths(field["type"]["fields"], f"{here}.")


def _transformed(transform: str, value: str, functions: str) -> str | None:
    name, _, width = transform.removesuffix("]").partition("[")
    match name:
        case "identity":
            return value
        case "year" | "month" | "day" | "hour":
            return f"{functions}{name}s({value})"
        case "bucket" | "truncate":
            return f"{functions}{name}({width}, {value})"
        case _:
            return None


def statement(planned: Plan, table: str) -> str:
    """The fingerprint as one statement that anybody can run again."""
    hashes, rows, sums = (", ".join(step) for step in (planned.hashes, planned.rows, planned.sums))
    return f"SELECT {sums} FROM (SELECT {rows} FROM (SELECT {hashes} FROM {table}))"


# What differs


def _findings(difference: Difference) -> Iterator[Finding]:
    left, right = difference.rows_left, difference.rows_right
    if left != right:
        yield Finding("other-row-count", f"{left} rows became {right}")
    for column in difference.only_left:
        yield Finding("missing-column", f"column {column} is missing", column)
    for column in difference.only_right:
        yield Finding("new-column", f"column {column} is not at the source", column)
    counts = f"both sides have {left} rows" if left == right else "the row counts differ too"
    for column in difference.changed:
        yield Finding("changed-values", f"values of column {column} differ; {counts}", column)
    for one in difference.other_types:
        text = f"column {one.column} was {one.left} and is {one.right}, which does not keep the values"
        yield Finding("changed-type", text, one.column)
    if difference.rows_paired_differently:
        yield Finding("changed-rows", "every column holds the same values, but in other rows")


def _look_deeper(
    spark: "SparkSession", source: "DataFrame", target: "DataFrame", by: Sequence[str], catalog: str
) -> tuple[Json, list[Finding]]:
    """Which partitions differ, and rows of them that only one side has."""
    facts: Json = {}
    findings: list[Finding] = []
    condition = "true"
    try:
        parts = compare_partitions(fingerprint_by(spark, source, by), fingerprint_by(spark, target, by)) if by else None
    except TooManyPartitions as error:  # rows that differ are looked for in the whole table then
        parts, facts["partitions"] = None, error.problem
    if parts is not None:
        findings = [
            Finding("changed-partition", f"partition {name}: {text}", name)
            for partition, text in _differing(parts)
            for name in (_shown(partition, catalog),)
        ]
        facts["differing-partitions"] = len(findings)
        findings = findings[:SHOWN_PARTITIONS]
        names = {name for name, _ in list(_differing(parts))[:SEARCHED_PARTITIONS]}
        condition = _inside(source.selectExpr(*_keys(by)).union(target.selectExpr(*_keys(by))), by, names)
    with fingerprint_settings(spark):
        left, right = source.where(condition), target.where(condition)
        facts["rows-only-at-source"], facts["rows-only-at-target"] = _apart(left, right)
    return facts, findings


def _differing(parts: PartitionDifferences) -> Iterator[tuple[str, str]]:
    for name in parts.only_left:
        yield name, "is missing at the target"
    for name in parts.only_right:
        yield name, "is not at the source"
    for name, difference in parts.changed.items():
        yield name, "; ".join(difference.sentences())


def _shown(partition: str, catalog: str) -> str:
    return partition.replace(f"{quote_identifier(catalog)}.system.", "").replace("`", "")


def _keys(by: Sequence[str]) -> list[str]:
    return [f"cast({expression} as string) as k{i}" for i, expression in enumerate(by)]


def _inside(keys: "DataFrame", by: Sequence[str], names: Collection[str]) -> str:
    """A condition for the rows of the partitions with these names."""
    found = [tuple(row) for row in keys.distinct().collect()]  # at most MOST_PARTITIONS of each side
    wanted = [values for values in found if partition_name(by, values) in names]
    conditions = [
        " AND ".join(f"cast({one} as string) <=> {_text(value)}" for one, value in zip(by, values, strict=True))
        for values in wanted
    ]
    return " OR ".join(f"({one})" for one in conditions) or "false"


def _text(value: str | None) -> str:
    return "null" if value is None else literal(value)


def _apart(left: "DataFrame", right: "DataFrame") -> tuple[list[str], list[str]]:
    """A few rows, as JSON, that the left side has more often than the right one, and the other way round."""
    counts = _counted(left, "l").join(_counted(right, "r"), "hash", "full_outer")
    counts = counts.selectExpr("hash", "coalesce(l, 0) - coalesce(r, 0) AS more").where("more <> 0")
    more = counts.where("more > 0").limit(SHOWN_ROWS).collect()
    less = counts.where("more < 0").limit(SHOWN_ROWS).collect()
    return _rows(left, [row.hash for row in more]), _rows(right, [row.hash for row in less])


def _counted(frame: "DataFrame", name: str) -> "DataFrame":
    planned = plan(frame.schema.jsonValue())
    hashed = frame.selectExpr(*planned.hashes).selectExpr(*planned.rows)
    return hashed.groupBy("r").count().selectExpr("r AS hash", f"count AS {name}")


def _rows(frame: "DataFrame", hashes: Sequence[int]) -> list[str]:
    if not hashes:
        return []
    planned = plan(frame.schema.jsonValue(), ["to_json(struct(*))"])
    found = frame.selectExpr(*planned.hashes).selectExpr(*planned.rows)
    rows = found.where(f"r IN ({', '.join(f'{one}L' for one in hashes)})").select("k0").limit(SHOWN_ROWS).collect()
    return sorted(row.k0 for row in rows)
