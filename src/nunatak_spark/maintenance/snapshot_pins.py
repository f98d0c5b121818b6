"""Snapshot pins: a tag that keeps the snapshot a job began with, which the server removes for nobody."""

from nunatak.errors import CommitFailed
from nunatak.iceberg.conventions import PIN_PREFIX
from nunatak_spark.maintenance.job_context import Work
from nunatak_spark.maintenance.loaded_table import Snapshot, Table

LIFE_MS = 3_600_000  # one step of a job is shorter; each renews it
EVIDENCE_MS = 7 * 86_400_000  # for a snapshot that somebody may have to go back to
TRIES = 5


def pin_of(work: Work) -> str:
    return f"{PIN_PREFIX}{work.job}"


def find_pinned(work: Work, table: Table) -> Snapshot | None:
    """What an earlier attempt of the same job began with."""
    ref = table.refs.get(pin_of(work))
    return None if ref is None else table.snapshots.get(ref["snapshot-id"])


def pin(work: Work, snapshot: Snapshot, life_ms: int = LIFE_MS) -> None:
    """Hold on to a snapshot from now on for a while; again to hold on to it longer, or to another one."""
    # Iceberg counts the age of a tag from the time of its snapshot, not from when it was set.
    age_ms = max(0, work.now_ms() - snapshot.timestamp_ms) + life_ms
    _commit(
        work,
        {
            "action": "set-snapshot-ref",
            "ref-name": pin_of(work),
            "type": "tag",
            "snapshot-id": snapshot.snapshot_id,
            "max-ref-age-ms": age_ms,
        },
    )


def unpin(work: Work, table: Table) -> None:
    if pin_of(work) in table.refs:
        _commit(work, {"action": "remove-snapshot-ref", "ref-name": pin_of(work)})


def _commit(work: Work, update: dict[str, object]) -> None:
    """Nothing that others commit meanwhile is in its way: only the table must be the same."""
    spec = work.spec
    required = {"type": "assert-table-uuid", "uuid": spec.table_uuid}
    for left in reversed(range(TRIES)):
        try:
            work.client.commit_table((*spec.namespace, spec.table), [required], [update])
            return
        except CommitFailed:
            if not left:
                raise
