"""MariaDB and MySQL: any number of servers on one database; a commit is one round trip, a lost one is asked after."""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from nunatak.database import mariadb_changes
from nunatak.database.mariadb_connections import (
    LOCK_TIMEOUT,
    POOL_SIZE,
    REPEATED,
    Connections,
    Session,
    in_named_style_all,
    is_certain,
    is_lost,
    number_of,
    refusal,
)
from nunatak.database.mariadb_migrations import migrate
from nunatak.database.records import (
    AddJob,
    Change,
    CreateNamespace,
    DropNamespace,
    Head,
    Key,
    Kind,
    LeaseJob,
    MoveHead,
    Neighbour,
    SaveAnswer,
    SaveReport,
    Write,
)
from nunatak.database.rules import key_taken, named
from nunatak.database.server_reads import ServerReads, commit_ids_of
from nunatak.database.statements import read_statements
from nunatak.database.store import KeyTaken
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


class _Undone(Exception):
    """Certain that nothing was applied, and that trying again may help; `token` is that of a session that was lost."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__("nothing was applied")
        self.token = token


class _Unanswered(Exception):
    """The commit may have happened, or not; `results` are those it would have.

    Either the connection was lost, or the server reported something that says too little: `refused` is what it means
    if it turns out that nothing happened.
    """

    def __init__(
        self, results: list[object], token: str, transaction_id: str | None, refused: CatalogError | None
    ) -> None:
        super().__init__("the commit was not answered")
        self.results = results
        self.token = token
        self.transaction_id = transaction_id
        self.refused = refused


class MariadbStore(ServerReads):
    """The Store on a MariaDB or MySQL database; made by `open_store`."""

    def __init__(self, connections: Connections) -> None:
        self._counts = {"read": 0, "transaction": 0, "group": 0, "retry": 0}
        self._connections = connections
        self._working: set[asyncio.Task[list[object]]] = set()
        self._closing = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far, and how the connections stand now."""
        return self._counts | {
            "connection in use": self._connections.in_use,
            "connection idle": self._connections.idle,
            "connection awaited": self._connections.waiting,
            "connection limit": self._connections.size,
        }

    # Writing

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        if self._closing:
            raise ServiceUnavailable("The server is stopping.")
        self._counts["transaction"] += 1
        # A caller that goes away cancels only its own waiting: what was begun is carried out.
        task = asyncio.create_task(self._apply(changes))
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return await asyncio.shield(task)

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
                results = await self._connections.call(partial(self._attempt, changes))
            except _Undone as undone:
                cause = undone.__cause__
                if undone.token is not None:
                    await self._end_lost(undone.token)
            except _Unanswered as lost:
                happened = await self._resolve(changes, lost)
                if happened is None:
                    raise OutcomeUnknown("The database did not confirm the commit and cannot be asked now") from lost
                if happened:
                    return lost.results
                if lost.refused is not None:
                    raise lost.refused from lost.__cause__
                cause = lost.__cause__
            else:
                self._counts["group"] += 1
                return results
        if cause is not None and number_of(cause) == LOCK_TIMEOUT and _has_key(changes):
            # Whoever holds on to the key may yet do what this request asks for, which is not to be told otherwise.
            raise key_taken() from cause
        raise ServiceUnavailable("The database could not apply the change in several tries") from cause

    def _attempt(self, changes: Sequence[Change], session: Session) -> list[object]:
        """Once, in a thread; raises a CatalogError (nothing applied), _Undone or _Unanswered."""
        results: list[object] = [None] * len(changes)
        transaction_id: str | None = None
        committing = False
        try:
            if mariadb_changes.is_plain_commit(changes):
                committing = True
                moved = mariadb_changes.commit(session, changes)
                committing = False
                if not moved:
                    change = next(change for change in changes if isinstance(change, MoveHead))
                    raise mariadb_changes.why_not_moved(session, change)
                return results
            mariadb_changes.begin(session, changes)
            results = mariadb_changes.apply_all(session, changes)
            ending = [mariadb_changes.COMMIT]
            if not commit_ids_of(changes) and _happens_once(changes, results):
                transaction_id = secrets.token_hex(16)
                ending.insert(0, ("note_outcome", {"transaction_id": transaction_id}))
            committing = True
            session.batch(ending)
            return results
        except CatalogError:
            _roll_back(session)
            raise
        except Exception as error:
            if is_lost(error, session):
                self._lost(session)
                if committing:
                    raise _Unanswered(results, session.token, transaction_id, None) from error
                raise _Undone(session.token) from error
            if committing and not is_certain(error):
                session.end()
                raise _Unanswered(results, session.token, transaction_id, refusal(error)) from error
            _roll_back(session)
            if number_of(error) in REPEATED:
                raise _Undone from error
            refused = refusal(error)
            if refused.status >= 500 and not isinstance(refused, KeyTaken):
                log.exception("a change could not be applied")
            raise refused from error

    async def _end_lost(self, token: str) -> None:
        """A server that noticed nothing would hold on to what the session has locked, against the next try."""
        try:
            await self._connections.call_apart(lambda session: _is_over(session, token))
        except Exception:
            log.info("a lost session could not be ended", exc_info=True)

    async def _resolve(self, changes: Sequence[Change], lost: _Unanswered) -> bool | None:
        """Whether a commit that was not answered happened; None if it cannot be found out in time."""
        deadline = time.monotonic() + RESOLVE_SECONDS
        while time.monotonic() < deadline:
            try:
                outcome = await self._connections.call_apart(partial(_outcome, changes, lost))
            except ServiceUnavailable:
                outcome = None
            except Exception:
                log.warning("asking after a commit failed", exc_info=True)
                outcome = None
            if outcome is not None:
                return outcome
            await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
        return None

    def _lost(self, session: Session) -> None:
        session.end()
        self._connections.forget_idle()

    # Reading

    async def _ask(self, question: Callable[[Session], T]) -> T:
        cause: BaseException | None = None
        for attempt in range(READ_TRIES):
            self._counts["retry"] += attempt > 0
            self._counts["read"] += 1
            try:
                return await self._connections.call(partial(self._read, question))
            except _Undone as lost:
                cause = lost.__cause__
        assert cause is not None
        raise refusal(cause) from cause

    def _read(self, question: Callable[[Session], T], session: Session) -> T:
        """Once, in a thread; raises a CatalogError, or _Undone if the session was lost meanwhile."""
        try:
            return question(session)
        except CatalogError:
            raise
        except Exception as error:
            if is_lost(error, session):
                self._lost(session)
            elif number_of(error) not in REPEATED:
                raise refusal(error) from error
            raise _Undone from error

    async def _row(self, name: str, values: Mapping[str, object]) -> Any:
        return await self._ask(lambda session: session.row(name, values))

    async def _rows(self, name: str, values: Mapping[str, object]) -> Sequence[Any]:
        return await self._ask(lambda session: session.rows(name, values))

    async def find_head(self, key: Key, known: str | None) -> Head | None:
        row = await self._row("find_head", {**named(key), "known": known})
        if row is None or row[0] is None:
            return None
        return Head(row[0], "VIEW" if row[1] == "VIEW" else "TABLE", row[2], row[3])

    async def list_heads(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, head: str
    ) -> tuple[str, str | None, bool]:
        values = {"catalog": catalog, "namespace": namespace, "type": kind, "after": after, "limit": limit + 1}
        names = [row[0] for row in await self._rows("list_heads", values)]
        page = names[:limit]
        text = ",".join(f"{head}{msgspec.json.encode(name).decode()}}}" for name in page)
        return text, page[-1] if page else None, len(names) > limit

    async def namespace_exists(self, catalog: str, namespace: str) -> bool:
        return await self._ask(lambda session: mariadb_changes.namespace_exists(session, catalog, namespace))

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        return await self._ask(lambda session: mariadb_changes.list_namespaces(session, catalog, parent, after, limit))

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        if not places:
            return []
        rows = await self._rows("tables_writing_to", {"places": list(places)})
        return [Key(row[0], row[1], row[2]) for row in rows]

    async def overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        return await self._ask(lambda session: mariadb_changes.overlapping(session, location, ancestors))

    async def close(self) -> None:
        self._closing = True
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._connections.close()


