"""Queues the reloads of writers that compete for one table after a conflict, so that each next commit can succeed.

Optimistic writers reload after a refusal and try again; with many of them most reloads are outdated before their commit
arrives. While a table is contended, a load by one of its writers waits until the writer before it has committed (or its
hold has timed out). It is only an optimization: nothing is locked, no other load waits, and no commit depends on it.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from nunatak.database.records import Key

CONTENDED_SECONDS = 2.0  # a table without a conflict for this long is no longer contended
HOLD_SECONDS = 0.05  # from a writer's load to its commit; then the next writer may load
MAX_WAIT_SECONDS = 2.0  # a load never waits longer
MAX_WRITERS = 1000  # tracked per table

Writer = tuple[str, int]  # the client's address and port: one connection counts as one writer


@dataclass
class _Table:
    until: float = 0.0
    writers: OrderedDict[Writer, None] = field(default_factory=OrderedDict)
    holder: Writer | None = None
    timer: asyncio.TimerHandle | None = None
    waiting: deque[tuple[Writer, "asyncio.Future[None]"]] = field(default_factory=deque)


class Contention:
    """The contended tables of this process; empty, and without cost, while no writers compete."""

    def __init__(self) -> None:
        self.tables: dict[Key, _Table] = {}

    def add_conflict(self, key: Key, writer: Writer | None) -> None:
        """Marks the table as contended after a commit conflict."""
        if writer is None:
            return
        table = self.tables.setdefault(key, _Table())
        loop = asyncio.get_running_loop()
        if table.until == 0.0:  # a new entry: one timer per table, which `_remove_if_quiet` restarts
            loop.call_later(CONTENDED_SECONDS, self._remove_if_quiet, key)
        table.until = loop.time() + CONTENDED_SECONDS
        self.commit_ended(key, writer)

    def commit_started(self, key: Key, writer: Writer | None) -> None:
        """Stops the timeout of the holder when its commit arrives: the hold then lasts until the commit ends."""
        table = self.tables.get(key)
        if table is not None and table.holder == writer and table.timer is not None:
            table.timer.cancel()
            table.timer = None

    def commit_ended(self, key: Key, writer: Writer | None) -> None:
        """Ends the hold of a writer whose commit succeeded or failed; the next waiting writer may load."""
        table = self.tables.get(key)
        if table is None or writer is None:
            return
        table.writers[writer] = None
        table.writers.move_to_end(writer)
        if len(table.writers) > MAX_WRITERS:
            table.writers.popitem(last=False)
        if table.holder == writer:
            self._end_hold(table)

    async def wait_before_load(self, key: Key, writer: Writer) -> None:
        """Waits before a load; returns at once unless the caller is one of several competing writers."""
        table = self.tables.get(key)
        if table is None or writer not in table.writers or table.holder == writer:
            return
        if table.holder is None:
            self._hold(table, writer)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        table.waiting.append((writer, granted))
        await asyncio.wait([granted], timeout=MAX_WAIT_SECONDS)
        if not granted.done():
            granted.cancel()  # the load proceeds without a hold

    def _hold(self, table: _Table, writer: Writer) -> None:
        table.holder = writer
        table.timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._end_hold, table)

    def _end_hold(self, table: _Table) -> None:
        if table.timer is not None:
            table.timer.cancel()
        table.holder, table.timer = None, None
        while table.waiting:
            writer, granted = table.waiting.popleft()
            if not granted.done():
                self._hold(table, writer)
                granted.set_result(None)
                return

    def _remove_if_quiet(self, key: Key) -> None:
        """Removes the table if it is no longer contended and no load waits; otherwise checks again later."""
        table = self.tables[key]
        loop = asyncio.get_running_loop()
        if loop.time() < table.until or table.waiting:
            loop.call_later(CONTENDED_SECONDS, self._remove_if_quiet, key)
            return
        if table.timer is not None:
            table.timer.cancel()
        del self.tables[key]
