"""Pointers of tables and views: loads the metadata of a pointer, and checks the locations that metadata names."""

import asyncio
import threading
from collections.abc import Iterable

import msgspec
import zstandard

from nunatak.access.decisions import PolicyChanged
from nunatak.catalog.cache import Loaded
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import referenced_places
from nunatak.catalog.large_work import LARGE_METADATA_BYTES
from nunatak.catalog.write import entry
from nunatak.database.records import AdoptPointer, Key, Kind, Stored
from nunatak.errors import BadRequest, CatalogError, NoSuchTable, NoSuchView
from nunatak.iceberg import table_metadata, view_metadata
from nunatak.iceberg.chosen_places import ChosenPlace, places_of
from nunatak.iceberg.conventions import LARGE_METADATA_FILE_BYTES
from nunatak.iceberg.identifiers import Identifier, from_jdbc, print_namespace, to_jdbc
from nunatak.iceberg.metadata_files import STEERING_PROPERTIES
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.iceberg.view_metadata import ViewMetadata
from nunatak.objectstore.local_storage import is_regular_file
from nunatak.objectstore.location import (
    Location,
    missing_file,
    parse_file_location,
    parse_location,
    path_of,
    require_inside,
)

Metadata = TableMetadata | ViewMetadata

_thread_local = threading.local()


def key_of(warehouse: WarehousePlace, identifier: Identifier) -> Key:
    return Key(warehouse.name, to_jdbc(identifier.namespace), identifier.name)


def metadata_uuid(metadata: Metadata) -> str:
    return metadata.table_uuid if isinstance(metadata, TableMetadata) else metadata.view_uuid


async def load_pointer(
    catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier, kind: Kind, policy: int | None = None
) -> Loaded:
    """Returns the metadata of the current pointer; raises NoSuchTable or NoSuchView."""
    key = key_of(warehouse, identifier)
    loaded = await find_pointer(catalog, key, kind, policy)
    if loaded is None:
        raise await not_found(catalog, key, identifier, kind)
    return loaded


async def find_pointer(catalog: Catalog, key: Key, kind: Kind, policy: int | None = None) -> Loaded | None:
    """Returns the metadata of the current pointer, or None. One database read, without the content if it is cached.

    Raises PolicyChanged if the caller was authorized under another policy version than the one read with the pointer.
    """
    cached = catalog.cache.find(key)
    # The database leaves out the content if the pointer still leads to the cached location.
    pointer = await catalog.store.find_pointer(key, cached.metadata_location if cached is not None else None)
    if pointer is None or pointer.kind != kind:
        return None
    if policy is not None and pointer.policy != policy:
        raise PolicyChanged
    if cached is not None and cached.metadata_location == pointer.metadata_location:
        return cached
    if pointer.content is None:
        waiting = (
            catalog.write_behind.find(key, pointer.metadata_location) if catalog.write_behind is not None else None
        )
        if waiting is not None:
            catalog.cache.keep(key, waiting)
            return waiting
        return await _adopt(catalog, key, pointer.metadata_location, kind)
    data = await _decompress(pointer.content)
    return keep(catalog, key, pointer.metadata_location, data)


async def _decompress(content: bytes) -> bytes:
    if len(content) <= LARGE_METADATA_BYTES:
        return zstandard.decompress(content)
    return await asyncio.to_thread(zstandard.decompress, content)


async def read_table(catalog: Catalog, loaded: Loaded) -> TableMetadata:
    """Returns the parsed metadata; parses in a thread if it is large and not parsed yet."""
    if loaded.parsed is None and len(loaded.answer) > LARGE_METADATA_BYTES:
        return await catalog.large_work.run(loaded.table)
    return loaded.table()


def keep(catalog: Catalog, key: Key, metadata_location: str, data: bytes, metadata: Metadata | None = None) -> Loaded:
    loaded = make_loaded(metadata_location, data, metadata)
    catalog.cache.keep(key, loaded)
    return loaded


def make_loaded(metadata_location: str, data: bytes, metadata: Metadata | None = None) -> Loaded:
    """Makes a Loaded from the content of a metadata file, with the parsed metadata if the caller has it."""
    loaded = Loaded(metadata_location, (data,), local_path(metadata_location))
    loaded.parsed = metadata
    return loaded


def local_path(metadata_location: str) -> str | None:
    place = parse_file_location(metadata_location)
    return path_of(place) if place.scheme == "file" else None


def has_file(loaded: Loaded) -> bool:
    """Whether the metadata file exists; every load checks this before it responds from the cache.

    It must be a regular file or a symbolic link to one; read permission is not checked. True for a file that is not in
    the local file system.
    """
    return loaded.path is None or is_regular_file(loaded.path)


def check_file(loaded: Loaded) -> None:
    """Raises an error if the local metadata file is missing, even if its content is cached."""
    if not has_file(loaded):
        raise missing_file(loaded.metadata_location)


