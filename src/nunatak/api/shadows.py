"""Handlers of shadows: tables that still belong to another catalog; a migration sets and removes the flag."""

from nunatak.access import securables
from nunatak.access.administration import audit_change
from nunatak.api import maintenance_wire as wire
from nunatak.api.http import Request
from nunatak.api.maintenance_wire import SetShadowRequest
from nunatak.api.route import handler
from nunatak.api.securable_parameter import SecurablePlace, load_table_at, require_namespace, resolve_securable
from nunatak.catalog.pointers import load_pointer
from nunatak.catalog.shadows import NamedShadow, Shadow, check_source, drop_shadow, list_shadows, set_shadow
from nunatak.catalog.write import write
from nunatak.database.records import StoredResponse
from nunatak.iceberg.identifiers import from_jdbc


@handler
async def get_shadows(request: Request) -> wire.ListShadowsResponse:
    """Lists the shadows of a warehouse, of a namespace and those below it, or of one table."""
    place = await resolve_securable(request, request.query.get("securable"))
    if place.name is None:
        await require_namespace(request, place)
    else:
        await load_pointer(request.catalog, request.warehouse, place.identifier, "TABLE")
    found = await list_shadows(request.catalog.store, request.warehouse.name)
    inside = [each for each in found if _lies_in(each, place)]
    return wire.ListShadowsResponse([_answer(each) for each in inside])


@handler
async def put_shadow(request: Request) -> None:
    wanted = request.decode(SetShadowRequest)
    place, table = await load_table_at(request, wanted.securable)
    shadow = Shadow(check_source(wanted.source), wanted.state, request.catalog.now_ms())
    row = audit_change(request.actor, "set-shadow", place.securable, {"source": shadow.source, "state": shadow.state})
    changes = [set_shadow(request.warehouse.name, table.table_uuid, shadow), row]
    await write(request.catalog, request.caller, changes, StoredResponse(204))


@handler
async def delete_shadow(request: Request) -> None:
    """Removes the shadow flag; does nothing to a table without one."""
    place, table = await load_table_at(request, request.query.get("securable"))
    row = audit_change(request.actor, "drop-shadow", place.securable, {"table-uuid": table.table_uuid})
    changes = [drop_shadow(request.warehouse.name, table.table_uuid), row]
    await write(request.catalog, request.caller, changes, StoredResponse(204))


def _securable(each: NamedShadow) -> str:
    return securables.entry(each.key.catalog, from_jdbc(each.key.namespace), each.key.name)


def _lies_in(each: NamedShadow, place: SecurablePlace) -> bool:
    return place.securable <= _securable(each) < securables.behind(place.securable)


def _answer(each: NamedShadow) -> wire.NamedShadow:
    shadow, place = each.shadow, securables.format_securable(_securable(each))
    return wire.NamedShadow(place, each.table_uuid, shadow.source, shadow.state, shadow.since_ms)
