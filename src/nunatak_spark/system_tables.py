"""Creates tables in the namespace `system`, where the catalog keeps data about itself."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nunatak.iceberg.conventions import DELETE_AFTER_COMMIT, PREVIOUS_VERSIONS_MAX
from nunatak_spark.sql_text import literal, quote_identifier, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "system"
# Many jobs append to one table at the same time, and each commit writes a metadata file: retry often, keep few files.
PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "5000",
    DELETE_AFTER_COMMIT: "true",
    PREVIOUS_VERSIONS_MAX: "20",
}


def system_table_name(catalog: str, table: str) -> str:
    """Returns the SQL name of a system table."""
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
    """Creates the table unless it exists, and returns its SQL name. Safe if several jobs call it at the same time.

    `columns` and `partitioned_by` are written as in CREATE TABLE; `properties` override the common ones.
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
    """Returns the CREATE TABLE IF NOT EXISTS statement."""
    parts = [f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg"]
    if partitioned_by:
        parts.append(f"PARTITIONED BY ({', '.join(partitioned_by)})")
    if comment:
        parts.append(f"COMMENT {literal(comment)}")
    pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in sorted(properties.items()))
    parts.append(f"TBLPROPERTIES ({pairs})")
    return " ".join(parts)
