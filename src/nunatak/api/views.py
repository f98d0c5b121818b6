"""Handlers of the view routes."""

from nunatak.api.http import NO_CONTENT, Request, Response, decode_body, mark_sender
from nunatak.api.tables import list_entries, load_response, rename_entry, unless_matching
from nunatak.api.wire import CreateViewRequest, RegisterViewRequest, identifier_of
from nunatak.catalog import tables, views
from nunatak.catalog.pointers import key_of
from nunatak.catalog.views import NewView
from nunatak.errors import BadRequest, NoSuchView
from nunatak.iceberg import view_commit
from nunatak.iceberg.identifiers import Identifier, check_name


async def list_views(request: Request) -> Response:
    return await list_entries(request, "VIEW")


async def create_view(request: Request) -> Response:
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
    request.touched = [view.identifier]
    return load_response(await views.create_view(request.catalog, request.warehouse, request.caller, view))


async def load_view(request: Request) -> Response:
    loaded = await views.load_view(request.catalog, request.warehouse, request.identifier("view"))
    return unless_matching(request, loaded.etag, loaded.answer, loaded.packed)


async def view_exists(request: Request) -> Response:
    identifier = request.identifier("view")
    if await request.catalog.store.find_kind(key_of(request.warehouse, identifier)) != "VIEW":
        raise NoSuchView(f"View does not exist: {identifier}")
    return NO_CONTENT


async def commit_view(request: Request) -> Response:
    identifier = request.identifier("view")
    commit = await decode_body(request, view_commit.decode_commit)
    if commit.identifier is not None and identifier_of(commit.identifier, "view") != identifier:
        named = identifier_of(commit.identifier, "view")
        raise BadRequest(f"Invalid commit: the body names {named}, the path names {identifier}")
    request.touched = [identifier]
    loaded = await views.commit_view(
        request.catalog, request.warehouse, request.caller, identifier, commit, len(request.body)
    )
    return load_response(loaded)


async def drop_view(request: Request) -> Response:
    identifier = request.identifier("view")
    request.touched = [identifier]
    await tables.drop_entry(request.catalog, request.warehouse, request.caller, identifier, "VIEW", purge=False)
    return NO_CONTENT


async def rename_view(request: Request) -> Response:
    return await rename_entry(request, "VIEW")


async def register_view(request: Request) -> Response:
    namespace = request.namespace()
    mark_sender(request)
    wanted = request.decode(RegisterViewRequest)
    identifier = Identifier(namespace, check_name(wanted.name, "view"))
    request.touched = [identifier]
    loaded = await views.register_view(
        request.catalog, request.warehouse, request.caller, identifier, wanted.metadata_location
    )
    return load_response(loaded)
