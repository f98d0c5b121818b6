"""Threads that wait for the disk so that the event loop does not; leaner than an executor, as commits feel."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[Callable[..., Any], tuple[object, ...], "asyncio.Future[Any]"]


class FileThreads:
    """A fixed number of threads, started when first needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Call `work` in a thread. Whoever is cancelled stops waiting; the work itself is carried out."""
        if not self._threads:
            self._start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((work, arguments, future))
        return await future

    def close(self) -> None:
        """Finish what is queued and end the threads."""
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
            except BaseException as raised:
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody is left to be told
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
