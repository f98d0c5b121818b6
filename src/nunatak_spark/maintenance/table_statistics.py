"""Statistics: computes NDV sketches of columns and partition statistics, for query planners."""

from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.job_failures import retry_on_conflict
from nunatak_spark.maintenance.loaded_table import LoadedTable, call_procedure, load_table
from nunatak_spark.maintenance.rewrite_verification import run_verified_action
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import literal


def compute_statistics(context: JobContext) -> JobOutcome:
    table = load_table(context)
    columns = requested_columns(context, table)
    missing = missing_statistics(table, columns)
    if not missing:
        return JobOutcome(detail={"text": "the current snapshot has its statistics"})
    if context.dry_run:
        return JobOutcome(detail={"text": "nothing was changed", "missing": missing})
    return run_verified_action(context, table, lambda: _compute(context, table, columns, missing))


def requested_columns(context: JobContext, table: LoadedTable) -> list[str]:
    """Returns the policy's columns; an empty list means all columns.

    Raises JobRefused for a missing or nested column.
    """
    columns = [str(name) for name in context.spec.options.get("columns") or ()]
    types = {each["name"]: each["type"] for each in table.columns}
    unfit = [name for name in columns if not isinstance(types.get(name), str)]
    if unfit:
        raise JobRefused(f"There is no plain column {', '.join(unfit)}; change the policy's columns")
    return columns


def missing_statistics(table: LoadedTable, columns: list[str]) -> list[str]:
    """Returns the kinds of statistics that the current snapshot lacks: `table`, `partition`."""
    current = table.current
    if current is None:
        return []
    ids = {each["name"]: each["id"] for each in table.columns}
    known = {
        field
        for file in table.metadata.get("statistics") or ()
        if file["snapshot-id"] == current.snapshot_id
        for blob in file.get("blob-metadata") or ()
        for field in blob["fields"]
    }
    partitions = {each["snapshot-id"] for each in table.metadata.get("partition-statistics") or ()}
    missing = []
    if not known or any(ids[name] not in known for name in columns):
        missing.append("table")
    if table.is_partitioned and current.snapshot_id not in partitions:
        missing.append("partition")
    return missing


def _compute(context: JobContext, table: LoadedTable, columns: list[str], missing: list[str]) -> JobOutcome:
    arguments = {"table": table.argument}
    conflicts = 0
    if "table" in missing:
        chosen = {"columns": f"array({', '.join(map(literal, columns))})"} if columns else {}
        with report_task_progress(context.spark, "counting distinct values", context.progress):
            conflicts += retry_on_conflict(
                context, lambda: call_procedure(context, "compute_table_stats", {**arguments, **chosen})
            )
    if "partition" in missing:
        with report_task_progress(context.spark, "measuring partitions", context.progress):
            conflicts += retry_on_conflict(
                context, lambda: call_procedure(context, "compute_partition_stats", arguments)
            )
    return JobOutcome(changed=True, detail={"computed": missing, "conflicts": conflicts})
