"""Which function does which type of maintenance job."""

from nunatak.maintenance.job_spec import JobType
from nunatak_spark.maintenance.admission import admit, admit_again
from nunatak_spark.maintenance.compaction import compact
from nunatak_spark.maintenance.deletes import compact_deletes
from nunatak_spark.maintenance.expiry import expire_snapshots
from nunatak_spark.maintenance.failures import told_in_one_line
from nunatak_spark.maintenance.manifests import rewrite_manifests
from nunatak_spark.maintenance.metadata import retain_metadata
from nunatak_spark.maintenance.orphans import remove_orphans
from nunatak_spark.maintenance.retention import retain_rows
from nunatak_spark.maintenance.statistics import compute_statistics
from nunatak_spark.maintenance.work import Maintain, Outcome, Work
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
