"""Migration state in the target's database: documents behind the management API, for several operators.

One command runs at a time: it holds a lease, a document that it renews and that expires. Each document is replaced by
compare and swap, so a command that lost its lease without noticing changes nothing.
"""

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec

from nunatak.client import Client, Json, is_unknown_route
from nunatak.errors import CatalogError, Conflict, NotFound
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import (
    CopiedNamespace,
    Evidence,
    LogEntry,
    MigrationSource,
    MigrationTable,
    table_title,
)
from nunatak_spark.migration.state import (
    FORMAT,
    MigrationState,
    namespace_key,
    require_format,
    upgrade_table,
    wall_clock_ms,
)

LEASE_SECONDS, RENEW_SECONDS = 90, 30  # three missed renewals
MIGRATION, LEASE = "migration", "lease"  # document names; other documents are named after their content
PREFIX = "nunatak://"

Connect = Callable[[], AbstractContextManager[Client]]
Value = TypeVar("Value", bound=msgspec.Struct)


def migration_name(state: str) -> str | None:
    """Returns the name of a migration in the catalog, or None if `state` is a folder."""
    if state == "catalog":
        return "default"
    return (state.removeprefix(PREFIX) or "default") if state.startswith(PREFIX) else None


class MigrationDocuments:
    """The documents of one migration by name; versions are cached, because only the lease holder changes them."""

    def __init__(self, client: Client, migration: str) -> None:
        self._client = client
        self._path = ("migrations", migration, "documents")
        self._versions: dict[str, int] = {}

    def list(self, prefix: str) -> Iterator[tuple[str, Any]]:
        for found in self._client.manage_pages(self._path, "documents", {"prefix": prefix}):
            self._versions[found["document"]] = found["version"]
            yield found["document"], found["content"]

    def find(self, name: str) -> Json | None:
        """Returns the document with its version and its age by the server's clock, or None."""
        try:
            found = self._client.manage("GET", (*self._path, name))
        except NotFound as error:
            if type(error) is not NotFound or "has no document" not in error.message:
                raise
            self._versions.pop(name, None)
            return None
        self._versions[name] = found["version"]
        return found

    def save(self, name: str, content: Any) -> None:
        version = self._versions.get(name, 0)
        body = {"content": msgspec.to_builtins(content), "version": version}
        try:
            self._client.manage("PUT", (*self._path, name), body)
        except Conflict as error:
            raise CannotRun(
                f"Another command changed the migration meanwhile: {error.message}", fix="Run this one again."
            ) from error
        self._versions[name] = version + 1

    def drop(self, name: str) -> None:
        version = self._versions.pop(name)
        self._client.manage("DELETE", (*self._path, name), query={"version": str(version)})


class CatalogState(MigrationState):
    """The state of one migration in the catalog; every change is stored when the method returns."""

    def __init__(self, documents: MigrationDocuments, place: str, command: str, now_ms: Callable[[], int]) -> None:
        super().__init__(place, command, now_ms)
        self._documents = documents
        self._facts: Json = {}
        self._sources = self._load("source:", MigrationSource)
        self._tables = self._load("table:", MigrationTable)
        self._namespaces = self._load("namespace:", CopiedNamespace)
        self._lines = 0

    def _load(self, prefix: str, kind: type[Value]) -> dict[str, Value]:
        """Loads all documents of a kind at once: commands read every table several times."""
        return {name: msgspec.convert(content, kind) for name, content in self._documents.list(prefix)}

    def begin(self) -> None:
        found = self._documents.find(MIGRATION)
        self._facts = {"format": FORMAT} if found is None else found["content"]
        require_format(str(self._facts["format"]), self.place)

    def find_target(self) -> tuple[str, str] | None:
        target = self._facts.get("target")
        return None if target is None else (target[0], target[1])

    def save_target(self, uri: str, warehouse: str) -> None:
        self._facts = {**self._facts, "target": [uri, warehouse]}
        self._documents.save(MIGRATION, self._facts)

    def save_source(self, source: MigrationSource) -> None:
        self._save(self._sources, _key("source", source.name), source)

    def list_sources(self) -> list[MigrationSource]:
        return sorted(self._sources.values(), key=lambda source: source.name)

    def save_table(self, table: MigrationTable, said: str = "") -> MigrationTable:
        stored = msgspec.structs.replace(table, changed_ms=self._now_ms())
        self._save(self._tables, _key("table", table_title(stored.found)), stored)
        if said:
            self.say(said, table_title(stored.found))
        return stored

    def find_table(self, name: str) -> MigrationTable | None:
        table = self._tables.get(_key("table", name))
        return None if table is None else upgrade_table(table)

    def list_tables(self) -> list[MigrationTable]:
        return sorted(map(upgrade_table, self._tables.values()), key=lambda table: table_title(table.found))

    def forget_table(self, table: MigrationTable, said: str) -> None:
        key = _key("table", table_title(table.found))
        self._documents.drop(key)
        del self._tables[key]
        self.say(said, table_title(table.found))

    def save_namespace(self, carried: CopiedNamespace, said: str) -> None:
        key = _key("namespace", namespace_key(carried.source, carried.name, carried.target))
        self._save(self._namespaces, key, carried)
        self.say(said)

    def find_namespace(self, source: str, name: tuple[str, ...], target: tuple[str, ...]) -> CopiedNamespace | None:
        return self._namespaces.get(_key("namespace", namespace_key(source, name, target)))

    def list_namespaces(self) -> tuple[CopiedNamespace, ...]:
        return tuple(sorted(self._namespaces.values(), key=lambda one: (one.source, one.name, one.target)))

    def save_evidence(self, table: MigrationTable, evidence: Iterable[Evidence]) -> None:
        for each in evidence:
            self._documents.save(f"{_key('evidence', table_title(table.found))}:{self._line()}", each)

    def list_evidence(self, table: MigrationTable) -> tuple[Evidence, ...]:
        found = self._documents.list(f"{_key('evidence', table_title(table.found))}:")
        return tuple(msgspec.convert(content, Evidence) for _, content in found)

    def say(self, text: str, table: str = "") -> None:
        self._documents.save(f"log:{self._line()}", LogEntry(self._now_ms(), self._command, text, table))

    def list_log(self) -> tuple[LogEntry, ...]:
        return tuple(msgspec.convert(content, LogEntry) for _, content in self._documents.list("log:"))

    def _save(self, known: dict[str, Value], key: str, value: Value) -> None:
        if known.get(key) != value:
            self._documents.save(key, value)
            known[key] = value

    def _line(self) -> str:
        """Returns a document name that sorts by time; a random suffix keeps commands with equal clocks apart."""
        self._lines += 1
        return f"{self._now_ms():015d}-{self._lines:06d}-{os.urandom(4).hex()}"


