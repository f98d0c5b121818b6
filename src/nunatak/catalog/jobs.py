"""Runs the jobs of the server: purging dropped tables and deleting unneeded files. `job_queue.py` is their queue."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from nunatak.access.audit_rows import audit_row
from nunatak.catalog import job_queue, unpublished_files
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import own_places
from nunatak.catalog.job_queue import LEASE_MS, QueuedJob
from nunatak.catalog.ownership import securable_of
from nunatak.catalog.pointers import find_pointer
from nunatak.catalog.reachable_files import (
    DROPPED_TABLE,
    KeptFiles,
    OwnFiles,
    UnneededFiles,
    files_in_stages,
    is_inside,
)
from nunatak.catalog.shadows import find_shadow
from nunatak.catalog.sweep import unlisted_metadata_files
from nunatak.catalog.write import unaudited_event
from nunatak.database.records import Change, ForgetAnswers, Key, Write
from nunatak.errors import BadRequest, CatalogError, Conflict, NotFound, ServiceUnavailable
from nunatak.iceberg import table_metadata, view_metadata
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import parse_location

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = LEASE_MS / job_queue.HEARTBEATS / 1000
IDLE_SECONDS = 60.0  # sleep if no job is due; a new job of this server ends it at once
OUTAGE_SECONDS = 5.0  # pause after a database error
RELEASE_SECONDS = 2.0
MAX_PAUSE_MS = 3_600_000
DELETES_AT_ONCE = 16
OBJECTS_AT_ONCE = 1000  # the most that one request of S3 takes
SERVER = "nunatak"  # the principal in the audit trail: the server itself


async def run_jobs(catalog: Catalog) -> None:
    """Run jobs until cancelled; a failed job is retried later, and never lost."""
    while True:
        # Clear before reading the database: a job added after the read then still ends the wait below.
        catalog.job_added.clear()
        try:
            if await run_next(catalog):
                continue
            await catalog.store.apply([ForgetAnswers(catalog.now_ms())])
            pause = await _idle_seconds(catalog)
        except CatalogError:
            log.exception("background jobs cannot run: the database failed")
            pause = OUTAGE_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(catalog.job_added.wait(), pause)


async def _idle_seconds(catalog: Catalog) -> float:
    due_ms = await catalog.store.next_job_time()
    if due_ms is None:
        return IDLE_SECONDS
    # At least 50 ms, so that a due job which cannot be leased causes no busy loop.
    return min(IDLE_SECONDS, max(0.05, (due_ms - catalog.now_ms()) / 1000))


async def run_next(catalog: Catalog) -> bool:
    """Run one due job; returns whether there was one."""
    now_ms = catalog.now_ms()
    job = await job_queue.lease(catalog.store, "server", catalog.server_id, now_ms)
    if job is None:
        return False
    lease = Lease(catalog, job, now_ms + LEASE_MS)
    try:
        async with lease.keep_extended():
            result = await _run(catalog, job, lease)
    except asyncio.CancelledError:
        # At shutdown the job is released at once, or if that fails, when the lease expires.
        with contextlib.suppress(CatalogError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await catalog.store.apply(job_queue.release(job.job_id, catalog.server_id, catalog.now_ms()))
        raise
    except Exception as error:
        # A job must survive every error, including a bug in this code.
        log.exception("job %d (%s) failed and will be retried", job.job_id, job.kind)
        due_ms = catalog.now_ms() + min(MAX_PAUSE_MS, 1000 * 2 ** min(job.attempts - 1, 12))
        reason = str(error)[:500] or type(error).__name__
        await _end(catalog, job_queue.release(job.job_id, catalog.server_id, due_ms, reason))
    else:
        # One transaction: the audit row is stored exactly if the job is finished.
        finished = job_queue.finish(job.job_id, catalog.server_id, "done", now_ms=catalog.now_ms())
        await _end(catalog, [*result, *finished, job_queue.forget_finished(job.job_id)])
    return True


async def _end(catalog: Catalog, changes: list[Change]) -> None:
    """Applies the changes that end an attempt; none of them if another server has the job by now."""
    try:
        await catalog.store.apply(changes)
    except Conflict:
        log.warning("the lease of a job expired before its end was stored: it is run again")


class LeaseLost(CatalogError):
    """The lease expired: another server may run the job by now, so this one must change nothing more."""


class Lease:
    """The lease of a running job. A process that was suspended past its end notices before it continues: the files it
    was about to delete may be in use again."""

    def __init__(self, catalog: Catalog, job: QueuedJob, until_ms: int) -> None:
        self._catalog = catalog
        self._job = job
        self._until_ms = until_ms

    def check(self) -> None:
        if self._catalog.now_ms() >= self._until_ms:
            raise LeaseLost(f"the lease of job {self._job.job_id} expired before the job ended")

    @contextlib.asynccontextmanager
    async def keep_extended(self) -> AsyncIterator[None]:
        """Extends the lease by heartbeats while the block runs."""
        heartbeat = asyncio.create_task(self._extend_periodically())
        try:
            yield
        finally:
            heartbeat.cancel()

    async def _extend_periodically(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            now_ms = self._catalog.now_ms()
            try:
                await self._catalog.store.apply(
                    job_queue.extend(self._job.job_id, self._catalog.server_id, now_ms, None)
                )
            except Conflict:
                self._until_ms = 0  # makes the next check() fail: another server may have the job
                return
            except CatalogError:
                log.warning("the lease of job %d could not be extended", self._job.job_id, exc_info=True)
                continue
            self._until_ms = now_ms + LEASE_MS


async def _run(catalog: Catalog, job: QueuedJob, lease: Lease) -> list[Change]:
    """Runs the job; returns the changes to apply with its completion."""
    payload = msgspec.json.decode(job.payload)
    warehouse = catalog.warehouses.get(payload["catalog"])
    if warehouse is None:
        raise BadRequest(f"the warehouse {payload['catalog']} is not configured")
    if job.kind == "purge":
        return await _purge(catalog, warehouse, payload, lease)
    if job.kind == "delete-files":
        await _delete_old_metadata(catalog, warehouse, payload, lease)
        return []
    if job.kind == "remove-staged":
        await _remove_if_unused(catalog, warehouse, payload["location"])
        return []
    if job.kind == unpublished_files.KIND:
        if is_inside(warehouse, payload["location"]):
            await unpublished_files.delete_unpublished(catalog.store, catalog.objects, payload)
        return []
    raise BadRequest(f"unknown kind of job: {job.kind}")


async def _delete_old_metadata(
    catalog: Catalog, warehouse: WarehousePlace, payload: dict[str, Any], lease: Lease
) -> None:
    """Delete metadata files that a commit dropped from the metadata log; those of a shadow belong to its source."""
    table_uuid = payload["table-uuid"]
    if await find_shadow(catalog.store, warehouse.name, table_uuid) is not None:
        log.info("old metadata files of %s are kept: another catalog may still need them", table_uuid)
        return
    places = payload.get("places")
    if places is None:  # a job of an earlier version, which did not store them
        places = await _current_places(catalog, table_uuid)
    own = OwnFiles(catalog, warehouse, DROPPED_TABLE, [parse_location(each) for each in places])
    unneeded = UnneededFiles(catalog, own, warehouse, table_uuid)
    await _delete(catalog, await unneeded.select(payload["files"]), lease)
    if unneeded.left.outside:
        log.warning("old metadata files of %s were not deleted: %s", table_uuid, unneeded.left.summary())


async def _current_places(catalog: Catalog, table_uuid: str) -> list[str]:
    """Returns the own places of a live table, under all its names."""
    found: list[str] = []
    for row in await catalog.store.rows("names_of_uuid", {"uuid": table_uuid}):
        loaded = await find_pointer(catalog, Key(*row), "TABLE")
        found += [str(each) for each in own_places(loaded.table())] if loaded is not None else []
    return list(dict.fromkeys(found))


async def _purge(catalog: Catalog, warehouse: WarehousePlace, payload: dict[str, Any], lease: Lease) -> list[Change]:
    """Delete the files that the metadata reaches in the table's own places, the metadata file last: an interrupted
    purge can start again from it. Returns its event, or an audit row if files were left."""
    metadata_location: str = payload["metadata-location"]
    location: str | None = payload["location"]
    if payload.get("shadow-of") is not None:
        log.warning("nothing of %s is purged: its files belong to %s", metadata_location, payload["shadow-of"])
        return [_result_of(catalog, payload, {"kept-for": payload["shadow-of"]})]
    left = KeptFiles()
    try:
        data = await catalog.objects.read_metadata(metadata_location)
    except NotFound:
        log.warning("no file to purge: %s is missing", metadata_location)
    else:
        try:
            metadata: Any = table_metadata.decode(data)
        except CatalogError:
            metadata = view_metadata.decode(data)
        left = await _delete_reachable(catalog, warehouse, metadata_location, metadata, lease)
        location = metadata.location
    if location is not None:
        await _remove_if_unused(catalog, warehouse, location)
    if not left.outside and not left.needed:
        facts = {"metadata-location": metadata_location}
        return [unaudited_event(catalog, Caller(SERVER), "purge", securable_of(_key(payload)), facts)]
    log.warning("the purge of %s kept files that other tables may need: %s", metadata_location, left.summary())
    return [_result_of(catalog, payload, {"left": left.summary()})]


async def _remove_if_unused(catalog: Catalog, warehouse: WarehousePlace, location: str) -> None:
    """Remove the empty folders of a dropped table, or of a staged table that was never created."""
    if not is_inside(warehouse, location):
        return
    place = parse_location(location)
    # A table may have been created here since; its folders are empty while it is new and must stay.
    if not await catalog.store.find_overlapping(str(place), [str(place.parent(n)) for n in range(len(place.segments))]):
        await catalog.objects.remove_empty_folders(location)


async def _delete_reachable(
    catalog: Catalog, warehouse: WarehousePlace, metadata_location: str, metadata: Any, lease: Lease
) -> KeptFiles:
    """Delete the reachable files in stages; returns the files that were named and not deleted."""
    own = OwnFiles(catalog, warehouse, DROPPED_TABLE, own_places(metadata))
    unneeded = UnneededFiles(catalog, own, warehouse)
    if isinstance(metadata, TableMetadata):
        for files in await files_in_stages(own, metadata):
            await _delete(catalog, await unneeded.select(files), lease)
    if is_inside(warehouse, metadata.location):
        await _delete(
            catalog, await unneeded.select(await unlisted_metadata_files(catalog, metadata_location, metadata)), lease
        )
    await _delete(catalog, await unneeded.select([metadata_location]), lease)
    return unneeded.left


def _result_of(catalog: Catalog, payload: dict[str, Any], detail: dict[str, object]) -> Write:
    """Returns an audit row with the result of a purge: the row of a finished job is deleted."""
    securable = securable_of(_key(payload))
    detail = {"metadata-location": payload["metadata-location"], **detail}
    return audit_row(at_ms=catalog.now_ms(), principal=SERVER, action="purge", securable=securable, detail=detail)


def _key(payload: dict[str, Any]) -> Key:
    return Key(payload["catalog"], payload["namespace"], payload["name"])


async def _delete(catalog: Catalog, files: list[str], lease: Lease) -> None:
    """Deletes the files; those of an object store in few requests."""
    local = [path for path in files if parse_location(path).scheme == "file"]
    for start in range(0, len(local), DELETES_AT_ONCE):
        lease.check()
        await asyncio.gather(*(catalog.objects.delete(path) for path in local[start : start + DELETES_AT_ONCE]))
    objects = [path for path in files if parse_location(path).scheme != "file"] if len(local) < len(files) else []
    for start in range(0, len(objects), OBJECTS_AT_ONCE):
        lease.check()
        failed = await catalog.objects.delete_many(objects[start : start + OBJECTS_AT_ONCE])
        if failed:  # the job is run again
            raise ServiceUnavailable(f"{len(failed)} objects could not be deleted, such as {failed[0]}")
