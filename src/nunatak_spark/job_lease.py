"""The lease of a job that a worker runs: a thread sends heartbeats, and interrupts Spark once the lease is not ours."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from nunatak.client import Json
from nunatak.errors import CatalogError, TooManyRequests, TooSlow
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.maintenance.job_context import JobStopped
from nunatak_spark.shutdown import POLL_SECONDS

StopReason = Literal["cancelled", "shutdown", "lost"]

SAFE_FRACTION = 5 / 6  # of the lease: the rest is time for Spark to stop before another worker starts
RETRY_FRACTION = 1 / 5  # of the heartbeat interval, after a heartbeat without an answer
MAX_TEXT_LENGTH = 500  # characters of the progress text; the server keeps 4 KiB
PATIENCE_SECONDS = 20  # for interrupted statements to end, before the session is stopped

STOP_TEXTS: dict[StopReason, str] = {
    "cancelled": "the job was cancelled",
    "shutdown": "this worker shuts down",
    "lost": "the lease was lost",
}


class Interruptible(Protocol):
    """What runs the job and can be interrupted: the shared Spark session."""

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class LeaseTerms:
    """How long the server waits for a heartbeat, and how often it wants one."""

    lease_seconds: float
    heartbeat_seconds: float


SendHeartbeat = Callable[[Json | None], bool]
"""Sends one heartbeat with the progress; returns whether the job was cancelled. Raises what the server refuses."""


class JobLease:
    """The lease of one job, granted at `since` (monotonic clock). `stop_reason` says why the job must stop."""

    def __init__(
        self,
        terms: LeaseTerms,
        beat: SendHeartbeat,
        running: Interruptible,
        is_shutdown_requested: Callable[[], bool],
        since: float,
    ) -> None:
        self.stop_reason: StopReason | None = None
        self._terms, self._beat, self._running, self._is_shutdown_requested = (
            terms,
            beat,
            running,
            is_shutdown_requested,
        )
        self._step: ProgressStep | None = None
        self._deadline = since + terms.lease_seconds * SAFE_FRACTION
        self._next_beat = since + terms.heartbeat_seconds
        self._force_at: float | None = None
        self._at_work = True
        self._over = threading.Event()

    # For the job

    def set_progress(self, step: ProgressStep) -> None:
        """Stores the progress; the next heartbeat sends it."""
        self._step = step

    def check(self) -> None:
        """Raises JobStopped if the job must stop.

        Looks at the clock itself: after a suspended machine wakes up, the thread may not have noticed yet.
        """
        self._update_stop_reason(time.monotonic())
        if self.stop_reason is not None:
            raise JobStopped(STOP_TEXTS[self.stop_reason])

    # For the worker

    @contextlib.contextmanager
    def send_heartbeats(self) -> Iterator[None]:
        """Sends heartbeats from a thread while the block runs."""
        thread = threading.Thread(target=self._heartbeat_loop, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def mark_work_ended(self) -> None:
        """Stops interrupting Spark. Heartbeats go on until the result is reported."""
        self._at_work = False

    # The thread

    def _heartbeat_loop(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            now = time.monotonic()
            if now >= self._next_beat and self.stop_reason != "lost":
                self._send(now)
            self._update_stop_reason(time.monotonic())
            if self.stop_reason is not None and self._at_work:
                self._interrupt()

    def _send(self, now: float) -> None:
        step = self._step
        progress = (
            None if step is None else {"text": step.text[:MAX_TEXT_LENGTH], "done": step.done, "total": step.total}
        )
        self._next_beat = now + self._terms.heartbeat_seconds
        try:
            cancelled = self._beat(progress)
        except Exception as error:
            if is_final(error):
                self.stop_reason = "lost"
            else:  # no answer: retry soon
                self._next_beat = time.monotonic() + self._terms.heartbeat_seconds * RETRY_FRACTION
            return
        self._deadline = now + self._terms.lease_seconds * SAFE_FRACTION
        if cancelled and self.stop_reason is None:
            self.stop_reason = "cancelled"

    def _update_stop_reason(self, now: float) -> None:
        if now > self._deadline:
            self.stop_reason = "lost"
        elif self.stop_reason is None and self._is_shutdown_requested():
            self.stop_reason = "shutdown"

    def _interrupt(self) -> None:
        """Interrupts repeatedly: a procedure that lost one statement may start another."""
        now = time.monotonic()
        if self._force_at is None:
            self._force_at = now + PATIENCE_SECONDS
        with contextlib.suppress(Exception):  # the JVM may be gone
            if now < self._force_at:
                self._running.interrupt()
            else:
                self._force_at = now + PATIENCE_SECONDS
                self._running.stop()


def is_final(error: Exception) -> bool:
    """Returns whether the server decided; otherwise the same request may succeed later."""
    decided = isinstance(error, CatalogError) and error.status < 500
    return decided and not isinstance(error, TooManyRequests | TooSlow)
