"""Denials and reads on their way into the audit trail: noted at once, written a little later, in nobody's way.

Changes are not here: each writes its own row in its own transaction (catalog/write.py, access/audit_rows.py).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

from nunatak.access.audit_rows import LONGEST_REQUEST_ID, origin_text
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.events.spool import Spool

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
SUM_MS = 60_000  # what strangers are denied makes one row for each address and minute
MOST_SUMS = 200  # of a minute; whoever comes beyond is counted in one row, whose address is OTHERS
OTHERS = "others"
MOST_ROWS = 10_000  # that wait to be written, some 5 MB; what comes beyond is counted and forgotten
AT_ONCE = 500  # rows of one transaction: SQLite adds them in the event loop, where others wait meanwhile

What = tuple[str, str, str, str, str | None]  # principal, action, securable, outcome and origin


class _Times:
    """How often, since when, and by which request first."""

    __slots__ = ("at_ms", "repeats", "request_id")

    def __init__(self, at_ms: int, request_id: str | None) -> None:
        self.at_ms = at_ms
        self.request_id = request_id
        self.repeats = 1


class AuditBuffer:
    """What was noted since the last flush; what happens again meanwhile makes one row, of the first time.

    What a stranger can cause as often as it likes is summed up for longer.
    """

    def __init__(self, now_ms: Callable[[], int], most_rows: int = MOST_ROWS, spool: Spool | None = None) -> None:
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
        """As `note`, for whoever keeps together what is noted."""
        times = self._noted.get(what)
        if times is not None:
            times.repeats += 1
        elif len(self._noted) < self._most_rows:
            self._noted[what] = _Times(self._now_ms(), request_id)
        else:
            self.dropped += 1

    def sum_up(self, principal: str, action: str, securable: str, outcome: str, origin: str) -> None:
        """As `note`, in one row for all that are equal and of one minute."""
        if not self._sums:
            self._sums_end_ms = self._now_ms() + SUM_MS
        what = (principal, action, securable, outcome, origin)
        times = self._sums.get(what)
        if times is None and len(self._sums) >= MOST_SUMS:
            what = ("", action, securable, outcome, origin_text(OTHERS, (), None))
            times = self._sums.get(what)
        if times is None:
            self._sums[what] = _Times(self._now_ms(), None)
        else:
            times.repeats += 1

    async def flush(self, store: Store, *, everything: bool = False) -> None:
        """Write what was noted until now; what cannot be written stays, as far as there is room.

        Sums of a minute that is not over are written only with `everything`.
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
                # If nobody can tell whether it was written, it is written again: rather twice than never.
                log.warning("%d rows of the audit trail cannot be written now", len(noted) - start, exc_info=True)
                self._put_back(noted[start:])
                return
            except asyncio.CancelledError:
                self._put_back(noted[start + AT_ONCE :])  # the store carries out what it was handed
                raise
            if self._spool is not None:
                for what, times in chunk:
                    self._spool.add("audit", partial(_record, what, times))

    def _put_back(self, noted: list[tuple[What, _Times]]) -> None:
        for what, times in noted:
            again = self._noted.get(what)
            if again is not None:
                times.repeats += again.repeats
            elif len(self._noted) >= self._most_rows:
                self.dropped += times.repeats
                continue
            self._noted[what] = times


def _rows(noted: list[tuple[What, _Times]]) -> str:
    """As `add_audits` takes them; no database keeps a NUL, which a path may hold."""
    rows = [
        (times.at_ms, *(what[:4]), times.repeats, (times.request_id or "")[:LONGEST_REQUEST_ID] or None, what[4])
        for what, times in noted
    ]
    return msgspec.json.encode(rows).decode().replace("\\u0000", "\\ufffd")


def _record(what: What, times: _Times) -> tuple[Literal["audit"], dict[str, object]]:
    principal, action, securable, outcome, origin = what
    told = {"action": action, "securable": securable, "outcome": outcome, "repeats": times.repeats, "origin": origin}
    return "audit", {"principal": principal, **told, "request_id": times.request_id}


async def run_audit(buffer: AuditBuffer, store: Store) -> None:
    """Flush every second until cancelled, and then everything."""
    try:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await buffer.flush(store)
    finally:
        await buffer.flush(store, everything=True)
