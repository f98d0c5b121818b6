"""The connection pool for PostgreSQL: a bounded number of sessions, opened on demand, and their errors."""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from operator import itemgetter
from typing import Any, TypeVar

from nunatak.database.changes import NO_RESULT, ConstraintViolation, Result, Step, Steps, constraint_violation
from nunatak.database.refusals import key_taken
from nunatak.database.statements import number_parameters, read_covered, read_statements, returns_rows
from nunatak.errors import BadRequest, CatalogError, InternalError, ServiceUnavailable

try:
    import asyncpg  # type: ignore[import-untyped]
    from asyncpg import TargetServerAttributeNotMatched as NoneFits  # no host of the URL is writable now
except ModuleNotFoundError:  # pragma: no cover - the extra `postgres` brings it
    asyncpg = None

log = logging.getLogger(__name__)

T = TypeVar("T")

POOL_SIZE = 10  # more than about five sessions per database core make it slower
CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 30.0  # without a response for this long, the connection counts as lost
WAIT_SECONDS = 10.0  # for a session, when all are in use
SETTINGS = {
    "application_name": "nunatak",
    # Overrides the database's default: compare-and-swap and unique constraints are designed for this level.
    "default_transaction_isolation": "read committed",
    "lock_timeout": "10s",
    "statement_timeout": "20s",  # shorter than COMMAND_SECONDS, so that the server reports that nothing was applied
    "idle_in_transaction_session_timeout": "30s",  # a transaction is never idle between statements for long
    # The database must not keep the sessions of a server that lost its network for hours.
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "jit": "off",  # no statement runs long enough for compilation to pay off
}
_BUSY = {"53", "55", "57", "25", "58"}  # classes of SQLSTATE: resources, locks, operators, read-only, system errors
NOT_NULL_VIOLATION, LOCK_NOT_AVAILABLE = "23502", "55P03"
KEYS = "nunatak_idempotency"
_UNREADABLE = {"22001", "22021", "22P05"}  # too long for its column, or a character that PostgreSQL cannot store

# By name: the SQL, its parameter names, whether it returns rows, and the later steps whose work it includes.
Statements = Mapping[str, tuple[str, tuple[str, ...], bool, frozenset[str]]]


class PostgresNotInstalled(Exception):
    """The driver is missing; the extra `postgres` installs it."""


def postgres_statements() -> Statements:
    covered = read_covered("postgres")
    return {
        name: (*number_parameters(sql), returns_rows(sql), covered.get(name, frozenset()))
        for name, sql in read_statements("postgres").items()
    }


class PostgresSession:
    """One connection; `pid` and `started` identify its server process after the connection is lost."""

    __slots__ = ("_statements", "connection", "pid", "started")

    def __init__(self, connection: Any, statements: Statements, pid: int, started: datetime) -> None:
        self.connection = connection
        self._statements = statements
        self.pid = pid
        self.started = started

    async def row(self, name: str, values: Mapping[str, object]) -> Any:
        """Returns the first row, or None."""
        sql, names, *_ = self._statements[name]
        return await self.connection.fetchrow(sql, *[values[each] for each in names])

    async def rows(self, name: str, values: Mapping[str, object]) -> list[Any]:
        sql, names, *_ = self._statements[name]
        found: list[Any] = await self.connection.fetch(sql, *[values[each] for each in names])
        return found

    async def run(self, name: str, values: Mapping[str, object]) -> int:
        """Runs a statement; returns the number of rows it changed."""
        sql, names, *_ = self._statements[name]
        tag: str = await self.connection.execute(sql, *[values[each] for each in names])
        return int(tag.rpartition(" ")[2])

    async def batch(self, steps: Sequence[Step]) -> list[Result]:
        """Runs the named statements in order: one round trip for each that no earlier statement covers.

        Consecutive uses of the same writing statement are sent together (executemany) and have no result.
        """
        results: list[Result] = []
        covered: set[str] = set()
        for name, group in itertools.groupby(steps, key=itemgetter(0)):
            many = [values for _, values in group]
            sql, names, reads, covers = ("", (), False, frozenset()) if name in covered else self._statements[name]
            if not sql:
                results += [NO_RESULT] * len(many)
                continue
            covered |= covers
            if len(many) > 1 and not reads:
                await self.connection.executemany(sql, [[values[each] for each in names] for values in many])
                results += [NO_RESULT] * len(many)
                continue
            for values in many:
                if reads:
                    rows = await self.rows(name, values)
                    results.append(Result(len(rows), rows))
                else:
                    results.append(Result(await self.run(name, values), ()))
        return results

    async def drive(self, steps: Steps[T]) -> T:
        """Runs a generator of `changes` to its end."""
        try:
            batch = next(steps)
            while True:
                try:
                    results = await self.batch(batch)
                except asyncpg.UniqueViolationError as error:
                    batch = steps.throw(constraint_violation(error))
                else:
                    batch = steps.send(results)
        except StopIteration as done:
            value: T = done.value
            return value
        except ConstraintViolation as unexpected:
            raise unexpected.__cause__ or unexpected from None

    async def script(self, sql: str) -> str:
        """Runs one or several statements without parameters; returns the command tag of the last."""
        tag: str = await self.connection.execute(sql)
        return tag

    def end(self) -> None:
        """Closes the socket without a message to the server, which may not respond."""
        self.connection.terminate()

    def usable(self) -> bool:
        return not self.connection.is_closed() and not self.connection.is_in_transaction()


