"""Checks that the database and the files in the warehouse agree. Changes nothing; fsck_repair.py repairs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import zstandard

from nunatak.catalog import sweep
from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import own_places
from nunatak.catalog.history import file_name, read_history
from nunatak.catalog.pointers import Metadata, metadata_uuid
from nunatak.catalog.reachable_files import is_inside
from nunatak.database.bindings import ancestors_of
from nunatak.database.records import DatabaseSummary, InspectedPointer, Key, Kind, Stored
from nunatak.errors import CatalogError, InvalidMetadata, NotFound
from nunatak.events import seals
from nunatak.iceberg import table_metadata, view_metadata
from nunatak.iceberg.identifiers import Identifier, from_jdbc
from nunatak.iceberg.java_readable import contradictions
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import Location, is_inside_any, parse_location

AT_ONCE = 16  # tables checked concurrently: enough to keep disk and database busy, few enough to hold in memory
PAGE = 500  # names per query
MAX_CHECKS = 3  # checks of a table that changes during the check
STUCK_ATTEMPTS = 5  # a job that failed so often needs an operator
EXPIRED_MS = 3_600_000  # a running server deletes expired responses within a minute; an hour means that none does

Severity = Literal["error", "warning", "notice"]

# Every kind of finding with its severity and remedy. A notice is normal operation, not damage.
KINDS: dict[str, tuple[Severity, str]] = {
    "lost-file": ("error", "--repair writes it again from the stored bytes; without those, restore it from a backup."),
    "torn-file": ("error", "--repair renames it and writes it again from the stored bytes, if the database has them."),
    "changed-file": ("error", "Another program overwrote it. Compare both; the catalog serves the stored bytes."),
    "unreadable-file": ("error", "Give the server permission to read it."),
    "bad-stored-bytes": ("error", "--repair reads the file and stores it again."),
    "bad-metadata": ("error", "Register an earlier metadata file of the table in its place."),
    "wrong-record": ("error", "--repair reads the file and stores it again."),
    "outside": (
        "error",
        "Allow the location with NUNATAK_ALLOWED_LOCATIONS; until then the server neither reads nor writes it.",
    ),
    "overlap": ("error", "Purging or rewriting one would harm the other: move one of them."),
    "broken-log": ("error", "The table is still served; please report this as a bug."),
    "broken-audit": (
        "error",
        "Another program changed the audit trail: compare it with an export or an earlier backup.",
    ),
    "unknown-warehouse": ("warning", "Configure the warehouse, or ignore this if another catalog owns it."),
    "lost-log-file": ("warning", "Earlier metadata that the table names is gone; it cannot be rolled back to."),
    "orphan": ("warning", "--repair deletes it, as the server's own sweep does."),
    "stuck-job": ("warning", "Fix the cause of its last error; the job is retried at least once an hour."),
    "expired-answers": ("warning", "--repair deletes them, as a running server does."),
    "file-ahead": ("notice", "Left by a crash or a restored backup: register it, or delete it by hand."),
    "unnamed-file": ("notice", "Another table or catalog may reference it; it is not deleted."),
    "stale-record": ("notice", "Another client dropped the table. --repair deletes its stored row."),
    "unknown-pointer": ("notice", "Another client moved the pointer. --repair stores its metadata, as a load does."),
    "empty-row": ("notice", "Another client left a row without a pointer; it is not a table."),
    "unmarked-namespace": ("notice", "It exists only because it holds tables or views. --repair adds its row."),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency; `object` is the printed name of what it concerns."""

    kind: str
    object: str
    text: str
    repairable: bool = False
    key: Key | None = None

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind][0]

    @property
    def hint(self) -> str:
        return KINDS[self.kind][1]


async def check(
    catalog: Catalog, age_ms: int | None, advance: Callable[[int], None] = lambda _: None
) -> AsyncIterator[Finding]:
    """Yields every finding. Unreferenced metadata files are reported once they are `age_ms` old; None skips that check.

    Calls `advance` with the number of names just checked.
    """
    summary = await summarize(catalog)
    for finding in _findings_of(summary):
        yield finding
    async for broken in seals.verify(catalog.store):
        yield Finding("broken-audit", f"seal {broken.seal}", broken.text)
    after = Key("", "", "")
    while keys := await catalog.store.keys_after(after, PAGE):
        for start in range(0, len(keys), AT_ONCE):
            chunk = keys[start : start + AT_ONCE]
            for findings in await asyncio.gather(*(check_entry(catalog, key, age_ms) for key in chunk)):
                for finding in findings:
                    yield finding
            advance(len(chunk))
        after = keys[-1]


