"""How a program is asked to end: the signals that supervisors and terminals send, heard once and looked at often."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POLL_SECONDS = 0.2  # how soon it is noticed


class ShutdownSignal:
    """Whether somebody wants this process to end.

    A signal only sets a flag: whatever runs just then may hold a lock. The second one ends the process as it stands.
    """

    def __init__(self) -> None:
        self.wanted = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While the block runs, in the main thread."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Once more, after Spark was started: it listens to the terminal itself."""
        for number in SIGNALS:
            signal.signal(number, self._heard)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True

    def sleep(self, seconds: float) -> None:
        """At most so long, and no longer once somebody wants to leave."""
        until = time.monotonic() + seconds
        while not self.wanted and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
