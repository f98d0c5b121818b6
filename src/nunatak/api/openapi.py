"""Our REST API as an OpenAPI document, made from the route table.

`python -m nunatak.api.openapi > spec/rest-catalog.json` writes the checked-in copy.
"""

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nunatak.access.privileges import Privilege
from nunatak.api.openapi_schemas import HEADERS, PARAMETERS, SCHEMAS, ref
from nunatak.api.routes import ROUTES, Route

Json = dict[str, Any]

JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What the route table does not say of an operation: its bodies, parameters and the answers of its own."""

    tag: str
    request: str | None = None
    response: str | None = None  # without one, success is 204 and has no body
    query: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    not_modified: bool = False
    media_type: str = JSON


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
    "search": Operation(tag="Search", response="SearchResponse", query=("query", "type"), errors=(404,)),
    "welcome": Operation(tag="Operations", response="WelcomeResponse"),
    "health": Operation(tag="Operations", response="HealthResponse"),
    "ready": Operation(tag="Operations", response="HealthResponse"),
    "metrics": Operation(tag="Operations", response="", media_type="text/plain"),
}

_ERRORS = {
    400: "The request is malformed, or asks for what no retry will make possible.",
    401: "Nobody, or nobody known, is asking.",
    403: "The caller may not do this.",
    404: "Something that the request names does not exist.",
    409: "The request contradicts the current state, or somebody else was first.",
    413: "The body is too large.",
    415: "The body is in a form that is not understood.",
    422: "The request contradicts itself, or an earlier one that had the same Idempotency-Key.",
    429: "Too many requests.",
    500: "An error of ours. After a commit it may mean that the outcome is unknown.",
    503: "Not now; nothing was done, and the same request may be sent again.",
}
_MAY_HAPPEN_ANYWHERE = (400, 429, 500, 503)
_MAY_HAPPEN_TO_A_CHANGE = (413, 415, 422)
_MAY_HAPPEN_TO_A_CALLER = (401, 403)
_RETRIED = (429, 503)


def document(routes: Iterable[Route] = ROUTES) -> Json:
    """The whole API; every route has an entry in OPERATIONS."""
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _describe(route, OPERATIONS[route.operation])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nunatak, an Apache Iceberg REST catalog",
            "version": "1",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
            "description": "The Iceberg REST protocol as this server speaks it. The same paths answer without "
            "`{prefix}` for the default warehouse, and below `/iceberg`, `/apis/iceberg` and `/api/catalog`.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS, "parameters": PARAMETERS, "headers": HEADERS},
    }


def _describe(route: Route, operation: Operation) -> Json:
    path = re.findall(r"{([a-z-]+)}", route.template)
    key = ("Idempotency-Key",) if route.mutates else ()
    headers = (*operation.request_headers, *key, "X-Request-Id")
    described: Json = {
        "operationId": route.operation,
        "tags": [operation.tag],
        "summary": route.summary,
        "parameters": [_ref("parameters", name) for name in (*path, *operation.query, *headers)],
        "responses": {str(status): answer for status, answer in sorted(_answers(route, operation).items())},
    }
    if operation.request:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": ref(operation.request)}}}
    return described


def _answers(route: Route, operation: Operation) -> dict[int, Json]:
    headers = _headers(*operation.response_headers, "X-Request-Id")
    answers: dict[int, Json] = {}
    if operation.response is None:
        answers[204] = {"description": "Done, or yes.", "headers": headers}
    else:
        schema = ref(operation.response) if operation.response else {"type": "string"}
        answers[200] = {
            "description": "Done; here is the result.",
            "headers": headers,
            "content": {operation.media_type: {"schema": schema}},
        }
    if operation.not_modified:
        answers[304] = {"description": "The client has the current state.", "headers": headers}
    errors = {*operation.errors, *_MAY_HAPPEN_ANYWHERE}
    if route.mutates:
        errors.update(_MAY_HAPPEN_TO_A_CHANGE)
    if route.privilege is not Privilege.PUBLIC:
        errors.update(_MAY_HAPPEN_TO_A_CALLER)
    for status in errors:
        retry = ("Retry-After",) if status in _RETRIED else ()
        answers[status] = {"description": _ERRORS[status], "headers": _headers(*retry, "X-Request-Id")}
        if route.method != "HEAD":  # an answer to HEAD has no body
            answers[status]["content"] = {JSON: {"schema": ref("ErrorResponse")}}
    return answers


def _headers(*names: str) -> Json:
    return {name: _ref("headers", name) for name in names}


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def printed() -> str:
    """The document as the checked-in file holds it."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(printed())
