"""Deletes metadata files of commits that never moved the pointer, because the server died in between.

A file is deleted only if nothing can ever lead to it: it lies in the table's own folder with a name in our format, it
is old, no pointer, metadata log or line of the commit log names it, the whole history of the table was written here,
and the pointer has passed its version. The last means that even a server that was suspended since it wrote the file can
no longer move the pointer there. A file ahead of the pointer may be all that is left of a commit after an older backup
was restored.
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
from nunatak.iceberg.conventions import METADATA_SUFFIX
from nunatak.iceberg.metadata_files import version_of
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.profile import LocalProfile

log = logging.getLogger(__name__)

PAGE = 500  # names per query
SLEEP_FACTOR = 9  # a sweep sleeps nine times as long as it works: requests have priority

# VERSION-UUID.metadata.json, as this server names its files; other names may be of other writers.
_OUR_NAME = re.compile(r"^\d{5,9}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.gz)?\.metadata\.json$")


@dataclass(frozen=True)
class MetadataFiles:
    """The metadata files in a table's own folders; `old` maps file names to locations of files with a name in our
    format, beyond the age that protects commits in flight."""

    present: frozenset[str]
    old: dict[str, str]


class _Owner(msgspec.Struct, rename="kebab"):
    table_uuid: str | None = None
    view_uuid: str | None = None


async def run_sweeps(
    catalog: Catalog, every_seconds: float, age_seconds: float, objects_every_seconds: float = 0
) -> None:
    """Sweep periodically until cancelled; jitter spreads the sweeps of servers that start together.

    Object stores are swept at a pace of their own, not at all if it is 0. The first time is any within the period:
    otherwise servers that are restarted more often would never get to it.
    """
    objects_at = time.monotonic() + objects_every_seconds * random.random()
    while True:
        await asyncio.sleep(every_seconds * random.uniform(0.8, 1.2))
        with_objects = bool(objects_every_seconds) and time.monotonic() >= objects_at
        if with_objects:
            objects_at = time.monotonic() + objects_every_seconds * random.uniform(0.8, 1.2)
        try:
            deleted = await sweep(catalog, int(age_seconds * 1000), with_object_stores=with_objects)
        except Exception:
            log.exception("the sweep of metadata files failed; the next one starts from the beginning")
        else:
            log.info("a sweep deleted %d metadata files", deleted)


async def sweep(catalog: Catalog, age_ms: int, *, with_object_stores: bool = True) -> int:
    """Sweep every table once; returns the number of deleted files."""
    deleted, after = 0, Key("", "", "")
    while keys := await catalog.store.keys_after(after, PAGE):
        for key in keys:
            warehouse = catalog.warehouses.get(key.catalog)
            if not with_object_stores and warehouse is not None and not isinstance(warehouse.profile, LocalProfile):
                continue
            started = time.monotonic()
            try:
                deleted += len(await sweep_table(catalog, key, age_ms))
            except CatalogError as error:
                log.warning("the sweep skipped the metadata files of %s: %s", key.name, error)
            await asyncio.sleep(SLEEP_FACTOR * (time.monotonic() - started))
        after = keys[-1]
    return deleted


async def sweep_table(catalog: Catalog, key: Key, age_ms: int) -> list[str]:
    """Delete the unreachable metadata files in one table's folders; returns their locations."""
    # `_lost_files` reads pointer, folder and log in several queries, which are no snapshot of one moment.
    found = await _lost_files(catalog, key, age_ms)
    if not found:
        return []
    # Check everything a second time: the pointer may have moved between the queries of the first check.
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
        return []  # the files belong to another catalog, whose pointers may lead to them
    files = await metadata_files(catalog, key, pointer, age_ms)
    if not files.old:
        return []
    metadata_log = await _metadata_log(catalog, key, pointer)
    if metadata_log is None:
        return []
    unnamed = unreferenced(files.old, pointer, metadata_log)
    return await find_lost_files(catalog, pointer, unnamed) if unnamed else []


