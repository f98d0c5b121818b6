"""The SQLite store: reads run in the event loop; writes go through one connection and share commits (group commit).

An in-memory database has no disk to wait for: one connection reads, writes and commits in the event loop.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from nunatak.database import sqlite_writer
from nunatak.database.changes import Result, Step, Steps, drive
from nunatak.database.migration_runner import (
    CREATE_MIGRATIONS,
    Migration,
    MigrationFailed,
    apply_missing,
    migrate_blocking,
    missing_migrations,
)
from nunatak.database.namespace_children import one_by_one
from nunatak.database.reads import StoreReads
from nunatak.database.records import Change, Key, Kind, Pointer
from nunatak.database.statements import read_statements
from nunatak.errors import CatalogError, InternalError, OutcomeUnknown, ServiceUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_LISTS, MAX_KEPT_NAMES = 128, 2000  # bounds the list cache to about 30 MB
GROUP = 256  # most changes that share one fsync; far above what queues up in practice
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "mmap_size=0",
    "temp_store=MEMORY",
    "secure_delete=FAST",  # overwrites deleted content where that costs no further I/O
)
PRAGMA_TRIES, PRAGMA_PAUSE_SECONDS = 100, 0.02
OLDEST_SAFE_SQLITE = 3_051_003  # before it, the WAL could be reset under a reader and the file corrupted


class CannotOpen(Exception):
    """The database file cannot be opened; the message names it and the cause."""


class DatabaseInUse(CannotOpen):
    """Another server process holds the lock of this file."""


class _WaitingChange:
    """Changes that wait for a commit, and the future that gets their outcome."""

    __slots__ = ("changes", "error", "future", "results")

    def __init__(self, changes: Sequence[Change], future: "asyncio.Future[list[object]]") -> None:
        self.changes = changes
        self.future = future
        self.results: list[object] = []
        self.error: BaseException | None = None


_Group = tuple[asyncio.AbstractEventLoop, list[_WaitingChange], Callable[[list[_WaitingChange]], None]]


class SqliteStore(StoreReads):
    """The Store on one SQLite file; `exclusive=False` opens it beside a running server, for reading.

    Without a path the database is in memory and is lost when the store is closed.
    """

    def __init__(self, path: Path | None, *, exclusive: bool = True) -> None:
        if apsw.SQLITE_VERSION_NUMBER < OLDEST_SAFE_SQLITE:
            raise RuntimeError(f"SQLite {apsw.sqlite_lib_version()} can corrupt its log; install apsw 3.51.3 or newer")
        super().__init__(one_by_one)
        self.counts = {"read": 0, "transaction": 0, "group": 0}
        self._statements = read_statements()
        self._in_memory = path is None
        self._lock: int | None = None
        if path is None:
            writer = self._reader = _prepare_connection(apsw.Connection(":memory:", statementcachesize=200))
            migrate(writer)
        else:
            writer = self._open(path, exclusive=exclusive)
            with _translate_open_errors(path):
                self._reader = _connect(path)
        self._execute = self._reader.execute
        self._find_pointer = self._statements["find_pointer"]
        self._writer = sqlite_writer.Writer(writer, self._statements, self._steps)
        self._waiting: list[_WaitingChange] = []
        self._idle = asyncio.Event()  # set while no group is being committed
        self._idle.set()
        self._queue: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()
        self._broken: str | None = None
        self._lists: dict[tuple[object, ...], tuple[object, tuple[str, str | None, bool]]] = {}
        self._thread = threading.Thread(target=self._commit_loop, name="sqlite-writer", daemon=True)
        self._thread.start()

    def _open(self, path: Path, *, exclusive: bool) -> apsw.Connection:
        """Opens the writing connection, migrates the database, and takes the server lock if `exclusive`."""
        with _translate_open_errors(path):
            self._lock = _lock_file(path) if exclusive else None
            writer = _connect(path)
            if exclusive:
                migrate(writer)
                # The lock proves that no other server runs, so all leases are left over from a crash.
                writer.execute(self._statements["end_leases"])
                writer.execute(self._statements["end_reader_leases"])
            elif missing_migrations(_applied_migrations(writer), "sqlite"):
                with server_lock(path):  # an older server that runs now could not restart on the new schema
                    migrate(writer)
        return writer

    # Writing

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        if self._broken is not None:
            raise ServiceUnavailable(self._broken)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[object]] = loop.create_future()
        self.counts["transaction"] += 1
        self._waiting.append(_WaitingChange(changes, future))
        if self._idle.is_set():
            self._idle.clear()
            loop.call_soon(self._next_group, loop)  # changes queued in this loop iteration join the group
        # A cancelled caller cancels only its own wait: queued changes are applied.
        return await future

    def _next_group(self, loop: asyncio.AbstractEventLoop) -> None:
        """Applies the queued changes in the event loop; only the wait for the disk or the write lock needs a thread."""
        group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
        try:
            self._writer.begin_at_once()
        except apsw.BusyError:
            self._queue.put((loop, group, self._begin_and_commit))  # a JDBC client holds the write lock
            return
        except apsw.Error as error:
            _refuse_all(group, error)
            self._settle(loop, group)
            return
        self._apply_group(group)
        if self._in_memory:  # reads share the connection and would see uncommitted changes
            self._commit(group)
            self._settle(loop, group)
        else:
            self._queue.put((loop, group, self._commit))

    def _apply_group(self, group: list[_WaitingChange]) -> None:
        """Applies the changes of a group in one transaction; a refused change does not affect the others."""
        for waiting in group:
            try:
                waiting.results = self._writer.apply_all(waiting.changes)
            except CatalogError as error:
                waiting.error = error
            except apsw.Error as error:
                log.exception("a change could not be applied")
                waiting.error = _translate_error(error)
            except Exception as error:
                log.exception("a change could not be applied")
                waiting.error = InternalError(f"The change could not be applied: {error}")
            if not self._writer.in_transaction:
                # On a full disk SQLite rolls back the whole transaction, with the changes applied before.
                _refuse_all(group, apsw.FullError("the transaction was rolled back"))
                return

    def _commit_loop(self) -> None:
        """Runs in the writer thread, which waits for the disk and has exclusive use of the writing connection."""
        while (work := self._queue.get()) is not None:
            loop, group, finish = work
            finish(group)
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._settle, loop, group)

    def _begin_and_commit(self, group: list[_WaitingChange]) -> None:
        try:
            self._writer.begin_patiently()
        except apsw.Error as error:
            _refuse_all(group, error)
            return
        self._apply_group(group)
        self._commit(group)

    def _commit(self, group: list[_WaitingChange]) -> None:
        if not self._writer.in_transaction:
            return
        self.counts["group"] += 1
        try:
            self._writer.commit()
        except apsw.Error as error:
            log.exception("a group of %d changes could not be committed", len(group))
            for waiting in group:
                if waiting.error is None:
                    waiting.error = _not_committed(error)
            self._writer.roll_back()

    def _settle(self, loop: asyncio.AbstractEventLoop, group: list[_WaitingChange]) -> None:
        """Sets the outcome of each change of the group, then starts the next group if changes are queued."""
        for waiting in group:
            if waiting.future.done():
                continue
            if waiting.error is not None:
                waiting.future.set_exception(waiting.error)
            else:
                waiting.future.set_result(waiting.results)
        if self._waiting:
            loop.call_soon(self._next_group, loop)
        else:
            self._idle.set()

    # Reading

    def _rows_now(self, name: str, values: Mapping[str, object] | tuple[()]) -> list[tuple[Any, ...]]:
        self.counts["read"] += 1
        return self._execute(self._statements[name], values).fetchall()

    async def rows(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return self._rows_now(statement, values)

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        return drive(steps(), self._read_batch, apsw.ConstraintError)

    def _read_batch(self, batch: list[Step]) -> list[Result]:
        return [Result(len(rows), rows) for rows in (self._rows_now(name, values) for name, values in batch)]

    def pointer_now(self, key: Key, known: str | None) -> tuple[str, str | None, bytes | None, int] | None:
        """`find_pointer` for the hot path, synchronous: returns location, kind, stored bytes and policy version."""
        self.counts["read"] += 1
        # Parameters in the order of their first use: a tuple binds faster than named parameters.
        row = self._execute(self._find_pointer, (known, key.catalog, key.namespace, key.name)).fetchone()
        return row if row is not None and row[0] is not None else None

    async def find_pointer(self, key: Key, known: str | None) -> Pointer | None:
        row = self.pointer_now(key, known)
        return None if row is None else Pointer(row[0], "VIEW" if row[1] == "VIEW" else "TABLE", row[2], row[3])

    async def list_pointers(
        self, catalog: str, namespace: str, kind: Kind, after: str, limit: int, prefix: str
    ) -> tuple[str, str | None, bool]:
        # Engines repeat the same list requests; a cache entry is valid until the data version changes.
        version = self._version()
        asked = (catalog, namespace, kind, after, limit)
        kept = self._lists.get(asked)
        if kept is not None and kept[0] == version:
            return kept[1]
        values = {"catalog": catalog, "namespace": namespace, "type": kind, "after": after}
        ((text, count, last),) = self._rows_now("list_pointers", {**values, "limit": limit, "prefix": prefix})
        more = count == limit and self._rows_now("has_pointer_after", {**values, "after": last}) != []
        if len(self._lists) >= KEPT_LISTS:
            self._lists.clear()
        if count <= MAX_KEPT_NAMES:
            self._lists[asked] = (version, (text or "", last, more))
        return text or "", last, more

    def _version(self) -> object:
        """Returns a value that changes with every commit. `data_version` ignores those of the same connection."""
        return self._reader.total_changes() if self._in_memory else self._rows_now("data_version", ())

    async def forget_overwritten(self) -> None:
        """Truncates the WAL, which still holds the old pages; a concurrent reader defers that to the close."""
        self._rows_now("empty_log", {})

    async def close(self) -> None:
        self._broken = "The server is stopping."
        await self._idle.wait()
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._writer.close()
        self._reader.close()
        if self._lock is not None:
            os.close(self._lock)


def _refuse_all(group: list[_WaitingChange], error: apsw.Error) -> None:
    for waiting in group:
        waiting.error = _translate_error(error)


def _not_committed(error: apsw.Error) -> CatalogError:
    """Returns ServiceUnavailable for a full disk: the commit record, which is written last, did not fit in the WAL.

    Any other failure, above all of an fsync, may leave a WAL that a restart treats as committed: OutcomeUnknown.
    """
    if isinstance(error, apsw.FullError):
        return ServiceUnavailable(f"The database cannot be written now: {error}")
    return OutcomeUnknown(f"The database did not confirm the commit: {error}")


def _translate_error(error: apsw.Error) -> CatalogError:
    """Translates the error of a statement before COMMIT: nothing was applied."""
    if isinstance(error, apsw.BusyError | apsw.FullError | apsw.IOError | apsw.ReadOnlyError | apsw.CantOpenError):
        return ServiceUnavailable(f"The database cannot be written now: {error}")
    return InternalError(f"The database refused the change: {error}")


@contextlib.contextmanager
def _translate_open_errors(path: Path) -> Iterator[None]:
    """Translates errors of the system and of SQLite to CannotOpen."""
    try:
        yield
    except (OSError, apsw.Error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise CannotOpen(f"the database {path} cannot be opened: {why}") from error


def _lock_file(path: Path) -> int:
    """Locks a file beside the database for the life of the process; raises DatabaseInUse if another server has it."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DatabaseInUse(f"another server already works on {path}") from error
    return descriptor


