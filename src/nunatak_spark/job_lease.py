"""A job that a worker holds: kept alive from a thread of its own, and given up as soon as it is not ours any more."""

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

StopReason = Literal["cancelled", "leaving", "lost"]

SAFE_FRACTION = 5 / 6  # of the lease: what is left of it is for Spark to stop before another worker begins
RETRY_FRACTION = 1 / 5  # of the time between two heartbeats, after one that was not answered
LONGEST_TEXT = 500  # characters of what a job is at; the server keeps 4 KiB of progress
PATIENCE_SECONDS = 20  # for statements to end that were interrupted, before their session is stopped

STOP_TEXTS: dict[StopReason, str] = {
    "cancelled": "somebody cancelled the job",
    "leaving": "this worker was asked to end",
    "lost": "the lease was lost",
}


class Interruptible(Protocol):
    """What works for the job, and can be made to stop."""

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class LeaseTerms:
    """How long the server waits for a sign of life, and how often it wants one."""

    lease_seconds: float
    heartbeat_seconds: float


SendHeartbeat = Callable[[Json | None], bool]
"""One heartbeat with the progress so far; whether the job is to be cancelled. What the server refuses is raised."""


class JobLease:
    """One job, from when it was given away at `since` on the monotonic clock; `why` says why it is to go no further."""

    def __init__(
        self, terms: LeaseTerms, beat: SendHeartbeat, running: Interruptible, leaving: Callable[[], bool], since: float
    ) -> None:
        self.why: StopReason | None = None
        self._terms, self._beat, self._running, self._leaving = terms, beat, running, leaving
        self._step: ProgressStep | None = None
        self._deadline = since + terms.lease_seconds * SAFE_FRACTION
        self._next_beat = since + terms.heartbeat_seconds
        self._force_at: float | None = None
        self._at_work = True
        self._over = threading.Event()

    # For the job

    def tell(self, step: ProgressStep) -> None:
        """How far it is; the next heartbeat carries it."""
        self._step = step

    def check(self) -> None:
        """Stopped if it is to go no further; also before the thread had time to notice, as after a long sleep."""
        self._look(time.monotonic())
        if self.why is not None:
            raise JobStopped(STOP_TEXTS[self.why])

    # For the worker

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Heartbeats are sent while the block runs."""
        thread = threading.Thread(target=self._keep, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def work_ended(self) -> None:
        """From here on there is nothing to interrupt; the lease is kept until it is settled."""
        self._at_work = False

    # The thread

    def _keep(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            now = time.monotonic()
            if now >= self._next_beat and self.why != "lost":
                self._send(now)
            self._look(time.monotonic())
            if self.why is not None and self._at_work:
                self._interrupt()

    def _send(self, now: float) -> None:
        step = self._step
        progress = None if step is None else {"text": step.text[:LONGEST_TEXT], "done": step.done, "total": step.total}
        self._next_beat = now + self._terms.heartbeat_seconds
        try:
            cancelled = self._beat(progress)
        except Exception as error:
            if is_final(error):
                self.why = "lost"
            else:  # nobody answers: perhaps soon
                self._next_beat = time.monotonic() + self._terms.heartbeat_seconds * RETRY_FRACTION
            return
        self._deadline = now + self._terms.lease_seconds * SAFE_FRACTION
        if cancelled and self.why is None:
            self.why = "cancelled"

    def _look(self, now: float) -> None:
        if now > self._deadline:
            self.why = "lost"
        elif self.why is None and self._leaving():
            self.why = "leaving"

    def _interrupt(self) -> None:
        """Again and again: a procedure that lost one statement may begin another."""
        now = time.monotonic()
        if self._force_at is None:
            self._force_at = now + PATIENCE_SECONDS
        with contextlib.suppress(Exception):  # Spark may be gone altogether
            if now < self._force_at:
                self._running.interrupt()
            else:
                self._force_at = now + PATIENCE_SECONDS
                self._running.stop()


def is_final(error: Exception) -> bool:
    """Whether the server decided; otherwise the same request may be answered later."""
    decided = isinstance(error, CatalogError) and error.status < 500
    return decided and not isinstance(error, TooManyRequests | TooSlow)
