"""Finds other tables with files in a table's places or their ancestors, before files are deleted or rewritten.

Uses the database alone; reads no file.
"""

import asyncio
from collections.abc import Sequence

from nunatak.catalog.catalog import Catalog
from nunatak.catalog.foreign_paths import (
    CHUNK,
    FolderOwner,
    ancestors_and_self,
    classify_folders,
    tables_pointing_into,
    unknown_folders,
)
from nunatak.database.records import Key
from nunatak.objectstore.location import Location


async def neighbours_of(catalog: Catalog, key: Key, table_uuid: str, places: Sequence[Location]) -> list[Key]:
    """Returns every other table or view, of any warehouse, whose location or write location equals, contains or lies
    inside one of these places; every table whose metadata references files in one; and every other name of the same
    table, wherever its location is now, since its files are the same.
    """
    found: list[Key] = [Key(*row) for row in await catalog.store.rows("names_of_uuid", {"uuid": table_uuid})]
    for place in places:
        around = [str(each) for each in ancestors_and_self(place)]
        found += [other.key for other in await catalog.store.find_overlapping(str(place), around[:-1])]
        found += await catalog.store.tables_writing_to(around)
        inside = await catalog.store.rows("places_inside", {"first": f"{place}/", "behind": f"{place}0"})
        found += [Key(*row) for row in inside]
        found += await tables_pointing_into(catalog, place)
    async for other, folder in unknown_folders(catalog):
        # The folder is derived from the metadata file; a table without its own folder may lie anywhere inside it.
        if any(place.contains(folder) or folder.contains(place) for place in places):
            found.append(other)
    return [each for each in dict.fromkeys(found) if each != key]


async def sort_all_folders(
    catalog: Catalog, key: Key, places: Sequence[Location], folders: Sequence[str]
) -> dict[str, FolderOwner]:
    """Returns for each folder which table it belongs to, including tables that another client created."""
    others = [each async for each in unknown_folders(catalog)]
    found: dict[str, FolderOwner] = {}
    for start in range(0, len(folders), CHUNK):
        found |= await classify_folders(catalog, key, places, folders[start : start + CHUNK], others)
        await asyncio.sleep(0)
    return found
