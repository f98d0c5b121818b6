"""Delete compaction: files of position deletes are joined (v2), or data files rewritten without their deletes (v3)."""

from dataclasses import dataclass

from nunatak.iceberg.conventions import TARGET_FILE_BYTES
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.compaction_plan import Sizes
from nunatak_spark.maintenance.data_compaction import compact_table
from nunatak_spark.maintenance.job_context import Outcome, Work
from nunatak_spark.maintenance.job_failures import retried
from nunatak_spark.maintenance.loaded_table import Table, call, load, options
from nunatak_spark.maintenance.rewrite_verification import guarded, totals
from nunatak_spark.maintenance.snapshot_pins import find_pinned
from nunatak_spark.progress import report_task_progress

VECTORS = 3  # the format version from which on each data file has at most one deletion vector
MANY_FILES = 2**31 - 1
GAINS = totals("delete files")


@dataclass(frozen=True)
class Layout:
    """Files of position deletes, and the fewest that there can be as the table is written."""

    files: int
    fewest: int


def compact_deletes(work: Work) -> Outcome:
    table = load(work)
    if table.format_version >= VECTORS:
        target = int(table.properties.get("write.target-file-size-bytes") or TARGET_FILE_BYTES)
        return compact_table(work, table, Sizes(target=target, min_input_files=MANY_FILES, deletes_count=True))
    layout = survey(work, table)
    if layout.files <= layout.fewest and find_pinned(work, table) is None:
        return Outcome(detail={"text": f"the files of position deletes are as few as there can be: {layout.files}"})
    if work.dry_run:
        gain = Gain(of="delete files", before=layout.files, after=layout.fewest)
        return Outcome(gains=[gain], detail={"text": "nothing was changed"})
    return guarded(work, table, lambda _: {"conflicts": retried(work, lambda: _rewrite(work, table))}, GAINS)


def survey(work: Work, table: Table) -> Layout:
    """Where the table's writers make one file of deletes for each data file, as Spark does, that is the least."""
    if table.current is None or not table.current.count("total-position-deletes"):
        return Layout(0, 0)
    by_partition = table.properties.get("write.delete.granularity", "file").lower() == "partition"
    apart = ("spec_id, partition" if table.is_partitioned else "spec_id") if by_partition else "file_path"
    (row,) = work.spark.sql(
        f"SELECT count(DISTINCT delete_file_path), count(DISTINCT struct({apart})) "
        f"FROM {table.metadata_table('position_deletes')}"
    ).collect()
    return Layout(int(row[0]), int(row[1]))


def _rewrite(work: Work, table: Table) -> None:
    with report_task_progress(work.spark, "rewriting deletes", work.progress):
        call(
            work,
            "rewrite_position_delete_files",
            {"table": table.argument, "options": options({"min-input-files": 2, "rewrite-job-order": "bytes-asc"})},
        )
