"""How a route becomes an operation of an OpenAPI document; which routes and which bodies is said elsewhere."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nunatak.access.privileges import Privilege
from nunatak.api.openapi_schemas import ref
from nunatak.api.route import Route

Json = dict[str, Any]

JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What the route table does not say of an operation: its bodies, parameters and the answers of its own."""

    tag: str
    request: str | None = None
    request_media_type: str = JSON
    response: str | None = None  # without one, success is 204 and has no body
    query: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    not_modified: bool = False
    refusal: str = "ErrorResponse"
    succeeds: bool = True
    media_type: str = JSON


_ERRORS = {
    400: "The request is malformed, or asks for what no retry will make possible.",
    401: "Nobody, or nobody known, is asking.",
    403: "The caller may not do this.",
    404: "Something that the request names does not exist.",
    405: "The path exists, but not with this method.",
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


def whole(info: Json, routes: Iterable[Route], operations: Mapping[str, Operation], components: Json) -> Json:
    """A document; every route has an entry in `operations`."""
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _describe(route, operations[route.operation])
    license = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
    return {
        "openapi": "3.1.0",
        "info": {"version": "1", "license": license, **info},
        "paths": paths,
        "components": components,
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
        described["requestBody"] = {
            "required": True,
            "content": {operation.request_media_type: {"schema": ref(operation.request)}},
        }
    return described


def _answers(route: Route, operation: Operation) -> dict[int, Json]:
    headers = _headers(*operation.response_headers, "X-Request-Id")
    answers: dict[int, Json] = {}
    if not operation.succeeds:
        pass
    elif operation.response is None:
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
            answers[status]["content"] = {JSON: {"schema": ref(operation.refusal)}}
    return answers


def _headers(*names: str) -> Json:
    return {name: _ref("headers", name) for name in names}


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
