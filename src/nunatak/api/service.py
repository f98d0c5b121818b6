"""Handlers of configuration, search, health, readiness and metrics."""

import json
from functools import partial
from urllib.parse import quote

from nunatak import __version__
from nunatak.access import securables
from nunatak.api import filtered_lists
from nunatak.api.admission import is_seen
from nunatak.api.http import Request, Response
from nunatak.api.paging import MAX_PAGE, list_of
from nunatak.api.route import handler
from nunatak.api.storage_access import VENDED
from nunatak.api.wire import (
    CatalogConfig,
    FoundEntry,
    HealthResponse,
    SearchResponse,
    WelcomeResponse,
    WireIdentifier,
)
from nunatak.catalog import search as names
from nunatak.database.records import Kind
from nunatak.errors import BadRequest
from nunatak.iceberg.identifiers import from_jdbc
from nunatak.objectstore.vending.vendors import vends

KINDS: dict[str, Kind] = {"table": "TABLE", "view": "VIEW"}


@handler
async def get_config(request: Request) -> CatalogConfig:
    """Returns the client configuration; the query may give the warehouse by name or location.

    The default warehouse is left out of the response if the caller may see nothing in it.
    """
    catalog = request.catalog
    named = request.query.get("warehouse")
    warehouse = await catalog.load_warehouse(named or request.warehouse.name)
    home = securables.warehouse(warehouse.name)
    told = bool(named) or await is_seen(request, home, await request.rights(home))
    overrides: dict[str, str] = {**catalog.client_overrides}
    if told and len(catalog.warehouses) > 1:  # a single warehouse is served without a prefix
        overrides["prefix"] = warehouse.name
    if catalog.namespace_separator != "\x1f":
        # Clients expect it percent-encoded, and quote() leaves a dot as it is.
        overrides["namespace-separator"] = quote(catalog.namespace_separator, safe="").replace(".", "%2E")
    defaults = {"warehouse": warehouse.location} if told else {}
    if told and vends(warehouse.profile):
        defaults["header.X-Iceberg-Access-Delegation"] = VENDED  # Spark and Flink ask for it only if told so
    return CatalogConfig(
        defaults={**catalog.client_defaults, **defaults},
        overrides=overrides,
        endpoints=request.context.endpoints,
        idempotency_key_lifetime=f"PT{catalog.idempotency_seconds}S",
    )


@handler
async def search(request: Request) -> SearchResponse:
    """Returns a page of the tables and views whose name or namespace contains the query, case-insensitively."""
    resource = list_of(request, "search", request.warehouse.name)
    page = request.context.tokens.page(resource, request.query)
    found, position = await names.search(
        request.catalog.store,
        names.Query(request.warehouse.name, request.query.get("query", ""), _kind(request)),
        _position(page.after),
        min(page.limit, MAX_PAGE),
        partial(filtered_lists.only_matches_seen, request),
    )
    return SearchResponse(
        [
            FoundEntry(
                "table" if each.kind == "TABLE" else "view",
                WireIdentifier(list(from_jdbc(each.namespace)), each.name),
            )
            for each in found
        ],
        next_page_token=request.context.tokens.after(resource, None if position is None else json.dumps(position)),
    )


def _kind(request: Request) -> Kind | None:
    wanted = request.query.get("type")
    if wanted is not None and wanted not in KINDS:
        raise BadRequest(f"Invalid type: {wanted[:50]!r} is neither table nor view")
    return KINDS[wanted] if wanted is not None else None


def _position(text: str) -> names.Position:
    """Parses the content of a page token; not validated, since tokens are authenticated."""
    if not text:
        return names.START
    namespace, name = json.loads(text)
    return namespace, name


@handler
async def welcome(request: Request) -> WelcomeResponse:
    """Answers the base URL, which users open in a browser first."""
    return WelcomeResponse(name="Nunatak", version=__version__, config="/v1/config", health="/health")


@handler
async def health(request: Request) -> HealthResponse:
    return HealthResponse("healthy")


@handler
async def ready(request: Request) -> HealthResponse:
    """Returns 200 if the database can be written, not merely read."""
    await request.catalog.store.check()
    return HealthResponse("ready")


async def metrics(request: Request) -> Response:
    """Returns the metrics of this process, or of each worker if several share the address."""
    page = await request.context.metrics_text()
    return Response(200, page, ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),))
