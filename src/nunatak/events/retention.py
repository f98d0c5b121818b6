"""Deletes old denials, logins and reads from the audit trail; changes are kept for ever.

The hash of a seal whose records are deleted cannot be recomputed. It stays in the chain, and a new record, written in
the transaction of the deletion, holds the number and hash of the records that were kept, so those stay verifiable.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from nunatak.access.audit_rows import DENIED, audit_row
from nunatak.access.securables import SERVER
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.events.audit_trail import AUDIT, COMMITS, TrailRecord, line_of
from nunatak.events.seals import (
    FIRST,
    PRUNE_ACTION,
    Kept,
    Pruning,
    Remains,
    Seal,
    find_pruned_seals,
    load_seal,
    records_between,
    seals_after,
)

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
LOOK_SECONDS = 3600.0
SEALS_AT_ONCE = 50  # per transaction, with one record about them
SERVER_ITSELF = "nunatak"


async def run_retention(
    store: Store, now_ms: Callable[[], int], days: int, reads: Collection[str], pause_seconds: float = LOOK_SECONDS
) -> None:
    """Repeatedly deletes records older than `days`, until cancelled."""
    while True:
        try:
            while await prune(store, now_ms(), days, reads):
                pass
        except CatalogError:
            log.warning("old records of the audit trail cannot be deleted now", exc_info=True)
        await asyncio.sleep(pause_seconds)


async def prune(store: Store, now_ms: int, days: int, reads: Collection[str]) -> int:
    """Prunes the next old seals; returns the number of seals processed, 0 if none is old enough.

    `reads` are the actions whose records may be deleted although they were allowed.
    """
    last = max(await find_pruned_seals(store), default=0)
    previous = FIRST if last == 0 else await load_seal(store, last)
    kept: list[Kept] = []
    gone: list[int] = []
    async for seal in seals_after(store, previous.number):
        if seal.sealed_ms >= now_ms - days * DAY_MS or len(kept) >= SEALS_AT_ONCE:
            break
        kept.append(await _look_at(store, previous, seal, reads, gone))
        previous = seal
    if not kept:
        return 0
    detail = msgspec.to_builtins(Pruning(len(gone), tuple(kept)))
    row = audit_row(at_ms=now_ms, principal=SERVER_ITSELF, action=PRUNE_ACTION, securable=SERVER, detail=detail)
    deletions = [Write("drop_audit", {"first": first, "last": end}) for first, end in _ranges(gone)]
    await store.apply([row, *deletions])
    return len(kept)


async def _look_at(store: Store, previous: Seal, seal: Seal, reads: Collection[str], gone: list[int]) -> Kept:
    """Returns what is kept of a seal; appends the numbers of the rows to delete to `gone`."""
    remains = Remains(seal)
    async for record in records_between(store, COMMITS, previous.commits_to, seal.commits_to):
        remains.add(line_of(record))
    async for record in records_between(store, AUDIT, previous.audit_to, seal.audit_to):
        if may_go(record, reads):
            gone.append(record.sequence)
        else:
            remains.add(line_of(record))
    return remains.kept()


def may_go(record: TrailRecord, reads: Collection[str]) -> bool:
    return record.table == "audit" and record.detail is None and (record.outcome == DENIED or record.action in reads)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields runs of consecutive numbers as first and last; a missing number only splits a run."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last
