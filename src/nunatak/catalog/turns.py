"""Commits to one table take turns inside this process, so that the loser of a race writes no file."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from nunatak.database.records import Key


class Turns:
    """A lock per table that exists only while somebody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: dict[Key, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def take(self, keys: Iterable[Key]) -> AsyncIterator[None]:
        """Hold the turn of every key, taken in one order by everybody so that no two wait for each other."""
        held: list[Key] = []
        try:
            for key in sorted(set(keys), key=lambda k: (k.catalog, k.namespace, k.name)):
                lock, waiting = self._locks.get(key) or (asyncio.Lock(), 0)
                self._locks[key] = (lock, waiting + 1)
                try:
                    await lock.acquire()
                except BaseException:
                    self._leave(key)
                    raise
                held.append(key)
            yield
        finally:
            for key in reversed(held):
                self._locks[key][0].release()
                self._leave(key)

    def _leave(self, key: Key) -> None:
        lock, waiting = self._locks[key]
        if waiting == 1:
            del self._locks[key]
        else:
            self._locks[key] = (lock, waiting - 1)
