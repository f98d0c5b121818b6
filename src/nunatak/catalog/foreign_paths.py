"""Decides whether a path belongs to the table itself, to another live table, or to no table.

A table's own places are its location and those in its steering properties. Metadata may also contain other paths:
manifest lists, manifests, statistics, earlier metadata files. Such a path is accepted as given if no table lies there.
If it lies in another live table's places, only a caller who may read and write that table can add it: engines, workers
and this server follow paths, and would read or delete the other table's files.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, assert_never

import msgspec

from nunatak.access.privileges import Privilege
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.ownership import securable_of
from nunatak.database import refusals
from nunatak.database.records import Key
from nunatak.errors import BadRequest, CatalogError, Forbidden
from nunatak.iceberg.chosen_places import places_of
from nunatak.iceberg.commit_request import AddSnapshot, SetPartitionStatistics, SetStatistics, Update
from nunatak.iceberg.metadata_files import slug
from nunatak.iceberg.shapes import Json
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.iceberg.view_metadata import ViewMetadata
from nunatak.objectstore.location import Location, is_inside_any, missing_file, parse_location, possible_locations

# The privileges a caller needs on another table to reference its files.
READ_AND_WRITE = Privilege.TABLE_READ_META | Privilege.TABLE_READ_DATA | Privilege.TABLE_WRITE
# The updates that contain paths; a quick filter, since every update of every commit is checked.
WITH_PATHS = (AddSnapshot, SetStatistics, SetPartitionStatistics)

PAGE = 1000  # pointers per query
CHUNK = 500  # paths per query; the event loop serves other requests between two chunks
MAX_REFERENCES = 1000  # folders; tables that point elsewhere point into one or two
MAX_SHOWN_LENGTH = 100  # characters of a path in an error
MAX_PATH_LENGTH = 4096  # characters; no file system and no object store has longer names
MAX_PLACE_LENGTH = 1000  # characters of a location, the width of the database column

Metadata = TableMetadata | ViewMetadata
NamedPath = tuple[str, str]  # the field and the path in it
Owner = tuple[Key, Location]  # a table or view, and which of its places
FolderOwner = Literal["own", "foreign", "outside"]


def own_places(metadata: Metadata) -> tuple[Location, ...]:
    """Returns the location and the write locations of the steering properties; skips what cannot be parsed."""
    found: dict[Location, None] = {}
    for chosen in places_of(metadata.location, metadata.properties):
        try:
            place = parse_location(chosen.text)
        except BadRequest:
            continue
        if not any(each.contains(place) for each in found):
            found[place] = None
    return tuple(found)


# Paths in updates and metadata


def paths_in_updates(updates: Iterable[Update]) -> Iterator[NamedPath]:
    """Yields every path that a commit adds."""
    for update in updates:
        if not isinstance(update, WITH_PATHS):
            continue
        match update:
            case AddSnapshot():
                yield from _paths_of_snapshot(update.snapshot)
            case SetStatistics():
                yield from _path_of_statistics(update.statistics)
            case SetPartitionStatistics():
                yield from _path_of_statistics(update.partition_statistics)
            case _:
                assert_never(update)


def paths_in_metadata(metadata: Metadata) -> Iterator[NamedPath]:
    """Yields every path in the metadata, for a register."""
    if isinstance(metadata, ViewMetadata):
        return
    for snapshot in metadata.snapshots:
        yield from _paths_of_snapshot(snapshot)
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        yield from _path_of_statistics(statistics)
    for log_entry in metadata.metadata_log:
        yield "metadata-log", log_entry["metadata-file"]


def _paths_of_snapshot(snapshot: Json) -> Iterator[NamedPath]:
    if isinstance(snapshot.get("manifest-list"), str):
        yield "manifest-list", snapshot["manifest-list"]
    for manifest in snapshot.get("manifests") or ():  # Spec, v1: a snapshot may name its manifests itself
        if isinstance(manifest, str):
            yield "manifests", manifest


def _path_of_statistics(statistics: Json) -> Iterator[NamedPath]:
    if isinstance(statistics.get("statistics-path"), str):
        yield "statistics-path", statistics["statistics-path"]


def referenced_places(metadata: Metadata) -> tuple[str, ...]:
    """Returns the folders outside the table's own places that its metadata references, as stored in `nunatak_places`.

    Before files are deleted there, this table is found and checked. A prefix distinguishes them from write locations.
    """
    own = own_places(metadata)
    found: dict[str, None] = {}
    for _, path in paths_in_metadata(metadata):
        if len(path) <= MAX_PATH_LENGTH and not is_inside_any(own, path):
            for place in possible_locations(path.rpartition("/")[0]):
                found[reference_to(place)] = None
        if len(found) >= MAX_REFERENCES:
            break
    return tuple(each for each in found if len(each) <= MAX_PLACE_LENGTH)


def reference_to(place: Location) -> str:
    return f"points-into:{place}"


# Refusals


async def refuse_foreign(
    catalog: Catalog,
    caller: Caller,
    key: Key,
    after: Metadata,
    base: Metadata | None,
    own: Sequence[Location],
    outside: Iterable[NamedPath],
) -> None:
    """Refuses a new path or place inside another table's places unless the caller may read and write that table.

    `own` are the places of `after`; those that `base` had are not checked. `outside` are the new paths outside `own`:
    see `paths_outside`. The error does not name the other table, which the caller may not be allowed to see.
    """
    if caller.rights is None:
        return
    known: Sequence[Location] = ()
    if base is not None:
        # Most commits change neither: then the places need not be parsed again.
        is_settled = after.properties is base.properties and after.location == base.location
        known = own if is_settled else own_places(base)
    for place in own:
        if place not in known:
            await _refuse_place(catalog, caller, key, place, fresh=base is None and _is_fresh(place, key, after))
    outside = paths_outside(known, outside)
    for start in range(0, len(outside), CHUNK):
        await _refuse_paths(catalog, caller, key, outside[start : start + CHUNK])
        await asyncio.sleep(0)


def paths_outside(places: Sequence[Location], paths: Iterable[NamedPath]) -> list[NamedPath]:
    """Returns the paths that lie in none of the places; usually none, since writers use the table's own places."""
    return [each for each in paths if not is_inside_any(places, each[1])]