def _key(kind: str, name: str) -> str:
    """Returns a short document name for any name."""
    return f"{kind}:{hashlib.sha256(name.encode()).hexdigest()[:40]}"


@contextlib.contextmanager
def open_catalog_state(
    connect: Connect, migration: str, command: str, *, create: bool = False, now_ms: Callable[[], int] = wall_clock_ms
) -> Iterator[CatalogState]:
    """Opens the state for this command alone; raises CannotRun while another command holds the lease."""
    with connect() as client:
        place = f"{PREFIX}{migration} at {client.uri}"
        _require_documents(client, migration, place, create=create)
        with _hold_lease(connect, migration, command, place):
            state = CatalogState(MigrationDocuments(client, migration), place, command, now_ms)
            state.begin()
            yield state


def _require_documents(client: Client, migration: str, place: str, *, create: bool) -> None:
    try:
        is_there = MigrationDocuments(client, migration).find(MIGRATION) is not None
    except CatalogError as error:
        if not is_unknown_route(error):
            raise
        raise CannotRun(
            f"The server at {client.uri} keeps no state of migrations", fix="Upgrade it, or name a folder with --state."
        ) from error
    if not is_there and not create:
        raise CannotRun(f"There is no migration in {place}", fix="Begin with `nunatak migrate inventory`.")


@contextlib.contextmanager
def _hold_lease(connect: Connect, migration: str, command: str, place: str) -> Iterator[None]:
    """Takes the lease, renews it from a thread, and releases it at the end."""
    holder = {"holder": f"{socket.gethostname()}:{os.getpid()}", "command": command, "nonce": os.urandom(8).hex()}
    ended = threading.Event()
    with connect() as client:
        documents = MigrationDocuments(client, migration)
        _take_lease(documents, holder, place)

        def renew() -> None:
            while not ended.wait(RENEW_SECONDS):
                with contextlib.suppress(CatalogError, ConnectionError):  # retried before the lease expires
                    if not _renew_lease(documents, holder):
                        return

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with contextlib.suppress(CatalogError, ConnectionError, KeyError):  # otherwise it expires
                documents.drop(LEASE)


def _renew_lease(documents: MigrationDocuments, holder: Json) -> bool:
    """Renews the lease; returns whether it is still ours. After a lost response the version conflicts, so compare."""
    try:
        documents.save(LEASE, holder)
    except CannotRun:
        found = documents.find(LEASE)
        return found is not None and bool(found["content"] == holder)
    return True


def _take_lease(documents: MigrationDocuments, holder: Json, place: str) -> None:
    found = documents.find(LEASE)
    if found is not None and found["now-ms"] - found["changed-ms"] < LEASE_SECONDS * 1000:
        other = found["content"]
        raise CannotRun(
            f"Another command uses the migration in {place}: {other['command']} on {other['holder']}",
            fix=f"Wait until it has ended; the lease of a killed command expires after {LEASE_SECONDS} seconds.",
        )
    documents.save(LEASE, holder)
