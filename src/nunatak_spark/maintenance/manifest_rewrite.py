"""Manifest rewrite: reduces the number of manifests, so that each one holds files of neighbouring partitions."""

import math

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome
from nunatak_spark.maintenance.job_failures import retry_on_conflict
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot, call_procedure, load_table
from nunatak_spark.maintenance.rewrite_verification import run_verified_rewrite
from nunatak_spark.maintenance.snapshot_pins import find_pinned_snapshot
from nunatak_spark.progress import report_task_progress

TARGET_BYTES = 8 << 20  # Iceberg's default


def rewrite_manifests(context: JobContext) -> JobOutcome:
    table = load_table(context)
    count, fewest = count_manifests(context, table)
    if count <= fewest and find_pinned_snapshot(context, table) is None:
        return JobOutcome(detail={"text": f"the manifests are as few as there can be: {count}"})
    if context.dry_run:
        gain = Gain(of="manifests", before=count, after=fewest)
        return JobOutcome(gains=[gain], detail={"text": "nothing was changed"})
    return run_verified_rewrite(
        context, table, lambda _: {"conflicts": retry_on_conflict(context, lambda: _rewrite(context, table))}, _gains
    )


def count_manifests(context: JobContext, table: LoadedTable) -> tuple[int, int]:
    """Returns the manifests of the current spec, and the fewest possible; data and deletes are kept apart."""
    if table.current is None:
        return 0, 0
    target = int(table.properties.get("commit.manifest.target-size-bytes") or TARGET_BYTES)
    rows = context.spark.sql(
        f"SELECT count(*) AS count, sum(length) AS size FROM {table.metadata_table('manifests')} "
        f"WHERE partition_spec_id = {table.spec['spec-id']} GROUP BY content"
    ).collect()  # two rows: data and deletes
    return sum(row["count"] for row in rows), sum(math.ceil(row["size"] / target) for row in rows)


def _rewrite(context: JobContext, table: LoadedTable) -> None:
    with report_task_progress(context.spark, "rewriting manifests", context.progress):
        call_procedure(context, "rewrite_manifests", {"table": table.argument, "use_caching": "false"})


def _gains(before: Snapshot, after: Snapshot) -> list[Gain]:
    return [Gain(of="manifests", before=_manifests(before), after=_manifests(after))]


def _manifests(snapshot: Snapshot) -> int:
    return snapshot.count("manifests-created") + snapshot.count("manifests-kept")
