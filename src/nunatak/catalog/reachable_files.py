"""Finds the files that a table reaches, and those of them that no other table needs: a purge may delete these."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import classify_folders, paths_in_metadata, tables_pointing_into
from nunatak.catalog.pointers import find_pointer
from nunatak.database.records import Key
from nunatak.errors import BadRequest, CatalogError, NotFound
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore import manifests
from nunatak.objectstore.location import Location, is_inside_any, parse_location

MAX_EXAMPLES = 20  # files left by a purge that the log and the audit row name
MAX_SHOWN_LENGTH = 200  # characters of a path in a log or an error


DROPPED_TABLE = Key("", "", "")  # the key of a dropped table: a table that has its name now is another one


class OwnFiles:
    """The files in a table's own places: the only files of the table that this server reads or deletes.

    Paths elsewhere in snapshots and statistics are ignored, whether another live table lies there or not.
    """

    def __init__(self, catalog: Catalog, warehouse: WarehousePlace, key: Key, places: Sequence[Location]) -> None:
        self._catalog, self._warehouse, self._key, self.places = catalog, warehouse, key, places
        self._folders: dict[str, bool] = {}

    async def holds(self, path: str) -> bool:
        """Whether the file is the table's own; not if it lies in another table's folder inside the table's places."""
        if not is_inside_any(self.places, path) or not is_inside(self._warehouse, path):
            return False
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            found = await classify_folders(self._catalog, self._key, self.places, [folder])
            self._folders[folder] = found[folder] == "own"
        return self._folders[folder]

    async def read(self, path: str) -> bytes:
        """Reads the file; raises BadRequest if it is not the table's own, NotFound if it is missing."""
        if not await self.holds(path):
            raise BadRequest(f"{path[:MAX_SHOWN_LENGTH]} lies outside the table's own places and is not read")
        return await self._catalog.objects.read(path)


async def files_in_stages(own: OwnFiles, metadata: TableMetadata) -> list[list[str]]:
    """Returns the table's files in the order of deletion: a file comes after all files that are found through it.

    Missing files, and files outside the table's own places, are not followed. With gc.enabled=false data files are not
    deleted, since other tables may use them.
    """
    lists = [snapshot["manifest-list"] for snapshot in metadata.snapshots if snapshot.get("manifest-list")]
    paths = dict.fromkeys(path for snapshot in metadata.snapshots for path in snapshot.get("manifests") or ())
    for manifest_list in dict.fromkeys(lists):
        paths.update(dict.fromkeys(await _read_in_thread(manifests.manifest_paths(await _read(own, manifest_list)))))
    files: dict[str, None] = {}
    if metadata.properties.get("gc.enabled", "true").lower() != "false":
        for manifest in paths:
            files.update(dict.fromkeys(await _read_in_thread(manifests.file_paths(await _read(own, manifest)))))
    statistics = [each["statistics-path"] for each in (*metadata.statistics, *metadata.partition_statistics)]
    earlier = [log_entry["metadata-file"] for log_entry in metadata.metadata_log]
    return [list(files), list(paths), [*lists, *statistics, *earlier]]


async def _read_in_thread(names: Iterator[str]) -> list[str]:
    """Reads Avro in a thread: a manifest may name a hundred thousand files."""
    return await asyncio.to_thread(list, names)


async def _read(own: OwnFiles, path: str) -> bytes:
    """Returns the content of a file, or no bytes if it is missing or not the table's own."""
    if not await own.holds(path):
        return b""
    try:
        return await own.read(path)
    except NotFound:
        return b""


def is_inside(warehouse: WarehousePlace, location: str) -> bool:
    try:
        place = parse_location(location)
    except BadRequest:
        return False
    return any(allowed.contains(place) for allowed in warehouse.allowed)


@dataclass
class KeptFiles:
    """The files that a purge did not delete: their number and the first of them."""

    outside: int = 0  # the table's own places
    needed: int = 0  # by a live table
    examples: list[str] = field(default_factory=list)

    def note(self, path: str) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(path[:MAX_SHOWN_LENGTH])

    def summary(self) -> dict[str, object]:
        return {"outside": self.outside, "needed": self.needed, "files": self.examples}


