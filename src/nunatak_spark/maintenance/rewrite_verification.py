"""Verifies that a job changed no row: compares every rewrite since its start with the snapshot that it replaced.

Other writers may commit meanwhile, so the table may rightly differ before and after the job. But a `replace` snapshot
must hold the same rows as its parent, whoever commits before and after. The option `verify` says how to compare:

`rows`      the row counts of the snapshot summaries. If there are delete files, rows are counted by a query.
`metadata`  row counts, null and NaN counts of each column, and no value outside of the former bounds, from manifests.
            If there are delete files, manifests include deleted rows: then only rows are counted.
`full`      the fingerprint of all rows and columns, read from the files.
`none`      nothing.

The default is `metadata`. An outcome reports the level that was reached, not the one that was requested.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import msgspec

from nunatak.client import Json
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.comparison import compare
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused, JobStopped
from nunatak_spark.maintenance.loaded_table import REPLACE, LoadedTable, Snapshot, load_table
from nunatak_spark.maintenance.snapshot_pins import (
    EVIDENCE_MS,
    find_pinned_snapshot,
    pin_name,
    pin_snapshot,
    unpin_snapshot,
)
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import literal, quote_identifier

VerificationLevel = Literal["rows", "metadata", "full", "none"]
LEVELS: tuple[VerificationLevel, ...] = ("rows", "metadata", "full", "none")
BY_STRENGTH: tuple[VerificationLevel, ...] = ("none", "rows", "metadata", "full")
# Bounds of other types may be truncated, or have several equal representations, and differ between writers.
EXACT = re.compile(r"int|long|date|timestamp|timestamptz|decimal\(.*\)")
COUNTED = re.compile(rf"{EXACT.pattern}|boolean|float|double|string|uuid|binary|fixed\[\d+\]")
WORDS = {"nulls": "nulls", "nans": "NaNs"}
FLOATING = ("float", "double")
MAX_COLUMNS = 100  # Iceberg's default limit of columns with metrics


@dataclass(frozen=True)
class Rewrite:
    """Consecutive `replace` snapshots, oldest first; `parent_id` is the snapshot that the first one replaced."""

    parent_id: int
    snapshots: tuple[Snapshot, ...]

    @property
    def last_id(self) -> int:
        return self.snapshots[-1].snapshot_id


@dataclass(frozen=True)
class RewriteCheck:
    """The level at which a rewrite was compared, and the differences."""

    level: VerificationLevel
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class FaultyRewrite:
    """A rewrite that changed rows."""

    rewrite: Rewrite
    sentences: tuple[str, ...]


def verification_level(context: JobContext) -> VerificationLevel:
    """Returns the requested level; raises JobRefused if there is no such level."""
    chosen = context.spec.options.get("verify", "metadata")
    if chosen not in LEVELS:
        raise JobRefused(f"verify is {chosen!r}; use one of {', '.join(LEVELS)}")
    return LEVELS[LEVELS.index(chosen)]


def rewrites_since(table: LoadedTable, since: int) -> list[Rewrite]:
    """Returns the rewrites on the current branch after a snapshot; consecutive ones are one Rewrite."""
    if not table.descends_from(since):
        return []  # the branch was reset meanwhile: it contains no snapshot of the job
    line = table.ancestors(since)[::-1]
    known = table.snapshots  # snapshots in between may have been expired
    runs = (tuple(run) for replaced, run in groupby(line, lambda each: each.operation == REPLACE) if replaced)
    return [Rewrite(parent, run) for run in runs if (parent := run[0].parent_id) is not None and parent in known]


def find_faulty_rewrite(
    context: JobContext, table: LoadedTable, rewrites: Sequence[Rewrite], level: VerificationLevel
) -> tuple[FaultyRewrite | None, VerificationLevel]:
    """Returns the first rewrite that changed rows, or None; and the lowest level that was reached."""
    looks = {"rows": _compare_rows, "metadata": _compare_metadata, "full": _compare_fingerprints}
    reached = level
    for rewrite in rewrites if level in looks else ():
        with report_task_progress(context.spark, "comparing the rows before and after", context.progress):
            look = looks[level](context, table, rewrite)
        reached = min(reached, look.level, key=BY_STRENGTH.index)
        if look.sentences:
            return FaultyRewrite(rewrite, look.sentences), reached
    return None, reached


def _compare_rows(context: JobContext, table: LoadedTable, rewrite: Rewrite) -> RewriteCheck:
    ends = (table.snapshots[rewrite.parent_id], rewrite.snapshots[-1])
    if all("total-records" in each.summary and _has_no_deletes(each) for each in ends):
        before, after = (each.count("total-records") for each in ends)
        return RewriteCheck("rows", tuple(_row_count_difference(before, after)))
    return _compare_counted_rows(context, table, rewrite)


def _compare_counted_rows(context: JobContext, table: LoadedTable, rewrite: Rewrite) -> RewriteCheck:
    before, after = (count_rows(context, table, each) for each in (rewrite.parent_id, rewrite.last_id))
    return RewriteCheck("rows", tuple(_row_count_difference(before, after)))


def _row_count_difference(before: int, after: int) -> Iterator[str]:
    if before != after:
        yield f"{before} rows became {after}"


def _has_no_deletes(snapshot: Snapshot) -> bool:
    return snapshot.summary.get("total-delete-files") == "0"


def _compare_fingerprints(context: JobContext, table: LoadedTable, rewrite: Rewrite) -> RewriteCheck:
    before = fingerprint(context.spark, table.name, snapshot_id=rewrite.parent_id)
    after = fingerprint(context.spark, table.name, snapshot_id=rewrite.last_id)
    difference = compare(before, after)
    return RewriteCheck("full", () if difference.same_data else tuple(difference.sentences()))


def _compare_metadata(context: JobContext, table: LoadedTable, rewrite: Rewrite) -> RewriteCheck:
    """Compares manifests: a snapshot summary is only the writer's own claim."""
    columns = [each for each in table.columns if isinstance(each["type"], str) and COUNTED.fullmatch(each["type"])]
    columns = columns[:MAX_COLUMNS]
    (row,) = context.spark.sql(_column_metrics_query(table, columns, rewrite.parent_id, rewrite.last_id)).collect()
    facts = row.asDict()
    if facts["deletes_before"] or facts["deletes_after"]:
        return _compare_counted_rows(context, table, rewrite)
    return RewriteCheck("metadata", tuple(metadata_differences([each["name"] for each in columns], facts)))