async def _refuse_place(catalog: Catalog, caller: Caller, key: Key, place: Location, *, fresh: bool) -> None:
    """Refuses a location shared with another table: a writer there could lose files, or expose them to readers."""
    owners = await writers_around(catalog, key, place, fresh=fresh)
    if not fresh:
        owners += (await owners_of_paths(catalog, key, [str(place)]))[str(place)]
    if not await may_use_all(caller, owners):
        raise refusals.overlap(str(place))


async def _refuse_paths(catalog: Catalog, caller: Caller, key: Key, paths: Sequence[NamedPath]) -> None:
    for field, path in paths:
        if len(path) > MAX_PATH_LENGTH:
            raise BadRequest(
                f"Invalid {field}: a path of {len(path)} characters; at most {MAX_PATH_LENGTH} are allowed"
            )
    owners = await owners_of_paths(catalog, key, [path for _, path in paths])
    for field, path in paths:
        if not await may_use_all(caller, owners[path]):
            raise Forbidden(
                f"Invalid {field}: {path[:MAX_SHOWN_LENGTH]} lies in the folder of another table or view",
                hint="The principal needs the privileges to read and write that table to reference its files.",
            )


async def may_use_all(caller: Caller, owners: Iterable[Key]) -> bool:
    """Whether the caller may read and write all of these tables."""
    if caller.rights is None:
        return True
    for owner in owners:
        if await caller.rights(securable_of(owner)) & READ_AND_WRITE != READ_AND_WRITE:
            return False
    return True


