"""Removes orphan files, which the table does not reference: found, quarantined, seen again, deleted, recorded.

A file is deleted if two runs, days apart, saw it as an orphan; the procedure that deletes it checks a third time.
Nothing is deleted if another table may keep files in the folder.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.deletion_journal import DeletionJournal, Deletions
from nunatak_spark.maintenance.file_deletion import call_orphan_procedure, delete_files
from nunatak_spark.maintenance.hidden_files import visible_files
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.orphan_quarantine import OrphanQuarantine, classify_orphans
from nunatak_spark.maintenance.overlapping_tables import refuse_foreign_metadata
from nunatak_spark.maintenance.reachable_files import (
    display_name,
    filter_reachable,
    load_metadata,
    paths_frame,
    plain_path,
)
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_MS = 24 * 3_600_000
LEAST_AGE_MS = 3 * DAY_MS  # a writer may write a file days before its commit
USUAL_QUARANTINE_MS = 3 * DAY_MS
LEAST_QUARANTINE_MS = DAY_MS
MAX_REPORTED = 20_000  # limit of Iceberg's procedure
MAX_NAMES = 20  # paths in a report; the system tables have all
REASON = "orphan: nothing of the table led to it, seen in two runs"
STEPS = 5


@dataclass(frozen=True)
class OrphanLimits:
    """A file is deleted if it was last written before `older_than_ms` and first seen before `seen_before_ms`."""

    older_than_ms: int
    seen_before_ms: int


def remove_orphans(context: JobContext) -> JobOutcome:
    limits = orphan_limits(context.spec.options, context.now_ms())
    metadata = _load_deletable_metadata(context)
    _report_step(context, "looking for orphan files", 0)
    found = find_orphans(context, metadata, limits.older_than_ms)
    refuse_foreign_metadata(metadata, found)
    context.check()
    if context.dry_run:
        return _dry_run_outcome(context, found, limits)
    return _delete_due_orphans(context, metadata, found, limits)


def orphan_limits(options: dict[str, Any], now_ms: int) -> OrphanLimits:
    """Returns the limits of the policy; raises JobRefused if they would include files younger than three days."""
    age_ms = int(options.get("older-than-seconds", 7 * DAY_MS // 1000)) * 1000
    older_than_ms = min(int(options.get("older-than-ms", now_ms)), now_ms - age_ms)
    if older_than_ms > now_ms - LEAST_AGE_MS:
        raise JobRefused(
            "Files younger than three days may belong to a commit to come: set older-than-seconds to 259200"
        )
    quarantine_ms = int(options.get("quarantine-seconds", USUAL_QUARANTINE_MS // 1000)) * 1000
    if quarantine_ms < LEAST_QUARANTINE_MS:
        raise JobRefused("Two sightings within a day are as one: set quarantine-seconds to 86400 or more")
    return OrphanLimits(older_than_ms, now_ms - quarantine_ms)


def find_orphans(context: JobContext, metadata: dict[str, Any], older_than_ms: int) -> list[str]:
    """Returns the unreferenced files in the table's folder, sorted, without hidden names; at most 20,000."""
    arguments = {"dry_run": "true", "prefix_listing": "true"}
    location = str(metadata["location"])
    if location.startswith("file:"):
        # Iceberg skips hidden files only if the location is spelled as the listing spells paths. Otherwise they would
        # use up its limit of 20,000 files.
        arguments["location"] = literal(f"file:{plain_path(location)}")
    return sorted(visible_files(metadata, call_orphan_procedure(context, older_than_ms, **arguments)))


def _load_deletable_metadata(context: JobContext) -> dict[str, Any]:
    """Returns the table's metadata; raises JobRefused if gc.enabled forbids deleting its files."""
    metadata = load_metadata(context)
    if str(metadata.get("properties", {}).get("gc.enabled", "true")).lower() == "false":
        raise JobRefused(f"{display_name(context)} has gc.enabled=false: its files are not its own to delete")
    return metadata


def _dry_run_outcome(context: JobContext, found: list[str], limits: OrphanLimits) -> JobOutcome:
    """Returns what a run would do now; writes nothing, not even that the files were seen."""
    known = OrphanQuarantine.load_first_seen(context)
    sorts = classify_orphans(found, known, limits.seen_before_ms)
    detail = {"orphans": len(found), "new": len(sorts.fresh), "waiting": len(sorts.waiting), "due": len(sorts.due)}
    gain = Gain(of="orphan files", before=len(found), after=len(found) - len(sorts.due))
    return JobOutcome(gains=[gain], detail={**detail, "files": sorts.due[:MAX_NAMES]})


def _delete_due_orphans(
    context: JobContext, metadata: dict[str, Any], found: list[str], limits: OrphanLimits
) -> JobOutcome:
    journal, quarantine = DeletionJournal(context), OrphanQuarantine(context)
    known, begun = quarantine.first_seen(), journal.unfinished_orphans()
    planned = {path for paths in begun.values() for path in paths}
    sorts = classify_orphans(found, known, limits.seen_before_ms, planned)
    if sorts.due:
        _report_step(context, f"planning to delete {len(sorts.due)} orphan files", 1)
        journal.plan(paths_frame(context, sorts.due, "orphan"), REASON)
        planned.update(sorts.due)
        context.check()
    noted, left = Deletions(), []
    if planned:
        # A killed job of an earlier version may have planned hidden files too.
        chosen = visible_files(metadata, sorted(planned))
        _report_step(context, f"deleting {len(chosen)} orphan files", 2)
        deleted = delete_files(context, paths_frame(context, chosen, "orphan"))
        _report_step(context, "making sure that they are gone", 3)
        left = [path for path in find_orphans(context, metadata, limits.older_than_ms) if path in planned]
        journal.record_deleted(
            noted, deleted=deleted, jobs=list(begun), still_there=[*planned.difference(chosen), *left]
        )
    else:
        journal.count_deletions(noted)  # an earlier attempt may have deleted everything and been killed
    # If the limit was reached, a candidate that is missing may just not have been listed.
    lost = sorts.unseen if len(found) < MAX_REPORTED else []
    returned = filter_reachable(context, lost) if lost else []
    _report_step(context, "noting what was seen", 4)
    gone = planned.difference(left).union(lost)
    kept = {path: first for path, first in known.items() if path not in gone}
    kept |= dict.fromkeys(sorts.fresh, context.now_ms())
    if kept or known:
        quarantine.replace(kept)
    remaining = len(set(found).difference(planned).union(left))
    return _outcome(found, sorts.fresh, returned, noted, left, remaining)


def _outcome(
    found: "Sequence[str]",
    fresh: "Sequence[str]",
    returned: "Sequence[str]",
    noted: Deletions,
    left: "Sequence[str]",
    remaining: int,
) -> JobOutcome:
    return JobOutcome(
        ok=not left,
        changed=bool(noted.files or fresh),
        gains=[Gain(of="orphan files", before=remaining + noted.files, after=remaining)],
        detail={
            "orphans": len(found),
            "new": len(fresh),
            "deleted": noted.files,
            "became-reachable": list(returned[:MAX_NAMES]),
            "not-deleted": list(left[:MAX_NAMES]),
            **({"left-outside": noted.outside} if noted.outside else {}),
            "more": len(found) >= MAX_REPORTED,
        },
    )


def _report_step(context: JobContext, text: str, done: int) -> None:
    context.progress(ProgressStep(text, done, STEPS))
