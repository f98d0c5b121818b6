"""Reads the facts of tables for health and plans: from their metadata, and on request from their manifests."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import own_places
from nunatak.catalog.pointers import key_of, load_pointer
from nunatak.catalog.reachable_files import OwnFiles
from nunatak.catalog.shadows import find_shadow
from nunatak.errors import BadRequest, InternalError, NotFound
from nunatak.iceberg import table_metadata
from nunatak.iceberg.conventions import METADATA_SUFFIX
from nunatak.iceberg.identifiers import Identifier, Namespace, to_jdbc
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.maintenance.commands import Subject
from nunatak.maintenance.facts import SMALL_SHARE, Facts, facts_of
from nunatak.maintenance.layout import Counter, Layout
from nunatak.maintenance.planning import HOUR_MS, Decision, JobHistory, JobRun, PolicyUse, history_of, plan
from nunatak.maintenance.policies import Attached, nearest
from nunatak.objectstore.live_files import ManifestFile, live_data_files, manifests_of

LARGE_BYTES = 1 << 20  # metadata of this size is parsed in a thread: it would block the event loop for too long
MAX_MANIFESTS = 2000  # read per table; with more manifests the counts cover only a part
MANIFESTS_AT_ONCE = 4
# Errors of a single table, which must not hide the other tables; an error of the database ends the request.
UNREADABLE = (NotFound, BadRequest, InternalError)
RUNS_LOOKED_AT = 400  # the latest jobs of a table: enough to include the last ones of every type


def subject_of(catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier) -> Subject:
    return Subject(warehouse.name, identifier, warehouse.name == catalog.default_warehouse)


async def look(catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier, *, deep: bool = False) -> Facts:
    """Returns the facts of a table; raises NoSuchTable. Does not cache the parsed metadata: a survey of all tables must
    not evict tables in use."""
    loaded = await load_pointer(catalog, warehouse, identifier, "TABLE")
    size = len(loaded.data)
    if isinstance(loaded.parsed, TableMetadata):
        metadata = loaded.parsed
    elif size < LARGE_BYTES:
        metadata = table_metadata.decode(loaded.data)
    else:
        metadata = await asyncio.to_thread(table_metadata.decode, loaded.data)
    shadow = await find_shadow(catalog.store, warehouse.name, metadata.table_uuid)
    if not deep:
        return facts_of(metadata, size, shadow=shadow)
    facts = facts_of(metadata, size, shadow=shadow)
    own = OwnFiles(catalog, warehouse, key_of(warehouse, identifier), own_places(metadata))
    layout = await _layout(own, metadata, facts.target_bytes)
    files = await _metadata_files(catalog, own, loaded.metadata_location)
    return replace(facts_of(metadata, size, layout, shadow), metadata_files=files)


async def _metadata_files(catalog: Catalog, own: OwnFiles, metadata_location: str) -> int | None:
    """Returns the number of metadata files in the folder of the current one; None if that is not the table's own."""
    if not await own.holds(metadata_location):
        return None
    return len(await catalog.objects.list_files(metadata_location.rpartition("/")[0], METADATA_SUFFIX))


async def _layout(own: OwnFiles, metadata: TableMetadata, target_bytes: int) -> Layout | None:
    """Returns the layout of the files of the current snapshot; None if there is no snapshot."""
    current = metadata.current_snapshot
    if current is None:
        return None
    if current.get("manifest-list"):
        found = await own.read(current["manifest-list"])
        manifests = await asyncio.to_thread(list, manifests_of(found))
    else:  # Spec, v1: a snapshot may list its manifests itself, by path only
        manifests = [ManifestFile(path, 0, False, 0) for path in current.get("manifests") or ()]
    counter = Counter(target_bytes, int(target_bytes * SMALL_SHARE))
    wanted = [each for each in manifests if not each.holds_deletes][:MAX_MANIFESTS]
    for start in range(0, len(wanted), MANIFESTS_AT_ONCE):
        chunk = wanted[start : start + MANIFESTS_AT_ONCE]
        for data in await asyncio.gather(*(own.read(each.path) for each in chunk)):
            await asyncio.to_thread(counter.add, live_data_files(data))
    return counter.layout(manifests)


async def tables_after(
    catalog: Catalog, warehouse: WarehousePlace, namespace: Namespace, after: str, limit: int
) -> list[Identifier]:
    """Returns the tables of a namespace after the one named `after`, ordered by name."""
    values = {
        "catalog": warehouse.name,
        "namespace": to_jdbc(namespace),
        "type": "TABLE",
        "after": after,
        "limit": limit,
    }
    return [Identifier(namespace, row[0]) for row in await catalog.store.rows("names_after", values)]


# Plans


async def histories_of(catalog: Catalog, table_uuid: str) -> dict[str, JobHistory]:
    """Returns the results of the latest jobs of a table by type."""
    rows = await catalog.store.rows("runs_of_table", {"table_uuid": table_uuid, "limit": RUNS_LOOKED_AT})
    runs: dict[str, list[JobRun]] = {}
    for job_id, kind, state, finished_ms, changed in rows:
        runs.setdefault(kind, []).append(JobRun(job_id, state, finished_ms, bool(changed)))
    return {kind: history_of(found) for kind, found in runs.items()}


async def loads_of(catalog: Catalog, now_ms: int) -> dict[tuple[str, str], PolicyUse]:
    """Returns the budget that each policy uses, by its securable and type."""
    rows = await catalog.store.rows("load_of_policies", {"since_ms": now_ms - HOUR_MS})
    return {(row[0], row[1]): PolicyUse(int(row[2]), int(row[3] or 0)) for row in rows}


class Planner:
    """Plans several tables; the budget that the jobs of one table will use is counted for the next."""

    def __init__(self, catalog: Catalog, policies: list[Attached], loads: Mapping[tuple[str, str], PolicyUse]) -> None:
        self._catalog = catalog
        self._policies = policies
        self._loads = dict(loads)

    async def plan(self, subject: Subject, facts: Facts, now_ms: int) -> list[Decision]:
        attached = nearest(self._policies, subject.securable)
        loads = {kind: self._loads.get((each.securable, kind), PolicyUse()) for kind, each in attached.items()}
        histories = await histories_of(self._catalog, facts.table_uuid)
        decisions = plan(subject, facts, attached, histories, loads, now_ms)
        for decision in decisions:
            if decision.spec is not None and decision.attached is not None:
                key = (decision.attached.securable, decision.type)
                self._loads[key] = loads[decision.type].with_job(decision.spec, decision.size_bytes)
        return decisions