def count_rows(context: JobContext, table: LoadedTable, snapshot_id: int, condition: str = "true") -> int:
    statement = f"SELECT count(*) FROM {table.name} VERSION AS OF {snapshot_id} WHERE {condition}"
    return int(context.spark.sql(statement).collect()[0][0])


def _column_metrics_query(table: LoadedTable, columns: Sequence[Json], before: int, after: int) -> str:
    """Returns a query with the manifest metrics of both snapshots in one row; null where a metric is unknown."""
    sums = ["coalesce(sum(record_count), 0) AS rows"]
    told = ["b.rows AS rows_before", "a.rows AS rows_after"]
    for i, column in enumerate(columns):
        metrics = f"readable_metrics.{quote_identifier(column['name'])}"
        known = f"count({metrics}.null_value_count) = count(*)"
        sums.append(f"if({known}, sum({metrics}.null_value_count), NULL) AS nulls{i}")
        told += [f"b.nulls{i} AS nulls_before{i}", f"a.nulls{i} AS nulls_after{i}"]
        if column["type"] in FLOATING:
            counted = f"count({metrics}.nan_value_count) = count(*)"
            sums.append(f"if({counted}, sum({metrics}.nan_value_count), NULL) AS nans{i}")
            told += [f"b.nans{i} AS nans_before{i}", f"a.nans{i} AS nans_after{i}"]
        if EXACT.fullmatch(column["type"]):
            held = f"count_if({metrics}.value_count > {metrics}.null_value_count)"
            for side, bound in (("low", f"min({metrics}.lower_bound)"), ("high", f"max({metrics}.upper_bound)")):
                complete = f"{known} AND count({metrics}.{'lower' if side == 'low' else 'upper'}_bound) = {held}"
                sums.append(f"if({complete}, {bound}, NULL) AS {side}{i}")
            out = f"a.low{i} < b.low{i} OR a.high{i} > b.high{i}"
            told.append(f"if({out}, concat_ws(' to ', b.low{i}, b.high{i}), NULL) AS bounds{i}")
    for side, snapshot_id in (("before", before), ("after", after)):
        told.append(f"(SELECT count(*) FROM {table.metadata_table('delete_files', snapshot_id)}) AS deletes_{side}")
    ends = [
        f"(SELECT {', '.join(sums)} FROM {table.metadata_table('data_files', snapshot_id)}) AS {name}"
        for name, snapshot_id in (("b", before), ("a", after))
    ]
    return f"SELECT {', '.join(told)} FROM {' CROSS JOIN '.join(ends)}"


