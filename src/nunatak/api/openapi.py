"""Our REST API as an OpenAPI document, made from the route table.

`python -m nunatak.api.openapi > spec/rest-catalog.json` writes the checked-in copy, and with the argument `management`
that of the management API.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.openapi_management import management_document
from nunatak.api.openapi_operations import Operation, whole
from nunatak.api.openapi_schemas import HEADERS, PARAMETERS, SCHEMAS
from nunatak.api.route import Route
from nunatak.api.routes import ROUTES

Json = dict[str, Any]

_PAGE = ("pageToken", "pageSize")
_ETAG = ("ETag",)

OPERATIONS: dict[str, Operation] = {
    "getConfig": Operation(tag="Configuration", response="CatalogConfig", query=("warehouse",), errors=(404,)),
    "listNamespaces": Operation(
        tag="Namespaces", response="ListNamespacesResponse", query=("parent", *_PAGE), errors=(404,)
    ),
    "createNamespace": Operation(
        tag="Namespaces",
        request="CreateNamespaceRequest",
        response="NamespaceResponse",
        errors=(404, 409),
    ),
    "loadNamespaceMetadata": Operation(tag="Namespaces", response="NamespaceResponse", errors=(404,)),
    "namespaceExists": Operation(tag="Namespaces", errors=(404,)),
    "dropNamespace": Operation(tag="Namespaces", errors=(404, 409)),
    "updateProperties": Operation(
        tag="Namespaces",
        request="UpdateNamespacePropertiesRequest",
        response="UpdateNamespacePropertiesResponse",
        errors=(404, 409),
    ),
    "listTables": Operation(tag="Tables", response="ListIdentifiersResponse", query=_PAGE, errors=(404,)),
    "createTable": Operation(
        tag="Tables",
        request="CreateTableRequest",
        response="LoadTableResponse",
        request_headers=("X-Iceberg-Access-Delegation",),
        response_headers=_ETAG,
        errors=(404, 409),
    ),
    "registerTable": Operation(
        tag="Tables",
        request="RegisterTableRequest",
        response="LoadTableResponse",
        request_headers=("X-Iceberg-Access-Delegation",),
        response_headers=_ETAG,
        errors=(404, 409),
    ),
    "loadTable": Operation(
        tag="Tables",
        response="LoadTableResponse",
        query=("snapshots",),
        request_headers=("If-None-Match", "X-Iceberg-Access-Delegation"),
        response_headers=_ETAG,
        errors=(404,),
        not_modified=True,
    ),
    "updateTable": Operation(
        tag="Tables",
        request="CommitTableRequest",
        response="CommitTableResponse",
        response_headers=_ETAG,
        errors=(404, 409),
    ),
    "dropTable": Operation(tag="Tables", query=("purgeRequested",), errors=(404, 409)),
    "tableExists": Operation(tag="Tables", errors=(404,)),
    "unregisterTable": Operation(tag="Tables", response="UnregisterTableResponse", errors=(404, 409)),
    "renameTable": Operation(tag="Tables", request="RenameRequest", errors=(404, 409)),
    "reportMetrics": Operation(tag="Tables", request="MetricsReport", errors=(404,)),
    "commitTransaction": Operation(tag="Tables", request="CommitTransactionRequest", errors=(404, 409)),
    "listViews": Operation(tag="Views", response="ListIdentifiersResponse", query=_PAGE, errors=(404,)),
    "createView": Operation(
        tag="Views",
        request="CreateViewRequest",
        response="LoadViewResponse",
        response_headers=_ETAG,
        errors=(404, 409),
    ),
    "registerView": Operation(
        tag="Views",
        request="RegisterViewRequest",
        response="LoadViewResponse",
        response_headers=_ETAG,
        errors=(404, 409),
    ),
    "loadView": Operation(
        tag="Views",
        response="LoadViewResponse",
        request_headers=("If-None-Match",),
        response_headers=_ETAG,
        errors=(404,),
        not_modified=True,
    ),
    "replaceView": Operation(
        tag="Views",
        request="CommitViewRequest",
        response="LoadViewResponse",
        response_headers=_ETAG,
        errors=(404, 409),
    ),
    "dropView": Operation(tag="Views", errors=(404, 409)),
    "viewExists": Operation(tag="Views", errors=(404,)),
    "renameView": Operation(tag="Views", request="RenameRequest", errors=(404, 409)),
    "search": Operation(tag="Search", response="SearchResponse", query=("query", "type", *_PAGE), errors=(404,)),
    "getToken": Operation(
        tag="Tokens",
        request="TokenRequest",
        request_media_type="application/x-www-form-urlencoded",
        response="TokenResponse",
        refusal="TokenRefusal",
        errors=(401, 404),
    ),
    "explainToken": Operation(tag="Tokens", succeeds=False, errors=(405,)),
    "getKeys": Operation(tag="Tokens", response="KeySet", errors=(404,)),
    "welcome": Operation(tag="Operations", response="WelcomeResponse"),
    "health": Operation(tag="Operations", response="HealthResponse"),
    "ready": Operation(tag="Operations", response="HealthResponse"),
    "metrics": Operation(tag="Operations", response="", media_type="text/plain"),
}


def document(routes: Iterable[Route] = ROUTES) -> Json:
    """The catalog's API; every route has an entry in OPERATIONS."""
    info = {
        "title": "Nunatak, an Apache Iceberg REST catalog",
        "description": "The Iceberg REST protocol as this server speaks it. The same paths answer without "
        "`{prefix}` for the default warehouse, and below `/iceberg`, `/apis/iceberg` and `/api/catalog`.",
    }
    return whole(info, routes, OPERATIONS, {"schemas": SCHEMAS, "parameters": PARAMETERS, "headers": HEADERS})


def printed(described: Json | None = None) -> str:
    """A document as the checked-in file holds it."""
    return json.dumps(described or document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    wanted = management_document(MANAGEMENT_ROUTES) if sys.argv[1:] == ["management"] else document()
    sys.stdout.write(printed(wanted))