def _connect(path: Path) -> apsw.Connection:
    if not path.exists():  # readable by the owner only: it holds secrets; SQLite gives its WAL the same mode
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return _prepare_connection(apsw.Connection(str(path), statementcachesize=200))


def _prepare_connection(connection: apsw.Connection) -> apsw.Connection:
    connection.set_busy_timeout(sqlite_writer.BUSY_MS)
    # Query planner stability: otherwise SQLite may recompile a statement whenever other values are bound.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    for pragma in PRAGMAS:
        _set_pragma(connection, pragma)
    return connection


def _set_pragma(connection: apsw.Connection, pragma: str) -> None:
    """Sets a pragma, with retries: the busy timeout does not cover every switch of a new file to WAL mode."""
    for attempt in range(PRAGMA_TRIES):
        try:
            connection.execute(f"PRAGMA {pragma}").fetchall()
            return
        except apsw.BusyError:
            if attempt == PRAGMA_TRIES - 1:
                raise
            time.sleep(PRAGMA_PAUSE_SECONDS)


def migrate(connection: apsw.Connection) -> list[str]:
    """Applies missing migrations, each in a transaction of its own; returns their names."""
    return migrate_blocking(apply_missing(_applied_migrations(connection), "sqlite"), partial(_apply, connection))


def _apply(connection: apsw.Connection, migration: Migration) -> bool:
    """Applies a migration; returns False if another process has applied it meanwhile."""
    number, name, sql = migration
    try:
        with _transaction(connection):
            if number in _applied_migrations(connection):
                return False
            connection.execute(CREATE_MIGRATIONS.format(text="TEXT")).fetchall()
            _add_missing_type_column(connection)
            connection.execute(sql).fetchall()
            connection.execute("INSERT INTO nunatak_migrations VALUES (?, ?)", (number, name)).fetchall()
    except apsw.Error as error:
        raise MigrationFailed(name, error) from error
    return True


