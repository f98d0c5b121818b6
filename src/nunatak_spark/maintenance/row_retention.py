"""Row retention: rows are deleted whose time is longer ago than the policy keeps them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.comparison import compare
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.maintenance.cutoffs import cutoff_ms, date, timestamp, timestamp_ntz
from nunatak_spark.maintenance.job_context import Outcome, Refused, Stopped, Work
from nunatak_spark.maintenance.job_failures import retried
from nunatak_spark.maintenance.loaded_table import Snapshot, Table, load
from nunatak_spark.maintenance.rewrite_verification import Rewrite, Wrong, count_rows, level_of, report_wrong
from nunatak_spark.maintenance.snapshot_pins import find_pinned, pin, unpin
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import quote_identifier

WRITERS: dict[str, Callable[[int], str]] = {"date": date, "timestamp": timestamp_ntz, "timestamptz": timestamp}
JOB = "nunatak-job"  # in the summary of a snapshot, whose work it is
PROPERTY = f"spark.sql.iceberg.snapshot-property.{JOB}"


def retain_rows(work: Work) -> Outcome:
    table = load(work)
    start = find_pinned(work, table) or table.current
    if start is None:
        return Outcome(detail={"text": "nothing was written yet"})
    condition = condition_of(work, table)
    current = table.current or start
    old = count_rows(work, table, current.snapshot_id, condition)
    if not old and find_pinned(work, table) is None:
        return Outcome(detail={"text": "no row is old enough"})
    if work.dry_run:
        rows = count_rows(work, table, current.snapshot_id)
        gain = Gain(of="rows", before=rows, after=rows - old)
        return Outcome(gains=[gain], detail={"text": "nothing was changed", "condition": condition})
    return _guarded_delete(work, table, start, condition)


def condition_of(work: Work, table: Table) -> str:
    """What is true of the rows to delete. Rows without a time stay."""
    name = work.spec.options.get("column")
    kind = next((each["type"] for each in table.columns if each["name"] == name), None)
    if not isinstance(kind, str) or kind not in WRITERS:
        raise Refused(
            f"Rows cannot be kept by the age of {name}: "
            f"{'there is no such column' if kind is None else f'its type is {kind}'}. "
            f"Name one of the type {', '.join(WRITERS)}."
        )
    return f"{quote_identifier(str(name))} < {WRITERS[kind](cutoff_ms(work, 'max-age-seconds'))}"


def _guarded_delete(work: Work, table: Table, start: Snapshot, condition: str) -> Outcome:
    failure: Exception | None = None
    conflicts = 0
    pin(work, start)
    try:
        with _marked(work), report_task_progress(work.spark, "deleting old rows", work.progress):
            conflicts = retried(work, lambda: work.spark.sql(f"DELETE FROM {table.name} WHERE {condition}").collect())
    except Stopped:
        raise
    except Exception as error:
        work.check()  # what was interrupted fails in its own way, and a lost job must not even be unpinned
        failure = error
    after = load(work)
    made = own_deletes(after, start.snapshot_id, work.job, work.spark.conf.get("spark.app.id", None))
    wrong = next(_wrongs(work, after, made, condition), None)
    rows = [(count_rows(work, after, parent), count_rows(work, after, own)) for parent, own in _pairs(after, made)]
    deleted = sum(before - left for before, left in rows)
    outcome = Outcome(
        changed=bool(made),
        gains=[Gain(of="rows", before=rows[0][0], after=rows[-1][1])] if rows else [],
        detail={
            "verified": "rows" if level_of(work) == "metadata" else level_of(work),
            "condition": condition,
            "deleted-rows": deleted,
            "conflicts": conflicts,
            "snapshots": [each.snapshot_id for each in made],
        },
    )
    if wrong is not None:
        return report_wrong(work, after, wrong, outcome)
    unpin(work, after)
    if failure is not None:
        raise failure
    return outcome


@contextmanager
def _marked(work: Work) -> Iterator[None]:
    """What Spark commits inside says in its summary which job it is of."""
    work.spark.conf.set(PROPERTY, work.job)
    try:
        yield
    finally:
        work.spark.conf.unset(PROPERTY)


def own_deletes(table: Table, since: int, job: str, application: str | None) -> list[Snapshot]:
    """What the job committed since, the oldest first; Iceberg does not mark a deletion of whole files, Spark does."""
    line = table.line(since)[::-1]
    return [
        each
        for each in line
        if each.summary.get(JOB) == job
        or (each.operation == "delete" and application is not None and each.summary.get("spark.app.id") == application)
    ]


def _pairs(table: Table, made: list[Snapshot]) -> Iterator[tuple[int, int]]:
    for each in made:
        if each.parent_id is not None and each.parent_id in table.snapshots:
            yield each.parent_id, each.snapshot_id


def _wrongs(work: Work, table: Table, made: list[Snapshot], condition: str) -> Iterator[Wrong]:
    """Deletions after which other rows are there than those that were to stay."""
    level, stays = level_of(work), f"NOT coalesce({condition}, false)"
    for parent, own in _pairs(table, made):
        sentences: tuple[str, ...] = ()
        if level == "full":
            kept = work.spark.read.option("versionAsOf", parent).table(table.name).where(stays)
            found = fingerprint(work.spark, table.name, snapshot_id=own)
            difference = compare(fingerprint(work.spark, kept), found)
            sentences = () if difference.same_data else tuple(difference.sentences())
        elif level != "none":
            wanted, left = count_rows(work, table, parent, stays), count_rows(work, table, own)
            sentences = () if wanted == left else (f"{wanted} rows were to stay, and {left} are there",)
        if sentences:
            yield Wrong(Rewrite(parent, (table.snapshots[own],)), sentences)
