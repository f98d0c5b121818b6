"""Errors: each in Iceberg's envelope, with the documented status and type, and without an effect."""

from pathlib import Path
from typing import Any

import pytest

from tests.mission.wire import created, send
from tests.support.catalogs.process import RunningServer

BASES = ["/apis/iceberg/v1/default", "/iceberg/v1", "/v1"]
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
TABLE = {"name": "users", "schema": SCHEMA}
SET_OWNER = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "ops"}}]}


@pytest.fixture
def users(catalog: RunningServer) -> RunningServer:
    """A catalog with the table `db.users`."""
    created(send(catalog, "POST", "/v1/namespaces", {"namespace": ["db"], "properties": {"owner": "ops"}}))
    created(send(catalog, "POST", "/v1/namespaces/db/tables", TABLE))
    return catalog


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("request_line", "body", "expected"),
    [
        ("GET /namespaces/absent", None, (404, "NoSuchNamespaceException")),
        ("DELETE /namespaces/absent", None, (404, "NoSuchNamespaceException")),
        ("GET /namespaces/absent/tables", None, (404, "NoSuchNamespaceException")),
        ("POST /namespaces/absent/tables", TABLE, (404, "NoSuchNamespaceException")),
        ("POST /namespaces/absent/properties", {"updates": {"a": "b"}}, (404, "NoSuchNamespaceException")),
        ("GET /namespaces/db/tables/absent", None, (404, "NoSuchTableException")),
        ("DELETE /namespaces/db/tables/absent", None, (404, "NoSuchTableException")),
        ("POST /namespaces/db/tables/absent", SET_OWNER, (404, "NoSuchTableException")),
        ("POST /namespaces", {"namespace": ["db"]}, (409, "AlreadyExistsException")),
        ("POST /namespaces/db/tables", TABLE, (409, "AlreadyExistsException")),
        ("DELETE /namespaces/db", None, (409, "NamespaceNotEmptyException")),
    ],
)
def test_what_is_missing_or_taken_has_its_own_type(
    users: RunningServer, base: str, request_line: str, body: Any, expected: tuple[int, str]
) -> None:
    """MISSION: 000-68, 000-72, 000-73, 000-74, 000-75, 002-42, 002-46, 002-47"""
    method, path = request_line.split()

    assert send(users, method, base + path, body).error == expected


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/namespaces", b"{not json"),
        ("/namespaces", b""),
        ("/namespaces", []),
        ("/namespaces", {"namespace": "db"}),
        ("/namespaces", {"namespace": []}),
        ("/namespaces", {"properties": {}}),
        ("/namespaces", {"namespace": ["x"], "properties": {"owner": {}}}),
        ("/namespaces/db/tables", {"name": "t"}),
        ("/namespaces/db/tables", {"schema": SCHEMA}),
        ("/namespaces/db/tables", {"name": "", "schema": SCHEMA}),
        ("/namespaces/db/tables/users", {"requirements": [], "updates": {}}),
        ("/namespaces/db/tables/users", {"requirements": [{"type": "assert-full-moon"}], "updates": []}),
        ("/namespaces/db/tables/users", {"requirements": [], "updates": [{"action": "add-glitter"}]}),
        ("/namespaces/db/tables/users", {"requirements": [{}], "updates": []}),
        ("/tables/rename", {"source": {"namespace": ["db"], "name": "users"}}),
        ("/namespaces/db/register", {"name": "again"}),
    ],
)
def test_a_malformed_request_is_refused_and_changes_nothing(
    users: RunningServer, base: str, path: str, body: Any
) -> None:
    """MISSION: 000-67, 000-70, 002-42, 002-43"""
    before = created(send(users, "GET", "/v1/namespaces/db/tables/users"))

    assert send(users, "POST", base + path, body).error == (400, "BadRequestException")

    assert created(send(users, "GET", "/v1/namespaces/db/tables/users")) == before
    assert created(send(users, "GET", "/v1/namespaces"))["namespaces"] == [["db"]]
    assert len(created(send(users, "GET", "/v1/namespaces/db/tables"))["identifiers"]) == 1


def test_a_table_without_its_metadata_file_is_not_found(users: RunningServer) -> None:
    """MISSION: 000-71"""
    location = created(send(users, "GET", "/v1/namespaces/db/tables/users"))["metadata-location"]
    Path(location.removeprefix("file://")).unlink()

    answer = send(users, "GET", "/v1/namespaces/db/tables/users")

    assert answer.error == (404, "NotFoundException")
    assert location in answer.json["error"]["message"]


def test_a_path_that_leads_nowhere_is_answered_with_a_hint(users: RunningServer) -> None:
    """MISSION: 000-70, 002-42"""
    answer = send(users, "GET", "/v1/spoons/db")

    assert answer.error == (400, "BadRequestException")
    assert "/v1/config" in answer.json["error"]["hint"]


def test_one_key_cannot_be_set_and_removed_at_once(users: RunningServer) -> None:
    body = {"updates": {"owner": "me"}, "removals": ["owner"]}

    answer = send(users, "POST", "/v1/namespaces/db/properties", body)

    assert answer.status == answer.error[0] == 422
    assert created(send(users, "GET", "/v1/namespaces/db"))["properties"]["owner"] == "ops"


def test_a_method_that_a_route_does_not_have_is_answered_as_an_error(users: RunningServer) -> None:
    """MISSION: 002-42"""
    assert send(users, "PATCH", "/v1/namespaces/db").error == (405, "MethodNotAllowedException")