def _applied_migrations(connection: apsw.Connection) -> set[int]:
    """Returns the numbers of the migrations that were applied to the database."""
    made = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'nunatak_migrations'"
    if connection.execute(made).fetchone() is None:
        return set()
    return {row[0] for row in connection.execute("SELECT number FROM nunatak_migrations")}


@contextlib.contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        yield
        connection.execute("COMMIT").fetchall()
    finally:
        if connection.in_transaction:  # some errors, such as a full disk, have already rolled back
            connection.execute("ROLLBACK").fetchall()


def _add_missing_type_column(connection: apsw.Connection) -> None:
    """Adds the `iceberg_type` column to a JDBC catalog from before schema V1, which had no views."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")}
    if columns and "iceberg_type" not in columns:
        connection.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)").fetchall()


@contextlib.contextmanager
def server_lock(path: Path) -> Iterator[None]:
    """Keeps servers off the file; raises DatabaseInUse if one already runs on it."""
    lock = _lock_file(path)
    try:
        yield
    finally:
        os.close(lock)


def migrate_file(path: Path) -> list[str]:
    """Migrates the file at `path` to this version's schema; returns the names of the migrations applied."""
    with _translate_open_errors(path), server_lock(path), contextlib.closing(_connect(path)) as connection:
        return migrate(connection)
