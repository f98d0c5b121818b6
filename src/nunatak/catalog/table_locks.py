"""Locks per table: serializes commits to one table in this process, so that none writes a file and loses the race."""

import asyncio
from collections import deque
from collections.abc import Sequence

from nunatak.database.records import Key

Waiting = deque["asyncio.Future[None]"]


class TableLocks:
    """Locks of tables inside this process; waiters get a lock in the order of arrival."""

    def __init__(self) -> None:
        self._taken: dict[Key, Waiting] = {}  # the waiters of each locked table

    def take(self, keys: Sequence[Key]) -> "_TableLock":
        """Locks every key; all callers lock in the same order, which prevents deadlocks."""
        if len(keys) > 1:
            keys = sorted(set(keys), key=lambda k: (k.catalog, k.namespace, k.name))
        return _TableLock(self._taken, keys)


class _TableLock:
    """The context manager of `take`. A class: every commit enters one, and a generator costs several times more."""

    __slots__ = ("_held", "_keys", "_taken")

    def __init__(self, taken: dict[Key, Waiting], keys: Sequence[Key]) -> None:
        self._taken = taken
        self._keys = keys
        self._held: list[Key] = []

    async def __aenter__(self) -> None:
        for key in self._keys:
            waiting = self._taken.get(key)
            if waiting is None:
                self._taken[key] = deque()
            else:
                await self._wait(key, waiting)
            self._held.append(key)

    async def _wait(self, key: Key, waiting: Waiting) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # the lock was granted at the moment of the cancellation
                self._pass_on(key)
            self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        for key in reversed(self._held):
            self._pass_on(key)

    def _pass_on(self, key: Key) -> None:
        """Hands the lock to the first waiter that was not cancelled; removes it if there is none."""
        waiting = self._taken[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._taken[key]
