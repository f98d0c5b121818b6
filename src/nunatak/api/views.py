"""Handlers of the view routes."""

from nunatak.api.encoded import Encoded, LoadResult, load_result
from nunatak.api.http import Request, decode_body, mark_sender
from nunatak.api.route import handler
from nunatak.api.tables import list_entries, rename_entry
from nunatak.api.wire import (
    CreateViewRequest,
    ListIdentifiersResponse,
    LoadViewResponse,
    RegisterViewRequest,
    identifier_of,
)
from nunatak.catalog import tables, views
from nunatak.catalog.pointers import key_of
from nunatak.catalog.views import NewView
from nunatak.errors import BadRequest, NoSuchView
from nunatak.iceberg import view_commit
from nunatak.iceberg.identifiers import Identifier, check_name


@handler
async def list_views(request: Request) -> Encoded[ListIdentifiersResponse]:
    return await list_entries(request, "VIEW")


@handler
async def create_view(request: Request) -> LoadResult[LoadViewResponse]:
    namespace = request.namespace()
    mark_sender(request)
    wanted = request.decode(CreateViewRequest)
    view = NewView(
        Identifier(namespace, check_name(wanted.name, "view")),
        wanted.schema,
        wanted.view_version,
        wanted.location,
        wanted.properties or {},
    )
    return load_result(await views.create_view(request.catalog, request.warehouse, request.caller, view))


@handler
async def load_view(request: Request) -> LoadResult[LoadViewResponse]:
    loaded = await views.load_view(request.catalog, request.warehouse, request.identifier("view"))
    return load_result(loaded)


@handler
async def view_exists(request: Request) -> None:
    identifier = request.identifier("view")
    if await request.catalog.store.find_kind(key_of(request.warehouse, identifier)) != "VIEW":
        raise NoSuchView(f"View does not exist: {identifier}")


@handler
async def commit_view(request: Request) -> LoadResult[LoadViewResponse]:
    identifier = request.identifier("view")
    commit = await decode_body(request, view_commit.decode_commit)
    if commit.identifier is not None and identifier_of(commit.identifier, "view") != identifier:
        named = identifier_of(commit.identifier, "view")
        raise BadRequest(f"Invalid commit: the body names {named}, the path names {identifier}")
    loaded = await views.commit_view(
        request.catalog, request.warehouse, request.caller, identifier, commit, len(request.body)
    )
    return load_result(loaded)


@handler
async def drop_view(request: Request) -> None:
    identifier = request.identifier("view")
    await tables.drop_entry(request.catalog, request.warehouse, request.caller, identifier, "VIEW", purge=False)


@handler
async def rename_view(request: Request) -> None:
    await rename_entry(request, "VIEW")


@handler
async def register_view(request: Request) -> LoadResult[LoadViewResponse]:
    namespace = request.namespace()
    mark_sender(request)
    wanted = request.decode(RegisterViewRequest)
    identifier = Identifier(namespace, check_name(wanted.name, "view"))
    loaded = await views.register_view(
        request.catalog, request.warehouse, request.caller, identifier, wanted.metadata_location
    )
    return load_result(loaded)
