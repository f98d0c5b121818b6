"""The MariaDB and MySQL store: several servers may share a database; a commit is one round trip."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from nunatak.database.bindings import answer_values, commit_values, key_values
from nunatak.database.changes import Step, Steps, commit_steps, why_not_moved
from nunatak.database.mariadb_connections import (
    LOCK_TIMEOUT,
    POOL_SIZE,
    REPEATED,
    MariadbConnections,
    MariadbSession,
    is_certain,
    is_lost,
    mariadb_statements,
    number_of,
    refusal,
)
from nunatak.database.mariadb_migrations import migrate
from nunatak.database.namespace_children import in_pages
from nunatak.database.records import AddJob, Change, Key, Kind, Pointer, SaveAnswer, SaveReport
from nunatak.database.refusals import key_taken
from nunatak.database.server_store import Attempt, ServerStore, Unanswered, Undone
from nunatak.database.transactions import commit_ids_of, is_plain_commit, locks_for, plain_commit_of, pointers_to_lock
from nunatak.errors import CatalogError

log = logging.getLogger(__name__)

T = TypeVar("T")

BEGIN: Step = ("begin_transaction", {})
COMMIT: Step = ("commit_transaction", {})


class MariadbStore(ServerStore):
    """The Store on a MariaDB or MySQL database; made by `open_store`."""

    once = (*ServerStore.once, AddJob, SaveReport)  # their outcome row costs no round trip

    def __init__(self, connections: MariadbConnections) -> None:
        super().__init__(in_pages)
        self._connections = connections

    @property
    def counts(self) -> dict[str, int]:
        """Counters since the start, and the current state of the connection pool."""
        return self._counts | {
            "connection in use": self._connections.in_use,
            "connection idle": self._connections.idle,
            "connection awaited": self._connections.waiting,
            "connection limit": self._connections.size,
        }

    # Writing

    async def _try(self, changes: Sequence[Change]) -> list[object]:
        return await self._connections.call(partial(self._try_in_thread, changes))

    def _try_in_thread(self, changes: Sequence[Change], session: MariadbSession) -> list[object]:
        attempt = Attempt([None] * len(changes))
        try:
            self._attempt(session, changes, attempt)
        except Exception as error:
            lost = not isinstance(error, CatalogError) and is_lost(error, session)
            failure = self._failure(error, attempt, session.token, lost=lost, certain=is_certain(error))
            if lost:
                self._lost(session)
            elif isinstance(failure, Unanswered):
                session.end()  # `_outcome` needs it to have ended
            else:
                _roll_back(session)
            if failure is error:
                raise
            raise failure from error
        return attempt.results

    def _attempt(self, session: MariadbSession, changes: Sequence[Change], attempt: Attempt) -> None:
        if is_plain_commit(changes):
            attempt.committing = True
            _, moved, *_ = session.batch([BEGIN, *_plain_commit(changes), COMMIT])
            attempt.committing = False
            if not moved.matched:
                raise session.drive(why_not_moved(plain_commit_of(changes)))
            return
        locks: list[Step] = [("take_lock", {"lock": name}) for name in locks_for(changes)]
        pointers: list[Step] = [("lock_pointer", key_values(key)) for key in pointers_to_lock(changes)]
        session.batch([BEGIN, *locks, *pointers])
        attempt.results = [session.drive(self._steps[type(change)](change)) for change in changes]
        ending = [COMMIT]
        if self._must_be_told_apart(changes):
            attempt.transaction = secrets.token_hex(16)
            ending.insert(0, ("note_outcome", {"transaction_id": attempt.transaction}))
        attempt.committing = True
        session.batch(ending)

    async def _find_outcome(self, changes: Sequence[Change], unanswered: Unanswered) -> bool | None:
        return await self._connections.call_apart(partial(_outcome, changes, unanswered))

    async def _end_lost(self, lost: str) -> None:
        try:
            await self._connections.call_apart(partial(_is_over, token=lost))
        except Exception:
            log.info("a lost session could not be ended", exc_info=True)

    def _give_up_error(self, changes: Sequence[Change], cause: BaseException | None) -> CatalogError:
        if cause is not None and number_of(cause) == LOCK_TIMEOUT and _has_key(changes):
            # The transaction that holds the key may still commit this very request: the outcome is not certain.
            return key_taken()
        return super()._give_up_error(changes, cause)

    def _is_worth_another_try(self, error: BaseException) -> bool:
        return number_of(error) in REPEATED

    def _refusal(self, error: BaseException) -> CatalogError:
        return refusal(error)

    def _lost(self, session: MariadbSession) -> None:
        session.end()
        self._connections.forget_idle()

    # Reading

    async def _read_once(self, question: Callable[[MariadbSession], T]) -> T:
        return await self._connections.call(partial(self._read_in_thread, question))

    def _read_in_thread(self, question: Callable[[MariadbSession], T], session: MariadbSession) -> T:
        """Runs a read in a thread; raises a CatalogError, or Undone after a lost session or a conflict."""
        try:
            return question(session)
        except CatalogError:
            raise
        except Exception as error:
            if is_lost(error, session):
                self._lost(session)
            elif number_of(error) not in REPEATED:
                raise refusal(error) from error
            raise Undone from error

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._ask(partial(self._read_once, lambda session: session.drive(steps())))

    async def rows(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return await self._ask(partial(self._read_once, lambda session: session.rows(statement, values)))

    async def find_pointer(self, key: Key, known: str | None) -> Pointer | None:
        row = await self._row("find_pointer", {**key_values(key), "known": known})
        if row is None or row[0] is None:
            return None
        return Pointer(row[0], "VIEW" if row[1] == "VIEW" else "TABLE", row[2], row[3])

    async def list_pointers(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, prefix: str
    ) -> tuple[str, str | None, bool]:
        values = {"catalog": catalog, "namespace": namespace, "type": kind, "after": after, "limit": limit + 1}
        names = [row[0] for row in await self.rows("list_pointers", values)]
        page = names[:limit]
        text = ",".join(f"{prefix}{msgspec.json.encode(name).decode()}}}" for name in page)
        return text, page[-1] if page else None, len(names) > limit

    async def close(self) -> None:
        await self._finish_work()
        await self._connections.close()


async def open_store(url: str, *, pool_size: int = POOL_SIZE) -> MariadbStore:
    """Opens the store at `mariadb://…` and migrates it; raises MariadbNotInstalled, Unsuitable, ServiceUnavailable."""
    connections = MariadbConnections(url, mariadb_statements(), pool_size)
    await asyncio.to_thread(migrate, connections)
    return MariadbStore(connections)


async def migrate_url(url: str) -> list[str]:
    """Migrates the database to this version's schema; returns the names of the migrations applied."""
    return await asyncio.to_thread(migrate, MariadbConnections(url, mariadb_statements(), 1))


