"""Whose a path is: the table's own, another live table's, or nobody's.

A table's own places are its location and those its steering properties name. Metadata may name any other path as well:
manifest lists, manifests, statistics, earlier metadata files. Such a path is kept as given if no table lies there. If
it lies in another live table's places, only somebody who may read and write that table can bring it in: engines,
workers and this server follow paths, and would read or delete the other table's files.
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

# What somebody needs on another table to make its files their own table's.
READ_AND_WRITE = Privilege.TABLE_READ_META | Privilege.TABLE_READ_DATA | Privilege.TABLE_WRITE
# The updates that bring paths in; most others are as frequent as these, and all are looked at.
WITH_PATHS = (AddSnapshot, SetStatistics, SetPartitionStatistics)

PAGE = 1000  # pointers read at a time
CHUNK = 500  # paths asked for together; between two chunks other requests have their turn
MOST_REFERENCES = 1000  # folders; tables that point elsewhere point into one or two
LONGEST_SHOWN = 100  # characters of a path in an error
LONGEST_PATH = 4096  # characters; no file system and no object store has longer names
LONGEST_PLACE = 1000  # characters of a location, as the databases keep it

Metadata = TableMetadata | ViewMetadata
NamedPath = tuple[str, str]  # the field, and the path that stands in it
Owner = tuple[Key, Location]  # a table or view, and which of its places
Standing = Literal["own", "foreign", "outside"]


def own_places(metadata: Metadata) -> tuple[Location, ...]:
    """The location, and where the steering properties send writers; what cannot be read as a place is none."""
    found: dict[Location, None] = {}
    for chosen in places_of(metadata.location, metadata.properties):
        try:
            place = parse_location(chosen.text)
        except BadRequest:
            continue
        if not any(each.contains(place) for each in found):
            found[place] = None
    return tuple(found)


# Where paths come in


def paths_in_updates(updates: Iterable[Update]) -> Iterator[NamedPath]:
    """Every path that a commit brings in."""
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
    """Every path that a registered file brings in."""
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
    """The folders outside the table's own places that its metadata points into, as `nunatak_places` keeps them: whoever
    deletes files there is told that this table may need them. The prefix tells them from places to write to."""
    own = own_places(metadata)
    found: dict[str, None] = {}
    for _, path in paths_in_metadata(metadata):
        if len(path) <= LONGEST_PATH and not is_inside_any(own, path):
            for place in possible_locations(path.rpartition("/")[0]):
                found[reference_to(place)] = None
        if len(found) >= MOST_REFERENCES:
            break
    return tuple(each for each in found if len(each) <= LONGEST_PLACE)


def reference_to(place: Location) -> str:
    return f"points-into:{place}"


# What is refused


async def refuse_foreign(
    catalog: Catalog,
    caller: Caller,
    key: Key,
    after: Metadata,
    base: Metadata | None,
    own: Sequence[Location],
    outside: Iterable[NamedPath],
) -> None:
    """Refuses a path, or a place that `base` did not have, in another table's places, unless the caller may use those.

    `own` are the places of `after`, and `outside` are the new paths that do not lie in them: see `paths_outside`. The
    refusal says nothing of whose the place is: the caller may not know of it.
    """
    if caller.rights is None:
        return
    known: Sequence[Location] = ()
    if base is not None:
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
    """Those that lie in none of the places. Writers put their files into the table's own places: as a rule, none."""
    return [each for each in paths if not is_inside_any(places, each[1])]


async def _refuse_place(catalog: Catalog, caller: Caller, key: Key, place: Location, *, fresh: bool) -> None:
    """Of a place that somebody chose: whoever writes there would lose files, or have them read."""
    owners = await writers_around(catalog, key, place, fresh=fresh)
    if not fresh:
        owners += (await owners_of_paths(catalog, key, [str(place)]))[str(place)]
    if not await may_use_all(caller, owners):
        raise refusals.overlap(str(place))


async def _refuse_paths(catalog: Catalog, caller: Caller, key: Key, paths: Sequence[NamedPath]) -> None:
    for field, path in paths:
        if len(path) > LONGEST_PATH:
            raise BadRequest(f"Invalid {field}: a path of {len(path)} characters; at most {LONGEST_PATH} are allowed")
    owners = await owners_of_paths(catalog, key, [path for _, path in paths])
    for field, path in paths:
        if not await may_use_all(caller, owners[path]):
            raise Forbidden(
                f"Invalid {field}: {path[:LONGEST_SHOWN]} lies in a place of another table or view",
                hint="Only somebody who may read and write that table can name its files here.",
            )


async def may_use_all(caller: Caller, owners: Iterable[Key]) -> bool:
    """Whether the caller may read and write each of these tables."""
    if caller.rights is None:
        return True
    for owner in owners:
        if await caller.rights(securable_of(owner)) & READ_AND_WRITE != READ_AND_WRITE:
            return False
    return True


class Registering:
    """One register: reads the file and checks what it names. A file in another table's places is not there for somebody
    who may not read and write that table: the same answer as for a file that is absent, after the same work."""

    def __init__(self, catalog: Catalog, caller: Caller, key: Key, metadata_location: str) -> None:
        self._catalog, self._caller, self._key, self._location = catalog, caller, key, metadata_location
        self._unknown: list[Owner] = []  # what another client has put somewhere: rare enough to ask for that, too

    async def read(self) -> bytes:
        objects = self._catalog.objects
        if self._caller.rights is None:
            return await objects.read_metadata(self._location)
        self._unknown = [each async for each in unknown_folders(self._catalog)]
        owners = await self._owners_of([self._location])
        # Rights are asked for once in any case: neither the answer nor its time tells whether a table is there.
        if await may_use_all(self._caller, owners or [self._key]) or not owners:
            return await objects.read_metadata(self._location)
        with suppress(CatalogError):
            await objects.read(f"{self._location.rpartition('/')[0]}/{self._catalog.new_uuid()}")
        raise missing_file(self._location)

    async def check(self, metadata: Metadata) -> None:
        """Refuses a file whose location, or anything else in it, is another table's."""
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


