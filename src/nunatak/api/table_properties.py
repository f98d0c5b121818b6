"""Handlers of the properties that the catalog stores about a table, outside of its metadata."""

from nunatak.access.administration import audit_change
from nunatak.api.http import Request
from nunatak.api.management_wire import TablePropertiesResponse, UpdateTablePropertiesRequest
from nunatak.api.route import handler
from nunatak.api.securable_parameter import load_table_at
from nunatak.catalog.pointers import key_of
from nunatak.catalog.table_properties import (
    forget_table_properties,
    load_table_properties,
    update_table_properties,
)
from nunatak.catalog.write import write
from nunatak.database.records import StoredResponse


@handler
async def get_table_properties(request: Request) -> TablePropertiesResponse:
    place, table = await load_table_at(request, request.query.get("securable"))
    key = key_of(request.warehouse, place.identifier)
    properties = await load_table_properties(request.catalog.store, key, table.table_uuid)
    return TablePropertiesResponse(properties)


@handler
async def patch_table_properties(request: Request) -> None:
    wanted = request.decode(UpdateTablePropertiesRequest)
    place, table = await load_table_at(request, wanted.securable)
    key = key_of(request.warehouse, place.identifier)
    changes = await update_table_properties(
        request.catalog.store, key, table.table_uuid, wanted.updates, wanted.removals
    )
    detail = {"updated": sorted(wanted.updates), "removed": sorted(set(wanted.removals))}
    row = audit_change(request.actor, "update-table-properties", place.securable, detail)
    await write(request.catalog, request.caller, [*changes, row], StoredResponse(204))


@handler
async def delete_table_properties(request: Request) -> None:
    """Removes all properties; does nothing to a table without any."""
    place, table = await load_table_at(request, request.query.get("securable"))
    key = key_of(request.warehouse, place.identifier)
    row = audit_change(request.actor, "drop-table-properties", place.securable, {"table-uuid": table.table_uuid})
    await write(request.catalog, request.caller, [forget_table_properties(key), row], StoredResponse(204))
