"""The deletion journal: `system.deleted_files` records which file of which table was deleted, when, by which job and
why.

Every deletion is recorded exactly once, wherever a job is killed. The files that may be deleted are first written to
`system.planned_deletions`; after the deletion, the planned files that the table no longer references become rows of the
journal. The next attempt, or the next job on the table, finds the plan of a killed job and finishes it first.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nunatak_spark import system_tables
from nunatak_spark.maintenance.file_deletion import delete_files
from nunatak_spark.maintenance.job_context import JobContext
from nunatak_spark.maintenance.own_locations import OwnershipSplit
from nunatak_spark.maintenance.reachable_files import display_name, files_only_of_snapshots, reachable_files
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOURNAL, PLANNED = "deleted_files", "planned_deletions"
COLUMNS = (
    "path STRING NOT NULL, kind STRING NOT NULL, table STRING NOT NULL, table_uuid STRING NOT NULL, "
    "job STRING NOT NULL, reason STRING NOT NULL, size BIGINT"
)
NAMES = "path, kind, table, table_uuid, job, reason, size"
MAX_JOBS = 100  # killed jobs that one job finishes
ABANDONED_MS = 24 * 3_600_000  # no job takes a day; younger plans of other jobs may belong to running ones


@dataclass
class Deletions:
    """What one job deleted; filled in when the deletions are recorded."""

    files: int = 0
    size_bytes: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    outside: list[str] = field(
        default_factory=list
    )  # some of the files that were kept: outside of the table's own locations


@contextmanager
def record_deletions(context: JobContext, reason: str, forgotten: Collection[int]) -> Iterator[Deletions]:
    """Deletes and records the files that become unreachable in the block, which must remove these snapshots.

    The plan is written before the block runs, so a concurrent commit cannot add to it. Files outside of the table's own
    locations are kept. Metadata files are not included: the server deletes those. If the block raises, the next attempt
    or a later job on the table finishes the plan.
    """
    noted = Deletions()
    if context.dry_run:
        yield noted
        return
    journal = DeletionJournal(context)
    noted.outside = journal.finish_killed_jobs()
    files = files_only_of_snapshots(context, forgotten)
    if files is not None:
        journal.plan(files, reason)
    yield noted
    if files is not None:
        journal.record_deleted(noted, deleted=journal.delete_unreachable())


def finish_deletions(context: JobContext) -> Deletions:
    """Finishes the plan of a killed attempt; for a job that has nothing else to do.

    Returns what all attempts of the job have deleted, because killed attempts have reported nothing.
    """
    noted = Deletions()
    if not context.dry_run and context.spark.catalog.tableExists(
        system_tables.system_table_name(context.catalog, PLANNED)
    ):
        journal = DeletionJournal(context)
        noted.outside = journal.finish_killed_jobs()
        journal.count_deletions(noted)
    return noted


class DeletionJournal:
    """Plan and journal of one job. Its entries have the time at which the job began."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._spark = context.spark
        self._now_ms = context.now_ms()
        self._planned = system_tables.ensure_system_table(
            context.spark,
            context.catalog,
            PLANNED,
            f"{COLUMNS}, planned_at TIMESTAMP NOT NULL",
            partitioned_by=("table_uuid", "job"),
            comment="Files that a running job may delete",
        )
        self._journal = system_tables.ensure_system_table(
            context.spark,
            context.catalog,
            JOURNAL,
            f"{COLUMNS}, deleted_at TIMESTAMP NOT NULL",
            partitioned_by=("days(deleted_at)",),
            comment="Files that maintenance deleted, and why",
        )

    def plan(self, files: "DataFrame", reason: str) -> None:
        """Writes down the files that may be deleted: path, kind and size."""
        context = self._context
        rows = files.selectExpr(
            "path",
            "kind",
            f"{literal(display_name(context))} AS table",
            f"{literal(context.spec.table_uuid)} AS table_uuid",
            f"{literal(context.job)} AS job",
            f"{literal(reason)} AS reason",
            "size",
            f"timestamp_millis({self._now_ms}) AS planned_at",
        )
        rows.writeTo(self._planned).append()

    def finish_killed_jobs(self) -> list[str]:
        """Finishes killed jobs: deletes the files that they made unreachable and may not have deleted.

        Orphans are left to the orphan removal job, which first checks who else has files there. Returns some of the
        files that were kept because they are outside of the table's own locations.
        """
        jobs = self._killed_jobs("kind <> 'orphan'")
        if not jobs:
            return []
        deleted = delete_files(self._context, self._without_recorded(self._unreachable_plans(jobs)))
        outside = deleted.some_outside()
        self._record(deleted.own)
        self._drop_plans(jobs)
        return outside

    def delete_unreachable(self) -> OwnershipSplit:
        """Deletes what this job planned and the table no longer references, within the table's own locations."""
        return delete_files(self._context, self._unreachable_plans([self._context.job]))

    def unfinished_orphans(self) -> dict[str, list[str]]:
        """Returns the orphan paths that killed jobs planned to delete, by job; some may be deleted or even recorded."""
        found: dict[str, list[str]] = {}
        for job in self._killed_jobs("kind = 'orphan'"):
            # A plan of orphans has at most 20,000 paths, the limit of Iceberg's procedure.
            found[job] = [str(row["path"]) for row in self._planned_files([job]).select("path").collect()]
        return found

    def record_deleted(
        self, noted: Deletions, *, deleted: OwnershipSplit, jobs: Sequence[str] = (), still_there: Sequence[str] = ()
    ) -> None:
        """Moves the planned files that were deleted into the journal, and drops the rest of the plan.

        `jobs` are killed jobs that were finished together with this one.
        """
        gone = self._unreachable_plans([self._context.job, *jobs])
        if deleted.outside is not None:
            gone = gone.join(deleted.outside.select("path"), "path", "left_anti")
            noted.outside = [*noted.outside, *deleted.some_outside()]
        if still_there:
            left = self._spark.createDataFrame([(path,) for path in still_there], "path STRING")
            gone = gone.join(left, "path", "left_anti")
        self._record(self._without_recorded(gone) if jobs else gone)
        self._drop_plans([self._context.job, *jobs])
        self.count_deletions(noted, jobs)

    def _killed_jobs(self, condition: str) -> list[str]:
        """Returns the jobs with open plans: earlier attempts of this job, and abandoned jobs."""
        abandoned = f"planned_at < timestamp_millis({self._now_ms - ABANDONED_MS})"
        mine_or_old = f"job = {literal(self._context.job)} OR {abandoned}"
        jobs = self._planned_files().where(condition).where(mine_or_old).select("job").distinct()
        rows = jobs.orderBy("job").limit(MAX_JOBS).collect()  # the next job finds the rest
        return sorted(str(row["job"]) for row in rows)

    def _planned_files(self, jobs: Sequence[str] = ()) -> "DataFrame":
        self._spark.sql(f"REFRESH TABLE {self._planned}")
        rows = self._spark.table(self._planned).where(f"table_uuid = {literal(self._context.spec.table_uuid)}")
        return rows.where(_is_of(jobs)) if jobs else rows

    def _unreachable_plans(self, jobs: Sequence[str]) -> "DataFrame":
        """Returns the planned files of these jobs that the table no longer references."""
        plans = self._planned_files(jobs)
        kinds = {str(row["kind"]) for row in plans.select("kind").distinct().collect()}  # at most a handful of kinds
        # Only manifest lists were opened as such. A statistics path, set by a client, may point to a data file.
        reachable = reachable_files(self._context, without_files=kinds <= {"manifest-list"})
        return plans.join(reachable.select("path"), "path", "left_anti")

    def _without_recorded(self, rows: "DataFrame") -> "DataFrame":
        """Removes files that the journal has already: a job may have been killed before it could drop its plan."""
        keys = ["table_uuid", "job", "path"]
        return rows.join(self._spark.table(self._journal).select(*keys), keys, "left_anti")

    def _record(self, rows: "DataFrame") -> None:
        noted = rows.selectExpr(*NAMES.split(", "), f"timestamp_millis({self._now_ms}) AS deleted_at")
        noted.writeTo(self._journal).append()

    def _drop_plans(self, jobs: Sequence[str]) -> None:
        # Deletes whole partitions: a metadata-only change that conflicts with no other job.
        uuid = literal(self._context.spec.table_uuid)
        self._spark.sql(f"DELETE FROM {self._planned} WHERE table_uuid = {uuid} AND {_is_of(jobs)}")

    def count_deletions(self, noted: Deletions, jobs: Sequence[str] = ()) -> None:
        """Counts the journal's rows of this job, of any attempt; for other `jobs` only those of this attempt."""
        self._spark.sql(f"REFRESH TABLE {self._journal}")
        since = f"deleted_at >= timestamp_millis({self._now_ms})"
        others = f" OR ({_is_of(jobs)} AND {since})" if jobs else ""
        rows = self._spark.sql(  # one row per file kind
            f"SELECT kind, count(*) AS files, sum(size) AS size FROM {self._journal} "
            f"WHERE table_uuid = {literal(self._context.spec.table_uuid)} "
            f"AND ({_is_of([self._context.job])}{others}) GROUP BY kind"
        ).collect()
        noted.by_kind = {str(row["kind"]): int(row["files"]) for row in rows}
        noted.files = sum(noted.by_kind.values())
        noted.size_bytes = sum(int(row["size"] or 0) for row in rows)


def _is_of(jobs: Sequence[str]) -> str:
    return f"job IN ({', '.join(map(literal, jobs))})"
