"""What shows that a job changed no row: every rewrite since it began is held against the snapshot that it replaced.

Writers may go on meanwhile, so the table before the job and after it may differ rightly. A `replace` snapshot may not
differ from its parent, whoever else commits before and after. How closely that is looked at is the option `verify`:

`rows`      as many rows as before, by the totals in the summaries. Where delete files are about, they are counted.
`metadata`  as many rows, and as many nulls and NaNs in each column, and no value outside the bounds that it had, by the
            manifests. Where delete files are about, manifests tell of deleted rows too: then rows are counted, no more.
`full`      the fingerprint of every row and column, read from the files.
`none`      nothing.

Unless somebody says, it is `metadata`. An outcome tells the level that was reached, not the one that was asked for.
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
from nunatak_spark.maintenance.job_context import Outcome, Refused, Stopped, Work
from nunatak_spark.maintenance.loaded_table import REPLACE, Snapshot, Table, load
from nunatak_spark.maintenance.snapshot_pins import EVIDENCE_MS, find_pinned, pin, pin_of, unpin
from nunatak_spark.progress import report_task_progress
from nunatak_spark.sql_text import literal, quote_identifier

Level = Literal["rows", "metadata", "full", "none"]
LEVELS: tuple[Level, ...] = ("rows", "metadata", "full", "none")
BY_STRENGTH: tuple[Level, ...] = ("none", "rows", "metadata", "full")
# Bounds of other types are cut short, or have forms that are equal and not the same: writers differ in them.
EXACT = re.compile(r"int|long|date|timestamp|timestamptz|decimal\(.*\)")
COUNTED = re.compile(rf"{EXACT.pattern}|boolean|float|double|string|uuid|binary|fixed\[\d+\]")
WORDS = {"nulls": "nulls", "nans": "NaNs"}
FLOATING = ("float", "double")
MOST_COLUMNS = 100  # of more than that Iceberg keeps no counts, unless it is told to


@dataclass(frozen=True)
class Rewrite:
    """Snapshots of `replace` in a row, the oldest first; `parent_id` is what the first of them replaced."""

    parent_id: int
    snapshots: tuple[Snapshot, ...]

    @property
    def last_id(self) -> int:
        return self.snapshots[-1].snapshot_id


@dataclass(frozen=True)
class Look:
    """What a rewrite was compared by, and what differs."""

    level: Level
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Wrong:
    """A rewrite that changed rows."""

    rewrite: Rewrite
    sentences: tuple[str, ...]


def level_of(work: Work) -> Level:
    """How closely to look at a rewrite."""
    chosen = work.spec.options.get("verify", "metadata")
    if chosen not in LEVELS:
        raise Refused(f"verify is {chosen!r}; use one of {', '.join(LEVELS)}")
    return LEVELS[LEVELS.index(chosen)]


def rewrites_since(table: Table, since: int) -> list[Rewrite]:
    """The rewrites on the current branch after a snapshot of it, those in a row taken together."""
    if not table.comes_from(since):
        return []  # the branch was put elsewhere meanwhile: nothing of the job is in it
    line = table.line(since)[::-1]
    known = table.snapshots  # somebody may have expired what lies between
    runs = (tuple(run) for replaced, run in groupby(line, lambda each: each.operation == REPLACE) if replaced)
    return [Rewrite(parent, run) for run in runs if (parent := run[0].parent_id) is not None and parent in known]


def find_wrong(work: Work, table: Table, rewrites: Sequence[Rewrite], level: Level) -> tuple[Wrong | None, Level]:
    """The first rewrite that changed rows, as far as is looked; and the level at which all that were looked at pass."""
    looks = {"rows": _compare_rows, "metadata": _compare_metadata, "full": _compare_fingerprints}
    reached = level
    for rewrite in rewrites if level in looks else ():
        with report_task_progress(work.spark, "comparing the rows before and after", work.progress):
            look = looks[level](work, table, rewrite)
        reached = min(reached, look.level, key=BY_STRENGTH.index)
        if look.sentences:
            return Wrong(rewrite, look.sentences), reached
    return None, reached


def _compare_rows(work: Work, table: Table, rewrite: Rewrite) -> Look:
    ends = (table.snapshots[rewrite.parent_id], rewrite.snapshots[-1])
    if all("total-records" in each.summary and _has_no_deletes(each) for each in ends):
        before, after = (each.count("total-records") for each in ends)
        return Look("rows", tuple(_rows_differ(before, after)))
    return _compare_counted_rows(work, table, rewrite)


def _compare_counted_rows(work: Work, table: Table, rewrite: Rewrite) -> Look:
    before, after = (count_rows(work, table, each) for each in (rewrite.parent_id, rewrite.last_id))
    return Look("rows", tuple(_rows_differ(before, after)))


def _rows_differ(before: int, after: int) -> Iterator[str]:
    if before != after:
        yield f"{before} rows became {after}"


def _has_no_deletes(snapshot: Snapshot) -> bool:
    return snapshot.summary.get("total-delete-files") == "0"


def _compare_fingerprints(work: Work, table: Table, rewrite: Rewrite) -> Look:
    before = fingerprint(work.spark, table.name, snapshot_id=rewrite.parent_id)
    after = fingerprint(work.spark, table.name, snapshot_id=rewrite.last_id)
    difference = compare(before, after)
    return Look("full", () if difference.same_data else tuple(difference.sentences()))


def _compare_metadata(work: Work, table: Table, rewrite: Rewrite) -> Look:
    """By the manifests alone: a summary is only what the writer said about its work."""
    columns = [each for each in table.columns if isinstance(each["type"], str) and COUNTED.fullmatch(each["type"])]
    columns = columns[:MOST_COLUMNS]
    (row,) = work.spark.sql(_facts_query(table, columns, rewrite.parent_id, rewrite.last_id)).collect()
    facts = row.asDict()
    if facts["deletes_before"] or facts["deletes_after"]:
        return _compare_counted_rows(work, table, rewrite)
    return Look("metadata", tuple(facts_differ([each["name"] for each in columns], facts)))


def count_rows(work: Work, table: Table, snapshot_id: int, condition: str = "true") -> int:
    statement = f"SELECT count(*) FROM {table.name} VERSION AS OF {snapshot_id} WHERE {condition}"
    return int(work.spark.sql(statement).collect()[0][0])


def _facts_query(table: Table, columns: Sequence[Json], before: int, after: int) -> str:
    """One row of what the manifests of both say together; null where the one or the other does not know."""
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


def facts_differ(names: Sequence[str], row: Mapping[str, Any]) -> Iterator[str]:
    """What a rewrite cannot do, in sentences; what is not known on both sides says nothing."""
    yield from _rows_differ(row["rows_before"], row["rows_after"])
    for i, name in enumerate(names):
        for what in ("nulls", "nans"):
            before, after = row.get(f"{what}_before{i}"), row.get(f"{what}_after{i}")
            if None not in (before, after) and before != after:
                yield f"{before} {WORDS[what]} in {name} became {after}"
        bounds = row.get(f"bounds{i}")
        if bounds is not None:
            yield f"{name} was from {bounds} and now has values outside of that"


# A rewrite from the beginning to the end


Gains = Callable[[Snapshot, Snapshot], list[Gain]]


def totals(*names: str) -> Gains:
    """The totals of summaries that an outcome tells, such as `data files`."""

    def gains(before: Snapshot, after: Snapshot) -> list[Gain]:
        keys = {name: f"total-{name.replace(' ', '-')}" for name in names}
        return [Gain(of=name, before=before.count(key), after=after.count(key)) for name, key in keys.items()]

    return gains


def guarded(work: Work, table: Table, rewrite: Callable[[Snapshot], Mapping[str, Any]], gains: Gains) -> Outcome:
    """Pin where the job begins, rewrite, and look at what came of it.

    An attempt that was stopped or killed leaves its pin behind: the next one finds it, and looks at everything since.
    What was committed before a failure is looked at as well. A rewrite that changed rows is left as it is, because
    others may have built on it; the snapshot before it stays pinned, and the outcome says how to go back.
    """
    level_of(work)  # a wrong one is refused before anything is done
    start = find_pinned(work, table) or table.current
    if start is None:
        return Outcome(detail={"text": "nothing was written yet"})
    failure: Exception | None = None
    detail: Mapping[str, Any] = {}
    pin(work, start)
    try:
        detail = rewrite(start)
    except Stopped:
        raise
    except Exception as error:
        work.check()  # what was interrupted fails in its own way, and a lost job must not even be unpinned
        failure = error
    after = load(work)
    rewrites = rewrites_since(after, start.snapshot_id)
    made = [each for rewrite in rewrites for each in rewrite.snapshots]
    size_bytes = sum(each.count("removed-files-size") for each in made)
    level = level_of(work) if after.comes_from(start.snapshot_id) else "none"
    wrong, level = find_wrong(work, after, rewrites, level)
    outcome = Outcome(
        changed=bool(made),
        size_bytes=size_bytes,
        gains=gains(start, after.current or start),
        detail={"verified": level, **detail, "snapshots": [each.snapshot_id for each in made]},
    )
    if wrong is not None:
        return report_wrong(work, after, wrong, outcome)
    unpin(work, after)
    if failure is not None:
        raise failure
    return outcome


def watched(work: Work, table: Table, act: Callable[[], Outcome]) -> Outcome:
    """Do what adds no snapshot; with `full`, the rows of the current one are read before and after."""
    start = table.current
    if start is None or level_of(work) != "full":
        return act()
    before = fingerprint(work.spark, table.name, snapshot_id=start.snapshot_id)
    outcome = act()
    if start.snapshot_id not in load(work).snapshots:
        return outcome  # a writer has put another one in its place, and then it expired
    difference = compare(before, fingerprint(work.spark, table.name, snapshot_id=start.snapshot_id))
    detail = {**outcome.detail, "verified": "full"}
    if difference.same_data:
        return msgspec.structs.replace(outcome, detail=detail)
    problem = f"snapshot {start.snapshot_id} has other rows than before: {'; '.join(difference.sentences())}"
    return msgspec.structs.replace(outcome, ok=False, detail={**detail, "problem": problem})


def report_wrong(work: Work, table: Table, wrong: Wrong, outcome: Outcome) -> Outcome:
    """The outcome with what is wrong and how to go back; the snapshot to go back to is kept for a while."""
    kept, last = wrong.rewrite.parent_id, wrong.rewrite.last_id
    pin(work, table.snapshots[kept], EVIDENCE_MS)
    back = rollback_command(work, table, kept)
    problem = (
        f"snapshot {last} does not hold the rows of {kept}, which it replaced: {'; '.join(wrong.sentences)}. Nothing "
        f"was undone, and {pin_of(work)} keeps the earlier one for a week. To go back and lose what came later: {back}"
    )
    found = {"problem": problem, "wrong-snapshot": last, "kept-snapshot": kept, "rollback": back}
    return msgspec.structs.replace(outcome, ok=False, detail={**outcome.detail, **found})


def rollback_command(work: Work, table: Table, snapshot_id: int) -> str:
    return f"CALL {quote_identifier(work.catalog)}.system.rollback_to_snapshot({literal(table.name)}, {snapshot_id})"
