"""Files that are written at about the same time are brought to disk together: one wait for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nunatak.objectstore.location import Location

_Waiting = tuple[Location, "asyncio.Future[None]"]


class SharedSyncs:
    """While one sync is on its way, those who come wait for the next one, which covers them all."""

    def __init__(self, sync: Callable[[Sequence[Location]], Awaitable[None]]) -> None:
        self._sync = sync
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    async def wait_for(self, location: Location) -> None:
        """Returns when the file is on disk; raises what the sync raised, to everybody it was for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((location, future))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        await future

    async def _work(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                await self._sync([location for location, _ in group])
            except Exception as error:
                _settle(group, error)
            else:
                _settle(group, None)
        self._worker = None


def _settle(group: Sequence[_Waiting], error: Exception | None) -> None:
    for _, future in group:
        if future.done():
            continue  # whoever waited has gone
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
