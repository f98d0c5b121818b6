"""PostgreSQL: any number of servers on one database; a commit is one statement, a lost connection is asked after."""

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from nunatak.database import postgres_changes
from nunatak.database.postgres_connections import (
    POOL_SIZE,
    Connections,
    Session,
    is_lost,
    numbered_all,
    refusal,
    sqlstate_of,
)
from nunatak.database.records import (
    Answer,
    Change,
    CreateNamespace,
    DeleteHead,
    DropNamespace,
    ForgetAnswers,
    Head,
    InsertHead,
    Job,
    Key,
    Kind,
    MoveHead,
    Neighbour,
    RenameHead,
    SavedAnswer,
    SaveSecret,
)
from nunatak.database.rules import named
from nunatak.database.statements import read_migrations, read_statements
from nunatak.errors import CatalogError, OutcomeUnknown, ServiceUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 10  # for a change that a deadlock or a lost connection undid, before the caller is told to come back later
READ_TRIES = 3  # a server that restarts ends sessions more than once
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5
RESOLVE_SECONDS = 5.0  # to find out what became of a commit whose answer was lost
RESOLVE_PAUSE_SECONDS = 0.05
REPEATED = {"40001", "40P01"}  # serialization failure and deadlock: undone, and worth another try
MIGRATION_LOCK = postgres_changes.lock_number("migration")


class _Undone(Exception):
    """Certain that nothing of the change was applied, and that trying again may help."""


class _Unanswered(Exception):
    """The connection was lost when the commit may have happened; `results` are those it would have."""

    def __init__(self, results: list[object], transaction: str | None) -> None:
        super().__init__("the commit was not answered")
        self.results = results
        self.transaction = transaction


