"""Our OpenAPI documents say something true about every route, and the checked-in copies are the current ones."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from nunatak.api.http import Response
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.openapi import document, format_document
from nunatak.api.openapi_management import management_document
from nunatak.api.route import Route
from nunatak.api.routes import ROUTES

SPEC = Path(__file__).parents[2] / "spec"
CATALOG, MANAGEMENT = document(), management_document(MANAGEMENT_ROUTES)

both = pytest.mark.parametrize("whole", [CATALOG, MANAGEMENT], ids=["catalog", "management"])


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(target := value.get("$ref"), str):
            yield target
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def resolve(whole: Any, reference: str) -> Any:
    found = whole
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def test_the_checked_in_documents_are_the_generated_ones() -> None:
    assert (SPEC / "rest-catalog.json").read_text() == format_document(CATALOG), "run: make openapi"
    assert (SPEC / "management.json").read_text() == format_document(MANAGEMENT), "run: make openapi"


@pytest.mark.parametrize("route", [*ROUTES, *MANAGEMENT_ROUTES], ids=lambda route: route.operation)
def test_every_route_is_described(route: Route) -> None:
    whole = MANAGEMENT if route in MANAGEMENT_ROUTES else CATALOG
    described = whole["paths"][route.template][route.method.lower()]

    assert described["operationId"] == route.operation
    assert described["summary"]
    named = {resolve(whole, parameter["$ref"])["name"] for parameter in described["parameters"]}
    assert set(re.findall(r"{(.*?)}", route.template)) <= named


@pytest.mark.parametrize(("routes", "whole"), [(ROUTES, CATALOG), (MANAGEMENT_ROUTES, MANAGEMENT)])
def test_no_operation_is_described_that_is_not_served(routes: tuple[Route, ...], whole: Any) -> None:
    described = [each["operationId"] for path in whole["paths"].values() for each in path.values()]

    assert sorted(described) == sorted(route.operation for route in routes)


# Handlers whose body is not decoded by `request.decode` of its declared type, and why.
DECODED_OTHERWISE = {
    "commitTransaction": "in a thread if it is large, by commit_request.decode_transaction",
    "getToken": "a form",
    "renameTable": "by rename_entry, which views share",
    "renameView": "by rename_entry, which views share",
    "replaceView": "in a thread if it is large, by view_commit.decode_commit",
    "reportMetrics": "kept as it came, whatever is in it",
    "updateTable": "in a thread if it is large, by commit_request.decode_commit",
}


@pytest.mark.parametrize("route", [*ROUTES, *MANAGEMENT_ROUTES], ids=lambda route: route.operation)
def test_the_declared_request_type_is_the_one_that_is_decoded(route: Route) -> None:
    source = inspect.getsource(inspect.unwrap(route.handler))
    declared = route.described.request

    if route.operation in DECODED_OTHERWISE:
        assert declared is not None
        assert f"decode({declared.__name__})" not in source
    else:
        decoded = set(re.findall(r"request\.decode\((\w+)\)", source))
        assert decoded == ({declared.__name__} if declared is not None else set())


# Routes whose handlers make the bytes of their answers themselves, and why; all others return the declared type.
ANSWERED_IN_BYTES = {
    "createCredential": "with a header that forbids to keep it",
    "explainToken": "always an error",
    "getKeys": "with a header that allows to keep it",
    "getToken": "with a header that forbids to keep it",
    "managementDocument": "encoded once",
    "metrics": "text",
}


def test_every_other_handler_returns_a_value_of_the_type_that_is_described() -> None:
    in_bytes = {
        route.operation
        for route in (*ROUTES, *MANAGEMENT_ROUTES)
        if get_type_hints(route.handler)["return"] is Response
    }

    assert in_bytes == set(ANSWERED_IN_BYTES)


@both
def test_no_parameter_is_described_twice(whole: Any) -> None:
    for path in whole["paths"].values():
        for described in path.values():
            named = [resolve(whole, parameter["$ref"]) for parameter in described["parameters"]]
            places = [(parameter["in"], parameter["name"]) for parameter in named]
            assert len(places) == len(set(places)), described["operationId"]


@both
def test_every_reference_leads_somewhere(whole: Any) -> None:
    targets = set(references(whole))

    assert targets
    for target in targets:
        assert resolve(whole, target), target


@both
def test_every_component_is_used(whole: Any) -> None:
    components = {f"#/components/{kind}/{name}" for kind, named in whole["components"].items() for name in named}

    assert set(references(whole)) == components


@both
def test_every_required_field_is_described(whole: Any) -> None:
    for name, schema in whole["components"]["schemas"].items():
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), name


def test_answers_to_head_have_no_body() -> None:
    heads = [path["head"] for path in CATALOG["paths"].values() if "head" in path]

    assert heads
    assert not any("content" in answer for head in heads for answer in head["responses"].values())
