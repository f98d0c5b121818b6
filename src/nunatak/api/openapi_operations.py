"""Generates an OpenAPI document from a route table; schemas that no type describes are passed in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nunatak.access.privileges import Privilege
from nunatak.api.openapi_schemas import AMENDMENTS, INNER
from nunatak.api.openapi_types import references, schemas_of
from nunatak.api.route import Route

Json = dict[str, Any]

JSON = "application/json"

_ERRORS = {
    400: "The request is malformed or cannot succeed on a retry.",
    401: "The request has no valid credentials.",
    403: "The caller lacks a privilege.",
    404: "An object named in the request does not exist.",
    405: "The path does not support this method.",
    409: "The request conflicts with the current state or with a concurrent change.",
    413: "The body is too large.",
    415: "The media type or encoding of the body is not supported.",
    422: "The request contradicts itself or an earlier request with the same Idempotency-Key.",
    429: "Too many requests.",
    500: "A server error. After a commit the outcome may be unknown.",
    503: "The server is busy or unavailable; nothing was done, and the request may be sent again.",
}
_MAY_HAPPEN_ANYWHERE = (400, 429, 500, 503)
_MAY_HAPPEN_TO_A_CHANGE = (413, 415, 422)
_MAY_HAPPEN_TO_A_CALLER = (401, 403)
_RETRIED = (429, 503)


def whole(info: Json, routes: Sequence[Route], components: Mapping[str, Json]) -> Json:
    """Returns a document with only those schemas, parameters and headers of `components` that the routes need."""
    types = {(route.operation, role): kind for route in routes for role, kind in _types(route)}
    bodies, schemas = schemas_of(types, INNER, components["schemas"])
    for name in AMENDMENTS.keys() & schemas.keys():
        AMENDMENTS[name].amend(schemas[name])
    paths: Json = {}
    for route in routes:
        own = {role: schema for (operation, role), schema in bodies.items() if operation == route.operation}
        paths.setdefault(route.template, {})[route.method.lower()] = _describe(route, own)
    used = set(references(paths))
    license = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
    return {
        "openapi": "3.1.0",
        "info": {"version": "1", "license": license, **info},
        "paths": paths,
        "components": {
            "schemas": schemas,
            **{
                kind: {name: each for name, each in components[kind].items() if f"#/components/{kind}/{name}" in used}
                for kind in ("parameters", "headers")
            },
        },
    }


def _types(route: Route) -> Iterator[tuple[str, Any]]:
    """Yields the types of the route's bodies, each with its role: error, request or response."""
    described = route.described
    yield from ((f"error {number}", kind) for number, kind in enumerate(described.refusals))
    if described.request is not None:
        yield "request", described.request
    if (response := route.response_type) is not None:
        yield "response", response


def _describe(route: Route, bodies: Json) -> Json:
    operation = route.described
    path = re.findall(r"{([a-z-]+)}", route.template)
    key = ("Idempotency-Key",) if route.mutates else ()
    headers = (*operation.request_headers, *key, "X-Request-Id")
    described: Json = {
        "operationId": route.operation,
        "tags": [operation.tag],
        "summary": route.summary,
        "parameters": [_ref("parameters", name) for name in (*path, *operation.query, *headers)],
        "responses": {str(status): answer for status, answer in sorted(_answers(route, bodies).items())},
    }
    if "request" in bodies:
        described["requestBody"] = {
            "required": True,
            "content": {operation.request_media_type: {"schema": bodies["request"]}},
        }
    return described


def _answers(route: Route, bodies: Json) -> dict[int, Json]:
    operation = route.described
    headers = _headers(*operation.response_headers, "X-Request-Id")
    answers: dict[int, Json] = {}
    if not operation.succeeds:
        pass
    elif "response" in bodies:
        answers[200] = {
            "description": "Success.",
            "headers": headers,
            "content": {operation.media_type: {"schema": bodies["response"]}},
        }
    else:
        answers[204] = {"description": "Done, or yes.", "headers": headers}
    if operation.not_modified:
        answers[304] = {"description": "The client already has the current version.", "headers": headers}
    errors = {*operation.errors, *_MAY_HAPPEN_ANYWHERE}
    if route.mutates:
        errors.update(_MAY_HAPPEN_TO_A_CHANGE)
    if route.privilege is not Privilege.PUBLIC:
        errors.update(_MAY_HAPPEN_TO_A_CALLER)
    refusals = [schema for role, schema in bodies.items() if role.startswith("error")]
    for status in errors:
        retry = ("Retry-After",) if status in _RETRIED else ()
        answers[status] = {"description": _ERRORS[status], "headers": _headers(*retry, "X-Request-Id")}
        if route.method != "HEAD":  # a response to HEAD has no body
            answers[status]["content"] = {JSON: {"schema": refusals[0] if len(refusals) == 1 else {"anyOf": refusals}}}
    return answers


def _headers(*names: str) -> Json:
    return {name: _ref("headers", name) for name in names}


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
