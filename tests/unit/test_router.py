"""From a raw path to a route, without decoding anything and without a surprise."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.api.http import decode_segment, split_namespace, split_parent
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.route import TOP_WORDS, Route
from nunatak.api.router import ROOTS, Router
from nunatak.api.routes import ROUTES
from nunatak.errors import BadRequest, CatalogError, MethodNotAllowed

ROUTER = Router()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_every_route_is_found_by_its_template(route: object) -> None:
    template: str = route.template  # type: ignore[attr-defined]
    path = (
        template.replace("{prefix}", "wh")
        .replace("{namespace}", "a%1Fb")
        .replace("{table}", "t")
        .replace("{view}", "v")
    )

    matched, prefix, names = ROUTER.match(route.method, path)  # type: ignore[attr-defined]

    assert matched is route
    assert prefix == ("wh" if "{prefix}" in template else "")
    assert names == [word for word in path.split("/") if word in ("a%1Fb", "t", "v")]


@pytest.mark.parametrize("route", MANAGEMENT_ROUTES, ids=lambda route: route.operation)
@pytest.mark.parametrize("base", ["", "/iceberg"])
def test_every_route_of_the_management_api_is_found_with_its_names(route: Route, base: str) -> None:
    words = [f"%2F{word}%2B" if word.startswith("{") else word for word in route.template.split("/")]

    matched, prefix, names = ROUTER.match(route.method, base + "/".join(words))

    assert matched is route
    assert prefix == ""
    assert names == [word for word in words if word.startswith("%2F")]


@pytest.mark.parametrize("path", ["/management", "/management/v1", "/management/v2/roles", "/v1/management/v1/roles"])
def test_the_management_api_is_nowhere_else(path: str) -> None:
    with pytest.raises(BadRequest, match="No route for request: GET"):
        ROUTER.match("GET", path)


def test_no_two_routes_share_a_method_and_a_path() -> None:
    every = (*ROUTES, *MANAGEMENT_ROUTES)
    seen = [(route.method, route.template) for route in every]

    assert len(seen) == len(set(seen))
    assert len({route.operation for route in every}) == len(every)


def test_names_are_handed_on_as_they_were_sent() -> None:
    _, _, names = ROUTER.match("GET", "/v1/namespaces/a%2Fb%1F+c/tables/%2e%2E")

    assert names == ["a%2Fb%1F+c", "%2e%2E"]


def test_every_first_word_is_kept_from_naming_a_warehouse() -> None:
    first = {
        route.template.replace("{prefix}/", "").split("/")[2] for route in ROUTES if route.template.startswith("/v1/")
    }

    assert first <= TOP_WORDS


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v2/config", "/v1/a/b/c", "/config", "//", "/v1/namespaces/a/tables/b/c/d"]
)
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(BadRequest, match="No route for request: GET"):
        ROUTER.match("GET", path)


def test_a_method_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        ROUTER.match("PATCH", "/v1/namespaces/a/tables/t")
    assert refused.value.hint == "Allowed: DELETE, GET, HEAD, POST."


words = st.sampled_from(
    ["v1", "namespaces", "tables", "views", "rename", "config", "", "*", "a", "iceberg", "apis", "properties"]
)


@given(st.lists(words, max_size=9), st.sampled_from(["GET", "POST", "HEAD", "DELETE", "PUT"]))
def test_any_path_is_matched_or_refused_as_an_error_of_ours(parts: list[str], method: str) -> None:
    path = "/" + "/".join(parts)
    found, status = _match(method, path)

    if found is None:
        assert status in (400, 405)
    else:
        route, names = found
        assert route.method == method
        assert len(names) == route.template.count("{") - route.template.count("{prefix}")


def _match(method: str, path: str) -> tuple[tuple[Route, Sequence[str]] | None, int]:
    try:
        route, _, names = ROUTER.match(method, path)
    except CatalogError as error:
        return None, error.status
    return (route, names), 200


@pytest.mark.parametrize("root", ROOTS, ids="/".join)
def test_a_root_is_understood_only_in_front(root: tuple[str, ...]) -> None:
    base = "/" + "/".join(root)

    assert ROUTER.match("GET", f"{base}/v1/config")[0].operation == "getConfig"
    with pytest.raises(BadRequest):
        ROUTER.match("GET", f"{base}{base}/v1/config")


# Decoding


@pytest.mark.parametrize(
    ("raw", "name"),
    [("a", "a"), ("a%20b", "a b"), ("a+b", "a b"), ("a%2Bb", "a+b"), ("%2F", "/"), ("%25", "%"), ("%252F", "%2F"),
     ("%F0%9F%8F%94", "🏔"), ("100%", "100%"), ("é", "é")],
)  # fmt: skip
def test_a_segment_is_decoded_once_and_a_plus_is_a_space(raw: str, name: str) -> None:
    assert decode_segment(raw) == name


@pytest.mark.parametrize("raw", ["%FF", "%C3%28", "a%E2%82", "%ED%A0%80"])
def test_a_segment_that_is_not_utf_8_is_refused(raw: str) -> None:
    with pytest.raises(BadRequest, match="is not valid UTF-8"):
        decode_segment(raw)


@pytest.mark.parametrize(
    ("raw", "separator", "levels"),
    [
        ("a", "\x1f", ("a",)),
        ("a%1Fb%1fc", "\x1f", ("a", "b", "c")),
        ("a%2Fb%1Fc+d", "\x1f", ("a/b", "c d")),
        ("a.b", "\x1f", ("a.b",)),
        ("a%2Eb", "\x1f", ("a.b",)),
        ("a%2Eb", ".", ("a", "b")),
        ("a%2eb%1Fc", ".", ("a", "b", "c")),
        ("a.b", ".", ("a.b",)),
        ("%1F", "\x1f", ("", "")),
        ("a%251Fb", "\x1f", ("a%1Fb",)),
    ],
)
def test_a_namespace_is_split_before_it_is_decoded(raw: str, separator: str, levels: tuple[str, ...]) -> None:
    assert split_namespace(raw, separator) == levels


def test_a_parent_arrives_decoded_and_is_split_at_either_separator() -> None:
    assert split_parent("a\x1fb", "\x1f") == ("a", "b")
    assert split_parent("a.b\x1fc", ".") == ("a", "b", "c")
    assert split_parent("a.b", "\x1f") == ("a.b",)


def test_nothing_is_served_with_a_route_that_declares_no_privilege() -> None:
    open_to_everybody = replace(ROUTES[0], privilege=None)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="getConfig declares no privilege"):
        Router((*ROUTES[1:], open_to_everybody))
