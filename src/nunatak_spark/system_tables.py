"""The catalog's tables about itself, in the namespace `system` of a warehouse: how they are made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nunatak_spark.sql_text import literal, quote_identifier, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "system"
# Many jobs append to the same table at once, and each commit leaves a metadata file: retry long, and keep few.
PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "5000",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def system_table_name(catalog: str, table: str) -> str:
    """A system table as SQL names it."""
    return quote_name((catalog, NAMESPACE, table))


def ensure_system_table(
    spark: "SparkSession",
    catalog: str,
    table: str,
    columns: str,
    *,
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    comment: str | None = None,
) -> str:
    """Make the table unless it is there, and return its name in SQL. Whoever comes first of many at once makes it.

    `columns` and `partitioned_by` are written as in CREATE TABLE; `properties` go before those that all have.
    """
    name = system_table_name(catalog, table)
    if spark.catalog.tableExists(name):
        return name
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quote_identifier(catalog)}.{quote_identifier(NAMESPACE)}")
    spark.sql(create_statement(name, columns, partitioned_by, {**PROPERTIES, **(properties or {})}, comment))
    return name


def create_statement(
    name: str, columns: str, partitioned_by: Sequence[str], properties: Mapping[str, str], comment: str | None
) -> str:
    """The statement; that somebody else was quicker is no error of it."""
    parts = [f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg"]
    if partitioned_by:
        parts.append(f"PARTITIONED BY ({', '.join(partitioned_by)})")
    if comment:
        parts.append(f"COMMENT {literal(comment)}")
    pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in sorted(properties.items()))
    parts.append(f"TBLPROPERTIES ({pairs})")
    return " ".join(parts)
