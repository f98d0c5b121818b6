"""The telemetry tables and their columns; lines of the spool have the same field names."""

from typing import TYPE_CHECKING

from nunatak_spark.system_tables import ensure_system_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Columns = dict[str, str]  # name and type of each

COMMON: Columns = {"event_id": "STRING", "at": "TIMESTAMP", "node": "STRING"}
NAMED: Columns = {"warehouse": "STRING", "namespace": "STRING", "table_name": "STRING"}
SENDER: Columns = {"principal": "STRING", "request_id": "STRING", "client": "STRING"}
REPORTED: Columns = {
    **NAMED,
    "reported_table": "STRING",
    "snapshot_id": "BIGINT",
    "counters": "MAP<STRING, BIGINT>",
    "timers_ms": "MAP<STRING, DOUBLE>",
    "engine": "STRING",
    "engine_version": "STRING",
    "app_id": "STRING",
    "metadata": "MAP<STRING, STRING>",
    **SENDER,
}
# The known fields of each kind of record; all others go into the column `rest`.
KINDS: dict[str, Columns] = {
    "events": {
        **COMMON,
        "operation": "STRING",
        **NAMED,
        "table_uuid": "STRING",
        "renamed_to": "STRING",
        "status": "INT",
        "error": "STRING",
        "tries": "INT",
        "duration_ms": "DOUBLE",
        "snapshot_id": "BIGINT",
        "snapshot_operation": "STRING",
        "counters": "MAP<STRING, BIGINT>",
        "metadata_bytes": "BIGINT",
        **SENDER,
    },
    "scan_reports": {
        **COMMON,
        **REPORTED,
        "schema_id": "INT",
        "projected_fields": "ARRAY<STRING>",
        "filter_json": "STRING",
        "filter_columns": "ARRAY<STRING>",
    },
    "commit_reports": {**COMMON, **REPORTED, "operation": "STRING", "sequence_number": "BIGINT"},
    "audit": {
        **COMMON,
        "action": "STRING",
        "securable": "STRING",
        "outcome": "STRING",
        "repeats": "BIGINT",
        "origin": "STRING",
        "detail": "STRING",
        **SENDER,
    },
    "table_loads": {**COMMON, **NAMED, "loads": "BIGINT"},
}
REJECTED = "rejected"
REJECTED_COLUMNS: Columns = {
    "at": "TIMESTAMP",
    "kind": "STRING",
    "file": "STRING",
    "reason": "STRING",
    "line": "STRING",
}
MEANINGS = {
    "events": "Changes of tables, views and namespaces, made and refused",
    "scan_reports": "What engines report about their scans",
    "commit_reports": "What engines report about their commits",
    "audit": "Denials, reads and administration; the audit trail itself is in the catalog's database",
    "table_loads": "How often tables were loaded, by the minute",
    REJECTED: "Lines of the spool that could not be understood",
}
# Many small batches: write rows without a shuffle; the catalog's policies compact the files.
PROPERTIES = {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}


def columns_sql(columns: Columns) -> str:
    """Returns the columns as an SQL schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def ensure_tables(spark: "SparkSession", catalog: str) -> None:
    """Creates missing tables, all of them, because the views need each."""
    for kind, columns in KINDS.items():
        _ensure(spark, catalog, kind, {**columns, "rest": "STRING"})
    _ensure(spark, catalog, REJECTED, REJECTED_COLUMNS)


def _ensure(spark: "SparkSession", catalog: str, table: str, columns: Columns) -> None:
    ensure_system_table(
        spark,
        catalog,
        table,
        columns_sql(columns),
        partitioned_by=["days(at)"],
        properties=PROPERTIES,
        comment=MEANINGS[table],
    )
