"""Runs computations that would block the event loop: one at a time, in one separate thread."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE_BYTES = 32 * 1024  # of a request; below this the computation takes less time than a few thread switches
LARGE_METADATA_BYTES = 256 * 1024  # of a file to parse or iterate over
# Python's default of 5 ms would delay each of several steps of every other request while the thread works.
SWITCH_SECONDS = 0.000125
SENDER: ContextVar[str] = ContextVar("sender", default="")  # the sender of the current request


class LargeWork:
    """A queue with one worker thread: more threads would only take the GIL from the event loop more often."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._sender_locks: dict[str, asyncio.Lock] = {}

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `work` in the thread after the calls before it; a cancelled caller stops waiting.

        Each sender has one call in the queue: a client that sends hundreds of large requests delays only itself.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-work")
        sender = SENDER.get()
        lock = self._sender_locks.setdefault(sender, asyncio.Lock())
        try:
            async with lock:
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, lambda: _run_with_short_interval(work, *arguments, **named)
                )
        finally:
            # The last user removes the lock: the dictionary must not grow with every sender.
            if not lock.locked() and self._sender_locks.get(sender) is lock:
                del self._sender_locks[sender]

    async def run_if(self, is_large: bool, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls `run` if the work is large, else `work` in the event loop."""
        return await self.run(work, *arguments, **named) if is_large else work(*arguments, **named)


def _run_with_short_interval(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    with short_switch_interval():
        return work(*arguments, **named)


class _SwitchInterval:
    """The number of threads that work beside the event loop, and the settings to restore after the last of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        self.switch_seconds = 0.0
        self.collects = False


_interval = _SwitchInterval()


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shortens the GIL switch interval during large work; call it in the working thread.

    As a permanent setting, the short interval would cost every commit a tenth of its time. The garbage collector is
    off meanwhile: each run would traverse tens of thousands of columns at once, and they hold no cycles.
    """
    with _interval.lock:
        if not _interval.threads:
            _interval.switch_seconds, _interval.collects = sys.getswitchinterval(), gc.isenabled()
            sys.setswitchinterval(min(SWITCH_SECONDS, _interval.switch_seconds))
            gc.disable()
        _interval.threads += 1
    try:
        yield
    finally:
        with _interval.lock:
            _interval.threads -= 1
            if not _interval.threads:
                sys.setswitchinterval(_interval.switch_seconds)
                if _interval.collects:
                    gc.enable()
