"""Holds an answer against our OpenAPI documents: its status, its content type and its body."""

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs

from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.openapi import document
from nunatak.api.openapi_management import management_document
from nunatak.api.route import Route
from nunatak.api.router import Router
from nunatak.errors import CatalogError

ROUTER = Router()
# Objects of the table format, in which fields that we do not know are kept.
OPEN = {"Schema", "StructField", "Snapshot", "TableMetadata", "ViewMetadata", "ViewVersion"}


def check_described(method: str, path: str, status: int, content_type: str | None, body: bytes) -> None:
    """AssertionError for what the document of the route does not say; a path that leads nowhere has none."""
    route = _route(method, path)
    if route is None:
        return
    described = _whole(route)["paths"][route.template][route.method.lower()]["responses"].get(str(status))
    assert described is not None, f"{route.operation} answers {status}, which is not described"
    if status in (204, 304) or method == "HEAD":
        assert not body, f"{route.operation} answers {status} with a body"
        return
    media_types = described["content"]
    assert content_type is not None
    assert content_type.partition(";")[0] in media_types, f"{route.operation} answers with {content_type}"
    if content_type == "application/json":
        found = next(iter(_validator(route, status).iter_errors(json.loads(body))), None)
        assert found is None, f"{route.operation} answers {status} with what is not described: {found}"


@lru_cache(maxsize=4096)  # some tests note every function of the server that is called
def _route(method: str, path: str) -> Route | None:
    try:
        return ROUTER.match(method, path)[0]
    except CatalogError:
        return None


def _whole(route: Route) -> Any:
    return management_document(MANAGEMENT_ROUTES) if route.template.startswith("/management/") else _catalog()


@lru_cache(maxsize=1)
def _catalog() -> Any:
    return document()


@lru_cache
def _validator(route: Route, status: int) -> Any:
    whole = _whole(route)
    content = whole["paths"][route.template][route.method.lower()]["responses"][str(status)]["content"]
    schemas = {name: _closed(name, each) for name, each in whole["components"]["schemas"].items()}
    return jsonschema_rs.Draft202012Validator(
        {**content["application/json"]["schema"], "components": {"schemas": schemas}}
    )


def _closed(name: str, schema: Any) -> Any:
    """Our own objects have no other fields than those that are described."""
    if name in OPEN or "properties" not in schema:
        return schema
    return {"additionalProperties": False, **schema}
