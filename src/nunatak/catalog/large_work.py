"""Computations that would hold up the event loop: one at a time, in a thread of their own."""

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

LARGE_BYTES = 32 * 1024  # of a request; what comes below is computed faster than a thread is woken up a few times
LARGE_METADATA_BYTES = 256 * 1024  # of a file that has to be read or gone through
# Python's default of 5 ms would be added to each of several steps of every other request meanwhile.
SWITCH_SECONDS = 0.00025
SENDER: ContextVar[str] = ContextVar("sender", default="")  # of the request that is worked on


class LargeWork:
    """One thread: several would only take the interpreter away from the event loop more often."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._turns: dict[str, asyncio.Lock] = {}

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `work` when those before it are done; whoever is cancelled stops waiting.

        Each sender has one work in the queue: whoever sends hundreds of large requests waits for himself.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-work")
        sender = SENDER.get()
        turn = self._turns.setdefault(sender, asyncio.Lock())
        try:
            async with turn:
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, lambda: _beside_others(work, *arguments, **named)
                )
        finally:
            if not turn.locked() and self._turns.get(sender) is turn:
                del self._turns[sender]

    async def run_if(self, is_large: bool, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """As `run` if it may take long, else right here."""
        return await self.run(work, *arguments, **named) if is_large else work(*arguments, **named)


def _beside_others(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    with interpreter_shared():
        return work(*arguments, **named)


class _Sharing:
    """How many threads work beside the event loop right now, and what to restore after the last of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        self.switch_seconds = 0.0
        self.collects = False


_sharing = _Sharing()


@contextmanager
def interpreter_shared() -> Iterator[None]:
    """Makes threads give the interpreter away often while a large work lasts; call it in the thread that works.

    Kept for good, the short interval would cost every commit a tenth of its time. The garbage collector rests
    meanwhile: each run of it would go through ten thousands of columns at once, and they hold no cycles.
    """
    with _sharing.lock:
        if not _sharing.threads:
            _sharing.switch_seconds, _sharing.collects = sys.getswitchinterval(), gc.isenabled()
            sys.setswitchinterval(min(SWITCH_SECONDS, _sharing.switch_seconds))
            gc.disable()
        _sharing.threads += 1
    try:
        yield
    finally:
        with _sharing.lock:
            _sharing.threads -= 1
            if not _sharing.threads:
                sys.setswitchinterval(_sharing.switch_seconds)
                if _sharing.collects:
                    gc.enable()