def _plain_commit(changes: Sequence[Change]) -> list[Step]:
    """Returns the statements of a plain commit; jobs and the answer are only written if the pointer moved."""
    along: list[Step] = []
    for change in changes:
        if isinstance(change, AddJob):
            along.append(("queue_moved", {"kind": change.kind, "payload": change.payload}))
        elif isinstance(change, SaveAnswer):
            along.append(("answer_moved", answer_values(change)))
    return [*commit_steps(commit_values(changes)), *along]


def _has_key(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, SaveAnswer) for change in changes)


def _outcome(changes: Sequence[Change], unanswered: Unanswered, session: MariadbSession) -> bool | None:
    """Returns whether the changes were committed, or None while the lost session may still commit them."""
    # Check first that the session is gone, then its rows: in the other order it could commit in between.
    if not _is_over(session, unanswered.lost):
        return None
    commit_ids = commit_ids_of(changes)
    if commit_ids:
        (found,) = session.row("commits_found", {"commit_ids": commit_ids})
        return bool(found)
    transaction = unanswered.attempt.transaction
    if transaction is None:
        return False  # idempotent: safe to repeat
    (found,) = session.row("outcome_found", {"transaction_id": transaction})
    return bool(found)


def _is_over(session: MariadbSession, token: str) -> bool:
    """Whether a lost session has ended on the server; kills it if not."""
    (number,) = session.row("session_alive", {"token": token})
    if number is not None:
        session.batch([("end_session", {"number": number})])
    return number is None


def _roll_back(session: MariadbSession) -> None:
    """Rolls back; ends the session if that fails, upon which the server rolls back."""
    if session.in_transaction():
        try:
            session.statement("ROLLBACK")
        except Exception:
            session.end()
