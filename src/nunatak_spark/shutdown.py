"""Shutdown on SIGTERM and SIGINT: the signal sets a flag that the worker polls."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POLL_SECONDS = 0.2  # longest delay until a signal is noticed


class ShutdownSignal:
    """Whether this process was asked to end.

    The handler only sets a flag, because the interrupted code may hold a lock. A second signal raises
    KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handles the signals while the block runs; main thread only."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self.install_handlers()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def install_handlers(self) -> None:
        """Installs the handlers. Call it again after Spark started: pyspark installs its own SIGINT handler."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def sleep(self, seconds: float) -> None:
        """Sleeps for at most so long; returns early once a shutdown is requested."""
        until = time.monotonic() + seconds
        while not self.requested and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
