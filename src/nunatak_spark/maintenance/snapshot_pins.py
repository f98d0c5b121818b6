"""Snapshot pins: a tag that retains the snapshot with which a job began. The server never removes such tags."""

from nunatak.errors import CommitFailed
from nunatak.iceberg.conventions import PIN_PREFIX
from nunatak_spark.maintenance.job_context import JobContext
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot

LIFE_MS = 3_600_000  # longer than one step of a job; each step renews the pin
EVIDENCE_MS = 7 * 86_400_000  # for a snapshot that is needed for a rollback
TRIES = 5


def pin_name(context: JobContext) -> str:
    return f"{PIN_PREFIX}{context.job}"


def find_pinned_snapshot(context: JobContext, table: LoadedTable) -> Snapshot | None:
    """Returns the snapshot with which an earlier attempt of this job began."""
    ref = table.refs.get(pin_name(context))
    return None if ref is None else table.snapshots.get(ref["snapshot-id"])


def pin_snapshot(context: JobContext, snapshot: Snapshot, life_ms: int = LIFE_MS) -> None:
    """Tags a snapshot; call again to extend the time or to move the tag."""
    # Iceberg measures the age of a tag from its snapshot's timestamp, not from when the tag was set.
    age_ms = max(0, context.now_ms() - snapshot.timestamp_ms) + life_ms
    _commit(
        context,
        {
            "action": "set-snapshot-ref",
            "ref-name": pin_name(context),
            "type": "tag",
            "snapshot-id": snapshot.snapshot_id,
            "max-ref-age-ms": age_ms,
        },
    )


def unpin_snapshot(context: JobContext, table: LoadedTable) -> None:
    if pin_name(context) in table.refs:
        _commit(context, {"action": "remove-snapshot-ref", "ref-name": pin_name(context)})


def _commit(context: JobContext, update: dict[str, object]) -> None:
    """Commits the update; the only requirement is the table's uuid, so other commits do not conflict."""
    spec = context.spec
    required = {"type": "assert-table-uuid", "uuid": spec.table_uuid}
    for left in reversed(range(TRIES)):
        try:
            context.client.commit_table((*spec.namespace, spec.table), [required], [update])
            return
        except CommitFailed:
            if not left:
                raise
