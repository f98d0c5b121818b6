"""Who else keeps files in a table's places, or in one around them: asked before files are deleted or rewritten.
Answered from the database alone; no file is read."""

import asyncio
from collections.abc import Sequence

from nunatak.catalog.catalog import Catalog
from nunatak.catalog.foreign_paths import CHUNK, Standing, ancestry, pointing_into, sort_folders, unknown_folders
from nunatak.database.records import Key
from nunatak.objectstore.location import Location


async def neighbours_of(catalog: Catalog, key: Key, table_uuid: str, places: Sequence[Location]) -> list[Key]:
    """Every other table or view, of any warehouse, whose location, or place to write to, is one of these places, lies
    inside it or around it; every table whose metadata points into one; and every other name of the same table, wherever
    that lies by now: its files are the same.
    """
    found: list[Key] = [Key(*row) for row in await catalog.store.rows("names_of_uuid", {"uuid": table_uuid})]
    for place in places:
        around = [str(each) for each in ancestry(place)]
        found += [other.key for other in await catalog.store.find_overlapping(str(place), around[:-1])]
        found += await catalog.store.tables_writing_to(around)
        inside = await catalog.store.rows("places_inside", {"first": f"{place}/", "behind": f"{place}0"})
        found += [Key(*row) for row in inside]
        found += await pointing_into(catalog, place)
    async for other, folder in unknown_folders(catalog):
        # Its metadata file tells where it lies; one without a folder of its own is taken to be anywhere above.
        if any(place.contains(folder) or folder.contains(place) for place in places):
            found.append(other)
    return [each for each in dict.fromkeys(found) if each != key]


async def sort_all_folders(
    catalog: Catalog, key: Key, places: Sequence[Location], folders: Sequence[str]
) -> dict[str, Standing]:
    """For each folder whose it is; what another client put into the database counts as well."""
    others = [each async for each in unknown_folders(catalog)]
    found: dict[str, Standing] = {}
    for start in range(0, len(folders), CHUNK):
        found |= await sort_folders(catalog, key, places, folders[start : start + CHUNK], others)
        await asyncio.sleep(0)
    return found
