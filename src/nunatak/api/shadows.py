"""Shadows over HTTP: which tables still belong to another catalog; set and lifted by a migration."""

from nunatak.access import securables
from nunatak.access.administration import audited
from nunatak.api.http import NO_CONTENT, Request, Response, json_response
from nunatak.api.management_wire import SetShadowRequest
from nunatak.api.places import Place, aim, load_table_at, require_namespace
from nunatak.catalog.heads import load_head
from nunatak.catalog.shadows import NamedShadow, Shadow, check_source, drop_shadow, list_shadows, set_shadow
from nunatak.catalog.write import write
from nunatak.database.records import Answer
from nunatak.iceberg.identifiers import from_jdbc


async def get_shadows(request: Request) -> Response:
    """Those of a warehouse, in a namespace and the ones below it, or of one table."""
    place = await aim(request, request.query.get("securable"))
    if place.name is None:
        await require_namespace(request, place)
    else:
        await load_head(request.catalog, request.warehouse, place.identifier, "TABLE")
    found = await list_shadows(request.catalog.store, request.warehouse.name)
    inside = [each for each in found if _lies_in(each, place)]
    return json_response({"shadows": [_answer(each) for each in inside]})


async def put_shadow(request: Request) -> Response:
    wanted = request.decode(SetShadowRequest)
    place, table = await load_table_at(request, wanted.securable)
    shadow = Shadow(check_source(wanted.source), wanted.state, request.catalog.now_ms())
    row = audited(request.actor, "set-shadow", place.securable, {"source": shadow.source, "state": shadow.state})
    changes = [set_shadow(request.warehouse.name, table.table_uuid, shadow), row]
    await write(request.catalog, request.caller, changes, Answer(204))
    return NO_CONTENT


async def delete_shadow(request: Request) -> Response:
    """Lifts the flag; a table that has none stays as it is."""
    place, table = await load_table_at(request, request.query.get("securable"))
    row = audited(request.actor, "drop-shadow", place.securable, {"table-uuid": table.table_uuid})
    changes = [drop_shadow(request.warehouse.name, table.table_uuid), row]
    await write(request.catalog, request.caller, changes, Answer(204))
    return NO_CONTENT


def _securable(each: NamedShadow) -> str:
    return securables.entry(each.key.catalog, from_jdbc(each.key.namespace), each.key.name)


def _lies_in(each: NamedShadow, place: Place) -> bool:
    return place.securable <= _securable(each) < securables.behind(place.securable)


def _answer(each: NamedShadow) -> dict[str, object]:
    return {
        "securable": securables.printed(_securable(each)),
        "table-uuid": each.table_uuid,
        "source": each.shadow.source,
        "state": each.shadow.state,
        "since-ms": each.shadow.since_ms,
    }
