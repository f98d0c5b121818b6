"""Metadata files that a commit wrote and never became the table's, because the server died before it moved the pointer.

A file goes only if nothing can ever lead to it: it lies in the table's own folder under a name of ours, it is old, no
pointer, log of the current metadata or line of the commit log names it, the whole history of the table is ours, and the
pointer has passed its version. The last means that even a server that slept since it wrote the file can no longer move
the pointer there. A file ahead of the pointer may be all that is left of a commit after an older backup was restored.
"""

import asyncio
import logging
import random
import re
import time
from dataclasses import dataclass

import msgspec
import zstandard

from nunatak.catalog.catalog import Catalog
from nunatak.catalog.history import file_name, read_history
from nunatak.catalog.pointers import Metadata, find_pointer, metadata_uuid
from nunatak.catalog.shadows import find_shadow
from nunatak.database.records import InspectedPointer, Key
from nunatak.errors import CatalogError, InvalidMetadata, NotFound
from nunatak.iceberg.metadata_files import version_of
from nunatak.objectstore.location import parse_location

log = logging.getLogger(__name__)

PAGE = 500  # names held at a time
REST = 9  # a sweep rests nine times as long as it works: requests come first

ENDING = ".metadata.json"
_OUR_NAME = re.compile(r"^\d{5,9}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.gz)?\.metadata\.json$")


@dataclass(frozen=True)
class MetadataFiles:
    """The metadata files in a table's own folders, locations by file name; `old` are ours by name and beyond the age
    that protects commits in flight."""

    present: frozenset[str]
    old: dict[str, str]


class _Owner(msgspec.Struct, rename="kebab"):
    table_uuid: str | None = None
    view_uuid: str | None = None


async def run_sweeps(catalog: Catalog, every_seconds: float, age_seconds: float) -> None:
    """Sweep again and again until cancelled; servers that start together soon do not sweep together."""
    while True:
        await asyncio.sleep(every_seconds * random.uniform(0.8, 1.2))
        try:
            deleted = await sweep(catalog, int(age_seconds * 1000))
        except Exception:
            log.exception("the sweep was cut short; the next one starts anew")
        else:
            log.info("a sweep deleted %d metadata files", deleted)


async def sweep(catalog: Catalog, age_ms: int) -> int:
    """Look at every table once; returns how many files were deleted."""
    deleted, after = 0, Key("", "", "")
    while keys := await catalog.store.keys_after(after, PAGE):
        for key in keys:
            started = time.monotonic()
            try:
                deleted += len(await sweep_table(catalog, key, age_ms))
            except CatalogError as error:
                log.warning("the metadata files of %s cannot be swept: %s", key.name, error)
            await asyncio.sleep(REST * (time.monotonic() - started))
        after = keys[-1]
    return deleted


async def sweep_table(catalog: Catalog, key: Key, age_ms: int) -> list[str]:
    """Delete what is lost for good in one table's folders; returns the locations."""
    found = await _lost_files(catalog, key, age_ms)
    if not found:
        return []
    # All is asked a second time: between the first questions the pointer may have moved.
    again = set(await _lost_files(catalog, key, age_ms))
    lost = [location for location in found if location in again]
    for location in lost:
        log.info("deleting %s: no pointer and no log names it", location)
        await catalog.objects.delete(location)
    return lost


async def _lost_files(catalog: Catalog, key: Key, age_ms: int) -> list[str]:
    pointer = await catalog.store.inspect_pointer(key)
    if pointer is None or not is_known(pointer):
        return []
    assert pointer.stored is not None
    if await find_shadow(catalog.store, key.catalog, pointer.stored.table_uuid) is not None:
        return []  # the files are those of another catalog, which may lead to them
    files = await metadata_files(catalog, key, pointer, age_ms)
    if not files.old:
        return []
    metadata_log = await _metadata_log(catalog, key, pointer)
    if metadata_log is None:
        return []
    unnamed = without(files.old, pointer, metadata_log)
    return await find_lost_files(catalog, pointer, unnamed) if unnamed else []


async def find_lost_files(catalog: Catalog, pointer: InspectedPointer, unnamed: dict[str, str]) -> list[str]:
    """Of files that neither the pointer nor its metadata names, those that nothing can ever lead to."""
    assert pointer.stored is not None
    table_uuid = pointer.stored.table_uuid
    history = await read_history(catalog.store, table_uuid, unnamed)
    if not history.ours:
        return []
    passed = [location for location in unnamed.values() if is_passed(location, pointer)]
    return [location for location in passed if await is_nobodys(catalog, location, table_uuid)]


