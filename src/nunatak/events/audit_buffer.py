"""Write-behind buffer for denials and reads of the audit trail: no request waits for these rows.

Changes are not here: each writes its own row in its own transaction (catalog/write.py, access/audit_rows.py).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

from nunatak.access.audit_rows import MAX_REQUEST_ID_LENGTH, origin_text
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.events.spool import Spool

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
SUM_MS = 60_000  # denials of unauthenticated requests make one row per address and minute
MAX_SUMS = 200  # per minute; further ones are counted in one row, whose address is OTHERS
OTHERS = "others"
MAX_ROWS = 10_000  # waiting to be written, some 5 MB; further ones are counted and dropped
AT_ONCE = 500  # rows per transaction: SQLite inserts them in the event loop, which other requests wait for

What = tuple[str, str, str, str, str | None]  # principal, action, securable, outcome and origin


class _Times:
    """The number of occurrences, and the time and request of the first."""

    __slots__ = ("at_ms", "repeats", "request_id")

    def __init__(self, at_ms: int, request_id: str | None) -> None:
        self.at_ms = at_ms
        self.request_id = request_id
        self.repeats = 1


class AuditBuffer:
    """The rows noted since the last flush; repeats of a row are counted in it, and it keeps the time of the first.

    Rows that an unauthenticated client can cause without limit are aggregated over a minute.
    """

    def __init__(self, now_ms: Callable[[], int], most_rows: int = MAX_ROWS, spool: Spool | None = None) -> None:
        self.dropped = 0
        self._now_ms = now_ms
        self._most_rows = most_rows
        self._spool = spool
        self._noted: dict[What, _Times] = {}
        self._sums: dict[What, _Times] = {}
        self._sums_end_ms = 0

    def note(
        self, principal: str, action: str, securable: str, outcome: str, origin: str | None, request_id: str | None
    ) -> None:
        self.note_again((principal, action, securable, outcome, origin), request_id)

    def note_again(self, what: What, request_id: str | None = None) -> None:
        """As `note`, for callers that keep the tuple."""
        times = self._noted.get(what)
        if times is not None:
            times.repeats += 1
        elif len(self._noted) < self._most_rows:
            self._noted[what] = _Times(self._now_ms(), request_id)
        else:
            self.dropped += 1

    def sum_up(self, principal: str, action: str, securable: str, outcome: str, origin: str) -> None:
        """As `note`, but aggregates equal rows over one minute."""
        if not self._sums:
            self._sums_end_ms = self._now_ms() + SUM_MS
        what = (principal, action, securable, outcome, origin)
        times = self._sums.get(what)
        if times is None and len(self._sums) >= MAX_SUMS:
            what = ("", action, securable, outcome, origin_text(OTHERS, (), None))
            times = self._sums.get(what)
        if times is None:
            self._sums[what] = _Times(self._now_ms(), None)
        else:
            times.repeats += 1

    async def flush(self, store: Store, *, everything: bool = False) -> None:
        """Writes what was noted so far; rows that cannot be written are kept, as far as there is room.

        Aggregates of a minute that is not over are written only with `everything`.
        """
        if self._sums and (everything or self._now_ms() >= self._sums_end_ms):
            sums, self._sums = self._sums, {}
            self._put_back(list(sums.items()))
        noted, self._noted = list(self._noted.items()), {}
        for start in range(0, len(noted), AT_ONCE):
            chunk = noted[start : start + AT_ONCE]
            try:
                await store.apply([Write("add_audits", {"rows": _rows(chunk)})])
            except CatalogError:
                # If the outcome is unknown, the rows are written again: a duplicate is better than a missing row.
                log.warning("%d rows of the audit trail cannot be written now", len(noted) - start, exc_info=True)
                self._put_back(noted[start:])
                return
            except asyncio.CancelledError:
                self._put_back(noted[start + AT_ONCE :])  # the store completes the transaction it was given
                raise
            if self._spool is not None:
                for what, times in chunk:
                    self._spool.add("audit", partial(_record, what, times))

    def _put_back(self, noted: list[tuple[What, _Times]]) -> None:
        for what, times in noted:
            again = self._noted.get(what)
            if again is not None:
                # The row put back is older: its time and request id are kept.
                times.repeats += again.repeats
            elif len(self._noted) >= self._most_rows:
                self.dropped += times.repeats
                continue
            self._noted[what] = times


def _rows(noted: list[tuple[What, _Times]]) -> str:
    """Returns the rows as JSON for `add_audits`; replaces NUL, which a path may contain but no database stores."""
    rows = [
        (times.at_ms, *(what[:4]), times.repeats, (times.request_id or "")[:MAX_REQUEST_ID_LENGTH] or None, what[4])
        for what, times in noted
    ]
    return msgspec.json.encode(rows).decode().replace("\\u0000", "\\ufffd")


def _record(what: What, times: _Times) -> tuple[Literal["audit"], dict[str, object]]:
    principal, action, securable, outcome, origin = what
    told = {"action": action, "securable": securable, "outcome": outcome, "repeats": times.repeats, "origin": origin}
    return "audit", {"principal": principal, **told, "request_id": times.request_id}


async def run_audit(buffer: AuditBuffer, store: Store) -> None:
    """Flushes every second until cancelled, and then flushes everything."""
    try:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await buffer.flush(store)
    finally:
        await buffer.flush(store, everything=True)
