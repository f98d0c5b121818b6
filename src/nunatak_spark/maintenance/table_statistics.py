"""Statistics: distinct values of columns, and what each partition holds, for the planners of queries."""

from nunatak_spark.maintenance.job_context import Outcome, Refused, Work
from nunatak_spark.maintenance.job_failures import retried
from nunatak_spark.maintenance.loaded_table import Table, call, load
from nunatak_spark.maintenance.rewrite_verification import watched
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import literal


def compute_statistics(work: Work) -> Outcome:
    table = load(work)
    columns = asked_columns(work, table)
    missing = missing_statistics(table, columns)
    if not missing:
        return Outcome(detail={"text": "the current snapshot has its statistics"})
    if work.dry_run:
        return Outcome(detail={"text": "nothing was changed", "missing": missing})
    return watched(work, table, lambda: _compute(work, table, columns, missing))


def asked_columns(work: Work, table: Table) -> list[str]:
    """The policy's columns; none stands for all that statistics are made of."""
    columns = [str(name) for name in work.spec.options.get("columns") or ()]
    types = {each["name"]: each["type"] for each in table.columns}
    unfit = [name for name in columns if not isinstance(types.get(name), str)]
    if unfit:
        raise Refused(f"There is no plain column {', '.join(unfit)}; change the policy's columns")
    return columns


def missing_statistics(table: Table, columns: list[str]) -> list[str]:
    """Which kinds the current snapshot lacks, of `table` and `partition`."""
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


def _compute(work: Work, table: Table, columns: list[str], missing: list[str]) -> Outcome:
    arguments = {"table": table.argument}
    conflicts = 0
    if "table" in missing:
        chosen = {"columns": f"array({', '.join(map(literal, columns))})"} if columns else {}
        with report_task_progress(work.spark, "counting distinct values", work.progress):
            conflicts += retried(work, lambda: call(work, "compute_table_stats", {**arguments, **chosen}))
    if "partition" in missing:
        with report_task_progress(work.spark, "measuring partitions", work.progress):
            conflicts += retried(work, lambda: call(work, "compute_partition_stats", arguments))
    return Outcome(changed=True, detail={"computed": missing, "conflicts": conflicts})
