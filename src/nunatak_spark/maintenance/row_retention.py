"""Row retention: deletes rows that are older than the policy's age."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.comparison import compare
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.maintenance.cutoffs import cutoff_ms, date_literal, timestamp_literal, timestamp_ntz_literal
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused, JobStopped
from nunatak_spark.maintenance.job_failures import retry_on_conflict
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot, load_table
from nunatak_spark.maintenance.rewrite_verification import (
    FaultyRewrite,
    Rewrite,
    count_rows,
    report_faulty_rewrite,
    verification_level,
)
from nunatak_spark.maintenance.snapshot_pins import find_pinned_snapshot, pin_snapshot, unpin_snapshot
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import quote_identifier

LITERALS: dict[str, Callable[[int], str]] = {
    "date": date_literal,
    "timestamp": timestamp_ntz_literal,
    "timestamptz": timestamp_literal,
}
JOB = "nunatak-job"  # snapshot summary property with the name of the job
PROPERTY = f"spark.sql.iceberg.snapshot-property.{JOB}"


def retain_rows(context: JobContext) -> JobOutcome:
    table = load_table(context)
    start = find_pinned_snapshot(context, table) or table.current
    if start is None:
        return JobOutcome(detail={"text": "nothing was written yet"})
    condition = delete_condition(context, table)
    current = table.current or start
    old = count_rows(context, table, current.snapshot_id, condition)
    if not old and find_pinned_snapshot(context, table) is None:
        return JobOutcome(detail={"text": "no row is old enough"})
    if context.dry_run:
        rows = count_rows(context, table, current.snapshot_id)
        gain = Gain(of="rows", before=rows, after=rows - old)
        return JobOutcome(gains=[gain], detail={"text": "nothing was changed", "condition": condition})
    return _guarded_delete(context, table, start, condition)


def delete_condition(context: JobContext, table: LoadedTable) -> str:
    """Returns the condition for the rows to delete; rows with a null time are kept."""
    name = context.spec.options.get("column")
    kind = next((each["type"] for each in table.columns if each["name"] == name), None)
    if not isinstance(kind, str) or kind not in LITERALS:
        raise JobRefused(
            f"Rows cannot be kept by the age of {name}: "
            f"{'there is no such column' if kind is None else f'its type is {kind}'}. "
            f"Name one of the type {', '.join(LITERALS)}."
        )
    return f"{quote_identifier(str(name))} < {LITERALS[kind](cutoff_ms(context, 'max-age-seconds'))}"


def _guarded_delete(context: JobContext, table: LoadedTable, start: Snapshot, condition: str) -> JobOutcome:
    failure: Exception | None = None
    conflicts = 0
    pin_snapshot(context, start)
    try:
        with _mark_snapshots(context), report_task_progress(context.spark, "deleting old rows", context.progress):
            conflicts = retry_on_conflict(
                context, lambda: context.spark.sql(f"DELETE FROM {table.name} WHERE {condition}").collect()
            )
    except JobStopped:
        raise
    except Exception as error:
        context.check()  # raises JobStopped for an interrupted statement; a lost job must not touch the pin
        failure = error
    after = load_table(context)
    made = own_deletes(after, start.snapshot_id, context.job, context.spark.conf.get("spark.app.id", None))
    wrong = next(_find_faulty_deletes(context, after, made, condition), None)
    rows = [
        (count_rows(context, after, parent), count_rows(context, after, own)) for parent, own in _pairs(after, made)
    ]
    deleted = sum(before - left for before, left in rows)
    outcome = JobOutcome(
        changed=bool(made),
        gains=[Gain(of="rows", before=rows[0][0], after=rows[-1][1])] if rows else [],
        detail={
            "verified": "rows" if verification_level(context) == "metadata" else verification_level(context),
            "condition": condition,
            "deleted-rows": deleted,
            "conflicts": conflicts,
            "snapshots": [each.snapshot_id for each in made],
        },
    )
    if wrong is not None:
        return report_faulty_rewrite(context, after, wrong, outcome)
    unpin_snapshot(context, after)
    if failure is not None:
        raise failure
    return outcome


@contextmanager
def _mark_snapshots(context: JobContext) -> Iterator[None]:
    """Makes Spark write the job's name into the summary of snapshots that it commits in the block."""
    context.spark.conf.set(PROPERTY, context.job)
    try:
        yield
    finally:
        context.spark.conf.unset(PROPERTY)


def own_deletes(table: LoadedTable, since: int, job: str, application: str | None) -> list[Snapshot]:
    """Returns the snapshots that the job committed, oldest first.

    Iceberg does not write the job's property into deletes of whole files; those are recognized by Spark's application
    id.
    """
    line = table.ancestors(since)[::-1]
    return [
        each
        for each in line
        if each.summary.get(JOB) == job
        or (each.operation == "delete" and application is not None and each.summary.get("spark.app.id") == application)
    ]


def _pairs(table: LoadedTable, made: list[Snapshot]) -> Iterator[tuple[int, int]]:
    for each in made:
        if each.parent_id is not None and each.parent_id in table.snapshots:
            yield each.parent_id, each.snapshot_id


def _find_faulty_deletes(
    context: JobContext, table: LoadedTable, made: list[Snapshot], condition: str
) -> Iterator[FaultyRewrite]:
    """Yields deletes after which the table holds other rows than those to keep."""
    level, stays = verification_level(context), f"NOT coalesce({condition}, false)"
    for parent, own in _pairs(table, made):
        sentences: tuple[str, ...] = ()
        if level == "full":
            kept = context.spark.read.option("versionAsOf", parent).table(table.name).where(stays)
            found = fingerprint(context.spark, table.name, snapshot_id=own)
            difference = compare(fingerprint(context.spark, kept), found)
            sentences = () if difference.same_data else tuple(difference.sentences())
        elif level != "none":
            wanted, left = count_rows(context, table, parent, stays), count_rows(context, table, own)
            sentences = (
                () if wanted == left else (f"{wanted} rows were expected after the deletion, and the table has {left}",)
            )
        if sentences:
            yield FaultyRewrite(Rewrite(parent, (table.snapshots[own],)), sentences)
