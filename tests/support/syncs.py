"""Another way of bringing files to disk, for tests: the doors of threads and of the event loop both lead to it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nunatak.objectstore import local, plain_fsync
from nunatak.objectstore.linux import aio_fsync, syscalls

Sync = Callable[[Sequence[int]], object]


def replace_syncs(sync: Sync, put: Callable[[Any, str, Any], object] = setattr) -> None:
    """`put` is `monkeypatch.setattr` wherever it has to end again."""

    async def from_loop(_: object, files: Sequence[int]) -> None:
        await asyncio.to_thread(sync, files)

    put(aio_fsync, "sync_all", sync)
    put(local, "sync_each", sync)
    put(aio_fsync.LoopFsync, "sync_all", from_loop)
    put(plain_fsync.ThreadFsync, "sync_all", from_loop)


def forbid_linux_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every direct system call is an error, as in a sandbox that ends a process for one."""

    def forbidden(*_: object) -> None:
        raise AssertionError("a direct system call, although they are switched off")

    for name in ("_openat2", "_open", "_write", "_close", "_advise"):
        monkeypatch.setattr(syscalls, name, forbidden)
    monkeypatch.setattr(syscalls, "is_available", forbidden)
    monkeypatch.setattr(aio_fsync, "_AioContext", forbidden)