class Registering:
    """Reads and checks the metadata file of one register request.

    For a caller who may not read and write the table whose places hold the file, the response is the same as for a
    missing file, after the same work, so that neither its content nor its timing reveals the table.
    """

    def __init__(self, catalog: Catalog, caller: Caller, key: Key, metadata_location: str) -> None:
        self._catalog, self._caller, self._key, self._location = catalog, caller, key, metadata_location
        self._unknown: list[Owner] = []  # tables of other clients; a register is rare enough to read all of them

    async def read(self) -> bytes:
        objects = self._catalog.objects
        if self._caller.rights is None:
            return await objects.read_metadata(self._location)
        self._unknown = [each async for each in unknown_folders(self._catalog)]
        owners = await self._owners_of([self._location])
        # Privileges are checked in any case: neither the response nor its timing reveals whether a table exists.
        if await may_use_all(self._caller, owners or [self._key]) or not owners:
            return await objects.read_metadata(self._location)
        # Reads a file that does not exist, to take as long as for a missing file.
        with suppress(CatalogError):
            await objects.read(f"{self._location.rpartition('/')[0]}/{self._catalog.new_uuid()}")
        raise missing_file(self._location)

    async def check(self, metadata: Metadata) -> None:
        """Refuses a metadata file whose location, or any path in it, belongs to another table."""
        if self._caller.rights is None:
            return
        own = own_places(metadata)
        owners = await self._owners_of([str(each) for each in own])
        if not await may_use_all(self._caller, owners):
            raise missing_file(self._location)
        outside = paths_outside(own, paths_in_metadata(metadata))
        await refuse_foreign(self._catalog, self._caller, self._key, metadata, None, own, outside)

    async def _owners_of(self, paths: Sequence[str]) -> list[Key]:
        known = await owners_of_paths(self._catalog, self._key, paths)
        places = [place for path in paths for place in possible_locations(path)]
        unknown = [other for other, folder in self._unknown if any(folder.contains(place) for place in places)]
        found = dict.fromkeys([*(owner for owners in known.values() for owner in owners), *unknown])
        return [owner for owner in found if owner != self._key]


# Owners of places


async def unknown_folders(catalog: Catalog) -> AsyncIterator[Owner]:
    """Yields the tables that another client created or moved, with the folder derived from the pointer: metadata files
    usually lie in FOLDER/metadata. Reads all pointers of the database: not for frequent calls."""
    after = Key("", "", "")
    while True:
        values = {"catalog": after.catalog, "namespace": after.namespace, "name": after.name, "limit": PAGE}
        rows = await catalog.store.rows("unknown_pointers", values)
        for *names, metadata_location in rows:
            if metadata_location is not None:
                with suppress(BadRequest):
                    file = parse_location(metadata_location)
                    yield Key(*names), file.parent(max(0, len(file.segments) - 2))
        if len(rows) < PAGE:
            return
        after = Key(*rows[-1][:3])
        await asyncio.sleep(0)  # lets the event loop serve other requests


async def owners_of_paths(catalog: Catalog, key: Key, paths: Sequence[str]) -> dict[str, list[Key]]:
    """Returns for each path the live tables and views, except `key`, whose places hold any interpretation of it."""
    possible = await _possible_places(catalog, paths)
    owners = await owners_of_all(catalog, [place for places in possible.values() for place in places])
    found: dict[str, list[Key]] = {}
    for path, places in possible.items():
        every = dict.fromkeys(owner for place in places for owner, _ in owners[place])
        found[path] = [owner for owner in every if owner != key]
    return found


async def owners_of_all(catalog: Catalog, places: Sequence[Location]) -> dict[Location, list[Owner]]:
    """Returns for each place the live tables and views whose location or write location contains it; one query."""
    around = {str(each): each for place in places for each in ancestors_and_self(place)}
    # No stored location is longer than MAX_PLACE_LENGTH, so longer ones cannot match.
    asked = msgspec.json.encode([each for each in around if len(each) <= MAX_PLACE_LENGTH]).decode()
    taken: dict[Location, list[Owner]] = {}
    for catalog_name, namespace, name, text in await catalog.store.rows("owners_at", {"places": asked}):
        taken.setdefault(around[text], []).append((Key(catalog_name, namespace, name), around[text]))
    return {place: [owner for each in ancestors_and_self(place) for owner in taken.get(each, ())] for place in places}


