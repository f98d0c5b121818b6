"""Fsyncs files with os.fsync, which every system has; linux/aio_fsync.py is the faster way on Linux."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

InThread = Callable[[Callable[[Sequence[int]], None], Sequence[int]], Awaitable[None]]


def sync_each(files: Sequence[int]) -> None:
    """Fsyncs one descriptor after the other; raises OSError at the first that fails."""
    for file in files:
        os.fsync(file)


class ThreadFsync:
    """Fsyncs each file in a thread of its own, concurrently, so that they share commits of the filesystem's journal."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread

    async def sync_all(self, files: Sequence[int]) -> None:
        """Fsyncs all files; waits for all of them before it raises the first OSError."""
        # All are awaited, also after a failure: the caller closes the descriptors afterwards.
        outcomes = await asyncio.gather(*(self._in_thread(sync_each, [file]) for file in files), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def close(self) -> None:
        """Does nothing: no resource is held."""
