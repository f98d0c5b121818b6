"""A thread pool for blocking file operations; leaner than ThreadPoolExecutor, which costs a commit noticeably more."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[Callable[..., Any], tuple[object, ...], "asyncio.Future[Any]"]


class FileThreads:
    """A fixed number of threads, started on first use."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Calls `work` in a thread; a cancelled caller stops waiting, but the work is done."""
        if not self._threads:
            self._start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((work, arguments, future))
        return await future

    def close(self) -> None:
        """Finishes queued work and ends the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start(self) -> None:
        self._threads = [
            threading.Thread(target=self._loop, name=f"files-{number}", daemon=True) for number in range(self._size)
        ]
        for thread in self._threads:
            thread.start()

    def _loop(self) -> None:
        while (item := self._queue.get()) is not None:
            work, arguments, future = item
            try:
                result, error = work(*arguments), None
            # BaseException, too: without a result the caller would wait for ever.
            except BaseException as raised:
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