# Whose a place is


async def unknown_folders(catalog: Catalog) -> AsyncIterator[Owner]:
    """Tables that another client put into the database or moved, and where each lies as far as its pointer tells: files
    lie in FOLDER/metadata, as a rule. Reads all pointers: not for what is asked often."""
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
        await asyncio.sleep(0)  # other requests have their turn


async def owners_of_paths(catalog: Catalog, key: Key, paths: Sequence[str]) -> dict[str, list[Key]]:
    """For each path the live tables and views, besides `key`, in whose places it lies, however it is understood."""
    meanings = await _meanings(catalog, paths)
    owners = await owners_of_all(catalog, [place for places in meanings.values() for place in places])
    found: dict[str, list[Key]] = {}
    for path, places in meanings.items():
        every = dict.fromkeys(owner for place in places for owner, _ in owners[place])
        found[path] = [owner for owner in every if owner != key]
    return found


async def owners_of_all(catalog: Catalog, places: Sequence[Location]) -> dict[Location, list[Owner]]:
    """For each place the live tables and views whose location, or place to write to, holds it; one question to the
    database."""
    around = {str(each): each for place in places for each in ancestry(place)}
    asked = msgspec.json.encode([each for each in around if len(each) <= LONGEST_PLACE]).decode()
    taken: dict[Location, list[Owner]] = {}
    for catalog_name, namespace, name, text in await catalog.store.rows("owners_at", {"places": asked}):
        taken.setdefault(around[text], []).append((Key(catalog_name, namespace, name), around[text]))
    return {place: [owner for each in ancestry(place) for owner in taken.get(each, ())] for place in places}


async def sort_folders(
    catalog: Catalog,
    key: Key,
    own: Sequence[Location],
    folders: Iterable[str],
    others: Sequence[Owner] = (),
) -> dict[str, Standing]:
    """For each folder whether it is the table's own, another table's, or nobody's; `others` are owners that the
    database cannot name. Tables may share a place: a folder in one of `own` is another's only if that lies deeper."""
    meanings = await _meanings(catalog, folders)
    owners = await owners_of_all(catalog, [each for places in meanings.values() for each in places])
    found: dict[str, Standing] = {}
    for text, places in meanings.items():
        is_own = is_inside_any(own, f"{text.rstrip('/')}/file")
        if any(_is_foreign(key, place, [*owners[place], *others], own if is_own else ()) for place in places):
            found[text] = "foreign"
        else:
            found[text] = "own" if is_own else "outside"
    return found


def _is_foreign(key: Key, place: Location, owners: Iterable[Owner], own: Sequence[Location]) -> bool:
    depth = max((len(each.segments) for each in own if each.contains(place)), default=-1)
    return any(other != key and theirs.contains(place) and len(theirs.segments) > depth for other, theirs in owners)


async def _meanings(catalog: Catalog, paths: Iterable[str]) -> dict[str, list[Location]]:
    """The places that a reader may take each path for, also behind links of this machine."""
    found = {path: possible_locations(path[:LONGEST_PATH]) for path in paths}
    places = list(dict.fromkeys(place for each in found.values() for place in each))
    real = dict(zip(places, await catalog.objects.without_links(places), strict=True))
    return {path: list(dict.fromkeys([*each, *(real[place] for place in each)])) for path, each in found.items()}


async def writers_around(catalog: Catalog, key: Key, place: Location, *, fresh: bool = False) -> list[Key]:
    """The other tables that write into this place, into one inside it or, unless it is `fresh`, into one around it.

    Those whose location overlaps it are not among them: no table may lie in another's, whoever asks for it.
    """
    asked = [str(place)] if fresh else [str(each) for each in ancestry(place)]
    values = {"places": msgspec.json.encode(asked).decode(), "first": f"{place}/", "behind": f"{place}0"}
    return [
        owner for owner in (Key(*row) for row in await catalog.store.rows("writers_around", values)) if owner != key
    ]


def _is_fresh(place: Location, key: Key, metadata: Metadata) -> bool:
    """Whether this is a folder as the catalog itself chooses it for a new table: nobody's file lies there. Such a one
    must not be refused because of somebody who writes to a place around it."""
    uuid = metadata.table_uuid if isinstance(metadata, TableMetadata) else metadata.view_uuid
    return bool(place.segments) and place.segments[-1] == f"{slug(key.name)}-{uuid}"


async def pointing_into(catalog: Catalog, place: Location) -> list[Key]:
    """The live tables elsewhere whose metadata points at files in this place."""
    reference = reference_to(place)
    inside = await catalog.store.rows("places_inside", {"first": f"{reference}/", "behind": f"{reference}0"})
    return [*await catalog.store.tables_writing_to([reference]), *(Key(*row) for row in inside)]


def ancestry(place: Location) -> list[Location]:
    """The place and everything it lies in."""
    return [place.parent(size) for size in range(len(place.segments) + 1)]
