"""The deletion journal: `system.deleted_files` says which file of which table was deleted, when, by which job and why.

A deletion is noted exactly once, wherever a job is killed. What may go is written down before, in
`system.planned_deletions`; afterwards those files of the plan that the table no longer leads to become rows of the
journal. A job that comes back, or the next one on the table, finds the plan of a killed one and finishes it first.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nunatak_spark import system_tables
from nunatak_spark.maintenance.file_deletion import delete_files
from nunatak_spark.maintenance.job_context import Work
from nunatak_spark.maintenance.own_locations import Split
from nunatak_spark.maintenance.reachable_files import forgettable_files, printed_name, reachable_files
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOURNAL, PLANNED = "deleted_files", "planned_deletions"
COLUMNS = (
    "path STRING NOT NULL, kind STRING NOT NULL, table STRING NOT NULL, table_uuid STRING NOT NULL, "
    "job STRING NOT NULL, reason STRING NOT NULL, size BIGINT"
)
NAMES = "path, kind, table, table_uuid, job, reason, size"
MOST_JOBS = 100  # killed ones whose work another one finishes
ABANDONED_MS = 24 * 3_600_000  # no job on one table takes a day; younger plans of others may be those of running jobs


@dataclass
class Deletions:
    """What one job deleted; filled when it is noted."""

    files: int = 0
    size_bytes: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)  # some of those that are left: not in the table's own places


@contextmanager
def deletions_noted(work: Work, reason: str, forgotten: Collection[int]) -> Iterator[Deletions]:
    """Delete and note every file that the table leads to before and no longer afterwards; for a block that forgets
    these snapshots.

    What may go is written down before the block runs, so no commit that comes meanwhile adds to it. What lies outside
    of the table's own places is left. Metadata files are not among them: the server deletes those itself. If the block
    raises, the rest is done by the next attempt, or by a later job on the table.
    """
    noted = Deletions()
    if work.dry_run:
        yield noted
        return
    journal = Journal(work)
    noted.outside = journal.settle()
    files = forgettable_files(work, forgotten)
    if files is not None:
        journal.plan(files, reason)
    yield noted
    if files is not None:
        journal.confirm(noted, deleted=journal.delete_unreachable())


def finish_deletions(work: Work) -> Deletions:
    """Delete and note what a killed attempt left undone; for a job that finds nothing else to do.

    Returns what all attempts of the job have deleted: those that were killed have told nobody.
    """
    noted = Deletions()
    if not work.dry_run and work.spark.catalog.tableExists(system_tables.system_table_name(work.catalog, PLANNED)):
        journal = Journal(work)
        noted.outside = journal.settle()
        journal.count(noted)
    return noted


class Journal:
    """The plan and the journal, for one job; what it notes has the time at which the job began."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._spark = work.spark
        self._now_ms = work.now_ms()
        self._planned = system_tables.ensure_system_table(
            work.spark,
            work.catalog,
            PLANNED,
            f"{COLUMNS}, planned_at TIMESTAMP NOT NULL",
            partitioned_by=("table_uuid", "job"),
            comment="Files that a running job may delete",
        )
        self._journal = system_tables.ensure_system_table(
            work.spark,
            work.catalog,
            JOURNAL,
            f"{COLUMNS}, deleted_at TIMESTAMP NOT NULL",
            partitioned_by=("days(deleted_at)",),
            comment="Files that maintenance deleted, and why",
        )

    def plan(self, files: "DataFrame", reason: str) -> None:
        """Write down what may be deleted now: path, kind and size."""
        work = self._work
        rows = files.selectExpr(
            "path",
            "kind",
            f"{literal(printed_name(work))} AS table",
            f"{literal(work.spec.table_uuid)} AS table_uuid",
            f"{literal(work.job)} AS job",
            f"{literal(reason)} AS reason",
            "size",
            f"timestamp_millis({self._now_ms}) AS planned_at",
        )
        rows.writeTo(self._planned).append()

    def settle(self) -> list[str]:
        """Finish what a killed job began: files it made unreachable and may not have deleted are deleted now.

        Orphans are left to the job that looks for them: it asks first who else has files there. Returns some of the
        files that are left because they lie outside of the table's own places.
        """
        jobs = self._killed_jobs("kind <> 'orphan'")
        if not jobs:
            return []
        deleted = delete_files(self._work, self._unnoted(self._gone(jobs)))
        outside = deleted.some_outside()
        self._note(deleted.own)
        self._forget(jobs)
        return outside

    def delete_unreachable(self) -> Split:
        """Delete what this job planned and the table no longer leads to, as far as it lies in the table's places."""
        return delete_files(self._work, self._gone([self._work.job]))

    def unfinished_orphans(self) -> dict[str, list[str]]:
        """The paths that killed jobs were about to delete, by job; some may be deleted, and even noted."""
        found: dict[str, list[str]] = {}
        for job in self._killed_jobs("kind = 'orphan'"):
            # No plan of orphans is longer than what Iceberg's procedure names, 20,000 paths.
            found[job] = [str(row["path"]) for row in self._open_plans([job]).select("path").collect()]
        return found

    def confirm(
        self, noted: Deletions, *, deleted: Split, jobs: Sequence[str] = (), still_there: Sequence[str] = ()
    ) -> None:
        """Make rows of the journal of what was planned and happened; what did not happen is forgotten.

        `jobs` are killed ones whose work was finished along with this one's.
        """
        gone = self._gone([self._work.job, *jobs])
        if deleted.outside is not None:
            gone = gone.join(deleted.outside.select("path"), "path", "left_anti")
            noted.outside = [*noted.outside, *deleted.some_outside()]
        if still_there:
            left = self._spark.createDataFrame([(path,) for path in still_there], "path STRING")
            gone = gone.join(left, "path", "left_anti")
        self._note(self._unnoted(gone) if jobs else gone)
        self._forget([self._work.job, *jobs])
        self.count(noted, jobs)

    def _killed_jobs(self, condition: str) -> list[str]:
        """Whose plans are still there: earlier attempts of this job, and others that nobody will come back for."""
        abandoned = f"planned_at < timestamp_millis({self._now_ms - ABANDONED_MS})"
        mine_or_old = f"job = {literal(self._work.job)} OR {abandoned}"
        jobs = self._open_plans().where(condition).where(mine_or_old).select("job").distinct()
        rows = jobs.orderBy("job").limit(MOST_JOBS).collect()  # what is left is found by the next job
        return sorted(str(row["job"]) for row in rows)

    def _open_plans(self, jobs: Sequence[str] = ()) -> "DataFrame":
        self._spark.sql(f"REFRESH TABLE {self._planned}")
        rows = self._spark.table(self._planned).where(f"table_uuid = {literal(self._work.spec.table_uuid)}")
        return rows.where(_is_of(jobs)) if jobs else rows

    def _gone(self, jobs: Sequence[str]) -> "DataFrame":
        """Of what these jobs had planned, what the table no longer leads to."""
        plans = self._open_plans(jobs)
        kinds = {str(row["kind"]) for row in plans.select("kind").distinct().collect()}  # a handful
        # Only a manifest list was read as what it is said to be. The path of statistics may be that of any file.
        reachable = reachable_files(self._work, without_files=kinds <= {"manifest-list"})
        return plans.join(reachable.select("path"), "path", "left_anti")

    def _unnoted(self, rows: "DataFrame") -> "DataFrame":
        """Without what the journal has: a job may have been killed before it could forget its plan."""
        keys = ["table_uuid", "job", "path"]
        return rows.join(self._spark.table(self._journal).select(*keys), keys, "left_anti")

    def _note(self, rows: "DataFrame") -> None:
        noted = rows.selectExpr(*NAMES.split(", "), f"timestamp_millis({self._now_ms}) AS deleted_at")
        noted.writeTo(self._journal).append()

    def _forget(self, jobs: Sequence[str]) -> None:
        # Whole partitions, so this is a change of metadata that conflicts with no other job.
        uuid = literal(self._work.spec.table_uuid)
        self._spark.sql(f"DELETE FROM {self._planned} WHERE table_uuid = {uuid} AND {_is_of(jobs)}")

    def count(self, noted: Deletions, jobs: Sequence[str] = ()) -> None:
        """What the journal has of this job, whichever attempt noted it; of other `jobs` what this attempt noted."""
        self._spark.sql(f"REFRESH TABLE {self._journal}")
        since = f"deleted_at >= timestamp_millis({self._now_ms})"
        others = f" OR ({_is_of(jobs)} AND {since})" if jobs else ""
        rows = self._spark.sql(  # one row for each kind of file
            f"SELECT kind, count(*) AS files, sum(size) AS size FROM {self._journal} "
            f"WHERE table_uuid = {literal(self._work.spec.table_uuid)} "
            f"AND ({_is_of([self._work.job])}{others}) GROUP BY kind"
        ).collect()
        noted.by_kind = {str(row["kind"]): int(row["files"]) for row in rows}
        noted.files = sum(noted.by_kind.values())
        noted.size_bytes = sum(int(row["size"] or 0) for row in rows)


def _is_of(jobs: Sequence[str]) -> str:
    return f"job IN ({', '.join(map(literal, jobs))})"
