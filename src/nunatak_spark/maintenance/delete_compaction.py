"""Delete compaction: joins position delete files (v2), or rewrites data files without their deletes (v3)."""

from dataclasses import dataclass

from nunatak.iceberg.conventions import TARGET_FILE_BYTES
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.compaction_plan import FileSizes
from nunatak_spark.maintenance.data_compaction import compact_table
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome
from nunatak_spark.maintenance.job_failures import retry_on_conflict
from nunatak_spark.maintenance.loaded_table import LoadedTable, call_procedure, load_table, options_sql
from nunatak_spark.maintenance.rewrite_verification import run_verified_rewrite, summary_totals
from nunatak_spark.maintenance.snapshot_pins import find_pinned_snapshot
from nunatak_spark.progress import report_task_progress

VECTORS = 3  # format version with deletion vectors, at most one per data file
MANY_FILES = 2**31 - 1
GAINS = summary_totals("delete files")


@dataclass(frozen=True)
class DeleteFileCounts:
    """The number of position delete files, and the fewest possible with the table's delete granularity."""

    files: int
    fewest: int


def compact_deletes(context: JobContext) -> JobOutcome:
    table = load_table(context)
    if table.format_version >= VECTORS:
        target = int(table.properties.get("write.target-file-size-bytes") or TARGET_FILE_BYTES)
        return compact_table(
            context, table, FileSizes(target=target, min_input_files=MANY_FILES, rewrite_for_deletes=True)
        )
    layout = count_delete_files(context, table)
    if layout.files <= layout.fewest and find_pinned_snapshot(context, table) is None:
        return JobOutcome(detail={"text": f"the files of position deletes are as few as there can be: {layout.files}"})
    if context.dry_run:
        gain = Gain(of="delete files", before=layout.files, after=layout.fewest)
        return JobOutcome(gains=[gain], detail={"text": "nothing was changed"})
    return run_verified_rewrite(
        context, table, lambda _: {"conflicts": retry_on_conflict(context, lambda: _rewrite(context, table))}, GAINS
    )


def count_delete_files(context: JobContext, table: LoadedTable) -> DeleteFileCounts:
    """Counts position delete files. With file granularity, as Spark writes, one per data file is the minimum."""
    if table.current is None or not table.current.count("total-position-deletes"):
        return DeleteFileCounts(0, 0)
    by_partition = table.properties.get("write.delete.granularity", "file").lower() == "partition"
    apart = ("spec_id, partition" if table.is_partitioned else "spec_id") if by_partition else "file_path"
    (row,) = context.spark.sql(
        f"SELECT count(DISTINCT delete_file_path), count(DISTINCT struct({apart})) "
        f"FROM {table.metadata_table('position_deletes')}"
    ).collect()
    return DeleteFileCounts(int(row[0]), int(row[1]))


def _rewrite(context: JobContext, table: LoadedTable) -> None:
    with report_task_progress(context.spark, "rewriting deletes", context.progress):
        call_procedure(
            context,
            "rewrite_position_delete_files",
            {"table": table.argument, "options": options_sql({"min-input-files": 2, "rewrite-job-order": "bytes-asc"})},
        )