class PostgresStore:
    """The Store on a PostgreSQL database; made by `open_store`."""

    def __init__(self, connections: Connections) -> None:
        self.counts = {"read": 0, "transaction": 0, "group": 0}
        self._connections = connections
        self._working: set[asyncio.Task[list[object]]] = set()
        self._closing = False

    # Writing

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        if self._closing:
            raise ServiceUnavailable("The server is stopping.")
        self.counts["transaction"] += 1
        # A caller that goes away cancels only its own waiting: what was begun is carried out.
        task = asyncio.create_task(self._apply(changes))
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return await asyncio.shield(task)

    async def _apply(self, changes: Sequence[Change]) -> list[object]:
        cause: BaseException | None = None
        for attempt in range(TRIES):
            if attempt:
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            session = await self._connections.take()
            try:
                return await self._attempt(session, changes)
            except _Undone as undone:
                cause = undone.__cause__
            except _Unanswered as lost:
                happened = await self._resolve(session, changes, lost.transaction)
                if happened:
                    return lost.results
                if happened is None:
                    raise OutcomeUnknown("The database did not confirm the commit and cannot be asked now") from lost
                cause = lost.__cause__
            finally:
                self._connections.give_back(session)
        raise ServiceUnavailable("The database could not apply the change in several tries") from cause

    async def _attempt(self, session: Session, changes: Sequence[Change]) -> list[object]:
        """Once; raises a CatalogError (nothing applied), _Undone or _Unanswered."""
        results: list[object] = [None] * len(changes)
        transaction: str | None = None
        committing = False
        try:
            if postgres_changes.is_plain_commit(changes):
                committing = True
                (moved,) = await session.row("commit_head", postgres_changes.commit_values(changes))
                committing = False
                if not moved:
                    change = next(change for change in changes if isinstance(change, MoveHead))
                    raise await postgres_changes.why_not_moved(session, change)
            else:
                await session.script(postgres_changes.begin_sql(postgres_changes.locks_for(changes)))
                results = await postgres_changes.apply_all(session, changes)
                if not _commit_ids(changes) and not _repeatable(changes):
                    (transaction,) = await session.row("this_transaction", {})
                committing = True
                await session.script("COMMIT")
            self.counts["group"] += 1
            return results
        except CatalogError:
            await _roll_back(session)
            raise
        except asyncio.CancelledError:
            session.end()
            raise
        except Exception as error:
            if is_lost(error, session):
                self._lost(session)
                if committing:
                    raise _Unanswered(results, transaction) from error
                raise _Undone from error
            await _roll_back(session)
            if sqlstate_of(error) in REPEATED:
                raise _Undone from error
            refused = refusal(error)
            if refused.status >= 500:
                log.exception("a change could not be applied")
            raise refused from error

    async def _resolve(self, lost: Session, changes: Sequence[Change], transaction: str | None) -> bool | None:
        """Whether a commit that was not answered happened; None if it cannot be found out in time."""
        deadline = asyncio.get_running_loop().time() + RESOLVE_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            try:
                session = await self._connections.open()
            except ServiceUnavailable:
                await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
                continue
            try:
                outcome = await _outcome(session, lost, changes, transaction)
            except Exception:
                log.warning("asking after a commit failed", exc_info=True)
                outcome = None
            finally:
                session.end()
            if outcome is not None:
                return outcome
            await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
        return None

    def _lost(self, session: Session) -> None:
        session.end()
        self._connections.forget_idle()

    # Reading

    async def _ask(
        self, question: Callable[[Session, str, Mapping[str, object]], Awaitable[T]], name: str, values: Any
    ) -> T:
        """Every read comes through here: the place where those of one turn of the event loop may be put together."""
        self.counts["read"] += 1
        cause: BaseException | None = None
        for _ in range(READ_TRIES):
            session = await self._connections.take()
            try:
                return await question(session, name, values)
            except asyncio.CancelledError:
                session.end()
                raise
            except Exception as error:
                if not is_lost(error, session):
                    raise refusal(error) from error
                self._lost(session)
                cause = error
            finally:
                self._connections.give_back(session)
        assert cause is not None
        raise refusal(cause) from cause

    async def _row(self, name: str, values: Mapping[str, object]) -> Any:
        return await self._ask(Session.row, name, values)

    async def _rows(self, name: str, values: Mapping[str, object]) -> list[Any]:
        return await self._ask(Session.rows, name, values)

    async def find_head(self, key: Key, known: str | None) -> Head | None:
        row = await self._row("find_head", {**named(key), "known": known})
        if row is None or row[0] is None:
            return None
        return Head(row[0], "VIEW" if row[1] == "VIEW" else "TABLE", row[2])

    async def find_kind(self, key: Key) -> Kind | None:
        row = await self._row("find_type", named(key))
        return None if row is None else ("VIEW" if row[0] == "VIEW" else "TABLE")

    async def find_twin(self, key: Key) -> tuple[str, str] | None:
        row = await self._row("find_twin", named(key))
        return None if row is None else (row[0], row[1])

    async def list_heads(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, head: str
    ) -> tuple[str, str | None, bool]:
        values = {"catalog": catalog, "namespace": namespace, "type": kind, "after": after}
        text, last, more = await self._row("list_heads", {**values, "limit": limit, "head": head})
        return text or "", last, more

    async def search_heads(
        self, catalog: str, query: str, kind: Kind | None, limit: int
    ) -> list[tuple[Kind, str, str]]:
        values = {"catalog": catalog, "query": query, "type": kind, "limit": limit}
        return [(row[0], row[1], row[2]) for row in await self._rows("search_heads", values)]

    async def namespace_exists(self, catalog: str, namespace: str) -> bool:
        row = await self._row("namespace_exists", {"catalog": catalog, "namespace": namespace})
        return bool(row[0])

    async def find_namespace(self, catalog: str, namespace: str) -> dict[str, str] | None:
        rows = await self._rows("namespace_properties", {"catalog": catalog, "namespace": namespace})
        if not rows and not await self.namespace_exists(catalog, namespace):
            return None
        return {row[0]: row[1] for row in rows if row[0] != "exists"}

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        return await postgres_changes.list_namespaces(self._rows, catalog, parent, after, limit)

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        rows = await self._rows("tables_writing_to", {"places": list(places)})
        return [Key(row[0], row[1], row[2]) for row in rows]

    async def overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        return await postgres_changes.overlapping(self._rows, location, ancestors)

    async def find_commit(self, table_uuid: str, snapshot_id: int, request_hash: bytes) -> bool:
        values = {"uuid": table_uuid, "snapshot_id": snapshot_id, "request_hash": request_hash}
        return await self._row("find_commit", values) is not None

    async def find_answer(self, principal: str, key: str, now_ms: int) -> SavedAnswer | None:
        row = await self._row("find_answer", {"principal": principal, "key": key, "now_ms": now_ms})
        return None if row is None else SavedAnswer(row[0], Answer(row[1], row[2], row[3]))

    async def next_job(self, now_ms: int) -> Job | None:
        row = await self._row("next_job", {"now_ms": now_ms})
        return None if row is None else Job(row[0], row[1], row[2], row[3])

    async def next_job_time(self) -> int | None:
        row = await self._row("next_job_time", {})
        due_ms: int | None = row[0]
        return due_ms

    async def secret(self, name: str) -> bytes:
        row = await self._row("find_secret", {"name": name})
        if row is None:
            await self.apply([SaveSecret(name, secrets.token_bytes(32))])
            row = await self._row("find_secret", {"name": name})
        value: bytes = row[0]
        return value

    async def check(self) -> None:
        await self.apply([ForgetAnswers(0)])

    async def close(self) -> None:
        self._closing = True
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._connections.close()