async def find_lost_files(catalog: Catalog, pointer: InspectedPointer, unnamed: dict[str, str]) -> list[str]:
    """Returns those of the `unnamed` files that nothing can ever lead to; takes out files that the commit log names."""
    assert pointer.stored is not None
    table_uuid = pointer.stored.table_uuid
    history = await read_history(catalog.store, table_uuid, unnamed)
    if not history.ours:
        return []
    superseded = [location for location in unnamed.values() if is_superseded(location, pointer)]
    return [location for location in superseded if await is_unowned(catalog, location, table_uuid)]


async def is_unowned(catalog: Catalog, location: str, table_uuid: str) -> bool:
    """Whether a file that the table does not name also belongs to no other table."""
    return await _belongs_to(catalog, location, table_uuid) and not await catalog.store.points_at(file_name(location))


async def unlisted_metadata_files(catalog: Catalog, metadata_location: str, metadata: Metadata) -> list[str]:
    """Returns the metadata files of a table that is being purged, except the current one: files dropped from its
    metadata log and files of interrupted commits. Empty if another catalog may lead to them."""
    folder, uuid = f"{parse_location(metadata.location)}/metadata", metadata_uuid(metadata)
    names = [file.name for file in await catalog.objects.list_files(folder, METADATA_SUFFIX)]
    found = [name for name in names if _OUR_NAME.match(name) and name != file_name(metadata_location)]
    if not found or not (await read_history(catalog.store, uuid, {})).ours:
        return []
    return [f"{folder}/{name}" for name in found if await _belongs_to(catalog, f"{folder}/{name}", uuid)]


def is_known(pointer: InspectedPointer) -> bool:
    """Whether the row stored with the pointer is of the metadata file that it leads to."""
    return pointer.stored is not None and pointer.stored.metadata_location == pointer.metadata_location


def is_superseded(location: str, pointer: InspectedPointer) -> bool:
    """Whether the pointer is at this file's version or a later one."""
    version, current = version_of(location), version_of(pointer.metadata_location or "")
    return version is not None and current is not None and version <= current


async def metadata_files(catalog: Catalog, key: Key, pointer: InspectedPointer, age_ms: int) -> MetadataFiles:
    """Lists the current file's folder and the default metadata folder, as far as they are inside the table's own."""
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
        for file in await catalog.objects.list_files(str(place), METADATA_SUFFIX):
            present.add(file.name)
            if file.modified_ms <= before_ms and _OUR_NAME.match(file.name):
                old[file.name] = f"{place}/{file.name}"
    return MetadataFiles(frozenset(present), old)


def _is_allowed(catalog: Catalog, key: Key, location: str) -> bool:
    warehouse = catalog.warehouses.get(key.catalog)
    place = parse_location(location)
    return warehouse is not None and any(allowed.contains(place) for allowed in warehouse.allowed)


def unreferenced(files: dict[str, str], pointer: InspectedPointer, metadata_log: list[str]) -> dict[str, str]:
    """Returns the files that neither the pointer nor the metadata log names."""
    named = {file_name(location) for location in metadata_log}
    named |= {file_name(each) for each in (pointer.metadata_location, pointer.previous_metadata_location) if each}
    return {name: location for name, location in files.items() if name not in named}


async def _metadata_log(catalog: Catalog, key: Key, pointer: InspectedPointer) -> list[str] | None:
    """Returns the files in the table's metadata log, or None if the pointer moved in between."""
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
    return [each.metadata_file for each in _log_decoder.decode(data).metadata_log or ()]


class _LogEntry(msgspec.Struct, rename="kebab"):
    metadata_file: str


class _MetadataLog(msgspec.Struct, rename="kebab"):
    metadata_log: list[_LogEntry] | None = None


_log_decoder = msgspec.json.Decoder(_MetadataLog)
_owner_decoder = msgspec.json.Decoder(_Owner)


async def _belongs_to(catalog: Catalog, location: str, table_uuid: str) -> bool:
    """Whether the file has this UUID. A truncated file counts as the table's: it was never published."""
    try:
        owner = _owner_decoder.decode(await catalog.objects.read_metadata(location))
    except NotFound:
        return False
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidMetadata):
        return True
    return table_uuid in (owner.table_uuid, owner.view_uuid)
