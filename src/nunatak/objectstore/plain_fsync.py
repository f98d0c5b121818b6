"""Bringing files to disk with os.fsync alone, as every system has it; the way of Linux is in linux/aio_fsync.py."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

InThread = Callable[[Callable[[Sequence[int]], None], Sequence[int]], Awaitable[None]]


def sync_each(files: Sequence[int]) -> None:
    """One descriptor after the other; raises OSError at the first that cannot be brought to disk."""
    for file in files:
        os.fsync(file)


class ThreadFsync:
    """Each file in a thread, many at the same time, so that they share the commits of the filesystem's journal."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread

    async def sync_all(self, files: Sequence[int]) -> None:
        """Returns when all of them were tried; raises OSError if one could not be brought to disk."""
        # All are awaited, also after one has failed: descriptors are closed afterwards.
        outcomes = await asyncio.gather(*(self._in_thread(sync_each, [file]) for file in files), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def close(self) -> None:
        """Nothing is kept open."""