class PostgresConnections:
    """A pool of at most `size` sessions; a session is reused as it is, without a reset, which saves a round trip."""

    def __init__(self, url: str, statements: Statements, size: int, settings: Mapping[str, str] = {}) -> None:
        if asyncpg is None:
            raise PostgresNotInstalled("PostgreSQL needs a driver: pip install 'nunatak[postgres]'")
        self._url = url
        self._statements = statements
        self._settings = {**SETTINGS, **settings}
        self.size = self._free = size
        self._closed = False
        self._idle: list[PostgresSession] = []
        self._waiting: deque[asyncio.Future[PostgresSession | None]] = deque()

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def in_use(self) -> int:
        return self.size - self._free - len(self._idle)

    @property
    def waiting(self) -> int:
        """The number of callers that wait for a session."""
        return sum(not future.done() for future in self._waiting)

    async def open(self) -> PostgresSession:
        """Opens a session outside the pool; raises ServiceUnavailable if the server cannot be reached."""
        connection = None
        try:
            connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                statement_cache_size=256,
                max_cached_statement_lifetime=0,
                server_settings=self._settings,
            )
            sql, *_ = self._statements["describe_session"]
            pid, started, durability = await connection.fetchrow(sql)
            if durability == "off":
                # An acknowledged commit must survive a crash of the database.
                await connection.execute("SET synchronous_commit = on")
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, NoneFits) as error:
            if connection is not None:
                connection.terminate()
            raise ServiceUnavailable(f"Cannot connect to PostgreSQL: {error or 'it did not answer'}") from error
        return PostgresSession(connection, self._statements, pid, started)

    async def take(self) -> PostgresSession:
        """Takes a session of the pool, to be returned with `give_back`; waits up to WAIT_SECONDS."""
        while self._idle:
            session = self._idle.pop()  # the one used last, so that surplus sessions stay idle
            if session.usable():
                return session
            self._free += 1
        if self._free == 0:
            given = await self._wait()
            if given is not None:
                return given
        else:
            self._free -= 1
        try:
            return await self.open()
        except BaseException:
            self._release()
            raise

    async def _wait(self) -> PostgresSession | None:
        """Waits for a session that is given back; None if the caller may open a new one."""
        future: asyncio.Future[PostgresSession | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await future
        except BaseException as error:
            if future.done() and not future.cancelled():  # handed over in the moment of the timeout or cancellation
                given = future.result()
                if given is None:
                    self._release()
                else:
                    self.give_back(given)
            if isinstance(error, TimeoutError):
                raise ServiceUnavailable("The database is busy: no connection became free in time") from error
            raise

    def give_back(self, session: PostgresSession) -> None:
        """Returns a session to the pool; closes one that is in a transaction, which the server then rolls back."""
        if self._closed or not session.usable():
            session.end()
            self._release()
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(session)
        else:
            self._idle.append(session)

    def forget_idle(self) -> None:
        """Closes all idle sessions: after one was lost, the others most likely are, too."""
        while self._idle:
            self._idle.pop().end()
            self._release()

    def _release(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(None)
        else:
            self._free += 1

    def _next_waiter(self) -> "asyncio.Future[PostgresSession | None] | None":
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    async def close(self) -> None:
        """Closes idle sessions now, and those in use when they are given back."""
        self._closed = True
        while self._idle:
            session = self._idle.pop()
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await session.connection.close(timeout=CONNECT_SECONDS)
            session.end()


def lock_number(name: str) -> int:
    """Returns the number of an advisory lock; a hash collision only makes unrelated transactions wait."""
    return int.from_bytes(sha256(f"nunatak {name}".encode()).digest()[:8], "big", signed=True)


def sqlstate_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException, session: PostgresSession) -> bool:
    """Whether the connection broke, so that the outcome of the last statement is unknown.

    Only severity ERROR is certain: with FATAL the server may end a session after a commit, before it responds.
    """
    if isinstance(error, asyncpg.PostgresError):
        return (
            getattr(error, "severity_en", "ERROR") in {"FATAL", "PANIC"}
            or sqlstate_of(error).startswith(("08", "57P"))
            or session.connection.is_closed()
        )
    # A value that cannot be encoded raises before anything is sent; the connection stays usable.
    return not isinstance(error, asyncpg.InterfaceError | ValueError) or session.connection.is_closed()


def _is_about_a_key(error: BaseException, state: str) -> bool:
    """Whether `commit_pointer` found the idempotency key taken, or locked by another transaction."""
    if state == NOT_NULL_VIOLATION:
        return getattr(error, "table_name", None) == KEYS
    return state == LOCK_NOT_AVAILABLE and KEYS in (getattr(error, "context", None) or "")


def refusal(error: BaseException) -> CatalogError:
    """Translates an error after which nothing was applied."""
    state = sqlstate_of(error)
    if _is_about_a_key(error, state):
        return key_taken()
    if state in _UNREADABLE:
        return BadRequest(f"PostgreSQL cannot store a value of this request: {error}")
    if not isinstance(error, asyncpg.PostgresError) or state[:2] in _BUSY | {"08"}:
        if isinstance(error, asyncpg.InterfaceError | ValueError):
            return InternalError(f"PostgreSQL rejected the statement: {error}")
        return ServiceUnavailable(f"PostgreSQL is unavailable: {error or 'it did not answer'}")
    return InternalError(f"PostgreSQL refused the request: {error}")
