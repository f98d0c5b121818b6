"""Manifest rewrite: the manifests become few, and each holds files of neighbouring partitions."""

import math

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.job_context import Outcome, Work
from nunatak_spark.maintenance.job_failures import retried
from nunatak_spark.maintenance.loaded_table import Snapshot, Table, call, load
from nunatak_spark.maintenance.rewrite_verification import guarded
from nunatak_spark.maintenance.snapshot_pins import find_pinned
from nunatak_spark.progress import report_task_progress

TARGET_BYTES = 8 << 20  # Iceberg's own, for a table that says nothing


def rewrite_manifests(work: Work) -> Outcome:
    table = load(work)
    count, fewest = survey(work, table)
    if count <= fewest and find_pinned(work, table) is None:
        return Outcome(detail={"text": f"the manifests are as few as there can be: {count}"})
    if work.dry_run:
        gain = Gain(of="manifests", before=count, after=fewest)
        return Outcome(gains=[gain], detail={"text": "nothing was changed"})
    return guarded(work, table, lambda _: {"conflicts": retried(work, lambda: _rewrite(work, table))}, _gains)


def survey(work: Work, table: Table) -> tuple[int, int]:
    """How many manifests of the current layout there are, and how few would do; data and deletes lie apart."""
    if table.current is None:
        return 0, 0
    target = int(table.properties.get("commit.manifest.target-size-bytes") or TARGET_BYTES)
    rows = work.spark.sql(
        f"SELECT count(*) AS count, sum(length) AS size FROM {table.metadata_table('manifests')} "
        f"WHERE partition_spec_id = {table.spec['spec-id']} GROUP BY content"
    ).collect()  # two rows: data and deletes
    return sum(row["count"] for row in rows), sum(math.ceil(row["size"] / target) for row in rows)


def _rewrite(work: Work, table: Table) -> None:
    with report_task_progress(work.spark, "rewriting manifests", work.progress):
        call(work, "rewrite_manifests", {"table": table.argument, "use_caching": "false"})


def _gains(before: Snapshot, after: Snapshot) -> list[Gain]:
    return [Gain(of="manifests", before=_manifests(before), after=_manifests(after))]


def _manifests(snapshot: Snapshot) -> int:
    return snapshot.count("manifests-created") + snapshot.count("manifests-kept")
