"""Removing files in a table's folder that the table does not lead to: found, quarantined, seen again, deleted, noted.

What is deleted was seen as an orphan in two runs, days apart, and is checked a third time by the procedure that deletes
it. If anybody else may keep files in the folder nothing is deleted at all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.deletion_journal import Deletions, Journal
from nunatak_spark.maintenance.file_deletion import call_orphan_procedure, delete_files
from nunatak_spark.maintenance.hidden_files import visible_files
from nunatak_spark.maintenance.job_context import Outcome, Refused, Work
from nunatak_spark.maintenance.orphan_quarantine import Quarantine, sorted_out
from nunatak_spark.maintenance.overlapping_tables import refuse_foreign_metadata
from nunatak_spark.maintenance.reachable_files import load_metadata, path_of, paths_frame, printed_name, reachable_among
from nunatak_spark.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_MS = 24 * 3_600_000
LEAST_AGE_MS = 3 * DAY_MS  # a writer may have written a file days before it commits it
USUAL_QUARANTINE_MS = 3 * DAY_MS
LEAST_QUARANTINE_MS = DAY_MS
MOST_TOLD = 20_000  # Iceberg's procedure names no more of what it finds
MOST_NAMED = 20  # paths in a report; the tables have them all
REASON = "orphan: nothing of the table led to it, seen in two runs"
STEPS = 5


@dataclass(frozen=True)
class Limits:
    """Until when a file was last written, and since when it must be known, to be deleted."""

    older_than_ms: int
    seen_before_ms: int


def remove_orphans(work: Work) -> Outcome:
    limits = limits_of(work.spec.options, work.now_ms())
    metadata = _admitted(work)
    _told(work, "looking for orphan files", 0)
    found = find_orphans(work, metadata, limits.older_than_ms)
    refuse_foreign_metadata(metadata, found)
    work.check()
    if work.dry_run:
        return _foreseen(work, found, limits)
    return _carried_out(work, metadata, found, limits)


def limits_of(options: dict[str, Any], now_ms: int) -> Limits:
    """Refused if files younger than three days would be touched, whoever asks for it."""
    age_ms = int(options.get("older-than-seconds", 7 * DAY_MS // 1000)) * 1000
    older_than_ms = min(int(options.get("older-than-ms", now_ms)), now_ms - age_ms)
    if older_than_ms > now_ms - LEAST_AGE_MS:
        raise Refused("Files younger than three days may belong to a commit to come: set older-than-seconds to 259200")
    quarantine_ms = int(options.get("quarantine-seconds", USUAL_QUARANTINE_MS // 1000)) * 1000
    if quarantine_ms < LEAST_QUARANTINE_MS:
        raise Refused("Two sightings within a day are as one: set quarantine-seconds to 86400 or more")
    return Limits(older_than_ms, now_ms - quarantine_ms)


def find_orphans(work: Work, metadata: dict[str, Any], older_than_ms: int) -> list[str]:
    """Files in the table's folder that it does not lead to, in order, without hidden names; of very many only some."""
    arguments = {"dry_run": "true", "prefix_listing": "true"}
    location = str(metadata["location"])
    if location.startswith("file:"):
        # Iceberg names at most 20,000 files, and passes over hidden ones only if the spelling is that of the listing.
        arguments["location"] = literal(f"file:{path_of(location)}")
    return sorted(visible_files(metadata, call_orphan_procedure(work, older_than_ms, **arguments)))


def _admitted(work: Work) -> dict[str, Any]:
    """The table's metadata, if the files in its folder are its own to delete."""
    metadata = load_metadata(work)
    if str(metadata.get("properties", {}).get("gc.enabled", "true")).lower() == "false":
        raise Refused(f"{printed_name(work)} has gc.enabled=false: its files are not its own to delete")
    return metadata


def _foreseen(work: Work, found: list[str], limits: Limits) -> Outcome:
    """What a run would do now; nothing is written, not even that the files were seen."""
    known = Quarantine.read(work)
    sorts = sorted_out(found, known, limits.seen_before_ms)
    detail = {"orphans": len(found), "new": len(sorts.fresh), "waiting": len(sorts.waiting), "due": len(sorts.due)}
    gain = Gain(of="orphan files", before=len(found), after=len(found) - len(sorts.due))
    return Outcome(gains=[gain], detail={**detail, "files": sorts.due[:MOST_NAMED]})


def _carried_out(work: Work, metadata: dict[str, Any], found: list[str], limits: Limits) -> Outcome:
    journal, quarantine = Journal(work), Quarantine(work)
    known, begun = quarantine.rows(), journal.unfinished_orphans()
    planned = {path for paths in begun.values() for path in paths}
    sorts = sorted_out(found, known, limits.seen_before_ms, planned)
    if sorts.due:
        _told(work, f"planning to delete {len(sorts.due)} orphan files", 1)
        journal.plan(paths_frame(work, sorts.due, "orphan"), REASON)
        planned.update(sorts.due)
        work.check()
    noted, left = Deletions(), []
    if planned:
        # The plan of a killed job may be an earlier version's, which looked at hidden names as well.
        chosen = visible_files(metadata, sorted(planned))
        _told(work, f"deleting {len(chosen)} orphan files", 2)
        deleted = delete_files(work, paths_frame(work, chosen, "orphan"))
        _told(work, "making sure that they are gone", 3)
        left = [path for path in find_orphans(work, metadata, limits.older_than_ms) if path in planned]
        journal.confirm(noted, deleted=deleted, jobs=list(begun), still_there=[*planned.difference(chosen), *left])
    else:
        journal.count(noted)  # an attempt before this one may have deleted all of it and been killed
    # What was seen before and is not among so many may only not have been named.
    lost = sorts.unseen if len(found) < MOST_TOLD else []
    returned = reachable_among(work, lost) if lost else []
    _told(work, "noting what was seen", 4)
    gone = planned.difference(left).union(lost)
    kept = {path: first for path, first in known.items() if path not in gone}
    kept |= dict.fromkeys(sorts.fresh, work.now_ms())
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
) -> Outcome:
    return Outcome(
        ok=not left,
        changed=bool(noted.files or fresh),
        gains=[Gain(of="orphan files", before=remaining + noted.files, after=remaining)],
        detail={
            "orphans": len(found),
            "new": len(fresh),
            "deleted": noted.files,
            "became-reachable": list(returned[:MOST_NAMED]),
            "not-deleted": list(left[:MOST_NAMED]),
            **({"left-outside": noted.outside} if noted.outside else {}),
            "more": len(found) >= MOST_TOLD,
        },
    )


def _told(work: Work, text: str, done: int) -> None:
    work.progress(ProgressStep(text, done, STEPS))
