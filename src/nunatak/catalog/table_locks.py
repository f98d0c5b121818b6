"""Commits to one table take turns inside this process, so that the loser of a race writes no file."""

import asyncio
from collections import deque
from collections.abc import Sequence

from nunatak.database.records import Key

Waiting = deque["asyncio.Future[None]"]


class TableLocks:
    """By table whose turn is taken: those who wait for it, first come first served."""

    def __init__(self) -> None:
        self._taken: dict[Key, Waiting] = {}

    def take(self, keys: Sequence[Key]) -> "_TableLock":
        """Hold the turn of every key, taken in one order by everybody so that no two wait for each other."""
        if len(keys) > 1:
            keys = sorted(set(keys), key=lambda k: (k.catalog, k.namespace, k.name))
        return _TableLock(self._taken, keys)


class _TableLock:
    """A context written out: every commit enters one, and a generator would cost it several times as much."""

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
            if turn.done() and not turn.cancelled():  # it came at the very moment when we went away
                self._pass_on(key)
            self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        for key in reversed(self._held):
            self._pass_on(key)

    def _pass_on(self, key: Key) -> None:
        """To whoever waits longest and has not gone away; if there is nobody, it is free."""
        waiting = self._taken[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._taken[key]
