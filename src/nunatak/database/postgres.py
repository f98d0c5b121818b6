"""PostgreSQL: any number of servers on one database; a commit is one statement, a lost connection is asked after."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from nunatak.database import postgres_changes
from nunatak.database.batches import Batches, Member
from nunatak.database.postgres_batches import (
    Lookup,
    claims_of,
    commit_together,
    find_together,
    may_go_together,
    moved_by,
    why_not_moved,
)
from nunatak.database.postgres_connections import (
    POOL_SIZE,
    Connections,
    Session,
    is_lost,
    numbered_all,
    refusal,
    sqlstate_of,
)
from nunatak.database.postgres_migrations import migrate
from nunatak.database.records import (
    Change,
    CreateNamespace,
    DropNamespace,
    Head,
    Key,
    Kind,
    MoveHead,
    Neighbour,
    Write,
)
from nunatak.database.server_reads import ServerReads, commit_ids_of
from nunatak.database.statements import read_statements
from nunatak.database.store import KeyTaken
from nunatak.errors import BadRequest, CatalogError, InternalError, OutcomeUnknown, ServiceUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 10  # for a change that a deadlock or a lost connection undid, before the caller is told to come back later
READ_TRIES = 3  # a server that restarts ends sessions more than once
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5
RESOLVE_SECONDS = 5.0  # to find out what became of a commit whose answer was lost
RESOLVE_PAUSE_SECONDS = 0.05
REPEATED = {"40001", "40P01"}  # serialization failure and deadlock: undone, and worth another try
LARGEST_BATCH = 64  # beyond this a statement's share per member hardly falls, and its members wait for all of it
MOST_IN_FLIGHT = 4  # batches of each kind; with fewer on their way, each is larger
BATCH_SETTINGS = {
    "lock_timeout": "100ms",  # a commit that has to wait longer does so outside, lest others wait behind it
    # Each statement finds its rows by an index; a plan is made once, and must hold when the tables have grown.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


UNCONFIRMED = "The database did not confirm the commit and cannot be asked now"


class _Undone(Exception):
    """Certain that nothing of the change was applied, and that trying again may help."""


class _Unanswered(Exception):
    """The connection was lost when the commit may have happened; `results` are those it would have."""

    def __init__(self, results: list[object], transaction: str | None) -> None:
        super().__init__("the commit was not answered")
        self.results = results
        self.transaction = transaction


class PostgresStore(ServerReads):
    """The Store on a PostgreSQL database; made by `open_store`."""

    def __init__(self, connections: Connections, batch_connections: Connections, in_flight: int) -> None:
        self._counts = {"read": 0, "transaction": 0, "group": 0, "retry": 0}
        self._connections = connections
        self._batch_connections = batch_connections  # never all taken: there are as many as batches on their way
        self._heads: Batches[Lookup, Head | None] = Batches(
            self._find_heads, largest=LARGEST_BATCH, in_flight=in_flight
        )
        self._commits: Batches[Sequence[Change], list[object]] = Batches(
            self._commit_heads, largest=LARGEST_BATCH, in_flight=in_flight
        )
        self._working: set[asyncio.Task[Any]] = set()
        self._closing = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far, and how the connections stand now."""
        pools = (self._connections, self._batch_connections)
        return self._counts | {
            "lookup batch": self._heads.sent,
            "lookup member": self._heads.members,
            "commit batch": self._commits.sent,
            "commit member": self._commits.members,
            "connection in use": sum(pool.in_use for pool in pools),
            "connection idle": sum(pool.idle for pool in pools),
            "connection awaited": sum(pool.waiting for pool in pools),
            "connection limit": sum(pool.size for pool in pools),
        }

    # Writing

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        if self._closing:
            raise ServiceUnavailable("The server is stopping.")
        self._counts["transaction"] += 1
        # A caller that goes away cancels only its own waiting: what was begun is carried out.
        if may_go_together(changes):
            return await self._commits.ask(changes, claims_of(changes))
        return await asyncio.shield(self._begin(self._apply(changes)))

    def _begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    async def _commit_heads(self, members: list[Member[Sequence[Change], list[object]]]) -> None:
        """Plain commits in one statement. Whoever it does not settle goes on alone, in nobody's way."""
        session = await self._batch_connections.take()
        try:
            moved = await commit_together(session, [member.asked for member in members])
            self._counts["group"] += 1
            for number in moved:
                members[number].settle([None] * len(members[number].asked))
            if len(moved) < len(members):
                await self._explain(session, [each for number, each in enumerate(members) if number not in moved])
        except asyncio.CancelledError:
            session.end()
            raise
        except Exception as error:
            if is_lost(error, session):
                self._lost(session)
                self._begin(self._ask_after(session, members))
            else:  # a deadlock, a lock that was not given, a value that cannot be kept: nothing was applied
                self._go_alone(members)
        finally:
            self._batch_connections.give_back(session)

    async def _explain(self, session: Session, losers: list[Member[Sequence[Change], list[object]]]) -> None:
        """Tell those who were not moved why; who could be now, or cannot be told, goes alone."""
        try:
            reasons = await why_not_moved(session, [moved_by(loser.asked) for loser in losers])
        except Exception as error:
            if is_lost(error, session):
                self._lost(session)
            self._go_alone(losers)
            return
        for loser, reason in zip(losers, reasons, strict=True):
            if reason is None:
                self._go_alone([loser])
            else:
                loser.settle(reason)

    def _go_alone(self, members: Sequence[Member[Sequence[Change], list[object]]]) -> None:
        self._counts["retry"] += len(members)
        for member in members:
            self._begin(self._settle(member))

    async def _settle(self, member: Member[Sequence[Change], list[object]]) -> None:
        try:
            member.settle(await self._apply(member.asked))
        except Exception as error:
            member.settle(error)

    async def _ask_after(self, lost: Session, members: Sequence[Member[Sequence[Change], list[object]]]) -> None:
        """The connection was lost when all of them may have been committed: the log knows which were."""
        ids = [moved_by(member.asked).entry.commit_id for member in members]
        found = await self._resolve(partial(_commits_found, lost=lost, commit_ids=ids))
        for member, commit_id in zip(members, ids, strict=True):
            if found is None:
                member.settle(OutcomeUnknown(UNCONFIRMED))
            elif commit_id in found:
                member.settle([None] * len(member.asked))
            else:
                self._go_alone([member])

    async def _apply(self, changes: Sequence[Change]) -> list[object]:
        cause: BaseException | None = None
        for attempt in range(TRIES):
            if attempt:
                self._counts["retry"] += 1
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            session = await self._connections.take()
            try:
                return await self._attempt(session, changes)
            except _Undone as undone:
                cause = undone.__cause__
                if session.connection.is_closed():
                    await self._abandon(session)
            except _Unanswered as lost:
                question = partial(_outcome, lost=session, changes=changes, transaction=lost.transaction)
                happened = await self._resolve(question)
                if happened:
                    return lost.results
                if happened is None:
                    raise OutcomeUnknown(UNCONFIRMED) from lost
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
                if not commit_ids_of(changes) and not _repeatable(changes):
                    (transaction,) = await session.row("this_transaction", {})
                committing = True
                await session.script("COMMIT")
            self._counts["group"] += 1
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
            if refused.status >= 500 and not isinstance(refused, KeyTaken):
                log.exception("a change could not be applied")
            raise refused from error

    async def _resolve(self, question: Callable[[Session], Awaitable[T | None]]) -> T | None:
        """What a new session says of a commit that was not answered; None if it cannot be found out in time."""
        deadline = asyncio.get_running_loop().time() + RESOLVE_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            try:
                session = await self._connections.open()
            except ServiceUnavailable:
                await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
                continue
            try:
                outcome = await question(session)
            except Exception:
                log.warning("asking after a commit failed", exc_info=True)
                outcome = None
            finally:
                session.end()
            if outcome is not None:
                return outcome
            await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
        return None

    async def _abandon(self, lost: Session) -> None:
        """End a session that does not know yet that it was lost: whatever it has locked would stay so."""
        try:
            session = await self._connections.open()
        except ServiceUnavailable:
            return
        try:
            await _is_gone(session, lost)
        except Exception:
            log.warning("ending a lost session failed", exc_info=True)
        finally:
            session.end()

    def _lost(self, session: Session) -> None:
        session.end()
        self._connections.forget_idle()
        self._batch_connections.forget_idle()

    # Reading

    async def _ask(self, connections: Connections, question: Callable[[Session], Awaitable[T]]) -> T:
        """Every read comes through here; one that met a lost session or a conflict is asked again."""
        cause: BaseException | None = None
        for attempt in range(READ_TRIES):
            self._counts["retry"] += attempt > 0
            self._counts["read"] += 1
            session = await connections.take()
            try:
                return await question(session)
            except asyncio.CancelledError:
                session.end()
                raise
            except Exception as error:
                if is_lost(error, session):
                    self._lost(session)
                elif sqlstate_of(error) not in REPEATED:
                    raise refusal(error) from error
                cause = error
            finally:
                connections.give_back(session)
        assert cause is not None
        raise refusal(cause) from cause

    async def _row(self, name: str, values: Mapping[str, object]) -> Any:
        return await self._ask(self._connections, lambda session: session.row(name, values))

    async def _rows(self, name: str, values: Mapping[str, object]) -> list[Any]:
        return await self._ask(self._connections, lambda session: session.rows(name, values))

    async def find_head(self, key: Key, known: str | None) -> Head | None:
        if self._heads.idle:
            (head,) = await self._heads.alone(self._find_together([(key, known)]))
            return head
        return await self._heads.ask((key, known))

    async def _find_together(self, asked: list[Lookup]) -> list[Head | None]:
        return await self._ask(self._batch_connections, lambda session: find_together(session, asked))

    async def _find_heads(self, members: list[Member[Lookup, Head | None]]) -> None:
        asked = list(dict.fromkeys(member.asked for member in members))
        try:
            heads = await self._find_together(asked)
        except (BadRequest, InternalError) as error:
            if len(members) == 1:
                members[0].settle(error)
            else:
                for member in members:  # one name that the database cannot read refuses the question of all
                    await self._find_heads([member])
            return
        found = dict(zip(asked, heads, strict=True))
        for member in members:
            member.settle(found[member.asked])

    async def list_heads(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, head: str
    ) -> tuple[str, str | None, bool]:
        values = {"catalog": catalog, "namespace": namespace, "type": kind, "after": after}
        text, last, more = await self._row("list_heads", {**values, "limit": limit, "head": head})
        return text or "", last, more

    async def namespace_exists(self, catalog: str, namespace: str) -> bool:
        row = await self._row("namespace_exists", {"catalog": catalog, "namespace": namespace})
        return bool(row[0])

    async def list_namespaces(self, catalog: str, parent: str, after: str, limit: int) -> tuple[list[str], str | None]:
        return await postgres_changes.list_namespaces(self._rows, catalog, parent, after, limit)

    async def tables_writing_to(self, places: Sequence[str]) -> list[Key]:
        rows = await self._rows("tables_writing_to", {"places": list(places)})
        return [Key(row[0], row[1], row[2]) for row in rows]

    async def overlapping(self, location: str, ancestors: Sequence[str]) -> list[Neighbour]:
        return await postgres_changes.overlapping(self._rows, location, ancestors)

    async def close(self) -> None:
        self._closing = True
        await self._commits.drain()
        # Of those that are done the set may not have been told yet; waiting for them alone would let nobody tell it.
        while working := [task for task in self._working if not task.done()]:
            await asyncio.gather(*working, return_exceptions=True)
        await self._connections.close()
        await self._batch_connections.close()