async def is_nobodys(catalog: Catalog, location: str, table_uuid: str) -> bool:
    """Whether a file that the table does not name is not another's either."""
    return await _belongs_to(catalog, location, table_uuid) and not await catalog.store.points_at(file_name(location))


async def leftovers(catalog: Catalog, metadata_location: str, metadata: Metadata) -> list[str]:
    """The metadata files of a table that is being purged, besides the one it was at: what its log forgot and what
    killed commits left. None if another catalog may lead to them."""
    folder, uuid = f"{parse_location(metadata.location)}/metadata", metadata_uuid(metadata)
    names = [file.name for file in await catalog.objects.list_files(folder, ENDING)]
    found = [name for name in names if _OUR_NAME.match(name) and name != file_name(metadata_location)]
    if not found or not (await read_history(catalog.store, uuid, {})).ours:
        return []
    return [f"{folder}/{name}" for name in found if await _belongs_to(catalog, f"{folder}/{name}", uuid)]


def is_known(pointer: InspectedPointer) -> bool:
    """Whether what is stored beside the pointer is what it points at."""
    return pointer.stored is not None and pointer.stored.metadata_location == pointer.metadata_location


def is_passed(location: str, pointer: InspectedPointer) -> bool:
    """Whether the pointer is at this file's version or a later one."""
    version, current = version_of(location), version_of(pointer.metadata_location or "")
    return version is not None and current is not None and version <= current


async def metadata_files(catalog: Catalog, key: Key, pointer: InspectedPointer, age_ms: int) -> MetadataFiles:
    """What the folder of the pointer's file and the usual one beside the data hold, if these are the table's own."""
    assert pointer.stored is not None
    assert pointer.metadata_location is not None
    home = parse_location(pointer.stored.location)
    usual = f"{home}/metadata"
    current = pointer.metadata_location.rpartition("/")[0]
    present: set[str] = set()
    old: dict[str, str] = {}
    for place in dict.fromkeys((parse_location(usual), parse_location(current))):
        if not home.contains(place) or not _is_allowed(catalog, key, str(place)):
            continue
        before_ms = catalog.now_ms() - age_ms
        for file in await catalog.objects.list_files(str(place), ENDING):
            present.add(file.name)
            if file.modified_ms <= before_ms and _OUR_NAME.match(file.name):
                old[file.name] = f"{place}/{file.name}"
    return MetadataFiles(frozenset(present), old)


def _is_allowed(catalog: Catalog, key: Key, location: str) -> bool:
    warehouse = catalog.warehouses.get(key.catalog)
    place = parse_location(location)
    return warehouse is not None and any(allowed.contains(place) for allowed in warehouse.allowed)


def without(files: dict[str, str], pointer: InspectedPointer, metadata_log: list[str]) -> dict[str, str]:
    """Those files that neither the pointer nor the log of its metadata names."""
    named = {file_name(location) for location in metadata_log}
    named |= {file_name(each) for each in (pointer.metadata_location, pointer.previous_metadata_location) if each}
    return {name: location for name, location in files.items() if name not in named}


async def _metadata_log(catalog: Catalog, key: Key, pointer: InspectedPointer) -> list[str] | None:
    """The earlier files that the table's metadata names; None if it moved on meanwhile."""
    if pointer.kind == "VIEW":
        return []
    assert pointer.stored is not None
    if pointer.stored.content is not None:
        data: bytes | memoryview = zstandard.decompress(pointer.stored.content)
    else:  # too large for the database
        loaded = await find_pointer(catalog, key, "TABLE")
        if loaded is None or loaded.metadata_location != pointer.metadata_location:
            return None
        data = loaded.data
    return [each.metadata_file for each in _logged.decode(data).metadata_log or ()]


class _LogEntry(msgspec.Struct, rename="kebab"):
    metadata_file: str


class _Logged(msgspec.Struct, rename="kebab"):
    metadata_log: list[_LogEntry] | None = None


_logged = msgspec.json.Decoder(_Logged)
_owner = msgspec.json.Decoder(_Owner)


async def _belongs_to(catalog: Catalog, location: str, table_uuid: str) -> bool:
    """Whether the file says so. One that breaks off belongs to nobody else: it was never whole."""
    try:
        owner = _owner.decode(await catalog.objects.read_metadata(location))
    except NotFound:
        return False
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidMetadata):
        return True
    return table_uuid in (owner.table_uuid, owner.view_uuid)