async def _adopt(catalog: Catalog, key: Key, metadata_location: str, kind: Kind) -> Loaded:
    """Reads and stores the file of a pointer without stored content, e.g. after another client moved the pointer."""
    data = await catalog.objects.read_metadata(metadata_location)
    metadata: Metadata
    if kind == "TABLE":
        metadata = await catalog.large_work.run_if(len(data) > LARGE_METADATA_BYTES, table_metadata.decode, data)
        data = table_metadata.with_uuid(data, metadata)
    else:
        metadata = await catalog.large_work.run_if(len(data) > LARGE_METADATA_BYTES, view_metadata.decode, data)
    loaded = keep(catalog, key, metadata_location, data, metadata)
    stored = await make_stored(metadata_location, metadata, data)
    await catalog.store.apply([AdoptPointer(key, stored, entry(catalog, Caller("external"), "external"))])
    return loaded


async def make_stored(metadata_location: str, metadata: Metadata, data: bytes | memoryview) -> Stored:
    """Returns the row to store with the pointer to an existing file."""
    stored = stored_with_content(metadata_location, metadata, await asyncio.to_thread(compress_metadata, data))
    return with_references(stored, metadata)


def with_references(stored: Stored, metadata: Metadata) -> Stored:
    """Adds the folders outside the table that its metadata references. Reads all snapshots: not for every commit."""
    references = referenced_places(metadata)
    return msgspec.structs.replace(stored, places=(*stored.places, *references)) if references else stored


def compress_metadata(data: bytes | memoryview) -> bytes | None:
    """Returns the compressed data, or None if it is too large to store. Thread-safe: one compressor per thread."""
    compressor: zstandard.ZstdCompressor | None = getattr(_thread_local, "compressor", None)
    if compressor is None:  # a low level, since commits wait for it
        compressor = _thread_local.compressor = zstandard.ZstdCompressor(level=1)
    content = compressor.compress(data)
    return content if len(content) <= LARGE_METADATA_FILE_BYTES else None


def stored_with_content(metadata_location: str, metadata: Metadata, content: bytes | None) -> Stored:
    """Returns the row to store with a pointer; `content` is the compressed file."""
    try:
        location = str(parse_location(metadata.location))
    except CatalogError:
        location = metadata.location  # another client wrote a location that we cannot parse
    return Stored(metadata_location, metadata_uuid(metadata), location, content, places_outside(metadata))


def places_outside(metadata: Metadata) -> tuple[str, ...]:
    """Returns the write locations outside the table's folder; skips those that cannot be parsed."""
    if metadata.properties.keys().isdisjoint(STEERING_PROPERTIES):
        return ()
    places: list[str] = []
    for chosen in places_of(None, metadata.properties):
        try:
            place = parse_location(chosen.text)
            if not parse_location(metadata.location).contains(place):
                places.append(str(place))
        except CatalogError:
            continue
    return tuple(dict.fromkeys(places))


async def not_found(catalog: Catalog, key: Key, identifier: Identifier, kind: Kind) -> NoSuchTable | NoSuchView:
    """Returns the 404 error; its hint names the view or table of that name, or a name that differs only in case."""
    hint = None
    found = await catalog.store.find_kind(key) if catalog.hints_show_names else None
    if found is not None:
        hint = f"A {found.lower()} with this name exists."
    elif catalog.hints_show_names:
        twin = await catalog.store.find_twin(key)
        if twin is not None:
            hint = f"Names are case-sensitive; did you mean {print_namespace((*from_jdbc(twin[0]), twin[1]))}?"
    if kind == "VIEW":
        return NoSuchView(f"View does not exist: {identifier}", hint=hint)
    return NoSuchTable(f"Table does not exist: {identifier}", hint=hint)


async def check_places(
    catalog: Catalog, warehouse: WarehousePlace, key: Key, metadata: Metadata
) -> tuple[Location, ...]:
    """Checks that all write locations lie inside the warehouse and outside other tables' folders; raises BadRequest.

    Returns the table's own places, as `own_places` does.
    """
    home = require_inside(metadata.location, warehouse.allowed, "location")
    own: tuple[Location, ...] = (home,)
    for chosen in places_of(None, metadata.properties):
        place = require_inside(chosen.text, warehouse.allowed, chosen.field)
        if home.contains(place):
            continue
        if not any(each.contains(place) for each in own):
            own = (*own, place)
        ancestors = [str(place.parent(size)) for size in range(len(place.segments))]
        for other in await catalog.store.find_overlapping(str(place), ancestors):
            if other.key != key:
                overlaps = f"{chosen.text} overlaps the location of another table or view"
                raise BadRequest(f"Invalid {chosen.field}: {overlaps}")
    return own


def check_chosen(warehouse: WarehousePlace, places: Iterable[ChosenPlace]) -> None:
    """Checks that every location in a request lies inside the warehouse, even if the new metadata does not keep it."""
    for chosen in places:
        require_inside(chosen.text, warehouse.allowed, chosen.field)
