"""Work that follows a change and survives a crash: purging dropped tables and deleting files nobody needs any more."""

import asyncio
import logging
from typing import Any

import msgspec

from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.reachable import Unneeded, files_in_stages, is_inside
from nunatak.database.records import FinishJob, ForgetAnswers, Job, PostponeJob
from nunatak.errors import BadRequest, CatalogError, NotFound
from nunatak.iceberg import table_metadata, view_metadata
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import parse_location

log = logging.getLogger(__name__)

IDLE_SECONDS = 60.0  # how long a server sleeps that has nothing to do; a new job wakes it at once
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
        except CatalogError:
            log.exception("jobs cannot be worked off now")
        try:
            await asyncio.wait_for(catalog.job_added.wait(), await _idle_seconds(catalog))
        except TimeoutError:
            continue


async def _idle_seconds(catalog: Catalog) -> float:
    due_ms = await catalog.store.next_job_time()
    if due_ms is None:
        return IDLE_SECONDS
    return min(IDLE_SECONDS, max(0.05, (due_ms - catalog.now_ms()) / 1000))


async def run_next(catalog: Catalog) -> bool:
    """Do one job that is due; returns whether there was one."""
    job = await catalog.store.next_job(catalog.now_ms())
    if job is None:
        return False
    try:
        await _run(catalog, job)
    except Exception as error:
        # A job must outlive whatever is wrong today, also an error of ours.
        log.exception("job %d (%s) failed and is tried again", job.job_id, job.kind)
        pause_ms = min(LONGEST_PAUSE_MS, 1000 * 2 ** min(job.attempts, 12))
        await catalog.store.apply([PostponeJob(job.job_id, catalog.now_ms() + pause_ms, str(error)[:500])])
    else:
        await catalog.store.apply([FinishJob(job.job_id)])
    return True


async def _run(catalog: Catalog, job: Job) -> None:
    payload = msgspec.json.decode(job.payload)
    warehouse = catalog.warehouses.get(payload["catalog"])
    if warehouse is None:
        raise BadRequest(f"the warehouse {payload['catalog']} is not configured")
    if job.kind == "purge":
        await _purge(catalog, warehouse, payload)
    elif job.kind == "delete-files":
        await _delete(catalog, await Unneeded(catalog, warehouse, payload["table-uuid"]).of(payload["files"]))
    else:
        raise BadRequest(f"no such kind of job: {job.kind}")


async def _purge(catalog: Catalog, warehouse: WarehousePlace, payload: dict[str, Any]) -> None:
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
                await _delete(catalog, await unneeded.of(files))
        await _delete(catalog, await unneeded.of([metadata_location]))
        location = metadata.location
    if location is not None and is_inside(warehouse, location):
        place = parse_location(location)
        # Somebody may have made a table here since; its folders are empty as long as it is new, and they are its own.
        if not await catalog.store.overlapping(str(place), [str(place.parent(n)) for n in range(len(place.segments))]):
            await catalog.objects.remove_empty_folders(location)


async def _delete(catalog: Catalog, files: list[str]) -> None:
    for start in range(0, len(files), DELETES_AT_ONCE):
        await asyncio.gather(*(catalog.objects.delete(path) for path in files[start : start + DELETES_AT_ONCE]))
