"""Handlers that tell which table owns a folder: a job asks before it reads or deletes files."""

from nunatak.access import securables
from nunatak.access.privileges import ENTRY_BITS
from nunatak.api.http import Request
from nunatak.api.maintenance_wire import FoldersRequest, FoldersResponse, NeighboursResponse
from nunatak.api.route import handler
from nunatak.api.securable_parameter import load_table_at
from nunatak.catalog.foreign_paths import own_places
from nunatak.catalog.pointers import key_of
from nunatak.catalog.shadows import find_shadow
from nunatak.iceberg.identifiers import from_jdbc
from nunatak.maintenance.overlaps import neighbours_of, sort_all_folders


@handler
async def list_neighbours(request: Request) -> NeighboursResponse:
    """Returns how many other tables keep files in the table's places, and the names of those the caller may see."""
    place, table = await load_table_at(request, request.query.get("securable"))
    catalog, key = request.catalog, key_of(request.warehouse, place.identifier)
    places = own_places(table)
    # All are counted, also those the caller may not see: a job must not delete files that belong to them.
    found = await neighbours_of(catalog, key, table.table_uuid, places)
    names = [securables.entry(each.catalog, from_jdbc(each.namespace), each.name) for each in found]
    visible = [securables.format_securable(each) for each in names if await request.rights(each) & ENTRY_BITS]
    return NeighboursResponse(
        location=table.location,
        count=len(found),
        neighbours=sorted(visible),
        places=[str(each) for each in places],
        shadow=await find_shadow(catalog.store, key.catalog, table.table_uuid),
    )


@handler
async def classify_folders(request: Request) -> FoldersResponse:
    """Returns which of the folders named in metadata are not the table's own; does not reveal their owners."""
    wanted = request.decode(FoldersRequest)
    place, table = await load_table_at(request, wanted.securable)
    key = key_of(request.warehouse, place.identifier)
    sorted_folders = await sort_all_folders(request.catalog, key, own_places(table), wanted.folders)
    foreign = [text for text, standing in sorted_folders.items() if standing == "foreign"]
    outside = [text for text, standing in sorted_folders.items() if standing == "outside"]
    return FoldersResponse(foreign, outside)
