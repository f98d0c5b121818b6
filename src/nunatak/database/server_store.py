"""What the stores on a database server do alike: tries again what was undone, and asks after what was not answered."""

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
from nunatak.database.records import Change, CreateNamespace, DropNamespace, LeaseJob, SaveAnswer, Write
from nunatak.database.store import KeyTaken
from nunatak.database.transactions import commit_ids_of
from nunatak.errors import CatalogError, OutcomeUnknown, ServiceUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 10  # for a change that a deadlock or a lost connection undid, before the caller is told to come back later
TRY_SECONDS = 20.0  # and none is begun after this long, so that waiting for locks comes to an end
READ_TRIES = 3  # a server that restarts ends sessions more than once
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5
RESOLVE_SECONDS = 5.0  # to find out what became of a commit whose answer was lost
RESOLVE_PAUSE_SECONDS = 0.05
UNCONFIRMED = "The database did not confirm the commit and cannot be asked now"


@dataclass
class Attempt:
    """How far one try came. By its `transaction` a new session finds out whether it happened, if no log line tells."""

    results: list[object]
    committing: bool = False
    transaction: str | None = None


class Undone(Exception):
    """Nothing was applied, and another try may help. `lost` is the session that was lost, if one was."""

    def __init__(self, lost: object = None) -> None:
        super().__init__("nothing was applied")
        self.lost = lost


class Unanswered(Exception):
    """The commit may have happened, or not.

    Either the session was lost, or the server reported something that says too little: `refused` is what it means if it
    turns out that nothing happened.
    """

    def __init__(self, attempt: Attempt, lost: Any, refused: CatalogError | None) -> None:
        super().__init__("the commit was not answered")
        self.attempt = attempt
        self.lost = lost
        self.refused = refused


class ServerStore(StoreReads):
    """A driver says how one try is made and how a new session is asked after a commit."""

    once: ClassVar[tuple[type, ...]] = (CreateNamespace, DropNamespace, SaveAnswer, Write)  # twice would be noticed

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
        # A caller that goes away cancels only its own waiting: what was begun is carried out.
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
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
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
        """Once; raises a CatalogError (nothing applied), Undone or Unanswered."""

    @abstractmethod
    async def _find_outcome(self, changes: Sequence[Change], unanswered: Unanswered) -> bool | None:
        """Asked in a new session; None while the lost one may still make it happen."""

    @abstractmethod
    async def _end_lost(self, lost: Any) -> None:
        """End a session on the server, which did not notice its loss: what it has locked would stay so."""

    def _failure(
        self, error: Exception, attempt: Attempt, session: Any, *, lost: bool, certain: bool = True
    ) -> Exception:
        """What an error means for a try in `session`: a CatalogError, Undone or Unanswered.

        `certain` errors can only come from a statement before COMMIT, which then was not reached.
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
        """Whether the server undid the statement because of others, as for a deadlock."""

    @abstractmethod
    def _refusal(self, error: BaseException) -> CatalogError: ...

    def _must_be_told_apart(self, changes: Sequence[Change], results: Sequence[object]) -> bool:
        """Whether doing it twice would be noticed, while no line of the log tells that it was done.

        A transaction that changed nothing, as that of a server which looks for work and finds none, is not worth it.
        """
        if commit_ids_of(changes):
            return False
        return any(
            isinstance(change, self.once) and not (isinstance(change, LeaseJob) and result is None)
            for change, result in zip(changes, results, strict=True)
        )

    async def _resolve(self, question: Callable[[], Awaitable[T | None]]) -> T | None:
        """What a new session says of a commit that was not answered; None if it cannot be found out in time."""
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
        """Every read comes through here; one that met a lost session or a conflict is asked again."""
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
        """Refuse changes from now on, and wait for those that were begun."""
        self._closing = True
        # Of those that are done the set may not have been told yet; waiting for them alone would let nobody tell it.
        while working := [task for task in self._working if not task.done()]:
            await asyncio.gather(*working, return_exceptions=True)
