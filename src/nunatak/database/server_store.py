"""The base of the PostgreSQL and MariaDB stores: retries rolled-back transactions and resolves unknown outcomes."""

import asyncio
import logging
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from nunatak.database.changes import Children
from nunatak.database.reads import StoreReads
from nunatak.database.records import Change, CreateNamespace, DropNamespace, SaveAnswer, Write
from nunatak.database.store import KeyTaken
from nunatak.database.transactions import commit_ids_of
from nunatak.errors import CatalogError, OutcomeUnknown, ServiceUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 10  # after a deadlock or a lost connection, before the caller gets ServiceUnavailable
TRY_SECONDS = 20.0  # no attempt starts after this, which bounds the wait for locks
READ_TRIES = 3  # a database server that restarts may end several sessions in a row
FIRST_PAUSE_SECONDS = 0.005
MAX_PAUSE_SECONDS = 0.5
RESOLVE_SECONDS = 5.0  # to find out whether a commit whose response was lost took effect
RESOLVE_PAUSE_SECONDS = 0.05
UNCONFIRMED = "The database did not confirm the commit and cannot be asked now"


@dataclass
class Attempt:
    """The progress of one attempt; `transaction` identifies it on the server if the commit log has no row for it."""

    results: list[object]
    committing: bool = False
    transaction: str | None = None


class Undone(Exception):
    """Nothing was applied, and a retry may succeed; `lost` is the lost session, if any."""

    def __init__(self, lost: object = None) -> None:
        super().__init__("nothing was applied")
        self.lost = lost


class Unanswered(Exception):
    """The outcome of the commit is unknown.

    Either the session was lost, or the server's error does not tell: `refused` is the error to raise if it turns out
    that nothing was applied.
    """

    def __init__(self, attempt: Attempt, lost: Any, refused: CatalogError | None) -> None:
        super().__init__("the commit was not answered")
        self.attempt = attempt
        self.lost = lost
        self.refused = refused


class ServerStore(StoreReads):
    """A driver implements one attempt, and the query by which a new session finds the outcome of a lost one."""

    once: ClassVar[tuple[type, ...]] = (CreateNamespace, DropNamespace, SaveAnswer, Write)  # not idempotent

    def __init__(self, children: Children) -> None:
        super().__init__(children)
        self._counts = {"read": 0, "transaction": 0, "group": 0, "retry": 0}
        self._working: set[asyncio.Task[Any]] = set()
        self._closing = False

    # Writing

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        if self._closing:
            raise ServiceUnavailable("The server is stopping.")
        self._counts["transaction"] += 1
        # A cancelled caller cancels only its own wait: a transaction that was begun is finished.
        return await asyncio.shield(self._begin(self._apply(changes)))

    def _begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    async def _apply(self, changes: Sequence[Change]) -> list[object]:
        cause: BaseException | None = None
        deadline = time.monotonic() + TRY_SECONDS
        for attempt in range(TRIES):
            if attempt:
                self._counts["retry"] += 1
                # Jitter keeps transactions that deadlocked with each other from meeting again.
                pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            if time.monotonic() > deadline:
                break
            try:
                results = await self._try(changes)
            except Undone as undone:
                cause = undone.__cause__
                if undone.lost is not None:
                    await self._end_lost(undone.lost)
            except Unanswered as unanswered:
                happened = await self._resolve(partial(self._find_outcome, changes, unanswered))
                if happened is None:
                    raise OutcomeUnknown(UNCONFIRMED) from unanswered
                if happened:
                    return unanswered.attempt.results
                if unanswered.refused is not None:
                    raise unanswered.refused from unanswered.__cause__
                cause = unanswered.__cause__
            else:
                self._counts["group"] += 1
                return results
        raise self._give_up_error(changes, cause) from cause

    def _give_up_error(self, changes: Sequence[Change], cause: BaseException | None) -> CatalogError:
        return ServiceUnavailable("The database could not apply the change in several tries")

    @abstractmethod
    async def _try(self, changes: Sequence[Change]) -> list[object]:
        """Makes one attempt; raises a CatalogError (nothing applied), Undone or Unanswered."""

    @abstractmethod
    async def _find_outcome(self, changes: Sequence[Change], unanswered: Unanswered) -> bool | None:
        """Returns whether the changes were committed, by a new session; None while the lost one may still commit."""

    @abstractmethod
    async def _end_lost(self, lost: Any) -> None:
        """Ends a lost session on the server, which may not have noticed the loss, so that its locks are released."""

    def _failure(
        self, error: Exception, attempt: Attempt, session: Any, *, lost: bool, certain: bool = True
    ) -> Exception:
        """Translates the error of an attempt in `session` to a CatalogError, Undone or Unanswered.

        A `certain` error can only come from a statement before COMMIT, so COMMIT was not reached.
        """
        if isinstance(error, CatalogError):
            return error
        if lost:
            return Unanswered(attempt, session, None) if attempt.committing else Undone(session)
        if attempt.committing and not certain:
            return Unanswered(attempt, session, self._refusal(error))
        if self._is_worth_another_try(error):
            return Undone()
        refused = self._refusal(error)
        if refused.status >= 500 and not isinstance(refused, KeyTaken):
            log.error("a change could not be applied", exc_info=error)
        return refused

    @abstractmethod
    def _is_worth_another_try(self, error: BaseException) -> bool:
        """Whether the server rolled back because of a concurrent transaction, such as a deadlock."""

    @abstractmethod
    def _refusal(self, error: BaseException) -> CatalogError: ...

    def _must_be_told_apart(self, changes: Sequence[Change]) -> bool:
        """Whether the changes are not idempotent and leave no row in the commit log that tells their outcome."""
        return not commit_ids_of(changes) and any(isinstance(change, self.once) for change in changes)

    async def _resolve(self, question: Callable[[], Awaitable[T | None]]) -> T | None:
        """Returns the outcome of an unanswered commit by asking repeatedly; None if unknown after RESOLVE_SECONDS."""
        deadline = time.monotonic() + RESOLVE_SECONDS
        while time.monotonic() < deadline:
            try:
                outcome = await question()
            except ServiceUnavailable:
                outcome = None
            except Exception:
                log.warning("asking after a commit failed", exc_info=True)
                outcome = None
            if outcome is not None:
                return outcome
            await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
        return None

    # Reading

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Runs a read; retries it after a lost session or a conflict."""
        cause: BaseException | None = None
        for attempt in range(READ_TRIES):
            self._counts["retry"] += attempt > 0
            self._counts["read"] += 1
            try:
                return await question()
            except Undone as undone:
                cause = undone.__cause__
        assert cause is not None
        raise self._refusal(cause) from cause

    async def _finish_work(self) -> None:
        """Refuses further changes and waits for those that were begun."""
        self._closing = True
        # The set may still hold finished tasks, whose callbacks have not run: gathering only those would not yield.
        while working := [task for task in self._working if not task.done()]:
            await asyncio.gather(*working, return_exceptions=True)
