"""The same API under every base path that users and engines come up with; every route with a privilege."""

from itertools import product

import pytest

from nunatak.access.privileges import Privilege, Securable
from nunatak.api.routes import ROUTES
from tests.api.wire import a_commit, a_table, ok, set_properties
from tests.support.catalogs.local import LocalCatalog

ROOTS = ["", "/iceberg", "/apis/iceberg", "/api/catalog"]
VERSIONS = ["/v1", "/v1/v1"]
PREFIXES = ["", "/default"]
ENDS = ["", "/"]
BASES = ["".join(parts) for parts in product(ROOTS, VERSIONS, PREFIXES)]


@pytest.mark.parametrize("end", ENDS, ids=["", "trailing slash"])
@pytest.mark.parametrize("base", BASES)
def test_a_read_is_answered_the_same_under_every_base(catalog: LocalCatalog, base: str, end: str) -> None:
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    for path in ("/config", "/namespaces", "/namespaces/ns", "/namespaces/ns/tables", "/namespaces/ns/tables/t",
                 "/namespaces/ns/views", "/namespaces/ns/views/v", "/search"):  # fmt: skip
        expected = catalog.call("GET", f"/v1{path}")
        answer = catalog.call("GET", f"{base}{path}{end}")

        assert (answer.status, answer.body, answer.headers) == (200, expected.body, expected.headers), path
    for path in ("/namespaces/ns", "/namespaces/ns/tables/t", "/namespaces/ns/views/v"):
        assert catalog.call("HEAD", f"{base}{path}{end}").status == 204


@pytest.mark.parametrize("base", BASES)
def test_a_change_is_made_under_every_base(catalog: LocalCatalog, base: str) -> None:
    ok(catalog.call("POST", f"{base}/namespaces", {"namespace": ["made"]}))
    ok(catalog.call("POST", f"{base}/namespaces/made/tables", a_table("t")))
    ok(catalog.call("POST", f"{base}/namespaces/made/tables/t", a_commit(set_properties(base=base))))
    assert catalog.load("made", "t")["metadata"]["properties"]["base"] == base
    assert catalog.call("DELETE", f"{base}/namespaces/made/tables/t").status == 204
    assert catalog.call("DELETE", f"{base}/namespaces/made").status == 204


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/"])
@pytest.mark.parametrize("root", ROOTS)
def test_what_is_no_catalog_route_answers_below_the_roots_too(catalog: LocalCatalog, root: str, path: str) -> None:
    assert catalog.call("GET", root + path).status == 200


def test_one_key_replays_whichever_base_the_retry_comes_by(catalog: LocalCatalog) -> None:
    key = {"Idempotency-Key": "01890a5d-ac96-774b-bcce-b302099a8057"}
    first = catalog.call("POST", "/v1/namespaces", {"namespace": ["once"]}, key)

    again = catalog.call("POST", "/iceberg/v1/default/namespaces/", {"namespace": ["once"]}, key)

    assert (again.status, again.body) == (200, first.body)


def test_a_path_that_leads_nowhere_is_answered_with_a_hint(catalog: LocalCatalog) -> None:
    assert "`endpoints` of /v1/config" in catalog.call("GET", "/v1/tabels").hint
    assert "Allowed: GET, POST" in catalog.call("PUT", "/v1/namespaces").hint
    assert "set `auth` of the server to embedded" in catalog.call("POST", "/v1/oauth/tokens", b"").hint


def test_names_that_are_words_of_the_api_are_just_names(catalog: LocalCatalog) -> None:
    for name in ("tables", "views", "namespaces", "properties", "register", "rename", "metrics", "v1", "config", "*"):
        catalog.namespace(name)
        ok(catalog.call("POST", f"/v1/namespaces/{name}/tables", a_table(name)))

        assert ok(catalog.call("GET", f"/v1/namespaces/{name}/tables/{name}"))["metadata"]
        assert catalog.call("HEAD", f"/iceberg/v1/default/namespaces/{name}/").status == 204


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_every_route_declares_what_it_needs(route: object) -> None:
    assert isinstance(getattr(route, "privilege", None), Privilege)
    assert isinstance(getattr(route, "securable", None), Securable)


def test_only_what_says_nothing_about_the_catalog_is_public() -> None:
    assert {route.operation for route in ROUTES if route.privilege is Privilege.PUBLIC} == {
        "getToken",
        "explainToken",
        "getKeys",
        "welcome",
        "health",
        "ready",
        "metrics",
    }