def metadata_differences(names: Sequence[str], row: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence per impossible difference; metrics that are unknown on one side are skipped."""
    yield from _row_count_difference(row["rows_before"], row["rows_after"])
    for i, name in enumerate(names):
        for what in ("nulls", "nans"):
            before, after = row.get(f"{what}_before{i}"), row.get(f"{what}_after{i}")
            if None not in (before, after) and before != after:
                yield f"{before} {WORDS[what]} in {name} became {after}"
        bounds = row.get(f"bounds{i}")
        if bounds is not None:
            yield f"{name} was from {bounds} and now has values outside of that"


# Running and verifying a rewrite


Gains = Callable[[Snapshot, Snapshot], list[Gain]]


def summary_totals(*names: str) -> Gains:
    """Returns a function that reads these totals of snapshot summaries, such as `data files`."""

    def gains(before: Snapshot, after: Snapshot) -> list[Gain]:
        keys = {name: f"total-{name.replace(' ', '-')}" for name in names}
        return [Gain(of=name, before=before.count(key), after=after.count(key)) for name, key in keys.items()]

    return gains


def run_verified_rewrite(
    context: JobContext, table: LoadedTable, rewrite: Callable[[Snapshot], Mapping[str, Any]], gains: Gains
) -> JobOutcome:
    """Pins the current snapshot, rewrites, and verifies the result.

    An attempt that was stopped or killed leaves its pin: the next attempt finds it and verifies everything since. What
    was committed before a failure is verified too. A faulty rewrite is not undone, because other commits may depend on
    it; the snapshot before it stays pinned, and the outcome contains the rollback command.
    """
    verification_level(context)  # raises for an unknown level before anything is done
    start = find_pinned_snapshot(context, table) or table.current
    if start is None:
        return JobOutcome(detail={"text": "nothing was written yet"})
    failure: Exception | None = None
    detail: Mapping[str, Any] = {}
    pin_snapshot(context, start)
    try:
        detail = rewrite(start)
    except JobStopped:
        raise
    except Exception as error:
        context.check()  # raises JobStopped for an interrupted statement; a lost job must not touch the pin
        failure = error
    after = load_table(context)
    rewrites = rewrites_since(after, start.snapshot_id)
    made = [each for rewrite in rewrites for each in rewrite.snapshots]
    size_bytes = sum(each.count("removed-files-size") for each in made)
    level = verification_level(context) if after.descends_from(start.snapshot_id) else "none"
    wrong, level = find_faulty_rewrite(context, after, rewrites, level)
    outcome = JobOutcome(
        changed=bool(made),
        size_bytes=size_bytes,
        gains=gains(start, after.current or start),
        detail={"verified": level, **detail, "snapshots": [each.snapshot_id for each in made]},
    )
    if wrong is not None:
        return report_faulty_rewrite(context, after, wrong, outcome)
    unpin_snapshot(context, after)
    if failure is not None:
        raise failure
    return outcome


def run_verified_action(context: JobContext, table: LoadedTable, act: Callable[[], JobOutcome]) -> JobOutcome:
    """Runs an action that adds no snapshot; with `full`, compares the current snapshot's rows before and after."""
    start = table.current
    if start is None or verification_level(context) != "full":
        return act()
    before = fingerprint(context.spark, table.name, snapshot_id=start.snapshot_id)
    outcome = act()
    if start.snapshot_id not in load_table(context).snapshots:
        return outcome  # it was replaced and expired by another writer
    difference = compare(before, fingerprint(context.spark, table.name, snapshot_id=start.snapshot_id))
    detail = {**outcome.detail, "verified": "full"}
    if difference.same_data:
        return msgspec.structs.replace(outcome, detail=detail)
    problem = f"snapshot {start.snapshot_id} has other rows than before: {'; '.join(difference.sentences())}"
    return msgspec.structs.replace(outcome, ok=False, detail={**detail, "problem": problem})


def report_faulty_rewrite(
    context: JobContext, table: LoadedTable, wrong: FaultyRewrite, outcome: JobOutcome
) -> JobOutcome:
    """Returns the outcome with the problem and the rollback command; pins the snapshot to go back to."""
    kept, last = wrong.rewrite.parent_id, wrong.rewrite.last_id
    pin_snapshot(context, table.snapshots[kept], EVIDENCE_MS)
    back = rollback_command(context, table, kept)
    problem = (
        f"snapshot {last} does not hold the rows of {kept}, which it replaced: {'; '.join(wrong.sentences)}. Nothing "
        f"was undone, and {pin_name(context)} keeps the earlier one for a week. To go back and lose what came later: "
        f"{back}"
    )
    found = {"problem": problem, "wrong-snapshot": last, "kept-snapshot": kept, "rollback": back}
    return msgspec.structs.replace(outcome, ok=False, detail={**outcome.detail, **found})


def rollback_command(context: JobContext, table: LoadedTable, snapshot_id: int) -> str:
    return f"CALL {quote_identifier(context.catalog)}.system.rollback_to_snapshot({literal(table.name)}, {snapshot_id})"
