"""GET /management/v1/audit: who may see which records, and how they are asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.catalogs.local import LocalCatalog
from tests.support.catalogs.process import running_server
from tests.unit.cli.conftest import run_command

AUDIT = "/management/v1/audit"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    catalog = LocalCatalog(tmp_path / "data", auth=True)
    catalog.call("POST", "/v1/namespaces", {"namespace": ["sales"]}, {"X-Request-ID": "r-1"})
    catalog.call("POST", "/v1/namespaces", {"namespace": ["hr"]})
    catalog.call("POST", "/v1/namespaces", {"namespace": ["hr", "pay"]})
    yield catalog
    catalog.close()


def flushed(catalog: LocalCatalog) -> None:
    assert catalog.app.audit is not None
    catalog.run(catalog.app.audit.flush(catalog.store))


def records(catalog: LocalCatalog, name: str = "root", query: str = "") -> list[dict[str, Any]]:
    """Page by page, two records each."""
    found: list[dict[str, Any]] = []
    token = ""
    for _ in range(100):
        page = f"&pageToken={token}" if token else ""
        answer = catalog.call_as(name, "GET", f"{AUDIT}?pageSize=2&{query}{page}")
        assert answer.status == 200, answer
        found += answer.json["records"]
        token = answer.json["next-page-token"]
        if token is None:
            return found
    raise AssertionError("the list does not end")


def made(catalog: LocalCatalog, name: str = "root", query: str = "") -> list[str]:
    wanted = records(catalog, name, f"action=create-namespace&order=oldest&{query}")
    return [record["securable"].removeprefix("namespace:default/") for record in wanted]


def test_an_auditor_of_the_server_sees_everything_in_either_order(catalog: LocalCatalog) -> None:
    catalog.principal("eve", server="AUDIT_READ")

    assert made(catalog, "eve") == ["sales", "hr", "hr/pay"]
    assert [record["sequence"] for record in records(catalog, "eve", "order=newest&action=create-namespace")] == sorted(
        (record["sequence"] for record in records(catalog, "eve", "order=oldest&action=create-namespace")), reverse=True
    )


def test_an_auditor_of_a_namespace_sees_what_lies_inside_and_must_say_so(catalog: LocalCatalog) -> None:
    catalog.principal("hank", default__hr="AUDIT_READ")

    assert made(catalog, "hank", "securable=namespace:default/hr") == ["hr", "hr/pay"]
    assert made(catalog, "hank", "securable=namespace:default/hr/pay") == ["hr/pay"]
    for securable in ("server", "warehouse:default", "namespace:default/sales", "namespace:default/h", "table:x/y/z"):
        answer = catalog.call_as("hank", "GET", f"{AUDIT}?securable={quote(securable, safe='')}")
        assert (answer.status, answer.json["error"]["type"]) == (403, "ForbiddenException"), securable
    assert catalog.call_as("hank", "GET", AUDIT).status == 403


def test_one_without_the_right_is_denied_and_the_denial_is_recorded(catalog: LocalCatalog) -> None:
    catalog.principal("bob", default="ADMIN")

    assert catalog.call_as("bob", "GET", AUDIT, headers={"X-Request-ID": "r-2"}).status == 403
    flushed(catalog)

    (denial,) = records(catalog, query="outcome=denied")
    assert (denial["principal"], denial["action"], denial["securable"]) == ("bob", "AUDIT_READ", "server")
    assert denial["request_id"] == "r-2"


def test_nobody_is_not_let_in(catalog: LocalCatalog) -> None:
    answer = catalog.run(catalog.request("GET", AUDIT))

    assert answer.status == 401


def test_reads_are_recorded_and_summed_up(catalog: LocalCatalog) -> None:
    for _ in range(3):
        assert catalog.call("GET", "/v1/namespaces/sales").status == 200
    flushed(catalog)

    (read,) = records(catalog, query="action=loadNamespaceMetadata")
    assert (read["securable"], read["outcome"], read["repeats"]) == ("namespace:default/sales", "allowed", 3)


def test_records_are_found_by_request_and_time(catalog: LocalCatalog) -> None:
    assert made(catalog, query="request-id=r-1") == ["sales"]
    assert made(catalog, query="since=2020-01-01T00:00:00Z&until=2999-01-01") == ["sales", "hr", "hr/pay"]
    assert made(catalog, query="until=2020-01-01") == []
    assert made(catalog, query="principal=root") == ["sales", "hr", "hr/pay"]
    assert made(catalog, query="principal=eve") == []


@pytest.mark.parametrize("query", ["since=yesterday", "order=random", "securable=sales", "pageSize=0", "pageToken=x"])
def test_what_cannot_be_understood_is_refused(catalog: LocalCatalog, query: str) -> None:
    answer = catalog.call("GET", f"{AUDIT}?{query}")

    assert (answer.status, answer.json["error"]["type"]) == (400, "BadRequestException")


def test_a_page_token_belongs_to_the_list_it_came_from(catalog: LocalCatalog) -> None:
    """Or an auditor of a part could go on in another."""
    token = catalog.call("GET", f"{AUDIT}?pageSize=1").json["next-page-token"]

    assert catalog.call("GET", f"{AUDIT}?pageToken={token}&securable=namespace:default/hr").status == 400
    assert catalog.call("GET", f"{AUDIT}?pageToken={token}").status == 200


def test_a_server_that_asks_nobody_shows_it_to_everybody(tmp_path: Path) -> None:
    catalog = LocalCatalog(tmp_path / "data")
    catalog.namespace("sales")

    answer = catalog.call("GET", AUDIT)

    assert [record["action"] for record in answer.json["records"]] == ["create-namespace"]
    assert answer.json["next-page-token"] is None
    catalog.close()


def test_a_server_that_is_told_to_stop_forgets_no_denial(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", auth=True) as server:
        assert server.call("GET", "/v1/namespaces", authorization="Bearer nobody").status == 401
        assert server.call("GET", "/v1/config").status == 200

    listed = run_command("audit", "list", "-o", "json", "--data", str(tmp_path / "data"))

    noted = {(record["action"], record["outcome"]) for record in listed.json}
    assert noted >= {("authenticate", "denied"), ("getConfig", "allowed")}
