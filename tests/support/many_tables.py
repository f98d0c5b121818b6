"""A catalog with many tables, made quickly: straight through the store, and files without waiting for the disk."""

import asyncio
from pathlib import Path

import zstandard
from msgspec.structs import replace

from nunatak.catalog.catalog import Catalog
from nunatak.database.records import Change, CommitEntry, CreateNamespace, InsertPointer, Key, MovePointer, Stored
from nunatak.iceberg import create, table_metadata
from nunatak.iceberg.metadata_files import new_metadata_location
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.settings import Settings
from tests.api.wire import SCHEMA
from tests.support.catalogs.local import opened_app

PER_NAMESPACE = 1000
TOGETHER = 200


def fill(settings: Settings, tables: int, commits: int) -> None:
    """So many tables, each committed to so many times; every one is as a server would have left it."""

    async def work() -> None:
        async with opened_app(settings) as app:
            await _fill(app.catalog, tables, commits)

    asyncio.run(work())


async def _fill(catalog: Catalog, tables: int, commits: int) -> None:
    warehouse = catalog.warehouses[catalog.default_warehouse]
    for number in range(0, tables, PER_NAMESPACE):
        name = f"many_{number // PER_NAMESPACE}"
        await catalog.store.apply([CreateNamespace(warehouse.name, name, (), {}, name)])
    for start in range(0, tables, TOGETHER):
        batch = range(start, min(start + TOGETHER, tables))
        await catalog.store.apply([change for number in batch for change in _table(catalog, number, commits)])


def _table(catalog: Catalog, number: int, commits: int) -> list[Change]:
    """The changes that make one table, in order; its files are written at once."""
    warehouse = catalog.warehouses[catalog.default_warehouse]
    namespace, name = f"many_{number // PER_NAMESPACE}", f"t{number}"
    key, uuid, printed = Key(warehouse.name, namespace, name), catalog.new_uuid(), f"{namespace}.{name}"
    metadata = create.new_table(
        schema=SCHEMA,
        partition_spec=None,
        sort_order=None,
        location=f"{warehouse.location}/{namespace}/{name}-{uuid}",
        properties={"owner": "many"},
        table_uuid=uuid,
        now_ms=catalog.now_ms(),
    )
    stored = _written(catalog, metadata, None)
    made: list[Change] = [InsertPointer(key, "TABLE", stored, _entry(catalog, "create-table"), printed, namespace)]
    for _ in range(commits):
        log = {"timestamp-ms": metadata.last_updated_ms, "metadata-file": stored.metadata_location}
        metadata = replace(metadata, metadata_log=metadata.metadata_log.with_last(log))
        after = _written(catalog, metadata, stored.metadata_location)
        line = _entry(catalog, "commit-table")
        made.append(MovePointer(key, "TABLE", stored.metadata_location, after, line, printed))
        stored = after
    return made


def _written(catalog: Catalog, metadata: TableMetadata, previous: str | None) -> Stored:
    location = new_metadata_location(metadata.location, metadata.properties, previous, catalog.new_uuid())
    data = table_metadata.encode(metadata)
    file = Path(location.removeprefix("file://"))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return Stored(location, metadata.table_uuid, metadata.location, zstandard.compress(data, 1))


def _entry(catalog: Catalog, operation: str) -> CommitEntry:
    return CommitEntry(catalog.new_uuid(), operation, "anonymous", catalog.now_ms())
