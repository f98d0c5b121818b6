"""Work that follows a change and survives a crash: purging dropped tables and deleting files nobody needs any more.

Of several servers on one database one works on a job. A job may still be begun again, by whoever takes over from a
server that died: each kind here finds done what was done before.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.reachable import Unneeded, files_in_stages, is_inside
from nunatak.catalog.sweep import leftovers
from nunatak.database.records import ExtendLease, FinishJob, ForgetAnswers, Job, LeaseJob, PostponeJob
from nunatak.errors import BadRequest, CatalogError, NotFound
from nunatak.iceberg import table_metadata, view_metadata
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import parse_location

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
LEASE_MS = 90_000  # three missed heartbeats
IDLE_SECONDS = 60.0  # how long a server sleeps that has nothing to do; a new job wakes it at once
OUTAGE_SECONDS = 5.0  # how long it leaves a database alone that does not answer
HAND_OVER_SECONDS = 2.0
LONGEST_PAUSE_MS = 3_600_000
DELETES_AT_ONCE = 16


async def run_jobs(catalog: Catalog) -> None:
    """Work off jobs until cancelled; one that fails is tried again later, and never lost."""
    while True:
        catalog.job_added.clear()
        try:
            if await run_next(catalog):
                continue
            await catalog.store.apply([ForgetAnswers(catalog.now_ms())])
            pause = await _idle_seconds(catalog)
        except CatalogError:
            log.exception("jobs cannot be worked off now")
            pause = OUTAGE_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(catalog.job_added.wait(), pause)


async def _idle_seconds(catalog: Catalog) -> float:
    due_ms = await catalog.store.next_job_time()
    if due_ms is None:
        return IDLE_SECONDS
    return min(IDLE_SECONDS, max(0.05, (due_ms - catalog.now_ms()) / 1000))


async def run_next(catalog: Catalog) -> bool:
    """Do one job that is due; returns whether there was one."""
    now_ms = catalog.now_ms()
    (job,) = await catalog.store.apply([LeaseJob(catalog.server_id, now_ms, now_ms + LEASE_MS)])
    if not isinstance(job, Job):
        return False
    lease = Lease(catalog, job, now_ms + LEASE_MS)
    try:
        async with lease.extended():
            await _run(catalog, job, lease)
    except asyncio.CancelledError:
        # A server that stops hands its job on at once, or if it cannot, when the lease runs out.
        with contextlib.suppress(CatalogError, TimeoutError):
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await _postpone(catalog, job, 0, None)
        raise
    except Exception as error:
        # A job must outlive whatever is wrong today, also an error of ours.
        log.exception("job %d (%s) failed and is tried again", job.job_id, job.kind)
        await _postpone(catalog, job, min(LONGEST_PAUSE_MS, 1000 * 2 ** min(job.attempts - 1, 12)), str(error)[:500])
    else:
        await catalog.store.apply([FinishJob(job.job_id, catalog.server_id)])
    return True


async def _postpone(catalog: Catalog, job: Job, pause_ms: int, error: str | None) -> None:
    await catalog.store.apply([PostponeJob(job.job_id, catalog.server_id, catalog.now_ms() + pause_ms, error)])


class LeaseLost(CatalogError):
    """Another server may work on the job by now: this one must not touch anything any more."""


class Lease:
    """Until when a job is ours. One who slept longer than that, as a stopped process does, finds out before it goes on:
    what it was about to delete may have come back since."""

    def __init__(self, catalog: Catalog, job: Job, until_ms: int) -> None:
        self._catalog = catalog
        self._job = job
        self._until_ms = until_ms

    def check(self) -> None:
        if self._catalog.now_ms() >= self._until_ms:
            raise LeaseLost(f"the lease of job {self._job.job_id} ran out before it was done")

    @contextlib.asynccontextmanager
    async def extended(self) -> AsyncIterator[None]:
        """Kept for as long as the block takes."""
        beating = asyncio.create_task(self._extend_again_and_again())
        try:
            yield
        finally:
            beating.cancel()

    async def _extend_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            until_ms = self._catalog.now_ms() + LEASE_MS
            try:
                (still_ours,) = await self._catalog.store.apply(
                    [ExtendLease(self._job.job_id, self._catalog.server_id, until_ms)]
                )
            except CatalogError:
                log.warning("the lease of job %d could not be extended", self._job.job_id, exc_info=True)
                continue
            self._until_ms = until_ms if still_ours else 0
            if not still_ours:
                return


async def _run(catalog: Catalog, job: Job, lease: Lease) -> None:
    payload = msgspec.json.decode(job.payload)
    warehouse = catalog.warehouses.get(payload["catalog"])
    if warehouse is None:
        raise BadRequest(f"the warehouse {payload['catalog']} is not configured")
    if job.kind == "purge":
        await _purge(catalog, warehouse, payload, lease)
    elif job.kind == "delete-files":
        await _delete(catalog, await Unneeded(catalog, warehouse, payload["table-uuid"]).of(payload["files"]), lease)
    else:
        raise BadRequest(f"no such kind of job: {job.kind}")


async def _purge(catalog: Catalog, warehouse: WarehousePlace, payload: dict[str, Any], lease: Lease) -> None:
    """Delete what the metadata reaches, the metadata last: a purge that is cut off can start again from it."""
    metadata_location: str = payload["metadata-location"]
    location: str | None = payload["location"]
    try:
        data = await catalog.objects.read_metadata(metadata_location)
    except NotFound:
        log.warning("no file to purge: %s is gone", metadata_location)
    else:
        try:
            metadata: Any = table_metadata.decode(data)
        except CatalogError:
            metadata = view_metadata.decode(data)
        unneeded = Unneeded(catalog, warehouse)
        if isinstance(metadata, TableMetadata):
            for files in await files_in_stages(catalog, warehouse, metadata):
                await _delete(catalog, await unneeded.of(files), lease)
        if is_inside(warehouse, metadata.location):
            await _delete(catalog, await unneeded.of(await leftovers(catalog, metadata_location, metadata)), lease)
        await _delete(catalog, await unneeded.of([metadata_location]), lease)
        location = metadata.location
    if location is not None and is_inside(warehouse, location):
        place = parse_location(location)
        # Somebody may have made a table here since; its folders are empty as long as it is new, and they are its own.
        if not await catalog.store.overlapping(str(place), [str(place.parent(n)) for n in range(len(place.segments))]):
            await catalog.objects.remove_empty_folders(location)


async def _delete(catalog: Catalog, files: list[str], lease: Lease) -> None:
    for start in range(0, len(files), DELETES_AT_ONCE):
        lease.check()
        await asyncio.gather(*(catalog.objects.delete(path) for path in files[start : start + DELETES_AT_ONCE]))
