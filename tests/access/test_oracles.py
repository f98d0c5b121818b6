"""What a caller may not know looks like what is not there: page tokens, grants, configuration, and the steps taken."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.secured import SecuredCatalog
from tests.api.wire import ok, path_of

M = "/management/v1"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SecuredCatalog]:
    secured = SecuredCatalog(tmp_path / "data")
    secured.namespace("ns")
    for number in range(6):
        secured.table("ns", f"hidden{number}")
    yield secured
    secured.close()


# Page tokens


def raw(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def test_a_page_token_is_of_one_caller_one_list_and_one_question(catalog: SecuredCatalog) -> None:
    for name in ("ann", "ben"):
        catalog.principal(name, default="READ")
    catalog.namespace("other")
    lists = {
        f"{path_of('ns', 'tables')}?pageSize=2": "&",
        f"{path_of('ns', 'views')}?pageSize=2": "&",
        f"{path_of('other', 'tables')}?pageSize=2": "&",
        "/v1/namespaces?pageSize=1": "&",
        f"{M}/health?securable=namespace:default/ns&pageSize=2": "&",
        f"{M}/health?securable=namespace:default/ns&deep=true&pageSize=2": "&",
        f"{M}/maintenance/plan?securable=namespace:default/ns&pageSize=2": "&",
    }
    tokens = {}
    for path in lists:
        token = ok(catalog.call_as("ann", "GET", path)).get("next-page-token")
        if token is not None:
            tokens[path] = token
            assert b"hidden" not in raw(token)
            assert b"ns" not in raw(token)[:12]
    assert len(tokens) >= 5

    for path in lists:
        for other, token in tokens.items():
            wanted = 200 if path == other else 400
            assert catalog.call_as("ann", "GET", f"{path}&pageToken={token}").status == wanted, (path, other)
            assert catalog.call_as("ben", "GET", f"{path}&pageToken={token}").status == 400


def test_a_page_token_is_good_after_a_restart_and_names_nothing_hidden(catalog: SecuredCatalog) -> None:
    catalog.principal(
        "ann", default__ns____hidden0="READ", default__ns____hidden1="READ", default__ns____hidden5="READ"
    )
    path = f"{path_of('ns', 'tables')}?pageSize=2"
    token = ok(catalog.call_as("ann", "GET", path))["next-page-token"]

    catalog.restart()

    page = ok(catalog.call_as("ann", "GET", f"{path}&pageToken={token}"))
    assert [each["name"] for each in page["identifiers"]] == ["hidden5"]
