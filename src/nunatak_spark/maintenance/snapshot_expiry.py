"""Snapshot expiry: removes old snapshots, and deletes the files that only they reference."""

from collections.abc import Iterator

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.cutoffs import cutoff_ms
from nunatak_spark.maintenance.deletion_journal import Deletions, finish_deletions, record_deletions
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.loaded_table import LoadedTable, load_table
from nunatak_spark.maintenance.rewrite_verification import run_verified_action
from nunatak_spark.maintenance.snapshot_removal import FOREVER_MS, MAIN, remove_snapshots
from nunatak_spark.progress import report_task_progress

REASON = "snapshot expired"


def expire_snapshots(context: JobContext) -> JobOutcome:
    table = load_table(context)
    if table.properties.get("gc.enabled", "true").lower() == "false":
        raise JobRefused("gc.enabled=false: the files are not the table's alone, so none is deleted")
    older_than_ms = cutoff_ms(context, "max-snapshot-age-seconds")
    retain = int(context.spec.options.get("min-snapshots-to-keep") or 1)
    expired = expirable(table, older_than_ms, retain, context.now_ms())
    count = len(table.snapshots)
    if not expired:
        earlier = finish_deletions(context)  # an earlier attempt may have expired them and been killed
        if earlier.files or earlier.outside:
            return _outcome(earlier, table, forgotten=0, conflicts=0)
        return JobOutcome(detail={"text": f"none of {count} snapshots is old enough"})
    if context.dry_run:
        gain = Gain(of="snapshots", before=count, after=count - len(expired))
        return JobOutcome(gains=[gain], detail={"text": "nothing was changed", "expired": len(expired)})
    return run_verified_action(context, table, lambda: _expire(context, table, expired, older_than_ms, retain))


def expirable(table: LoadedTable, older_than_ms: int, retain: int, now_ms: int) -> set[int]:
    """Returns the snapshots to expire: those that no live branch or tag retains, by its own rules or by these."""
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
        for position, snapshot_id in enumerate(_ancestor_ids(table, head.snapshot_id)):
            led_to.add(snapshot_id)
            is_kept = is_kept and (position < wanted or table.snapshots[snapshot_id].timestamp_ms >= oldest_ms)
            if is_kept:
                kept.add(snapshot_id)
    young = {each.snapshot_id for each in table.snapshots.values() if each.timestamp_ms >= older_than_ms}
    return table.snapshots.keys() - kept - (young - led_to)


def _ancestor_ids(table: LoadedTable, snapshot_id: int | None) -> Iterator[int]:
    while snapshot_id is not None and snapshot_id in table.snapshots:
        yield snapshot_id
        snapshot_id = table.snapshots[snapshot_id].parent_id


def _expire(context: JobContext, table: LoadedTable, expired: set[int], older_than_ms: int, retain: int) -> JobOutcome:
    def choose(now: LoadedTable) -> set[int]:
        """Returns only snapshots whose files are in the deletion plan."""
        return expirable(now, older_than_ms, retain, context.now_ms()) & expired

    with (
        record_deletions(context, REASON, expired) as noted,
        report_task_progress(context.spark, "expiring snapshots", context.progress),
    ):
        conflicts = remove_snapshots(context, choose)
    after = load_table(context)
    return _outcome(noted, after, forgotten=len(table.snapshots.keys() - after.snapshots.keys()), conflicts=conflicts)


def _outcome(noted: Deletions, after: LoadedTable, *, forgotten: int, conflicts: int) -> JobOutcome:
    """Returns the outcome of all attempts of the job.

    The journal's manifest lists count for attempts that were killed.
    """
    expired = max(forgotten, noted.by_kind.get("manifest-list", 0))
    count = len(after.snapshots)
    return JobOutcome(
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
