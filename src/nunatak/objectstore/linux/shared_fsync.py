"""Files that are written at about the same time are brought to disk together: one wait for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

File = TypeVar("File")


class SharedFsync(Generic[File]):
    """While one sync is on its way, those who come wait for the next one, which covers them all."""

    def __init__(self, sync: Callable[[Sequence[File]], Awaitable[None]]) -> None:
        self._sync = sync
        self._waiting: list[tuple[File, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def wait_for(self, file: File) -> None:
        """Returns when the file is on disk; raises what the sync raised, to everybody it was for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((file, future))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        await future

    async def _work(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            futures = [future for _, future in group]
            try:
                await self._sync([file for file, _ in group])
            except Exception as error:
                _settle(futures, error)
            else:
                _settle(futures, None)
        self._worker = None


def _settle(futures: Sequence["asyncio.Future[None]"], error: Exception | None) -> None:
    for future in futures:
        if future.done():
            continue  # whoever waited has gone
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