async def classify_folders(
    catalog: Catalog,
    key: Key,
    own: Sequence[Location],
    folders: Iterable[str],
    others: Sequence[Owner] = (),
) -> dict[str, FolderOwner]:
    """Returns for each folder whether it belongs to the table, to another table, or to none.

    `others` are owners that the query does not find. Tables may share a place: a folder inside one of `own` is foreign
    only if the other table's place is deeper.
    """
    possible = await _possible_places(catalog, folders)
    owners = await owners_of_all(catalog, [each for places in possible.values() for each in places])
    found: dict[str, FolderOwner] = {}
    for text, places in possible.items():
        # `is_inside_any` takes the path of a file: any name inside the folder gives the same result.
        is_own = is_inside_any(own, f"{text.rstrip('/')}/file")
        if any(_is_foreign(key, place, [*owners[place], *others], own if is_own else ()) for place in places):
            found[text] = "foreign"
        else:
            found[text] = "own" if is_own else "outside"
    return found


def _is_foreign(key: Key, place: Location, owners: Iterable[Owner], own: Sequence[Location]) -> bool:
    depth = max((len(each.segments) for each in own if each.contains(place)), default=-1)
    return any(other != key and theirs.contains(place) and len(theirs.segments) > depth for other, theirs in owners)


async def _possible_places(catalog: Catalog, paths: Iterable[str]) -> dict[str, list[Location]]:
    """Returns the locations that readers may resolve each path to, including through local symbolic links."""
    found = {path: possible_locations(path[:MAX_PATH_LENGTH]) for path in paths}
    places = list(dict.fromkeys(place for each in found.values() for place in each))
    real = dict(zip(places, await catalog.objects.resolve_links(places), strict=True))
    return {path: list(dict.fromkeys([*each, *(real[place] for place in each)])) for path, each in found.items()}


async def writers_around(catalog: Catalog, key: Key, place: Location, *, fresh: bool = False) -> list[Key]:
    """Returns the other tables that write into this place, inside it or, unless it is `fresh`, into an ancestor of it.

    Tables whose location overlaps it are not included: the database refuses that for every caller.
    """
    asked = [str(place)] if fresh else [str(each) for each in ancestors_and_self(place)]
    # "0" follows "/" in ASCII: the range from PLACE/ to PLACE0 holds everything inside the place.
    values = {"places": msgspec.json.encode(asked).decode(), "first": f"{place}/", "behind": f"{place}0"}
    return [
        owner for owner in (Key(*row) for row in await catalog.store.rows("writers_around", values)) if owner != key
    ]


def _is_fresh(place: Location, key: Key, metadata: Metadata) -> bool:
    """Whether the folder is named as the catalog names that of a new table, so that no other table has files there.

    It must not be refused because another table writes to an ancestor of it.
    """
    uuid = metadata.table_uuid if isinstance(metadata, TableMetadata) else metadata.view_uuid
    return bool(place.segments) and place.segments[-1] == f"{slug(key.name)}-{uuid}"


async def tables_pointing_into(catalog: Catalog, place: Location) -> list[Key]:
    """Returns the live tables elsewhere whose metadata references files in this place."""
    reference = reference_to(place)
    # "0" follows "/" in ASCII: the range holds the references to all folders inside the place.
    inside = await catalog.store.rows("places_inside", {"first": f"{reference}/", "behind": f"{reference}0"})
    return [*await catalog.store.tables_writing_to([reference]), *(Key(*row) for row in inside)]


def ancestors_and_self(place: Location) -> list[Location]:
    """Returns the place and all its ancestors."""
    return [place.parent(size) for size in range(len(place.segments) + 1)]
