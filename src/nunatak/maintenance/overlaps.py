"""Who else keeps files in a table's folder, or in one around it: asked before files are deleted that the table does not
know. Answered from the database alone; no file is read."""

from nunatak.catalog.catalog import Catalog
from nunatak.database.records import Key
from nunatak.errors import BadRequest
from nunatak.objectstore.location import Location, parse_location

PAGE = 1000  # pointers held at a time


async def sharing_folder(catalog: Catalog, key: Key, location: str) -> list[Key]:
    """Every other table or view, of any warehouse, whose folder, or place to write to, is the folder `location`, lies
    inside it or around it. Another name for the same table is one as well: it may have moved on by itself."""
    home = parse_location(location)
    around = [str(home.parent(size)) for size in range(len(home.segments))]
    found = [other.key for other in await catalog.store.overlapping(str(home), around)]
    found += await catalog.store.tables_writing_to([str(home), *around])
    inside = await catalog.store.rows("places_inside", {"first": f"{home}/", "behind": f"{home}0"})
    found += [Key(*row) for row in inside]
    found += await _unknown_to_us(catalog, home)
    return [each for each in dict.fromkeys(found) if each != key]


async def _unknown_to_us(catalog: Catalog, home: Location) -> list[Key]:
    """What another client has put or moved there, by the place of its metadata file."""
    found: list[Key] = []
    after = Key("", "", "")
    while True:
        values = {"catalog": after.catalog, "namespace": after.namespace, "name": after.name, "limit": PAGE}
        rows = await catalog.store.rows("unknown_pointers", values)
        found += [Key(*row[:3]) for row in rows if _touches(home, row[3])]
        if len(rows) < PAGE:
            return found
        after = Key(*rows[-1][:3])


def _touches(home: Location, metadata_location: str) -> bool:
    """Whether a table with this metadata file lies in the folder or around it. Files lie in FOLDER/metadata, as a rule;
    one without a folder of its own is taken to be anywhere above."""
    try:
        file = parse_location(metadata_location)
    except BadRequest:
        return False
    folder = file.parent(max(0, len(file.segments) - 2))
    return home.contains(file) or folder.contains(home)
