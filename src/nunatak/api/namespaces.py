"""Handlers of the namespace routes."""

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import filtered_lists
from nunatak.api.admission import sees_all
from nunatak.api.http import Request, split_parent
from nunatak.api.paging import list_of
from nunatak.api.route import handler
from nunatak.api.wire import (
    CreateNamespaceRequest,
    ListNamespacesResponse,
    NamespaceResponse,
    UpdateNamespacePropertiesResponse,
    UpdateNamespaceRequest,
    stored_answer,
)
from nunatak.catalog import namespaces
from nunatak.catalog.namespaces import UpdatedProperties
from nunatak.errors import NamespaceNotEmpty, NoSuchNamespace
from nunatak.iceberg.identifiers import check_namespace, print_namespace, to_jdbc


@handler
async def list_namespaces(request: Request) -> ListNamespacesResponse:
    text = request.query.get("parent")
    parent = check_namespace(split_parent(text, request.catalog.namespace_separator)) if text else None
    resource = list_of(request, "namespaces", request.warehouse.name, to_jdbc(parent or ()))
    page = request.context.tokens.page(resource, request.query)
    container = securables.namespace(request.warehouse.name, parent or ())
    if sees_all(request, container, Privilege.NS_LIST):
        found, position = await namespaces.list_namespaces(
            request.catalog, request.warehouse, parent, page.after, page.limit
        )
    else:
        found, position = await filtered_lists.list_namespaces(request, parent or (), page.after, page.limit)
    return ListNamespacesResponse(found, next_page_token=request.context.tokens.after(resource, position))


@handler
async def create_namespace(request: Request) -> NamespaceResponse:
    wanted = request.decode(CreateNamespaceRequest)
    namespace = check_namespace(tuple(wanted.namespace))
    properties = wanted.properties or {}
    created = NamespaceResponse(namespace, properties)
    answer = stored_answer(request.caller, created)
    await namespaces.create_namespace(request.catalog, request.warehouse, request.caller, namespace, properties, answer)
    return created


@handler
async def load_namespace(request: Request) -> NamespaceResponse:
    namespace = request.namespace()
    properties = await namespaces.load_namespace(request.catalog, request.warehouse, namespace)
    return NamespaceResponse(namespace, properties)


@handler
async def namespace_exists(request: Request) -> None:
    namespace = request.namespace()
    if not await namespaces.namespace_exists(request.catalog, request.warehouse, namespace):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(namespace)}")


@handler
async def drop_namespace(request: Request) -> None:
    namespace = request.namespace()
    container = securables.namespace(request.warehouse.name, namespace)
    try:
        await namespaces.drop_namespace(request.catalog, request.warehouse, request.caller, namespace)
    except NamespaceNotEmpty as error:
        if sees_all(request, container, Privilege.TABLE_LIST) and sees_all(request, container, Privilege.NS_LIST):
            raise
        # The message counts the contents, which a caller may not learn if it may not list them.
        raise NamespaceNotEmpty(f"Namespace {print_namespace(namespace)} is not empty.") from error


@handler
async def update_namespace(request: Request) -> UpdateNamespacePropertiesResponse:
    change = request.decode(UpdateNamespaceRequest)
    namespace = request.namespace()
    updated = await namespaces.update_namespace(
        request.catalog,
        request.warehouse,
        request.caller,
        namespace,
        change.updates or {},
        change.removals or [],
        lambda updated: stored_answer(request.caller, _updated_response(updated)),
    )
    return _updated_response(updated)


def _updated_response(updated: UpdatedProperties) -> UpdateNamespacePropertiesResponse:
    return UpdateNamespacePropertiesResponse(updated.updated, updated.removed, updated.missing)
