"""Metadata files of failed commits on object stores: each is noted, and a job deletes it once nothing can lead to it.

A refused commit deletes its file itself. A note is written only where that is not possible: the store did not confirm
the PUT, the outcome of the transaction is unknown, or the deletion failed. So the hourly listing of folders, which
finds such files in a local warehouse, is not needed for buckets, where every listing is paid for.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from nunatak.catalog.history import file_name, read_history
from nunatak.database.records import AddJob
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.store import ObjectStore

log = logging.getLogger(__name__)

KIND = "delete-unpublished"
# Far longer than a request to the store or a transaction can last.
UNKNOWN_WRITE_MS = 15 * 60_000
UNKNOWN_SWAP_MS = 86_400_000
REFUSED_MS = 60_000
RETRY_SECONDS = 5.0
MAX_NOTES = 10_000  # in memory, while the database is not reachable


@dataclass(frozen=True, slots=True)
class UnpublishedFile:
    """A metadata file to which a pointer may or may not lead, and when to look."""

    warehouse: str
    location: str
    table_uuid: str
    due_ms: int

    def job(self) -> AddJob:
        payload = {"catalog": self.warehouse, "location": self.location, "table-uuid": self.table_uuid}
        return AddJob(KIND, msgspec.json.encode(payload), self.due_ms)


class UnpublishedFiles:
    """Notes that are not stored yet: a commit often fails because the database is not reachable."""

    def __init__(self) -> None:
        self._notes: list[UnpublishedFile] = []
        self._added = asyncio.Event()

    def add(self, file: UnpublishedFile) -> None:
        """Notes a file of an object store; local folders are listed instead."""
        if parse_location(file.location).scheme == "file":
            return
        if len(self._notes) >= MAX_NOTES:
            log.warning("%s may stay behind: too many notes wait for the database", file.location)
            return
        self._notes.append(file)
        self._added.set()

    async def store(self, store: Store) -> None:
        """Stores the notes as jobs; on an error they stay here."""
        while self._notes:
            some = self._notes[:100]
            await store.apply([each.job() for each in some])
            del self._notes[: len(some)]

    async def wait(self) -> None:
        await self._added.wait()
        self._added.clear()


async def run_unpublished(files: UnpublishedFiles, store: Store, job_added: Callable[[], None]) -> None:
    """Stores notes until cancelled; retries after a failure."""
    while True:
        await files.wait()
        while True:
            try:
                await files.store(store)
                break
            except CatalogError as error:
                log.warning("files of failed commits cannot be noted yet: %s", error.message)
                await asyncio.sleep(RETRY_SECONDS)
        job_added()


async def delete_unpublished(store: Store, objects: ObjectStore, payload: dict[str, Any]) -> bool:
    """Deletes the file unless a pointer or a line of the commit log names it; returns whether it was deleted."""
    location: str = payload["location"]
    unnamed = {file_name(location): location}
    await read_history(store, payload["table-uuid"], unnamed)
    if not unnamed or await store.points_at(file_name(location)):
        return False
    await objects.delete(location)
    return True