async def open_store(url: str, *, pool_size: int = POOL_SIZE) -> PostgresStore:
    """The store at `postgresql://…`, its schema brought to this version; NotInstalled or ServiceUnavailable."""
    connections = Connections(url, numbered_all(read_statements("postgres")), pool_size)
    await _migrate(connections)
    return PostgresStore(connections)


async def migrate_url(url: str) -> list[str]:
    """Bring the database to this version's schema; returns the names of the migrations applied."""
    return await _migrate(Connections(url, numbered_all(read_statements("postgres")), 1))


async def _migrate(connections: Connections) -> list[str]:
    """Apply what is missing, each migration in a transaction of its own; of several servers that start, one does it."""
    session = await connections.open()
    fresh: list[str] = []
    try:
        for number, name, sql in read_migrations("postgres"):
            await session.script(postgres_changes.begin_sql([MIGRATION_LOCK]))
            await session.script(
                "CREATE TABLE IF NOT EXISTS nunatak_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
            )
            applied = await session.connection.fetchval("SELECT 1 FROM nunatak_migrations WHERE number = $1", number)
            if applied is None:
                await session.script(sql)
                await session.connection.execute("INSERT INTO nunatak_migrations VALUES ($1, $2)", number, name)
                fresh.append(name)
            await session.script("COMMIT")
        await session.connection.close()
    except Exception as error:
        raise refusal(error) from error
    finally:
        session.end()  # whatever was not committed is rolled back, and no lock stays
    return fresh


def _commit_ids(changes: Sequence[Change]) -> list[str]:
    """By which the log knows this change, if it happened."""
    logged = (InsertHead, MoveHead, DeleteHead, RenameHead)
    return [change.entry.commit_id for change in changes if isinstance(change, logged)]


def _repeatable(changes: Sequence[Change]) -> bool:
    """Whether doing it twice does no more harm than once."""
    return not any(isinstance(change, CreateNamespace | DropNamespace) for change in changes)


async def _outcome(session: Session, lost: Session, changes: Sequence[Change], transaction: str | None) -> bool | None:
    """Whether the change happened, or None while the lost session may still make it happen."""
    # First whether it is gone, then what it left: the other way round it could commit in between, unseen.
    gone = await session.row("end_session", {"pid": lost.pid, "started": lost.started}) is None
    commit_ids = _commit_ids(changes)
    if commit_ids:
        (found,) = await session.row("commits_found", {"commit_ids": commit_ids})
        return True if found else (False if gone else None)
    if transaction is None:
        return False if gone else None  # repeatable: done again, whatever became of it
    (status,) = await session.row("transaction_outcome", {"transaction": transaction})
    return {"committed": True, "aborted": False}.get(status)


async def _roll_back(session: Session) -> None:
    """A session that cannot is ended: the server rolls back by itself."""
    if session.connection.is_in_transaction():
        try:
            await session.script("ROLLBACK")
        except Exception:
            session.end()
