"""Numbers that no column of the database holds are refused, and are no error of ours."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.route import Route
from nunatak.api.routes import ROUTES
from nunatak.iceberg.view_commit import CommitViewRequest
from tests.support.catalogs.local import LocalCatalog

M = "/management/v1"
TOO_LARGE = [2**63, 2**64, -(2**63) - 1]
CHECKED_BY_THE_HANDLER = {("CreateCredentialRequest", "expires_in_seconds")}


@pytest.mark.parametrize("number", TOO_LARGE)
def test_a_number_beyond_64_bits_is_refused(catalog: LocalCatalog, number: int) -> None:
    lease = {"securable": "namespace:default/ns", "worker": "w", "job-id": number}
    document = f"{M}/migrations/m/documents/d"

    assert catalog.call("POST", f"{M}/maintenance/lease", lease).status == 400
    assert catalog.call("PUT", document, {"content": {}, "version": number}).status == 400
    assert catalog.call("DELETE", f"{document}?version={number}").status == 400
    assert catalog.call("GET", f"{M}/maintenance/jobs/{number}").status == 404


@pytest.mark.parametrize("route", [*ROUTES, *MANAGEMENT_ROUTES], ids=lambda route: route.operation)
def test_every_number_in_a_request_has_limits(route: Route) -> None:
    request = route.described.request
    if request is None or request is CommitViewRequest:  # a view's commit is decoded by hand, to types with limits
        return

    unlimited = {(kind, name) for kind, name, number in numbers(inspect.type_info(request)) if number.le is None}

    assert unlimited <= CHECKED_BY_THE_HANDLER


def numbers(kind: Any, of: str = "", name: str = "") -> Iterator[tuple[str, str, inspect.IntType]]:
    """Every integer in a type, with the struct and the field that it is in."""
    match kind:
        case inspect.IntType():
            yield of, name, kind
        case inspect.StructType():
            for field in kind.fields:
                yield from numbers(field.type, kind.cls.__name__, field.name)
        case inspect.UnionType():
            for each in kind.types:
                yield from numbers(each, of, name)
        case inspect.Metadata():
            yield from numbers(kind.type, of, name)
        case inspect.CollectionType():
            yield from numbers(kind.item_type, of, name)
        case inspect.DictType():
            yield from numbers(kind.value_type, of, name)


def test_a_number_without_limits_is_found() -> None:
    class Inner(msgspec.Struct):
        count: int | None = None

    class Outer(msgspec.Struct):
        inner: list[Inner]

    assert [found[:2] for found in numbers(inspect.type_info(Outer))] == [("Inner", "count")]
