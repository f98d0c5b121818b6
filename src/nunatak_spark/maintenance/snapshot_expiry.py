"""Snapshot expiry: snapshots that nobody goes back to are forgotten, and the files deleted that only they need."""

from collections.abc import Iterator

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.cutoffs import cutoff_ms
from nunatak_spark.maintenance.deletion_journal import Deletions, deletions_noted, finish_deletions
from nunatak_spark.maintenance.job_context import Outcome, Refused, Work
from nunatak_spark.maintenance.loaded_table import Table, load
from nunatak_spark.maintenance.rewrite_verification import watched
from nunatak_spark.maintenance.snapshot_removal import remove_snapshots
from nunatak_spark.progress import report_task_progress

MAIN = "main"
FOREVER_MS = 2**63 - 1
REASON = "snapshot expired"


def expire_snapshots(work: Work) -> Outcome:
    table = load(work)
    if table.properties.get("gc.enabled", "true").lower() == "false":
        raise Refused("gc.enabled=false: the files are not the table's alone, so none is deleted")
    older_than_ms = cutoff_ms(work, "max-snapshot-age-seconds")
    retain = int(work.spec.options.get("min-snapshots-to-keep") or 1)
    expired = expirable(table, older_than_ms, retain, work.now_ms())
    count = len(table.snapshots)
    if not expired:
        earlier = finish_deletions(work)  # an attempt before this one may have expired them and been killed
        if earlier.files or earlier.outside:
            return _outcome(earlier, table, forgotten=0, conflicts=0)
        return Outcome(detail={"text": f"none of {count} snapshots is old enough"})
    if work.dry_run:
        gain = Gain(of="snapshots", before=count, after=count - len(expired))
        return Outcome(gains=[gain], detail={"text": "nothing was changed", "expired": len(expired)})
    return watched(work, table, lambda: _expire(work, table, expired, older_than_ms, retain))


def expirable(table: Table, older_than_ms: int, retain: int, now_ms: int) -> set[int]:
    """The snapshots that Iceberg would forget: those that no living branch or tag keeps, by its own rules or these."""
    usual_age_ms = int(table.properties.get("history.expire.max-ref-age-ms") or FOREVER_MS)
    kept: set[int] = set()
    led_to: set[int] = set()
    for name, ref in table.refs.items():
        head = table.snapshots.get(ref["snapshot-id"])
        if head is None or (name != MAIN and now_ms - head.timestamp_ms > ref.get("max-ref-age-ms", usual_age_ms)):
            continue
        kept.add(head.snapshot_id)
        led_to.add(head.snapshot_id)
        if ref["type"] != "branch":
            continue
        oldest_ms = now_ms - ref["max-snapshot-age-ms"] if "max-snapshot-age-ms" in ref else older_than_ms
        wanted, is_kept = ref.get("min-snapshots-to-keep", retain), True
        for position, snapshot_id in enumerate(_line(table, head.snapshot_id)):
            led_to.add(snapshot_id)
            is_kept = is_kept and (position < wanted or table.snapshots[snapshot_id].timestamp_ms >= oldest_ms)
            if is_kept:
                kept.add(snapshot_id)
    young = {each.snapshot_id for each in table.snapshots.values() if each.timestamp_ms >= older_than_ms}
    return table.snapshots.keys() - kept - (young - led_to)


def _line(table: Table, snapshot_id: int | None) -> Iterator[int]:
    while snapshot_id is not None and snapshot_id in table.snapshots:
        yield snapshot_id
        snapshot_id = table.snapshots[snapshot_id].parent_id


def _expire(work: Work, table: Table, expired: set[int], older_than_ms: int, retain: int) -> Outcome:
    def chosen(now: Table) -> set[int]:
        """Only snapshots whose files were written down as those that may be deleted."""
        return expirable(now, older_than_ms, retain, work.now_ms()) & expired

    with (
        deletions_noted(work, REASON, expired) as noted,
        report_task_progress(work.spark, "expiring snapshots", work.progress),
    ):
        conflicts = remove_snapshots(work, chosen)
    after = load(work)
    return _outcome(noted, after, forgotten=len(table.snapshots.keys() - after.snapshots.keys()), conflicts=conflicts)


def _outcome(noted: Deletions, after: Table, *, forgotten: int, conflicts: int) -> Outcome:
    """What all attempts of the job did; of those that were killed the journal tells, by the manifest lists."""
    expired = max(forgotten, noted.by_kind.get("manifest-list", 0))
    count = len(after.snapshots)
    return Outcome(
        changed=bool(expired or noted.files),
        gains=[Gain(of="snapshots", before=count + expired, after=count)],
        detail={
            "expired": expired,
            "deleted-files": noted.files,
            "deleted-bytes": noted.size_bytes,
            "deleted": dict(noted.by_kind),
            "conflicts": conflicts,
            **({"left-outside": noted.outside} if noted.outside else {}),
        },
    )
