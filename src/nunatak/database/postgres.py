"""The PostgreSQL store: several servers may share a database; concurrent commits and lookups are sent in batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from nunatak.database.batches import Batches, Member
from nunatak.database.bindings import commit_values
from nunatak.database.changes import Steps
from nunatak.database.changes import why_not_moved as why_one_not_moved
from nunatak.database.namespace_children import at_once
from nunatak.database.postgres_batches import (
    Lookup,
    claims_of,
    commit_together,
    find_batch,
    may_share_batch,
    why_not_moved,
)
from nunatak.database.postgres_connections import (
    POOL_SIZE,
    PostgresConnections,
    PostgresSession,
    is_lost,
    lock_number,
    postgres_statements,
    refusal,
    sqlstate_of,
)
from nunatak.database.postgres_migrations import migrate
from nunatak.database.records import Change, CreateNamespace, DropNamespace, Key, Kind, Pointer, Write
from nunatak.database.server_store import UNCONFIRMED, Attempt, ServerStore, Unanswered, Undone
from nunatak.database.transactions import commit_ids_of, is_plain_commit, locks_for, plain_commit_of, pointers_to_lock
from nunatak.errors import BadRequest, CatalogError, InternalError, OutcomeUnknown

log = logging.getLogger(__name__)

T = TypeVar("T")

REPEATED = {"40001", "40P01"}  # serialization failure and deadlock: rolled back, and worth a retry
MAX_BATCH_SIZE = 64  # beyond this the cost per member hardly falls, and every member waits for the whole statement
MAX_IN_FLIGHT = 4  # batches of each kind; fewer in flight make each batch larger
BATCH_SETTINGS = {
    "lock_timeout": "100ms",  # a commit that waits longer is retried alone, so that the rest of the batch does not wait
    # Each statement finds its rows by an index: the plan is cached, and must stay right when the tables have grown.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


class PostgresStore(ServerStore):
    """The Store on a PostgreSQL database; made by `open_store`."""

    def __init__(
        self, connections: PostgresConnections, batch_connections: PostgresConnections, in_flight: int
    ) -> None:
        super().__init__(at_once)
        self._connections = connections
        self._batch_connections = batch_connections  # never exhausted: as many as batches in flight
        self._lookups: Batches[Lookup, Pointer | None] = Batches(
            self._find_pointers, largest=MAX_BATCH_SIZE, in_flight=in_flight
        )
        self._commits: Batches[Sequence[Change], list[object]] = Batches(
            self._commit_pointers, largest=MAX_BATCH_SIZE, in_flight=in_flight
        )

    @property
    def counts(self) -> dict[str, int]:
        """Counters since the start, and the current state of the connection pools."""
        pools = (self._connections, self._batch_connections)
        return self._counts | {
            "lookup batch": self._lookups.sent,
            "lookup member": self._lookups.members,
            "commit batch": self._commits.sent,
            "commit member": self._commits.members,
            "connection in use": sum(pool.in_use for pool in pools),
            "connection idle": sum(pool.idle for pool in pools),
            "connection awaited": sum(pool.waiting for pool in pools),
            "connection limit": sum(pool.size for pool in pools),
        }

    # Writing

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        if self._closing or not may_share_batch(changes):
            return await super().apply(changes)
        self._counts["transaction"] += 1
        return await self._commits.ask(changes, claims_of(changes))

    async def _commit_pointers(self, members: list[Member[Sequence[Change], list[object]]]) -> None:
        """Commits plain commits in one statement; retries each member alone that the statement does not settle."""
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
            else:  # a deadlock, a lock timeout, a value that cannot be stored: nothing was applied
                self._go_alone(members)
        finally:
            self._batch_connections.give_back(session)

    async def _explain(self, session: PostgresSession, losers: list[Member[Sequence[Change], list[object]]]) -> None:
        """Settles the commits whose pointer did not move with the reason; retries alone those without one."""
        try:
            reasons = await why_not_moved(session, [plain_commit_of(loser.asked) for loser in losers])
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

    async def _ask_after(
        self, lost: PostgresSession, members: Sequence[Member[Sequence[Change], list[object]]]
    ) -> None:
        """Finds in the commit log which commits of a batch took effect after its connection was lost."""
        ids = [plain_commit_of(member.asked).entry.commit_id for member in members]
        found = await self._resolve(partial(self._in_new_session, partial(_commits_found, lost=lost, commit_ids=ids)))
        for member, commit_id in zip(members, ids, strict=True):
            if found is None:
                member.settle(OutcomeUnknown(UNCONFIRMED))
            elif commit_id in found:
                member.settle([None] * len(member.asked))
            else:
                self._go_alone([member])

    async def _try(self, changes: Sequence[Change]) -> list[object]:
        session = await self._connections.take()
        attempt = Attempt([None] * len(changes))
        try:
            await self._attempt(session, changes, attempt)
        except asyncio.CancelledError:
            session.end()
            raise
        except Exception as error:
            lost = not isinstance(error, CatalogError) and is_lost(error, session)
            if lost:
                self._lost(session)
            else:
                await _roll_back(session)
            failure = self._failure(error, attempt, session, lost=lost)
            if failure is error:
                raise
            raise failure from error
        finally:
            self._connections.give_back(session)
        return attempt.results

    async def _attempt(self, session: PostgresSession, changes: Sequence[Change], attempt: Attempt) -> None:
        if is_plain_commit(changes):
            # The statement is its own transaction: if the connection is lost, it may have been committed.
            attempt.committing = True
            moved = await session.row("commit_pointer", commit_values(changes))
            attempt.committing = False
            if moved is None:
                raise await session.drive(why_one_not_moved(plain_commit_of(changes)))
            return
        await session.script(begin_sql(changes))
        if keys := pointers_to_lock(changes):
            columns = zip(*((key.catalog, key.namespace, key.name) for key in keys), strict=True)
            await session.rows("lock_pointers", dict(zip(("catalogs", "namespaces", "names"), columns, strict=True)))
        attempt.results = [await session.drive(self._steps[type(change)](change)) for change in changes]
        if self._must_be_told_apart(changes):
            (attempt.transaction,) = await session.row("this_transaction", {})
        attempt.committing = True
        await session.script("COMMIT")

    async def _find_outcome(self, changes: Sequence[Change], unanswered: Unanswered) -> bool | None:
        transaction = unanswered.attempt.transaction
        question = partial(_outcome, lost=unanswered.lost, changes=changes, transaction=transaction)
        return await self._in_new_session(question)

    async def _end_lost(self, lost: PostgresSession) -> None:
        try:
            await self._in_new_session(partial(_is_gone, lost=lost))
        except Exception:
            log.warning("ending a lost session failed", exc_info=True)

    async def _in_new_session(self, question: Callable[[PostgresSession], Awaitable[T]]) -> T:
        session = await self._connections.open()
        try:
            return await question(session)
        finally:
            session.end()

    def _is_worth_another_try(self, error: BaseException) -> bool:
        return sqlstate_of(error) in REPEATED

    def _refusal(self, error: BaseException) -> CatalogError:
        return refusal(error)

    def _lost(self, session: PostgresSession) -> None:
        session.end()
        self._connections.forget_idle()
        self._batch_connections.forget_idle()

    # Reading

    async def _read_once(
        self, connections: PostgresConnections, question: Callable[[PostgresSession], Awaitable[T]]
    ) -> T:
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
            raise Undone from error
        finally:
            connections.give_back(session)

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._ask(partial(self._read_once, self._connections, lambda session: session.drive(steps())))

    async def rows(self, statement: str, values: Mapping[str, object]) -> list[Any]:
        question = partial(PostgresSession.rows, name=statement, values=values)
        return await self._ask(partial(self._read_once, self._connections, question))

    async def find_pointer(self, key: Key, known: str | None) -> Pointer | None:
        if self._lookups.idle:
            (pointer,) = await self._lookups.alone(self._find_batch([(key, known)]))
            return pointer
        return await self._lookups.ask((key, known))

    async def _find_batch(self, asked: list[Lookup]) -> list[Pointer | None]:
        question = partial(find_batch, asked=asked)
        return await self._ask(partial(self._read_once, self._batch_connections, question))

    async def _find_pointers(self, members: list[Member[Lookup, Pointer | None]]) -> None:
        asked = list(dict.fromkeys(member.asked for member in members))
        try:
            pointers = await self._find_batch(asked)
        except (BadRequest, InternalError) as error:
            if len(members) == 1:
                members[0].settle(error)
            else:
                for member in members:  # one name that PostgreSQL cannot encode fails the whole batch
                    await self._find_pointers([member])
            return
        found = dict(zip(asked, pointers, strict=True))
        for member in members:
            member.settle(found[member.asked])

    async def list_pointers(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, prefix: str
    ) -> tuple[str, str | None, bool]:
        values = {"catalog": catalog, "namespace": namespace, "type": kind, "after": after}
        text, last, more = await self._row("list_pointers", {**values, "limit": limit, "prefix": prefix})
        return text or "", last, more

    async def close(self) -> None:
        self._closing = True
        await self._commits.drain()
        await self._finish_work()
        await self._connections.close()
        await self._batch_connections.close()


async def open_store(url: str, *, pool_size: int = POOL_SIZE) -> PostgresStore:
    """Opens the store at `postgresql://…` and migrates it; raises PostgresNotInstalled or ServiceUnavailable."""
    statements = postgres_statements()
    in_flight = max(1, min(MAX_IN_FLIGHT, pool_size // 5))
    connections = PostgresConnections(url, statements, max(1, pool_size - 2 * in_flight))
    await migrate(connections)
    return PostgresStore(connections, PostgresConnections(url, statements, 2 * in_flight, BATCH_SETTINGS), in_flight)


async def migrate_url(url: str) -> list[str]:
    """Migrates the database to this version's schema; returns the names of the migrations applied."""
    return await migrate(PostgresConnections(url, postgres_statements(), 1))


