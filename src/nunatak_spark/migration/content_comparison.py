"""L2: compares the contents of both tables; reads every value, and names differences down to rows.

Fingerprints of all rows and of each column are compared first. Only if they differ are partitions compared, and only in
differing partitions are rows compared, by their hashes: unlike EXCEPT ALL this works for every type.
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
from nunatak_spark.migration.metadata_comparison import DECLARED, current_schema, default_spec, normalize_document
from nunatak_spark.migration.model import LevelResult, MigrationFinding, TablePair
from nunatak_spark.migration.reader_options import TEXT
from nunatak_spark.migration.text_records import count_records
from nunatak_spark.sql_text import literal, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Json = dict[str, Any]

SHOWN_ROWS = 5  # of each side
SHOWN_PARTITIONS = 20
SEARCHED_PARTITIONS = 10  # searched for differing rows; the first few show the problem


def compare_contents(pair: TablePair, document: Json) -> LevelResult:
    """Compares the rows of source and target."""
    spark = pair.spark
    rows = pair.source_rows()
    trimmed = padded_columns(rows.schema.jsonValue(), {one.name: one.type for one in pair.table.found.columns})
    source = rows.selectExpr(*select_expressions(rows.columns, rows.columns, trimmed))
    table = spark.table(pair.target_name)
    target = table.selectExpr(*select_expressions(table.columns, rows.columns, trimmed))
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
        fingerprint_statement(plan(source.schema.jsonValue()), name),
        fingerprint_statement(plan(target.schema.jsonValue()), pair.target_name),
    )
    findings = list(_findings(difference))
    if pair.table.found.format in TEXT and pair.table.found.kind != "iceberg":
        more, wrong = _check_text_records(pair, before.rows)
        findings += wrong
        facts |= more
    if not difference.same_data:
        by = partition_expressions(document, pair.catalog)
        common = [quote_identifier(column) for column in before.columns if column in after.columns]
        more, where = _locate_differences(
            spark, source.selectExpr(*common), target.selectExpr(*common), by, pair.catalog
        )
        findings += where
        facts |= more
    return LevelResult(tuple(findings), facts, statements)


def _check_text_records(pair: TablePair, rows: int) -> tuple[Json, list[MigrationFinding]]:
    """Counts the records of text files with a second parser: text has no types, so a comparison with
    Spark's own reading proves little.
    """
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
        findings.append(MigrationFinding("other-record-count", text))
    return facts, findings


# What is compared


def padded_columns(schema: Json, declared: Mapping[str, str]) -> set[str]:
    """Returns the char columns, which are padded with spaces depending on the reader."""
    types = {field["name"]: field.get("metadata", {}).get(DECLARED, field["type"]) for field in schema["fields"]}
    of_catalog = {name.lower(): kind for name, kind in declared.items()}
    return {name for name, kind in types.items() if str(of_catalog.get(name.lower(), kind)).startswith("char(")}


def select_expressions(columns: Sequence[str], source_columns: Sequence[str], trimmed: Collection[str]) -> list[str]:
    """Returns expressions for all columns of one side, named as at the source: Hive stores names in lower case."""
    names = {name.lower(): name for name in source_columns}
    expressions = []
    for column in columns:
        name = names.get(column.lower(), column)
        value = f"rtrim({quote_identifier(column)})" if name in trimmed else quote_identifier(column)
        expressions.append(f"{value} AS {quote_identifier(name)}")
    return expressions


def partition_expressions(document: Json, catalog: str) -> list[str]:
    """Returns the target's default partition spec as SQL, for rows of any table with the same columns."""
    known = normalize_document(document)
    paths = dict(_paths(current_schema(known)["fields"], ""))
    found = [
        _transform_sql(str(field["transform"]), paths[field["source-id"]], f"{quote_identifier(catalog)}.system.")
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


def _transform_sql(transform: str, value: str, functions: str) -> str | None:
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


def fingerprint_statement(planned: Plan, table: str) -> str:
    """Returns the fingerprint as one SQL statement that anybody can repeat."""
    hashes, rows, sums = (", ".join(step) for step in (planned.hashes, planned.rows, planned.sums))
    return f"SELECT {sums} FROM (SELECT {rows} FROM (SELECT {hashes} FROM {table}))"


# What differs


def _findings(difference: Difference) -> Iterator[MigrationFinding]:
    left, right = difference.rows_left, difference.rows_right
    if left != right:
        yield MigrationFinding("other-row-count", f"{left} rows became {right}")
    for column in difference.only_left:
        yield MigrationFinding("missing-column", f"column {column} is missing", column)
    for column in difference.only_right:
        yield MigrationFinding("new-column", f"column {column} is not at the source", column)
    counts = f"both sides have {left} rows" if left == right else "the row counts differ too"
    for column in difference.changed:
        yield MigrationFinding("changed-values", f"values of column {column} differ; {counts}", column)
    for one in difference.other_types:
        text = f"column {one.column} was {one.left} and is {one.right}, which does not keep the values"
        yield MigrationFinding("changed-type", text, one.column)
    if difference.rows_paired_differently:
        yield MigrationFinding("changed-rows", "every column holds the same values, but in other rows")


def _locate_differences(
    spark: "SparkSession", source: "DataFrame", target: "DataFrame", by: Sequence[str], catalog: str
) -> tuple[Json, list[MigrationFinding]]:
    """Returns the partitions that differ, and some rows that only one side has."""
    facts: Json = {}
    findings: list[MigrationFinding] = []
    condition = "true"
    try:
        parts = compare_partitions(fingerprint_by(spark, source, by), fingerprint_by(spark, target, by)) if by else None
    except TooManyPartitions as error:  # search the whole table for differing rows instead
        parts, facts["partitions"] = None, error.problem
    if parts is not None:
        findings = [
            MigrationFinding("changed-partition", f"partition {name}: {text}", name)
            for partition, text in _differing_partitions(parts)
            for name in (_partition_text(partition, catalog),)
        ]
        facts["differing-partitions"] = len(findings)
        findings = findings[:SHOWN_PARTITIONS]
        names = {name for name, _ in list(_differing_partitions(parts))[:SEARCHED_PARTITIONS]}
        condition = _partition_condition(source.selectExpr(*_keys(by)).union(target.selectExpr(*_keys(by))), by, names)
    with fingerprint_settings(spark):
        left, right = source.where(condition), target.where(condition)
        facts["rows-only-at-source"], facts["rows-only-at-target"] = _differing_rows(left, right)
    return facts, findings


def _differing_partitions(parts: PartitionDifferences) -> Iterator[tuple[str, str]]:
    for name in parts.only_left:
        yield name, "is missing at the target"
    for name in parts.only_right:
        yield name, "is not at the source"
    for name, difference in parts.changed.items():
        yield name, "; ".join(difference.sentences())


def _partition_text(partition: str, catalog: str) -> str:
    return partition.replace(f"{quote_identifier(catalog)}.system.", "").replace("`", "")


def _keys(by: Sequence[str]) -> list[str]:
    return [f"cast({expression} as string) as k{i}" for i, expression in enumerate(by)]


def _partition_condition(keys: "DataFrame", by: Sequence[str], names: Collection[str]) -> str:
    """Returns a condition for the rows of the partitions with these names."""
    found = [tuple(row) for row in keys.distinct().collect()]  # at most MAX_PARTITIONS of each side
    wanted = [values for values in found if partition_name(by, values) in names]
    conditions = [
        " AND ".join(f"cast({one} as string) <=> {_text(value)}" for one, value in zip(by, values, strict=True))
        for values in wanted
    ]
    return " OR ".join(f"({one})" for one in conditions) or "false"


def _text(value: str | None) -> str:
    return "null" if value is None else literal(value)


def _differing_rows(left: "DataFrame", right: "DataFrame") -> tuple[list[str], list[str]]:
    """Returns a few rows as JSON that occur more often on the left, and a few that occur more often on the right."""
    counts = _count_by_hash(left, "l").join(_count_by_hash(right, "r"), "hash", "full_outer")
    counts = counts.selectExpr("hash", "coalesce(l, 0) - coalesce(r, 0) AS more").where("more <> 0")
    more = counts.where("more > 0").limit(SHOWN_ROWS).collect()
    less = counts.where("more < 0").limit(SHOWN_ROWS).collect()
    return _rows(left, [row.hash for row in more]), _rows(right, [row.hash for row in less])


def _count_by_hash(frame: "DataFrame", name: str) -> "DataFrame":
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