class UnneededFiles:
    """Decides for one purge which files may be deleted: only files in the table's `own` places that do not lie in a
    live table's folder and that no live table reaches, where tables share a place for their data.

    `owner_uuid` is a live table that may lose files of its own folder, but none that it names now: it may have been
    rolled back, or have two names. Files that must stay are counted in `left`.
    """

    def __init__(
        self, catalog: Catalog, own: OwnFiles, warehouse: WarehousePlace, owner_uuid: str | None = None
    ) -> None:
        self._catalog, self._own, self._warehouse, self._owner_uuid = catalog, own, warehouse, owner_uuid
        self._folders: dict[Location, tuple[bool, list[Key], list[Key]]] = {}
        self._needed: dict[Key, frozenset[str]] = {}
        self._named: dict[Key, frozenset[str]] = {}
        self._pointing: list[Key] | None = None
        self.left = KeptFiles()

    async def select(self, files: Iterable[str]) -> list[str]:
        found = []
        for path in dict.fromkeys(files):
            if not await self._own.holds(path):
                self.left.outside += 1
            elif await self._may_delete(path):
                found.append(path)
                continue
            else:
                self.left.needed += 1
            self.left.note(path)
        return found

    async def _may_delete(self, path: str) -> bool:
        place = parse_location(path)
        folder = place.parent(len(place.segments) - 1)
        if folder not in self._folders:
            self._folders[folder] = await self._tables_around(folder)
        free, owners, sharing = self._folders[folder]
        if not free:
            return False
        for key in (*owners, *sharing):
            if str(place) in await self._metadata_files_of(key):
                return False
        for key in sharing:
            if str(place) in await self._files_needed_by(key, shares=True):
                return False
        for key in await self._tables_pointing_here():
            if str(place) in await self._files_needed_by(key, shares=False):
                return False
        return True

    async def _tables_pointing_here(self) -> list[Key]:
        """Returns the live tables elsewhere whose metadata references files in the purged table's places."""
        if self._pointing is None:
            found = [key for place in self._own.places for key in await tables_pointing_into(self._catalog, place)]
            self._pointing = list(dict.fromkeys(found))
        return self._pointing

    async def _tables_around(self, folder: Location) -> tuple[bool, list[Key], list[Key]]:
        """Returns whether no other live table's folder contains this one, the keys of the owner, and the tables that
        write into the folder or an ancestor of it."""
        store = self._catalog.store
        around = [str(folder.parent(size)) for size in range(len(folder.segments) + 1)]
        taken = await store.find_overlapping(str(folder), around)
        # A live table whose folder contains the file needs it; one in a subfolder beside the file does not.
        free = not any(
            other.table_uuid != self._owner_uuid and parse_location(other.location).contains(folder) for other in taken
        )
        owners = [other.key for other in taken if other.table_uuid == self._owner_uuid]
        return free, owners, await store.tables_writing_to(around)

    async def _metadata_files_of(self, key: Key) -> frozenset[str]:
        """Returns the current metadata file of a live table and those of its metadata log, for a rollback."""
        if key not in self._named:
            loaded = await find_pointer(self._catalog, key, "TABLE")
            paths: list[str] = []
            if loaded is not None:
                earlier = [log_entry["metadata-file"] for log_entry in loaded.table().metadata_log]
                paths = [loaded.metadata_location, *earlier]
            # A path that cannot be parsed as a location cannot be one of our files.
            inside = [path for path in paths if is_inside(self._warehouse, path)]
            self._named[key] = frozenset(str(parse_location(path)) for path in inside)
        return self._named[key]

    async def _files_needed_by(self, key: Key, *, shares: bool) -> frozenset[str]:
        """Returns all files that a live table reaches. If it shares a place with the purged table, a missing manifest
        or manifest list must stop the purge, since the files listed in it are unknown. A table that only references
        files here names those that it needs, or is already broken."""
        if key not in self._needed:
            loaded = await find_pointer(self._catalog, key, "TABLE")
            paths: set[str] = set()
            seen: set[str] = set()  # many snapshots may share a manifest
            if loaded is not None:
                paths.update(path for _, path in paths_in_metadata(loaded.table()))
                for snapshot in loaded.table().snapshots:
                    found = list(snapshot.get("manifests") or ())
                    if snapshot.get("manifest-list"):
                        data = await self._read_or_empty(snapshot["manifest-list"], required=shares)
                        found = await _read_in_thread(manifests.manifest_paths(data))
                    for manifest in found:
                        if manifest in seen:
                            continue
                        seen.add(manifest)
                        data = await self._read_or_empty(manifest, required=shares)
                        paths.update(await _read_in_thread(manifests.file_paths(data)))
            inside = [path for path in paths | seen if is_inside(self._warehouse, path)]
            self._needed[key] = frozenset(str(parse_location(path)) for path in inside)
        return self._needed[key]

    async def _read_or_empty(self, path: str, *, required: bool) -> bytes:
        try:
            return await self._catalog.objects.read(path)
        except CatalogError:
            if required:
                raise
            return b""
