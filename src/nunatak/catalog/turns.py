"""Commits to one table take turns inside this process, so that the loser of a race writes no file."""

import asyncio
from collections.abc import Sequence

from nunatak.database.records import Key


class Turns:
    """A lock per table that exists only while somebody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: dict[Key, tuple[asyncio.Lock, int]] = {}

    def take(self, keys: Sequence[Key]) -> "_Turn":
        """Hold the turn of every key, taken in one order by everybody so that no two wait for each other."""
        if len(keys) > 1:
            keys = sorted(set(keys), key=lambda k: (k.catalog, k.namespace, k.name))
        return _Turn(self._locks, keys)


class _Turn:
    """A context written out: every commit enters one, and a generator would cost it several times as much."""

    __slots__ = ("_held", "_keys", "_locks")

    def __init__(self, locks: dict[Key, tuple[asyncio.Lock, int]], keys: Sequence[Key]) -> None:
        self._locks = locks
        self._keys = keys
        self._held: list[Key] = []

    async def __aenter__(self) -> None:
        for key in self._keys:
            lock, waiting = self._locks.get(key) or (asyncio.Lock(), 0)
            self._locks[key] = (lock, waiting + 1)
            try:
                await lock.acquire()
            except BaseException:
                self._leave(key)
                self._release()
                raise
            self._held.append(key)

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        for key in reversed(self._held):
            self._locks[key][0].release()
            self._leave(key)

    def _leave(self, key: Key) -> None:
        lock, waiting = self._locks[key]
        if waiting == 1:
            del self._locks[key]
        else:
            self._locks[key] = (lock, waiting - 1)
