"""Which files a table leads to, and which of them no other table needs: what a purge may delete."""

import asyncio
from collections.abc import Iterable, Iterator

from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.heads import find_head
from nunatak.database.records import Key
from nunatak.errors import BadRequest, NotFound
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore import manifests
from nunatak.objectstore.location import Location, parse_location


async def files_in_stages(catalog: Catalog, warehouse: WarehousePlace, metadata: TableMetadata) -> list[list[str]]:
    """The table's files in the order they may go: none before all that only it leads to are gone.

    A file that is gone already leads nowhere. With gc.enabled=false the data files are not the table's to delete.
    """
    lists = [snapshot["manifest-list"] for snapshot in metadata.snapshots if snapshot.get("manifest-list")]
    paths = dict.fromkeys(path for snapshot in metadata.snapshots for path in snapshot.get("manifests") or ())
    for manifest_list in dict.fromkeys(lists):
        data = await _read(catalog, warehouse, manifest_list)
        paths.update(dict.fromkeys(await _parsed(manifests.manifest_paths(data))))
    files: dict[str, None] = {}
    if metadata.properties.get("gc.enabled", "true").lower() != "false":
        for manifest in paths:
            data = await _read(catalog, warehouse, manifest)
            files.update(dict.fromkeys(await _parsed(manifests.file_paths(data))))
    statistics = [each["statistics-path"] for each in (*metadata.statistics, *metadata.partition_statistics)]
    earlier = [log_entry["metadata-file"] for log_entry in metadata.metadata_log]
    return [list(files), list(paths), [*lists, *statistics, *earlier]]


async def _parsed(names: Iterator[str]) -> list[str]:
    """Avro is read in a thread: a manifest may name a hundred thousand files."""
    return await asyncio.to_thread(list, names)


async def _read(catalog: Catalog, warehouse: WarehousePlace, location: str) -> bytes:
    """A file of the table, or nothing if it is gone or not ours to read."""
    if not is_inside(warehouse, location):
        return b""
    try:
        return await catalog.objects.read(location)
    except NotFound:
        return b""


def is_inside(warehouse: WarehousePlace, location: str) -> bool:
    try:
        place = parse_location(location)
    except BadRequest:
        return False
    return any(allowed.contains(place) for allowed in warehouse.allowed)


class Unneeded:
    """Decides for one purge which files may go: not outside the warehouse, not in a live table's folder, and not one
    that a live table leads to, where tables share a place for their data. `owner_uuid` names a table that may lose
    files of its own folder, but none that it names by now: it may have been rolled back, or stand under two names."""

    def __init__(self, catalog: Catalog, warehouse: WarehousePlace, owner_uuid: str | None = None) -> None:
        self._catalog, self._warehouse, self._owner_uuid = catalog, warehouse, owner_uuid
        self._folders: dict[Location, tuple[bool, list[Key], list[Key]]] = {}
        self._needed: dict[Key, frozenset[str]] = {}
        self._named: dict[Key, frozenset[str]] = {}

    async def of(self, files: Iterable[str]) -> list[str]:
        return [path for path in dict.fromkeys(files) if await self._may_go(path)]

    async def _may_go(self, path: str) -> bool:
        if not is_inside(self._warehouse, path):
            return False
        place = parse_location(path)
        folder = place.parent(len(place.segments) - 1)
        if folder not in self._folders:
            self._folders[folder] = await self._look_around(folder)
        free, owners, sharing = self._folders[folder]
        if not free:
            return False
        for key in (*owners, *sharing):
            if str(place) in await self._named_by(key):
                return False
        for key in sharing:
            if str(place) in await self._needed_by(key):
                return False
        return True

    async def _look_around(self, folder: Location) -> tuple[bool, list[Key], list[Key]]:
        """Whether the folder is in no other live table's own, whose it is, and who shares a place around it."""
        store = self._catalog.store
        around = [str(folder.parent(size)) for size in range(len(folder.segments) + 1)]
        taken = await store.overlapping(str(folder), around)
        # A live table inside the folder is no reason to keep a file beside it; one around the file is.
        free = not any(
            other.table_uuid != self._owner_uuid and parse_location(other.location).contains(folder) for other in taken
        )
        owners = [other.key for other in taken if other.table_uuid == self._owner_uuid]
        return free, owners, await store.tables_writing_to(around)

    async def _named_by(self, key: Key) -> frozenset[str]:
        """The metadata files that a live table is at, or can be rolled back to."""
        if key not in self._named:
            loaded = await find_head(self._catalog, key, "TABLE")
            paths: list[str] = []
            if loaded is not None:
                earlier = [log_entry["metadata-file"] for log_entry in loaded.table().metadata_log]
                paths = [loaded.metadata_location, *earlier]
            # What cannot be read as a place is none that a file of ours could have.
            inside = [path for path in paths if is_inside(self._warehouse, path)]
            self._named[key] = frozenset(str(parse_location(path)) for path in inside)
        return self._named[key]

    async def _needed_by(self, key: Key) -> frozenset[str]:
        """All a live table leads to. One of its files missing must stop the purge: what it led to is not known."""
        if key not in self._needed:
            loaded = await find_head(self._catalog, key, "TABLE")
            paths: set[str] = set()
            if loaded is not None:
                for snapshot in loaded.table().snapshots:
                    found = list(snapshot.get("manifests") or ())
                    if snapshot.get("manifest-list"):
                        data = await self._catalog.objects.read(snapshot["manifest-list"])
                        found = await _parsed(manifests.manifest_paths(data))
                    for manifest in found:
                        if manifest not in paths:
                            paths.add(manifest)
                            data = await self._catalog.objects.read(manifest)
                            paths.update(await _parsed(manifests.file_paths(data)))
            self._needed[key] = frozenset(str(parse_location(path)) for path in paths)
        return self._needed[key]
