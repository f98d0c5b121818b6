"""Our OpenAPI document says something true about every route, and the checked-in copy is the current one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nunatak.api.openapi import OPERATIONS, document, printed
from nunatak.api.openapi_schemas import SCHEMAS
from nunatak.api.routes import ROUTES, Route

CHECKED_IN = Path(__file__).parents[2] / "spec" / "rest-catalog.json"


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


def test_the_checked_in_document_is_the_generated_one() -> None:
    assert CHECKED_IN.read_text() == printed(), "run: python -m nunatak.api.openapi > spec/rest-catalog.json"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_every_route_is_described(route: Route) -> None:
    described = document()["paths"][route.template][route.method.lower()]

    assert described["operationId"] == route.operation
    assert described["summary"]
    named = {resolve(document(), parameter["$ref"])["name"] for parameter in described["parameters"]}
    assert set(re.findall(r"{(.*?)}", route.template)) <= named


def test_no_operation_is_described_that_is_not_served() -> None:
    assert set(OPERATIONS) == {route.operation for route in ROUTES}


def test_every_reference_leads_somewhere() -> None:
    whole = document()
    targets = set(references(whole))

    assert targets
    for target in targets:
        assert resolve(whole, target), target


def test_every_component_is_used() -> None:
    whole = document()
    components = {f"#/components/{kind}/{name}" for kind, named in whole["components"].items() for name in named}

    assert set(references(whole)) == components


def test_every_required_field_is_described() -> None:
    for name, schema in SCHEMAS.items():
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), name


def test_answers_to_head_have_no_body() -> None:
    heads = [path["head"] for path in document()["paths"].values() if "head" in path]

    assert heads
    assert not any("content" in answer for head in heads for answer in head["responses"].values())