async def summarize(catalog: Catalog) -> DatabaseSummary:
    return await catalog.store.summarize(catalog.now_ms() - EXPIRED_MS, STUCK_ATTEMPTS)


def _findings_of(summary: DatabaseSummary) -> list[Finding]:
    found = [
        Finding(
            "stuck-job", f"job {job.job_id}", f"{job.kind} failed {job.attempts} times; the last time: {job.last_error}"
        )
        for job in summary.stuck_jobs
    ]
    if summary.expired_answers:
        text = f"{summary.expired_answers} stored responses of idempotency keys have expired"
        found.append(Finding("expired-answers", "database", text, repairable=True))
    return found


async def check_entry(catalog: Catalog, key: Key, age_ms: int | None) -> list[Finding]:
    """Returns the findings of one name; checks again if a running server changed the pointer during the check."""
    findings: list[Finding] = []
    for _ in range(MAX_CHECKS):
        pointer = await catalog.store.inspect_pointer(key)
        findings = [] if pointer is None else await _EntryCheck(catalog, key, pointer, age_ms).findings()
        # Findings count only if the pointer did not move: otherwise they may mix two versions.
        if not findings or await catalog.store.inspect_pointer(key) == pointer:
            break
    return findings


class _EntryCheck:
    """One check of one name: its pointer, the metadata file, the row stored with the pointer, and the folder."""

    def __init__(self, catalog: Catalog, key: Key, pointer: InspectedPointer, age_ms: int | None) -> None:
        self._catalog, self._key, self._pointer, self._age_ms = catalog, key, pointer, age_ms
        self._printed = format_key(key)
        self._found: list[Finding] = []

    def _add(self, kind: str, text: str, *, repairable: bool = False) -> None:
        self._found.append(Finding(kind, self._printed, text, repairable, self._key))

    async def findings(self) -> list[Finding]:
        pointer = self._pointer
        warehouse = self._catalog.warehouses.get(self._key.catalog)
        if pointer.metadata_location is None:
            if pointer.stored is not None:
                self._add("stale-record", "the database has a stored row for it, but no pointer", repairable=True)
            else:
                self._add("empty-row", "a row without a pointer")
        elif warehouse is None:
            self._add("unknown-warehouse", f"there is no warehouse {self._key.catalog}: its files are not checked")
        else:
            if not pointer.namespace_marked:
                self._add("unmarked-namespace", f"{self._key.namespace} has no row", repairable=True)
            await self._check_pointer(warehouse, pointer.metadata_location)
        return self._found

    async def _check_pointer(self, warehouse: WarehousePlace, metadata_location: str) -> None:
        if not is_inside(warehouse, metadata_location):
            self._add("outside", f"the pointer leads outside the warehouse: {metadata_location}")
            return
        stored = self._pointer.stored
        if stored is None or stored.metadata_location != metadata_location:
            self._add("unknown-pointer", f"the database has no stored row for {metadata_location}", repairable=True)
            stored = None
        kept = self._decompress(stored)
        data = await self._compare(metadata_location, kept)
        metadata = self._read(data) if data is not None else None
        if metadata is None:
            return
        self._check_inside(warehouse, metadata)
        if stored is not None:
            self._check_record(stored, metadata)
            await self._check_overlap(stored)
            await self._check_folder(stored, metadata)

    def _decompress(self, stored: Stored | None) -> bytes | None:
        if stored is None or stored.content is None:
            return None
        try:
            return zstandard.decompress(stored.content)
        except zstandard.ZstdError as error:
            self._add("bad-stored-bytes", f"the stored bytes cannot be decompressed: {error}", repairable=True)
            return None

    async def _compare(self, location: str, kept: bytes | None) -> bytes | None:
        """Compares the file with the stored content; returns the stored content if any: the server serves that."""
        repairable = kept is not None
        try:
            data = await self._catalog.objects.read_metadata(location)
        except NotFound:
            self._add("lost-file", f"{location} is missing", repairable=repairable)
        except InvalidMetadata as error:
            self._add("torn-file", error.message, repairable=repairable)
        except CatalogError as error:
            self._add("unreadable-file", error.message)
        else:
            if kept is None:
                return data
            if data != kept:
                reason = reason_unreadable(data, self._pointer.kind)
                if reason is None:
                    self._add("changed-file", f"{location} differs from the bytes stored for it")
                else:
                    self._add("torn-file", f"{location} is truncated or damaged: {reason}", repairable=True)
        return kept

    def _read(self, data: bytes) -> Metadata | None:
        try:
            metadata = decode_metadata(data, self._pointer.kind)
        except CatalogError as error:
            self._add("bad-metadata", error.message)
            return None
        if isinstance(metadata, TableMetadata):
            for text in contradictions(metadata):
                self._add("bad-metadata", text)
        return metadata

    def _check_inside(self, warehouse: WarehousePlace, metadata: Metadata) -> None:
        if not is_inside(warehouse, metadata.location):
            self._add("outside", f"the location {metadata.location} lies outside the warehouse")

    def _check_record(self, stored: Stored, metadata: Metadata) -> None:
        if stored.table_uuid != metadata_uuid(metadata):
            text = f"the uuid in the file is {metadata_uuid(metadata)}, but {stored.table_uuid} is stored"
            self._add("wrong-record", text, repairable=True)
        if stored.location != _canonical(metadata.location):
            text = f"the location in the file is {metadata.location}, but {stored.location} is stored"
            self._add("wrong-record", text, repairable=True)

    async def _check_overlap(self, stored: Stored) -> None:
        for other in await self._catalog.store.find_overlapping(stored.location, ancestors_of(stored.location)):
            same = other.location == stored.location and other.table_uuid == stored.table_uuid
            # Each pair occurs twice and is reported once. One table may have two names.
            if not same and _order(self._key) < _order(other.key):
                self._add("overlap", f"{stored.location} overlaps {other.location} of {format_key(other.key)}")

    async def _check_folder(self, stored: Stored, metadata: Metadata) -> None:
        """Checks the commit log, the files that it and the metadata name, and unreferenced files in the folder."""
        try:
            files = await sweep.metadata_files(self._catalog, self._key, self._pointer, self._age_ms or 0)
        except CatalogError as error:
            self._add("unreadable-file", error.message)
            return
        metadata_log = []
        if isinstance(metadata, TableMetadata):
            metadata_log = [each["metadata-file"] for each in metadata.metadata_log]
            await self._check_named_files(own_places(metadata), metadata_log, files.present)
        unnamed = {} if self._age_ms is None else sweep.unreferenced(files.old, self._pointer, metadata_log)
        history = await read_history(self._catalog.store, metadata_uuid(metadata), unnamed)
        for text in history.gaps:
            self._add("broken-log", text)
        if not history.leads_to(self._key.namespace, self._key.name, stored.metadata_location):
            self._add("broken-log", f"no line of the commit log leads to {stored.metadata_location}")
        for location in unnamed.values():
            if not sweep.is_superseded(location, self._pointer):
                self._add("file-ahead", f"{location} is newer than the file of the pointer")
            elif history.ours and await sweep.is_unowned(self._catalog, location, stored.table_uuid):
                self._add("orphan", f"no table references {location}", repairable=True)
            else:
                self._add("unnamed-file", f"the table does not reference {location}")

    async def _check_named_files(self, own: Sequence[Location], named: Sequence[str], present: frozenset[str]) -> None:
        for location in named:
            # The server does not read files outside the table's own places.
            there = file_name(location) in present or not is_inside_any(own, location)
            if not there and not await self._catalog.objects.exists(location):
                self._add("lost-log-file", f"{location} is missing")


def decode_metadata(data: bytes, kind: Kind) -> Metadata:
    return table_metadata.decode(data) if kind == "TABLE" else view_metadata.decode(data)


def reason_unreadable(data: bytes, kind: Kind) -> str | None:
    try:
        decode_metadata(data, kind)
    except CatalogError as error:
        return error.message
    return None


def format_key(key: Key) -> str:
    return f"{key.catalog}/{Identifier(from_jdbc(key.namespace), key.name)}"


def _order(key: Key) -> tuple[str, str, str]:
    return key.catalog, key.namespace, key.name


def _canonical(location: str) -> str:
    try:
        return str(parse_location(location))
    except CatalogError:
        return location
