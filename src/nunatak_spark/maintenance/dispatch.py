"""Maps each maintenance job type to its function."""

from nunatak.maintenance.job_spec import JobType
from nunatak_spark.maintenance.data_compaction import compact
from nunatak_spark.maintenance.delete_compaction import compact_deletes
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, MaintenanceFunction
from nunatak_spark.maintenance.job_failures import translate_failures
from nunatak_spark.maintenance.manifest_rewrite import rewrite_manifests
from nunatak_spark.maintenance.metadata_retention import retain_metadata
from nunatak_spark.maintenance.orphan_removal import remove_orphans
from nunatak_spark.maintenance.preconditions import check_preconditions, recheck_preconditions
from nunatak_spark.maintenance.row_retention import retain_rows
from nunatak_spark.maintenance.snapshot_expiry import expire_snapshots
from nunatak_spark.maintenance.table_statistics import compute_statistics
from nunatak_spark.sql_text import protect_sql_text

MAINTENANCE: dict[JobType, MaintenanceFunction] = {
    "row-retention": retain_rows,
    "data-compaction": compact,
    "delete-compaction": compact_deletes,
    "manifest-rewrite": rewrite_manifests,
    "statistics": compute_statistics,
    "snapshot-expiry": expire_snapshots,
    "metadata-retention": retain_metadata,
    "orphan-removal": remove_orphans,
}


def maintain(context: JobContext) -> JobOutcome:
    """Runs the job.

    Raises JobRefused if it would do harm (nothing was changed then), JobStopped on a cancel or shutdown, JobFailed with
    one line if Spark or Iceberg failed. Commits made before stay, and the next attempt continues from them.
    """
    with translate_failures():
        context.check()
        protect_sql_text(context.spark)  # the caller may have created the session without our settings
        known = check_preconditions(context)
        return recheck_preconditions(context, known, MAINTENANCE[context.spec.type](context))