async def open_store(url: str, *, pool_size: int = POOL_SIZE) -> PostgresStore:
    """The store at `postgresql://…`, its schema brought to this version; NotInstalled or ServiceUnavailable."""
    statements = numbered_all(read_statements("postgres"))
    in_flight = max(1, min(MOST_IN_FLIGHT, pool_size // 5))
    connections = Connections(url, statements, max(1, pool_size - 2 * in_flight))
    await migrate(connections)
    return PostgresStore(connections, Connections(url, statements, 2 * in_flight, BATCH_SETTINGS), in_flight)


async def migrate_url(url: str) -> list[str]:
    """Bring the database to this version's schema; returns the names of the migrations applied."""
    return await migrate(Connections(url, numbered_all(read_statements("postgres")), 1))


def _repeatable(changes: Sequence[Change]) -> bool:
    """Whether doing it twice does no more harm than once."""
    return not any(isinstance(change, CreateNamespace | DropNamespace | Write) for change in changes)


async def _commits_found(session: Session, lost: Session, commit_ids: Sequence[str]) -> set[str] | None:
    """Those that happened, or None while the lost session may still make them happen; all of them do at once."""
    # First whether it is gone, then what it left: the other way round it could commit in between, unseen.
    gone = await _is_gone(session, lost)
    found = {commit_id for (commit_id,) in await session.rows("commits_found", {"commit_ids": commit_ids})}
    return found if found or gone else None


async def _is_gone(session: Session, lost: Session) -> bool:
    return await session.row("end_session", {"pid": lost.pid, "started": lost.started}) is None


async def _outcome(session: Session, lost: Session, changes: Sequence[Change], transaction: str | None) -> bool | None:
    """Whether the change happened, or None while the lost session may still make it happen."""
    commit_ids = commit_ids_of(changes)
    if commit_ids:
        found = await _commits_found(session, lost, commit_ids)
        return None if found is None else bool(found)
    if transaction is None:
        return False if await _is_gone(session, lost) else None  # repeatable: done again, whatever became of it
    await _is_gone(session, lost)
    (status,) = await session.row("transaction_outcome", {"transaction": transaction})
    # A crash forgets the number of a transaction that left nothing on the disk, and another one may get it.
    if status == "committed" and not await _is_seen(session, changes):
        return None
    return {"committed": True, "aborted": False}.get(status)


async def _is_seen(session: Session, changes: Sequence[Change]) -> bool:
    """Whether what these changes leave is there: their audit rows, which stay, or else their namespaces, or no more."""
    rows = [change for change in changes if isinstance(change, Write) and change.statement == "add_audit"]
    if rows:
        return all([await session.row("audit_found", row.values) is not None for row in rows])
    for change in changes:
        if isinstance(change, CreateNamespace | DropNamespace):
            there = await postgres_changes.namespace_exists(session, change.catalog, change.namespace)
            if there != isinstance(change, CreateNamespace):
                return False
    return True


async def _roll_back(session: Session) -> None:
    """A session that cannot is ended: the server rolls back by itself."""
    if session.connection.is_in_transaction():
        try:
            await session.script("ROLLBACK")
        except Exception:
            session.end()
