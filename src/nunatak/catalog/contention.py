"""Writers that compete for one table: after a conflict their reloads take turns, so that each next commit can win.

Optimistic writers reload after a refusal and try again; with many of them most reloads are outdated before their commit
arrives. While a table is contended, a load by one of its writers waits until the writer before it has committed (or
has had its time). It is a courtesy only: nothing is locked, no other load waits, and a commit never depends on it.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from nunatak.database.records import Key

CONTENDED_SECONDS = 2.0  # a table without a conflict for this long is quiet again
HOLD_SECONDS = 0.05  # from a writer's load to its commit; whoever takes longer gives up the turn
LONGEST_WAIT_SECONDS = 2.0  # a load is never held back longer
MAX_WRITERS = 1000  # remembered per table

Writer = tuple[str, int]  # the client's address: one connection is taken for one writer


@dataclass
class _Table:
    until: float = 0.0
    writers: OrderedDict[Writer, None] = field(default_factory=OrderedDict)
    holder: Writer | None = None
    timer: asyncio.TimerHandle | None = None
    waiting: deque[tuple[Writer, "asyncio.Future[None]"]] = field(default_factory=deque)


class Contention:
    """The contended tables of this process; empty, and free of cost, while nobody competes."""

    def __init__(self) -> None:
        self.tables: dict[Key, _Table] = {}

    def refused(self, key: Key, writer: Writer | None) -> None:
        """A commit lost: from now on the table is contended."""
        if writer is None:
            return
        table = self.tables.setdefault(key, _Table())
        loop = asyncio.get_running_loop()
        if table.until == 0.0:
            loop.call_later(CONTENDED_SECONDS, self._look_again, key)
        table.until = loop.time() + CONTENDED_SECONDS
        self.attempted(key, writer)

    def arrived(self, key: Key, writer: Writer | None) -> None:
        """The commit of whoever has the turn is here: however long it takes, the turn lasts until it is over."""
        table = self.tables.get(key)
        if table is not None and table.holder == writer and table.timer is not None:
            table.timer.cancel()
            table.timer = None

    def attempted(self, key: Key, writer: Writer | None) -> None:
        """A writer's commit is over, won or lost: the next one's turn."""
        table = self.tables.get(key)
        if table is None or writer is None:
            return
        table.writers[writer] = None
        table.writers.move_to_end(writer)
        if len(table.writers) > MAX_WRITERS:
            table.writers.popitem(last=False)
        if table.holder == writer:
            self._pass_on(table)

    async def await_turn(self, key: Key, writer: Writer) -> None:
        """Called before a load; returns at once unless this is one of several competing writers."""
        table = self.tables.get(key)
        if table is None or writer not in table.writers or table.holder == writer:
            return
        if table.holder is None:
            self._hold(table, writer)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        table.waiting.append((writer, turn))
        await asyncio.wait([turn], timeout=LONGEST_WAIT_SECONDS)
        if not turn.done():
            turn.cancel()  # it goes ahead without a turn

    def _hold(self, table: _Table, writer: Writer) -> None:
        table.holder = writer
        table.timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._pass_on, table)

    def _pass_on(self, table: _Table) -> None:
        if table.timer is not None:
            table.timer.cancel()
        table.holder, table.timer = None, None
        while table.waiting:
            writer, turn = table.waiting.popleft()
            if not turn.done():
                self._hold(table, writer)
                turn.set_result(None)
                return

    def _look_again(self, key: Key) -> None:
        """Forget a table that has been quiet; whoever still waits goes on."""
        table = self.tables[key]
        loop = asyncio.get_running_loop()
        if loop.time() < table.until or table.waiting:
            loop.call_later(CONTENDED_SECONDS, self._look_again, key)
            return
        if table.timer is not None:
            table.timer.cancel()
        del self.tables[key]
