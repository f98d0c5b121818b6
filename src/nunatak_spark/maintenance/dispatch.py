"""Which function does which type of maintenance job."""

from nunatak.maintenance.job_spec import JobType
from nunatak_spark.maintenance.data_compaction import compact
from nunatak_spark.maintenance.delete_compaction import compact_deletes
from nunatak_spark.maintenance.job_context import Maintain, Outcome, Work
from nunatak_spark.maintenance.job_failures import told_in_one_line
from nunatak_spark.maintenance.manifest_rewrite import rewrite_manifests
from nunatak_spark.maintenance.metadata_retention import retain_metadata
from nunatak_spark.maintenance.orphan_removal import remove_orphans
from nunatak_spark.maintenance.preconditions import admit, admit_again
from nunatak_spark.maintenance.row_retention import retain_rows
from nunatak_spark.maintenance.snapshot_expiry import expire_snapshots
from nunatak_spark.maintenance.table_statistics import compute_statistics
from nunatak_spark.sql_text import protect_sql_text

MAINTENANCE: dict[JobType, Maintain] = {
    "row-retention": retain_rows,
    "data-compaction": compact,
    "delete-compaction": compact_deletes,
    "manifest-rewrite": rewrite_manifests,
    "statistics": compute_statistics,
    "snapshot-expiry": expire_snapshots,
    "metadata-retention": retain_metadata,
    "orphan-removal": remove_orphans,
}


def maintain(work: Work) -> Outcome:
    """Do the job, whatever its type.

    Refused if it would do harm, and then nothing was changed; Stopped where somebody wants it to end; Failed with one
    line if Spark or Iceberg did not get through. What was committed before stays, and the next attempt goes on from it.
    """
    with told_in_one_line():
        work.check()
        protect_sql_text(work.spark)  # the caller may have made the session itself
        known = admit(work)
        return admit_again(work, known, MAINTENANCE[work.spec.type](work))
