"""Locks per table: serializes commits to one table in this process, so that none writes a file and loses the race."""

import asyncio
from collections import deque
from collections.abc import Sequence

from nunatak.database.records import Key

Waiting = deque["asyncio.Future[None]"]


class TableLocks:
    """Locks of tables inside this process; waiters get a lock in the order of arrival."""

    def __init__(self) -> None:
        self._waiters: dict[Key, Waiting] = {}  # the waiters of each locked table

    def acquire(self, keys: Sequence[Key]) -> "_TableLock":
        """Locks every key; all callers lock in the same order, which prevents deadlocks."""
        if len(keys) > 1:
            keys = sorted(set(keys), key=lambda k: (k.catalog, k.namespace, k.name))
        return _TableLock(self._waiters, keys)


class _TableLock:
    """The context manager of `acquire`. A class: every commit enters one, and a generator costs several times more."""

    __slots__ = ("_held", "_keys", "_waiters")

    def __init__(self, waiters: dict[Key, Waiting], keys: Sequence[Key]) -> None:
        self._waiters = waiters
        self._keys = keys
        self._held: list[Key] = []

    async def __aenter__(self) -> None:
        for key in self._keys:
            waiting = self._waiters.get(key)
            if waiting is None:
                self._waiters[key] = deque()
            else:
                await self._wait(key, waiting)
            self._held.append(key)

    async def _wait(self, key: Key, waiting: Waiting) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(granted)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():  # the lock was granted at the moment of the cancellation
                self._hand_to_next(key)
            self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        for key in reversed(self._held):
            self._hand_to_next(key)

    def _hand_to_next(self, key: Key) -> None:
        """Hands the lock to the first waiter that was not cancelled; removes it if there is none."""
        waiting = self._waiters[key]
        while waiting:
            # A cancelled waiter stays in the queue until its turn; granting it the lock would block the table for ever.
            granted = waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        del self._waiters[key]
