"""Another way of bringing files to disk, for tests: the doors of threads and of the event loop both lead to it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from nunatak.objectstore import fsync

Sync = Callable[[Sequence[int]], object]


def replace_syncs(sync: Sync, put: Callable[[Any, str, Any], object] = setattr) -> None:
    """`put` is `monkeypatch.setattr` wherever it has to end again."""

    async def from_loop(_: fsync.LoopSyncs, files: Sequence[int]) -> None:
        await asyncio.to_thread(sync, files)

    put(fsync, "sync_all", sync)
    put(fsync.LoopSyncs, "sync_all", from_loop)
