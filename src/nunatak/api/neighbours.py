"""Who else keeps files in a table's folder, over HTTP: what a job asks before it deletes what looks like nobody's."""

from nunatak.access import securables
from nunatak.api.http import Request, Response, json_response
from nunatak.api.needs import ENTRY_BITS
from nunatak.api.places import aim
from nunatak.catalog.heads import load_head
from nunatak.database.records import Key
from nunatak.errors import BadRequest
from nunatak.iceberg.identifiers import from_jdbc, to_jdbc
from nunatak.maintenance.overlaps import sharing_folder


async def list_neighbours(request: Request) -> Response:
    """How many there are, and the names of those that the caller may know of."""
    place = await aim(request, request.query.get("securable"))
    if place.name is None:
        raise BadRequest("Neighbours are those of a table", hint="Write table:WAREHOUSE/A/T.")
    loaded = await load_head(request.catalog, request.warehouse, place.identifier, "TABLE")
    key = Key(request.warehouse.name, to_jdbc(place.levels), place.name)
    location = loaded.table().location
    found = await sharing_folder(request.catalog, key, location)
    names = [securables.entry(each.catalog, from_jdbc(each.namespace), each.name) for each in found]
    visible = [securables.printed(each) for each in names if await request.rights(each) & ENTRY_BITS]
    return json_response({"location": location, "count": len(found), "neighbours": sorted(visible)})
