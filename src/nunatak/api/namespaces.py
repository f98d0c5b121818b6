"""Namespaces over HTTP."""

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import visible
from nunatak.api.admission import sees_all
from nunatak.api.http import NO_CONTENT, Request, Response, json_response, raw_json, split_parent
from nunatak.api.paging import list_of
from nunatak.api.wire import CreateNamespaceRequest, UpdateNamespaceRequest
from nunatak.catalog import namespaces
from nunatak.errors import NamespaceNotEmpty, NoSuchNamespace
from nunatak.iceberg.identifiers import check_namespace, print_namespace, to_jdbc


async def list_namespaces(request: Request) -> Response:
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
        found, position = await visible.list_namespaces(request, parent or (), page.after, page.limit)
    body: dict[str, object] = {"namespaces": found}
    if position is not None:
        body["next-page-token"] = request.context.tokens.make(resource, position)
    return json_response(body)


async def create_namespace(request: Request) -> Response:
    wanted = request.decode(CreateNamespaceRequest)
    namespace = check_namespace(tuple(wanted.namespace))
    request.touched = [namespace]
    body = await namespaces.create_namespace(
        request.catalog, request.warehouse, request.caller, namespace, wanted.properties or {}
    )
    return raw_json(body)


async def load_namespace(request: Request) -> Response:
    namespace = request.namespace()
    properties = await namespaces.load_namespace(request.catalog, request.warehouse, namespace)
    return json_response({"namespace": namespace, "properties": properties})


async def namespace_exists(request: Request) -> Response:
    namespace = request.namespace()
    if not await namespaces.namespace_exists(request.catalog, request.warehouse, namespace):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(namespace)}")
    return NO_CONTENT


async def drop_namespace(request: Request) -> Response:
    namespace = request.namespace()
    request.touched = [namespace]
    container = securables.namespace(request.warehouse.name, namespace)
    try:
        await namespaces.drop_namespace(request.catalog, request.warehouse, request.caller, namespace)
    except NamespaceNotEmpty as error:
        if sees_all(request, container, Privilege.TABLE_LIST) and sees_all(request, container, Privilege.NS_LIST):
            raise
        # How much is in it is not told to somebody who may not list it.
        raise NamespaceNotEmpty(f"Namespace {print_namespace(namespace)} is not empty.") from error
    return NO_CONTENT


async def update_namespace(request: Request) -> Response:
    change = request.decode(UpdateNamespaceRequest)
    namespace = request.namespace()
    request.touched = [namespace]
    body = await namespaces.update_namespace(
        request.catalog,
        request.warehouse,
        request.caller,
        namespace,
        change.updates or {},
        change.removals or [],
    )
    return raw_json(body)
