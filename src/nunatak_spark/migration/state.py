"""The state of a migration, and its storage in a folder: an SQLite database, used by one command at a time."""

import contextlib
import fcntl
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import (
    CopiedNamespace,
    Evidence,
    LogEntry,
    Migration,
    MigrationSource,
    MigrationTable,
    State,
    table_title,
)
from nunatak_spark.migration.permissions import map_permissions

FILE, LOCK = "migration.sqlite", "lock"
FORMAT = "1"
SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sources (name TEXT PRIMARY KEY, json BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tables (title TEXT PRIMARY KEY, json BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS namespaces (title TEXT PRIMARY KEY, json BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS evidence (id INTEGER PRIMARY KEY, title TEXT NOT NULL, json BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, json BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS evidence_by_title ON evidence (title);
"""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MigrationState(ABC):
    """The state of one migration; `place` says where it is stored. Every change is stored when the method returns."""

    def __init__(self, place: str, command: str, now_ms: Callable[[], int]) -> None:
        self.place = place
        self._command = command
        self._now_ms = now_ms

    def keep_target(self, uri: str, warehouse: str) -> None:
        """Remember where tables go, the first time; a migration has one target."""
        known = self.find_target()
        if known is None:
            self.save_target(uri, warehouse)
        elif known != (uri, warehouse):
            raise CannotRun(
                f"The migration in {self.place} goes to {_target_text(*known)}, not to {_target_text(uri, warehouse)}",
                fix="Name the same target with --uri and --warehouse, or another place with --state.",
            )

    @abstractmethod
    def save_target(self, uri: str, warehouse: str) -> None: ...

    @abstractmethod
    def find_target(self) -> tuple[str, str] | None: ...

    @abstractmethod
    def save_source(self, source: MigrationSource) -> None: ...

    @abstractmethod
    def list_sources(self) -> list[MigrationSource]: ...

    def load_source(self, name: str) -> MigrationSource:
        (source,) = [each for each in self.list_sources() if each.name == name]
        return source

    @abstractmethod
    def save_table(self, table: MigrationTable, said: str = "") -> MigrationTable:
        """Saves the table, and a log entry if `said` is given."""

    @abstractmethod
    def find_table(self, name: str) -> MigrationTable | None: ...

    @abstractmethod
    def list_tables(self) -> list[MigrationTable]: ...

    @abstractmethod
    def forget_table(self, table: MigrationTable, said: str) -> None: ...

    @abstractmethod
    def save_namespace(self, carried: CopiedNamespace, said: str) -> None: ...

    @abstractmethod
    def find_namespace(self, source: str, name: tuple[str, ...], target: tuple[str, ...]) -> CopiedNamespace | None: ...

    @abstractmethod
    def list_namespaces(self) -> tuple[CopiedNamespace, ...]: ...

    @abstractmethod
    def save_evidence(self, table: MigrationTable, evidence: Iterable[Evidence]) -> None: ...

    @abstractmethod
    def list_evidence(self, table: MigrationTable) -> tuple[Evidence, ...]:
        """Returns all evidence, oldest first."""

    @abstractmethod
    def say(self, text: str, table: str = "") -> None: ...

    @abstractmethod
    def list_log(self) -> tuple[LogEntry, ...]: ...

    def whole(self) -> Migration:
        """Everything, for the report."""
        uri, warehouse = self.find_target() or ("", "")
        tables = tuple(self.list_tables())
        mapped = map_permissions(tables, warehouse)
        return Migration(
            target_uri=uri or self.place,
            warehouse=warehouse,
            sources=tuple(self.list_sources()),
            tables=tables,
            evidence={table_title(table.found): self.list_evidence(table) for table in tables},
            log=self.list_log(),
            namespaces=self.list_namespaces(),
            grants=mapped.grants,
            unmapped=mapped.unmapped,
        )


class FolderState(MigrationState):
    """The state of a migration in a local folder."""

    def __init__(self, path: Path, connection: sqlite3.Connection, command: str, now_ms: Callable[[], int]) -> None:
        super().__init__(str(path), command, now_ms)
        self._database = connection

    # The target

    def save_target(self, uri: str, warehouse: str) -> None:
        with self._database as change:
            change.execute("INSERT INTO facts VALUES ('uri', ?), ('warehouse', ?)", (uri, warehouse))

    def find_target(self) -> tuple[str, str] | None:
        rows = dict(self._database.execute("SELECT name, value FROM facts WHERE name IN ('uri', 'warehouse')"))
        return (rows["uri"], rows["warehouse"]) if rows else None

    # Sources and tables

    def save_source(self, source: MigrationSource) -> None:
        with self._database as change:
            change.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", (source.name, _encode(source)))

    def list_sources(self) -> list[MigrationSource]:
        rows = self._database.execute("SELECT json FROM sources ORDER BY name")
        return [msgspec.json.decode(json, type=MigrationSource) for (json,) in rows]

    def save_table(self, table: MigrationTable, said: str = "") -> MigrationTable:
        """Saves the table, and in the same transaction a log entry if `said` is given."""
        now = self._now_ms()
        stored = msgspec.structs.replace(table, changed_ms=now)
        with self._database as change:
            row = (table_title(stored.found), _encode(stored))
            change.execute("INSERT OR REPLACE INTO tables VALUES (?, ?)", row)
            if said:
                _add_log(change, LogEntry(now, self._command, said, table_title(stored.found)))
        return stored

    def find_table(self, name: str) -> MigrationTable | None:
        row = self._database.execute("SELECT json FROM tables WHERE title = ?", (name,)).fetchone()
        return None if row is None else upgrade_table(msgspec.json.decode(row[0], type=MigrationTable))

    def list_tables(self) -> list[MigrationTable]:
        rows = self._database.execute("SELECT json FROM tables ORDER BY title")
        return [upgrade_table(msgspec.json.decode(json, type=MigrationTable)) for (json,) in rows]

    def forget_table(self, table: MigrationTable, said: str) -> None:
        with self._database as change:
            change.execute("DELETE FROM tables WHERE title = ?", (table_title(table.found),))
            _add_log(change, LogEntry(self._now_ms(), self._command, said, table_title(table.found)))

    def save_namespace(self, carried: CopiedNamespace, said: str) -> None:
        with self._database as change:
            key = namespace_key(carried.source, carried.name, carried.target)
            change.execute("INSERT OR REPLACE INTO namespaces VALUES (?, ?)", (key, _encode(carried)))
            _add_log(change, LogEntry(self._now_ms(), self._command, said))

    def find_namespace(self, source: str, name: tuple[str, ...], target: tuple[str, ...]) -> CopiedNamespace | None:
        key = namespace_key(source, name, target)
        row = self._database.execute("SELECT json FROM namespaces WHERE title = ?", (key,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=CopiedNamespace)

    def list_namespaces(self) -> tuple[CopiedNamespace, ...]:
        rows = self._database.execute("SELECT json FROM namespaces ORDER BY title")
        return tuple(msgspec.json.decode(json, type=CopiedNamespace) for (json,) in rows)

    # Evidence and log

    def save_evidence(self, table: MigrationTable, evidence: Iterable[Evidence]) -> None:
        with self._database as change:
            rows = [(table_title(table.found), _encode(each)) for each in evidence]
            change.executemany("INSERT INTO evidence (title, json) VALUES (?, ?)", rows)

    def list_evidence(self, table: MigrationTable) -> tuple[Evidence, ...]:
        """Returns all evidence, oldest first."""
        query = "SELECT json FROM evidence WHERE title = ? ORDER BY id"
        rows = self._database.execute(query, (table_title(table.found),))
        return tuple(msgspec.json.decode(json, type=Evidence) for (json,) in rows)

    def say(self, text: str, table: str = "") -> None:
        with self._database as change:
            _add_log(change, LogEntry(self._now_ms(), self._command, text, table))

    def list_log(self) -> tuple[LogEntry, ...]:
        rows = self._database.execute("SELECT json FROM log ORDER BY id")
        return tuple(msgspec.json.decode(json, type=LogEntry) for (json,) in rows)


@contextlib.contextmanager
def open_folder_state(
    path: Path, command: str, *, create: bool = False, now_ms: Callable[[], int] = wall_clock_ms
) -> Iterator[FolderState]:
    """Opens the folder for this command alone; raises CannotRun while another command runs."""
    if not create and not (path / FILE).is_file():
        raise CannotRun(f"There is no migration in {path}", fix="Begin with `nunatak migrate inventory`.")
    path.mkdir(parents=True, exist_ok=True)
    with (path / LOCK).open("w") as lock:  # the kernel releases the lock, also after kill -9
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotRun(f"Another command uses the migration in {path}", fix="Wait until it has ended.") from error
        try:
            with contextlib.closing(sqlite3.connect(path / FILE)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")  # each step must be on disk before the next one starts
                connection.executescript(SCHEMA)
                _require_format(connection, path)
                yield FolderState(path, connection, command, now_ms)
        except sqlite3.Error as error:
            raise CannotRun(
                f"{path / FILE} cannot be read or written: {error}",
                fix="Look at the file and its disk, or name another folder with --state.",
            ) from error


def _require_format(connection: sqlite3.Connection, path: Path) -> None:
    with connection as change:
        change.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (FORMAT,))
    ((found,),) = connection.execute("SELECT value FROM facts WHERE name = 'format'")
    require_format(found, str(path))


def require_format(found: str, place: str) -> None:
    if found != FORMAT:
        raise CannotRun(
            f"The migration in {place} was begun by another version of Nunatak (format {found}, not {FORMAT})",
            fix="Go on with the version that began it.",
        )


def namespace_key(source: str, name: tuple[str, ...], target: tuple[str, ...]) -> str:
    return msgspec.json.encode((source, name, target)).decode()


def _add_log(change: sqlite3.Connection, line: LogEntry) -> None:
    change.execute("INSERT INTO log (json) VALUES (?)", (_encode(line),))


def upgrade_table(table: MigrationTable) -> MigrationTable:
    """Replaces the state `failed`, which earlier versions wrote, by the state before the failure."""
    if table.state != "failed":
        return table
    return msgspec.structs.replace(table, state=_state_before_failure(table))


def _state_before_failure(table: MigrationTable) -> State:
    if table.frozen.how:
        return "cutover"
    if table.target_pointer:
        return "shadowed"
    return "discovered" if table.planned is None else "planned"


def _encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def _target_text(uri: str, warehouse: str) -> str:
    return f"{uri} (warehouse {warehouse})" if warehouse else uri
