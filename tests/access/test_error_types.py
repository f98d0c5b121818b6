"""The types of errors that the setting `error_types` chooses; statuses, and what clients act upon, stay the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nunatak import errors
from nunatak.client import is_unknown_route
from nunatak.errors import CatalogError, OutcomeUnknown, ShadowTable, status_and_type
from tests.api.wire import a_commit, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog

T = path_of("ns", "tables", "t")
BOTH = {"updates": {"a": "1"}, "removals": ["a"]}


@pytest.fixture(params=["iceberg", "distinct"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, {"NUNATAK_ERROR_TYPES": request.param}, auth=True)
    made.namespace("ns")
    made.table("ns", "t")
    made.principal("ann", default__ns="READ")
    yield made
    made.close()


def types(catalog: LocalCatalog, iceberg: tuple[int, str], distinct: tuple[int, str]) -> tuple[int, str]:
    return distinct if catalog.app.distinct_errors else iceberg


def test_who_is_not_known_is_not_authenticated(catalog: LocalCatalog) -> None:
    """MISSION: 002-44"""
    expected = types(catalog, (401, "NotAuthorizedException"), (401, "NotAuthenticatedException"))

    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert catalog.run(catalog.request("GET", T, headers=headers)).error[:2] == expected
    form = b"grant_type=client_credentials&client_id=a&client_secret=b"
    form_type = {"Content-Type": "application/x-www-form-urlencoded"}
    token = catalog.run(catalog.request("POST", "/v1/oauth/tokens", form, form_type))
    assert (token.status, token.json["type"]) == expected


def test_what_one_may_not_do_is_not_authorized(catalog: LocalCatalog) -> None:
    """MISSION: 002-45"""
    expected = types(catalog, (403, "ForbiddenException"), (403, "NotAuthorizedException"))

    assert catalog.call_as("ann", "POST", T, a_commit(set_properties(a="b"))).error[:2] == expected


def test_what_contradicts_itself_is_not_valid(catalog: LocalCatalog) -> None:
    """MISSION: 002-48"""
    expected = types(catalog, (422, "UnprocessableEntityException"), (422, "ValidationException"))
    key = {"Idempotency-Key": str(uuid4())}

    first = catalog.call("POST", path_of("ns", "properties"), BOTH, key)
    again = catalog.call("POST", path_of("ns", "properties"), BOTH, key)

    assert first.error[:2] == expected
    assert again.body == first.body


def test_a_fault_of_ours_is_one_of_the_service(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """MISSION: 002-50"""

    async def broken(*_: Any) -> bool:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(catalog.store, "namespace_exists", broken)
    expected = types(catalog, (500, "InternalServerError"), (500, "ServiceException"))

    assert catalog.call("HEAD", path_of("ns")).status == 500
    assert catalog.call("GET", path_of("absent", "tables")).error[:2] == expected


@pytest.mark.parametrize("path", ["/v1/nothing/here/at/all", "/nowhere", "/v2/config", "/management/v1/nothing"])
def test_a_path_without_a_route_is_not_found(catalog: LocalCatalog, path: str) -> None:
    """MISSION: 000-71"""
    expected = types(catalog, (400, "BadRequestException"), (404, "NotFoundException"))

    answer = catalog.call("GET", path)

    assert answer.error[:2] == expected
    assert answer.error[2] == f"No route for request: GET {path}"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutcomeUnknown("?"), (500, "CommitStateUnknownException")),
        (ShadowTable("?"), (403, "ShadowTableException")),
        (errors.NoSuchTable("?"), (404, "NoSuchTableException")),
        (errors.CommitFailed("?"), (409, "CommitFailedException")),
        (errors.BadRequest("?"), (400, "BadRequestException")),
        (errors.ServiceUnavailable("?"), (503, "ServiceUnavailableException")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_clients_act_upon_is_never_renamed(error: CatalogError, expected: tuple[int, str]) -> None:
    assert status_and_type(error, distinct=True) == expected == status_and_type(error, distinct=False)


def test_our_own_client_understands_both() -> None:
    assert is_unknown_route(errors.NotFound("No route for request: GET /x"))
    assert is_unknown_route(errors.BadRequest("No route for request: GET /x"))
