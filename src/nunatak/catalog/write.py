"""The one door to a database change: the change, its log line and the answer to its key in one transaction."""

from collections.abc import Sequence

from nunatak.catalog.answers import Moment
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.database.records import Answer, Change, CommitEntry, SaveAnswer
from nunatak.errors import CatalogError, OutcomeUnknown

GRACE_SECONDS = 300  # a key is remembered longer than advertised: clocks differ, retries are late


async def write(catalog: Catalog, caller: Caller, changes: Sequence[Change], answer: Answer) -> list[object]:
    """All of it or nothing; raises what the database found, or OutcomeUnknown.

    What is handed over is carried out, although the client may go away meanwhile.
    """
    if caller.key is not None:
        changes = [*changes, remembered(catalog, caller, answer)]
    progress = caller.progress
    progress.moment = Moment.SENT
    try:
        results = await catalog.store.apply(changes)
    except OutcomeUnknown:
        raise
    except CatalogError:
        progress.moment = Moment.REFUSED
        raise
    progress.moment = Moment.APPLIED
    return results


def remembered(catalog: Catalog, caller: Caller, answer: Answer) -> SaveAnswer:
    assert caller.key is not None
    now_ms = catalog.now_ms()
    expires_ms = now_ms + (catalog.idempotency_seconds + GRACE_SECONDS) * 1000
    return SaveAnswer(caller.principal, caller.key, caller.request_hash, answer, now_ms, expires_ms)


def entry(catalog: Catalog, caller: Caller, operation: str, *, snapshot_id: int | None = None) -> CommitEntry:
    """A line for the commit log."""
    return CommitEntry(
        commit_id=catalog.new_uuid(),
        operation=operation,
        principal=caller.principal,
        committed_ms=catalog.now_ms(),
        request_id=caller.request_id,
        snapshot_id=snapshot_id,
        request_hash=caller.request_hash if snapshot_id is not None else None,
    )
