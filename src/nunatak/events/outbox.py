"""The outbox: assigns positions to events, hands them to the telemetry spool, and deletes old ones.

An event is stored by the transaction of its change, so a crash loses none. The spool gets each event once in normal
operation. After a crash between writing a file and moving the reader it gets the events of that file again, with the
same ids.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import CatalogError, Conflict
from nunatak.events.change_events import ChangeEvent, read_event, spool_record
from nunatak.events.spool import ROTATE_SECONDS, Kind, Spool

log = logging.getLogger(__name__)

SPOOL, NUMBERING = "spool", "numbering"  # rows of nunatak_outbox_readers
PAGE = 500  # rows per read or transaction: SQLite works in the event loop, which other requests wait for
FILE_EVENTS = 10_000  # events of one file, about 5 MB
LEASE_MS = 3 * int(ROTATE_SECONDS) * 1000  # three rounds
TRIM_SECONDS = 600.0
DAY_MS = 86_400_000


class ReaderMoved(Conflict):
    """Another server moved the reader, or took its lease; nothing was changed."""


@dataclass(frozen=True)
class OutboxLimits:
    """What the outbox keeps: events up to this age, and up to this number."""

    days: int
    events: int


async def run_outbox(
    store: Store, spool: Spool | None, server_id: str, now_ms: Callable[[], int], limits: OutboxLimits
) -> None:
    """Numbers new events, hands them to the spool and deletes old ones, every ROTATE_SECONDS until cancelled."""
    loop = asyncio.get_running_loop()
    trimmed = loop.time() - TRIM_SECONDS
    while True:
        try:
            await deliver(store, spool, server_id, now_ms)
            if loop.time() - trimmed >= TRIM_SECONDS:
                trimmed = loop.time()
                await trim(store, spool, now_ms(), limits)
        except CatalogError:
            log.warning("events cannot be read from the outbox now", exc_info=True)
        except Exception:  # any failure: the next round may succeed, and the server must go on
            log.exception("events cannot be handed over now")
        await asyncio.sleep(ROTATE_SECONDS)


async def deliver(store: Store, spool: Spool | None, server_id: str, now_ms: Callable[[], int]) -> None:
    """Numbers all new events and, if there is a spool, hands them to it."""
    await number_events(store)
    if spool is not None:
        await hand_to_spool(store, spool, server_id, now_ms)


# Positions


async def number_events(store: Store) -> None:
    """Assigns a position to each committed event that has none; SQLite needs no such step.

    Ids from a sequence do not suffice: a transaction may commit after another that got a higher id, and a reader that
    had passed the higher one would miss it. A committed event gets a position after all that were assigned before.
    Several servers may do this at the same time: the compare-and-swap lets one of them continue.
    """
    while True:
        # Read the mark before the events: if another server numbers them in between, the compare-and-swap fails.
        last, _, _ = await _find_reader(store, NUMBERING)
        sequences = [row[0] for row in await store.rows("unnumbered_events", {"limit": PAGE})]
        if not sequences:
            return
        moved = {"reader": NUMBERING, "position": last + len(sequences), "expected": last}
        refusal = ReaderMoved("Another server numbers events")
        numbered = {"sequences": sequences, "listed": ",".join(map(str, sequences)), "last": last}
        try:
            await store.apply([Write("move_reader", moved, refusal), Write("number_events", numbered)])
        except ReaderMoved:
            return


async def events_after(store: Store, position: int, limit: int = PAGE) -> list[ChangeEvent]:
    """Returns the events after a position, in order; an event that is committed later has a higher position."""
    return [read_event(row) for row in await store.rows("events_after", {"after": position, "limit": limit})]


async def _find_reader(store: Store, reader: str) -> tuple[int, str | None, int]:
    """Returns the position of a reader, and who holds its lease until when."""
    rows = await store.rows("find_reader", {"reader": reader})
    if not rows:
        await store.apply([Write("add_reader", {"reader": reader})])
        return 0, None, 0
    position, leased_by, until_ms = rows[0]
    return position, leased_by, until_ms


# The spool


async def hand_to_spool(store: Store, spool: Spool, server_id: str, now_ms: Callable[[], int]) -> None:
    """Writes all new events to files of the spool, unless another server does; moves the reader after each file."""
    position, leased_by, until_ms = await _find_reader(store, SPOOL)
    if leased_by not in (None, server_id) and until_ms > now_ms():
        return
    while events := await _next_events(store, position):
        if not await _lease(store, server_id, now_ms()):
            return
        if not await asyncio.to_thread(_write_files, spool, events):
            return  # they wait in the outbox
        last = events[-1].position
        values = {"reader": SPOOL, "owner": server_id, "position": last, "expected": position}
        try:
            await store.apply([Write("move_leased_reader", values, ReaderMoved("The lease of the spool was lost"))])
        except ReaderMoved:
            return  # another server hands these events over, too: readers of the spool know them by their ids
        position = last


async def release_spool(store: Store, server_id: str) -> None:
    """Ends the lease, so that another server continues at once."""
    await store.apply([Write("release_reader", {"reader": SPOOL, "owner": server_id})])


async def _next_events(store: Store, position: int) -> list[ChangeEvent]:
    events: list[ChangeEvent] = []
    while len(events) < FILE_EVENTS:
        page = await events_after(store, events[-1].position if events else position, PAGE)
        events += page
        if len(page) < PAGE:
            break
        await asyncio.sleep(0)  # lets the event loop serve other requests
    return events


async def _lease(store: Store, server_id: str, now_ms: int) -> bool:
    values = {"reader": SPOOL, "owner": server_id, "now_ms": now_ms, "until_ms": now_ms + LEASE_MS}
    (leased,) = await store.apply([Write("lease_reader", values)])
    return bool(leased)


def _write_files(spool: Spool, events: list[ChangeEvent]) -> bool:
    """Writes one file for each kind of record; returns whether all could be written. Runs in a thread."""
    lines: dict[Kind, list[bytes]] = {}
    for event in events:
        kind, fields = spool_record(event)
        lines.setdefault(kind, []).append(spool.line(event.event_id, event.at_ms, fields))
    return all(spool.write_file(kind, of_kind) for kind, of_kind in lines.items())


# Retention


async def trim(store: Store, spool: Spool | None, now_ms: int, limits: OutboxLimits) -> int:
    """Deletes events that are too old or too many, oldest first; returns their number.

    Events that the spool has not got yet are deleted, too, and counted as dropped: a spool that cannot be written must
    not fill the database.
    """
    ((newest,),) = await store.rows("newest_event", {})
    deleted = 0
    while oldest := await store.rows("oldest_events", {"limit": PAGE}):
        last = 0
        for position, at_ms in oldest:
            if position >= newest or (position > newest - limits.events and at_ms >= now_ms - limits.days * DAY_MS):
                break
            last = position
            deleted += 1
        if last:
            await store.apply([Write("trim_events", {"until": last})])
        if last != oldest[-1][0]:
            break
    if deleted and spool is not None:
        await _skip_deleted(store, spool)
    return deleted


async def _skip_deleted(store: Store, spool: Spool) -> None:
    """Counts events as dropped that were deleted before the spool got them, and moves the reader behind them."""
    position, _, _ = await _find_reader(store, SPOOL)
    ((first, _),) = await store.rows("oldest_events", {"limit": 1})
    if first > position + 1:
        moved = {"reader": SPOOL, "position": first - 1, "expected": position}
        (skipped,) = await store.apply([Write("move_reader", moved)])
        spool.dropped += first - 1 - position if skipped else 0