def begin_sql(changes: Sequence[Change]) -> str:
    """Returns the SQL that begins the transaction and takes its advisory locks, in one round trip."""
    # Sorted by number, as servers of earlier versions do: one order for all servers prevents deadlocks.
    locks = sorted(lock_number(name) for name in locks_for(changes))
    taken = [f"SELECT pg_advisory_xact_lock({number})" for number in locks]
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *taken])


async def _commits_found(session: PostgresSession, lost: PostgresSession, commit_ids: Sequence[str]) -> set[str] | None:
    """Returns the ids that were committed, or None while the lost session may still commit; it commits all at once."""
    # Check first that the session is gone, then the log: in the other order it could commit in between.
    gone = await _is_gone(session, lost)
    found = {commit_id for (commit_id,) in await session.rows("commits_found", {"commit_ids": commit_ids})}
    return found if found or gone else None


async def _is_gone(session: PostgresSession, lost: PostgresSession) -> bool:
    return await session.row("end_session", {"pid": lost.pid, "started": lost.started}) is None


async def _outcome(
    session: PostgresSession, lost: PostgresSession, changes: Sequence[Change], transaction: str | None
) -> bool | None:
    """Returns whether the changes were committed, or None while the lost session may still commit them."""
    commit_ids = commit_ids_of(changes)
    if commit_ids:
        found = await _commits_found(session, lost, commit_ids)
        return None if found is None else bool(found)
    if transaction is None:
        return False if await _is_gone(session, lost) else None  # idempotent: safe to repeat
    await _is_gone(session, lost)
    (status,) = await session.row("transaction_outcome", {"transaction": transaction})
    # After a crash PostgreSQL may reuse the id of a transaction that never reached the disk.
    if status == "committed" and not await _is_seen(session, changes):
        return None
    return {"committed": True, "aborted": False}.get(status)


async def _is_seen(session: PostgresSession, changes: Sequence[Change]) -> bool:
    """Whether the effects of these changes are visible: their audit rows or, without any, the state of namespaces."""
    rows = [change for change in changes if isinstance(change, Write) and change.statement == "add_audit"]
    if rows:
        return all([await session.row("audit_found", row.values) is not None for row in rows])
    for change in changes:
        if isinstance(change, CreateNamespace | DropNamespace):
            where = {"catalog": change.catalog, "namespace": change.namespace}
            (there,) = await session.row("namespace_exists", where)
            if there != isinstance(change, CreateNamespace):
                return False
    return True


async def _roll_back(session: PostgresSession) -> None:
    """Rolls back; ends the session if that fails, upon which the server rolls back."""
    if session.connection.is_in_transaction():
        try:
            await session.script("ROLLBACK")
        except Exception:
            session.end()
