"""Write-behind of metadata content: a commit moves the pointer, and its content is stored when commits pause.

The stored content is a copy of an immutable file, for loads after a restart. For a table with many commits a second,
each version would be compressed and stored only to be replaced by the next; here only one of them is stored. Until then
the newest version is held in memory, and after a crash the content is read from its file once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import zstandard

from nunatak.catalog.cache import Loaded
from nunatak.database.bindings import key_values
from nunatak.database.records import Key, Write
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.iceberg import table_metadata
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.store import ObjectStore

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0  # since the last commit to a table: then its content is stored
MAX_DELAY_SECONDS = 10.0  # after this the content is stored even if commits continue
MAX_BYTES = 16 * 1024 * 1024  # held in memory; beyond it everything is stored at once
BATCH = 64  # tables in one transaction
SMALL_BYTES = 256 * 1024  # files up to here share an fsync; the content of larger ones is stored with their commit


class _WaitingContent:
    """The newest version of a table that is not stored yet, and the time of the first such version."""

    __slots__ = ("loaded", "newest_at", "since")

    def __init__(self, loaded: Loaded, since: float, newest_at: float) -> None:
        self.loaded = loaded
        self.since = since
        self.newest_at = newest_at


class WriteBehind:
    """The content that waits to be stored; only for a database that no other server writes to."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._waiting: dict[Key, _WaitingContent] = {}
        self.bytes = 0
        self._full = asyncio.Event()

    def add(self, key: Key, loaded: Loaded) -> None:
        """Queues the content of a new pointer; replaces an older version of the same table."""
        now = self._clock()
        before = self._waiting.get(key)
        if before is None:
            self._waiting[key] = _WaitingContent(loaded, now, now)
        else:
            self.bytes -= len(before.loaded.answer)
            # `since` stays: otherwise a table with constant commits would never be stored.
            self._waiting[key] = _WaitingContent(loaded, before.since, now)
        self.bytes += len(loaded.answer)
        if self.bytes > MAX_BYTES:
            self._full.set()

    def find(self, key: Key, metadata_location: str) -> Loaded | None:
        waiting = self._waiting.get(key)
        if waiting is None or waiting.loaded.metadata_location != metadata_location:
            return None
        return waiting.loaded

    async def store(self, *, everything: bool = False) -> None:
        """Store the content of tables without recent commits, or everything that waits."""
        now = self._clock()
        due = [
            (key, each)
            for key, each in self._waiting.items()
            if everything or now - each.newest_at >= QUIET_SECONDS or now - each.since >= MAX_DELAY_SECONDS
        ]
        for start in range(0, len(due), BATCH):
            batch = due[start : start + BATCH]
            # In a thread: compressing 64 tables of 256 KiB would block the event loop for tens of milliseconds.
            contents = await asyncio.to_thread(_compress, [each.loaded for _, each in batch])
            await self._store.apply(
                [
                    Write(
                        "store_content", {**key_values(key), "new": each.loaded.metadata_location, "content": content}
                    )
                    for (key, each), content in zip(batch, contents, strict=True)
                ]
            )
            for key, each in batch:
                # A commit during the write may have queued a newer version, which stays.
                if self._waiting.get(key) is each:
                    del self._waiting[key]
                    self.bytes -= len(each.loaded.answer)

    async def until_full(self, seconds: float) -> bool:
        """Wait for `seconds`, or until more than MAX_BYTES are held; returns whether that was the reason."""
        try:
            await asyncio.wait_for(self._full.wait(), seconds)
        except TimeoutError:
            return False
        self._full.clear()
        return True


def _compress(versions: Sequence[Loaded]) -> list[bytes]:
    compressor = zstandard.ZstdCompressor(level=1)
    return [compressor.compress(loaded.data) for loaded in versions]


@contextmanager
def content_reader(objects: ObjectStore) -> Iterator[Callable[[str, str], bytes | None]]:
    """Yields a function for a command, which has no event loop: it returns the content of a table's metadata file,
    compressed, or None if the file is not a small one of this table. Closes `objects` in the end."""
    with asyncio.Runner() as runner:

        def read_compressed(metadata_location: str, table_uuid: str) -> bytes | None:
            try:
                data = runner.run(_read(objects, metadata_location))
                if len(data) > SMALL_BYTES or table_metadata.decode(data).table_uuid != table_uuid:
                    return None
            except CatalogError:  # includes compressed files, which were stored with their commit
                return None
            return zstandard.ZstdCompressor(level=1).compress(data)

        try:
            yield read_compressed
        finally:
            runner.run(objects.close())


async def _read(objects: ObjectStore, metadata_location: str) -> bytes:
    place = parse_location(metadata_location)
    if place.scheme == "file":  # a command may not know the warehouses of the server; the database is trusted
        objects.attach(objects.local, [place.parent(len(place.segments) - 1)])
    return await objects.read(metadata_location)


async def run_write_behind(pending: WriteBehind) -> None:
    """Stores waiting content until cancelled; retries after a failure."""
    while True:
        full = await pending.until_full(QUIET_SECONDS)
        try:
            await pending.store(everything=full)
        except CatalogError as error:
            log.warning("storing the metadata content in the database failed and will be retried: %s", error.message)
            await asyncio.sleep(QUIET_SECONDS)
