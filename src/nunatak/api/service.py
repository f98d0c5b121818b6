"""The server about itself: configuration, search, health, readiness and metrics."""

from urllib.parse import quote

from nunatak import __version__
from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import visible
from nunatak.api.admission import is_seen, sees_all
from nunatak.api.http import Request, Response, json_response
from nunatak.database.records import Kind
from nunatak.errors import BadRequest
from nunatak.iceberg.identifiers import from_jdbc

SEARCH_LIMIT = 1000


async def get_config(request: Request) -> Response:
    """What a client asks first; a warehouse may be named, by its name or its location, or left out.

    Of the default warehouse nothing is told to somebody who may see nothing in it.
    """
    catalog = request.catalog
    named = request.query.get("warehouse")
    warehouse = await catalog.load_warehouse(named or request.warehouse.name)
    home = securables.warehouse(warehouse.name)
    told = bool(named) or await is_seen(request, home, await request.rights(home))
    overrides: dict[str, str] = {}
    if told and len(catalog.warehouses) > 1:
        overrides["prefix"] = warehouse.name
    if catalog.namespace_separator != "\x1f":
        overrides["namespace-separator"] = quote(catalog.namespace_separator, safe="").replace(".", "%2E")
    return json_response(
        {
            "defaults": {"warehouse": warehouse.location} if told else {},
            "overrides": overrides,
            "endpoints": request.context.endpoints,
            "idempotency-key-lifetime": f"PT{catalog.idempotency_seconds}S",
        }
    )


async def search(request: Request) -> Response:
    """Tables and views whose name or namespace holds the query, whatever its case."""
    query = request.query.get("query", "")
    kinds: dict[str, Kind] = {"table": "TABLE", "view": "VIEW"}
    wanted = request.query.get("type")
    if wanted is not None and wanted not in kinds:
        raise BadRequest(f"Invalid type: {wanted[:50]!r} is neither table nor view")
    kind = kinds[wanted] if wanted is not None else None
    home = securables.warehouse(request.warehouse.name)
    if sees_all(request, home, Privilege.TABLE_LIST):
        found = await request.catalog.store.search_heads(request.warehouse.name, query, kind, SEARCH_LIMIT)
    else:
        found = await visible.search(request, query, kind, SEARCH_LIMIT)
    return json_response(
        {
            "results": [
                {"type": each.lower(), "identifier": {"namespace": from_jdbc(namespace), "name": name}}
                for each, namespace, name in found
            ]
        }
    )


async def welcome(request: Request) -> Response:
    """The base URL, which people open first."""
    return json_response({"name": "Nunatak", "version": __version__, "config": "/v1/config", "health": "/health"})


async def health(request: Request) -> Response:
    return json_response({"status": "healthy"})


async def ready(request: Request) -> Response:
    """200 once the database can be written, not merely read."""
    await request.catalog.store.check()
    return json_response({"status": "ready"})


async def metrics(request: Request) -> Response:
    """What this process counted, or, if several share the address, what each of them did."""
    page = await request.context.metrics_text()
    return Response(200, page, ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),))