async def open_store(url: str, *, pool_size: int = POOL_SIZE) -> MariadbStore:
    """The store at `mariadb://…`, of this version's schema; NotInstalled, Unsuitable or ServiceUnavailable."""
    connections = Connections(url, in_named_style_all(read_statements("mariadb")), pool_size)
    await asyncio.to_thread(migrate, connections)
    return MariadbStore(connections)


async def migrate_url(url: str) -> list[str]:
    """Bring the database to this version's schema; returns the names of the migrations applied."""
    return await asyncio.to_thread(migrate, Connections(url, in_named_style_all(read_statements("mariadb")), 1))


def _happens_once(changes: Sequence[Change], results: Sequence[object]) -> bool:
    """Whether doing it twice would be noticed, so that the transaction must leave a note. One that changed nothing, as
    that of a server which looks for work and finds none, is not worth it."""
    once = (CreateNamespace, DropNamespace, SaveAnswer, AddJob, SaveReport, Write)
    return any(
        isinstance(change, once) or (isinstance(change, LeaseJob) and result is not None)
        for change, result in zip(changes, results, strict=True)
    )


def _has_key(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, SaveAnswer) for change in changes)


def _outcome(changes: Sequence[Change], lost: _Unanswered, session: Session) -> bool | None:
    """Whether the change happened, or None while the lost session may still make it happen."""
    # First whether it is gone, then what it left: the other way round it could commit in between, unseen.
    if not _is_over(session, lost.token):
        return None
    commit_ids = commit_ids_of(changes)
    if commit_ids:
        (found,) = session.row("commits_found", {"commit_ids": commit_ids})
        return bool(found)
    if lost.transaction_id is None:
        return False  # done again, whatever became of it
    (found,) = session.row("outcome_found", {"transaction_id": lost.transaction_id})
    return bool(found)


def _is_over(session: Session, token: str) -> bool:
    """Whether a lost session has ended on the server, too; if not, it is told to."""
    (number,) = session.row("session_alive", {"token": token})
    if number is not None:
        session.batch([("end_session", {"number": number})])
    return number is None


def _roll_back(session: Session) -> None:
    """A session that cannot is ended: the server rolls back by itself."""
    if session.in_transaction():
        try:
            session.statement("ROLLBACK")
        except Exception:
            session.end()
