"""Group fsync: files that are written concurrently share one fsync call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

File = TypeVar("File")


class SharedFsync(Generic[File]):
    """While one fsync runs, new files queue up for the next, which covers all of them."""

    def __init__(self, sync: Callable[[Sequence[File]], Awaitable[None]]) -> None:
        self._sync = sync
        self._waiting: list[tuple[File, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def wait_for(self, file: File) -> None:
        """Returns when the file is on disk; an error of the fsync is raised to all callers that share it."""
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
            continue  # the caller was cancelled
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
