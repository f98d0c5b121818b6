"""Lists in pages: nothing twice, nothing left out, and a token is good for its own list only."""

import base64
from typing import Any

import pytest

from tests.api.conftest import MakeCatalog
from tests.api.wire import a_table, a_view, ok, path_of
from tests.support.catalogs.local import LocalCatalog

LISTS = {
    "namespaces": "/v1/namespaces?parent=ns&",
    "tables": path_of("ns", "tables") + "?",
    "views": path_of("ns", "views") + "?",
}
each_list = pytest.mark.parametrize("kind", LISTS)


def create(catalog: LocalCatalog, kind: str, name: str) -> None:
    if kind == "namespaces":
        catalog.namespace("ns", name)
    else:
        body = a_table(name) if kind == "tables" else a_view(name)
        ok(catalog.call("POST", path_of("ns", kind), body))


def names_of(answer: Any) -> list[str]:
    if "namespaces" in answer:
        return [levels[-1] for levels in answer["namespaces"]]
    return [entry["name"] for entry in answer["identifiers"]]


def pages(catalog: LocalCatalog, path: str, size: int) -> list[list[str]]:
    found, token = [], ""
    for _ in range(100):
        answer = ok(catalog.call("GET", f"{path}pageSize={size}&pageToken={token}"))
        found.append(names_of(answer))
        if "next-page-token" not in answer:
            return found
        token = answer["next-page-token"]
        assert token
    raise AssertionError("the list has no end")


@each_list
def test_pages_hold_everything_once_in_order(catalog: LocalCatalog, kind: str) -> None:
    names = sorted(["a", "a-b", "a.b", "a/b", "a b", "B", "é", "🏔", "z%", "m"])
    for name in names:
        create(catalog, kind, name)

    for size in (1, 3, 9):
        found = pages(catalog, LISTS[kind], size)
        flat = [name for page in found for name in page]
        assert sorted(flat) == names
        assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)
    for size in (10, 11, 1000, 999_999_999):
        assert [sorted(page) for page in pages(catalog, LISTS[kind], size)] == [names]


@each_list
def test_a_list_without_paging_is_whole_and_has_no_token(catalog: LocalCatalog, kind: str) -> None:
    for number in range(5):
        create(catalog, kind, f"n{number}")

    for query in ("", "pageToken="):
        answer = ok(catalog.call("GET", LISTS[kind] + query))
        assert names_of(answer) == ["n0", "n1", "n2", "n3", "n4"]
        assert "next-page-token" not in answer


@each_list
def test_what_is_created_meanwhile_shifts_no_page(catalog: LocalCatalog, kind: str) -> None:
    for name in ("b", "d", "f", "h"):
        create(catalog, kind, name)
    first = ok(catalog.call("GET", f"{LISTS[kind]}pageSize=2"))

    for name in ("a", "c", "e", "g", "i"):
        create(catalog, kind, name)
    second = ok(catalog.call("GET", f"{LISTS[kind]}pageToken={first['next-page-token']}"))

    assert names_of(first) == ["b", "d"]
    assert names_of(second) == ["e", "f", "g", "h", "i"]


@each_list
def test_what_is_dropped_meanwhile_shifts_no_page(catalog: LocalCatalog, kind: str) -> None:
    for name in ("a", "b", "c", "d"):
        create(catalog, kind, name)
    first = ok(catalog.call("GET", f"{LISTS[kind]}pageSize=2"))

    for name in ("a", "b"):
        path = path_of(["ns", name]) if kind == "namespaces" else path_of("ns", kind, name)
        assert catalog.call("DELETE", path).status == 204
    second = ok(catalog.call("GET", f"{LISTS[kind]}pageToken={first['next-page-token']}"))

    assert (names_of(first), names_of(second)) == (["a", "b"], ["c", "d"])


@each_list
def test_a_token_that_was_changed_is_refused(catalog: LocalCatalog, kind: str) -> None:
    for name in ("a", "b", "c"):
        create(catalog, kind, name)
    token = ok(catalog.call("GET", f"{LISTS[kind]}pageSize=1"))["next-page-token"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))

    for position in range(len(raw)):
        changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        forged = base64.urlsafe_b64encode(changed).decode().rstrip("=")
        answer = catalog.call("GET", f"{LISTS[kind]}pageToken={forged}")
        assert answer.error == (400, "BadRequestException", "Invalid pageToken")


def test_a_token_is_bound_to_its_list(catalog: LocalCatalog) -> None:
    tokens = {}
    for kind, path in LISTS.items():
        for name in ("a", "b"):
            if kind != "views":
                create(catalog, kind, name)
            else:
                create(catalog, kind, f"{name}-view")
        tokens[kind] = ok(catalog.call("GET", f"{path}pageSize=1"))["next-page-token"]

    for kind, path in LISTS.items():
        for other, token in tokens.items():
            status = catalog.call("GET", f"{path}pageToken={token}").status
            assert status == (200 if kind == other else 400), (kind, other)


def test_two_namespaces_that_print_alike_have_tokens_of_their_own(catalog: LocalCatalog) -> None:
    for levels in (["a", "b"], ["a.b"]):
        catalog.namespace(*levels)
        for name in ("x", "y"):
            ok(catalog.call("POST", path_of(levels, "tables"), a_table(name)))
    token = ok(catalog.call("GET", path_of(["a", "b"], "tables") + "?pageSize=1"))["next-page-token"]

    assert catalog.call("GET", path_of(["a", "b"], "tables") + f"?pageToken={token}").status == 200
    assert catalog.call("GET", path_of(["a.b"], "tables") + f"?pageToken={token}").status == 400


def test_a_token_outlives_a_restart(catalog: LocalCatalog) -> None:
    for name in ("a", "b"):
        create(catalog, "tables", name)
    token = ok(catalog.call("GET", f"{LISTS['tables']}pageSize=1"))["next-page-token"]

    catalog.restart()

    assert names_of(ok(catalog.call("GET", f"{LISTS['tables']}pageToken={token}"))) == ["b"]


def test_a_page_is_never_larger_than_a_thousand(catalog: LocalCatalog) -> None:
    for number in range(1001):
        catalog.namespace("ns", f"n{number:04d}")

    first = ok(catalog.call("GET", "/v1/namespaces?parent=ns&pageSize=5000"))

    assert len(first["namespaces"]) == 1000
    assert names_of(ok(catalog.call("GET", f"/v1/namespaces?parent=ns&pageToken={first['next-page-token']}"))) == [
        "n1000"
    ]
    assert len(ok(catalog.call("GET", "/v1/namespaces?parent=ns"))["namespaces"]) == 1001


def test_a_namespace_that_exists_through_its_children_is_listed_once(catalog: LocalCatalog) -> None:
    """A JDBC client marks no parents: `a` exists because of `a.b`, and stands behind `a-c` in the file's order."""
    with_children = "INSERT INTO iceberg_namespace_properties VALUES ('default', ?, 'exists', 'true')"
    catalog.rows("PRAGMA busy_timeout = 1000")
    for namespace in ("a.b", "a.c.d", "a-c", "a/", "a/x.y"):
        catalog.rows(with_children, namespace)

    for size in (1, 2, 3, 100):
        found = [name for page in pages(catalog, "/v1/namespaces?", size) for name in page]
        assert sorted(found) == ["a", "a-c", "a/", "a/x", "ns"], size
    for size in (1, 2):
        assert [name for page in pages(catalog, "/v1/namespaces?parent=a&", size) for name in page] == ["b", "c"]


# How large a page is that no client asked for


@each_list
def test_the_size_of_a_page_is_a_setting(make_catalog: MakeCatalog, kind: str) -> None:
    """MISSION: 002-06. 100 in the document; a client that sends no pageToken gets everything, as the spec wants."""
    catalog = make_catalog(page_size="100")
    catalog.namespace("ns")
    names = [f"n{number:03}" for number in range(105)]
    for name in names:
        create(catalog, kind, name)

    first = ok(catalog.call("GET", f"{LISTS[kind]}pageToken="))
    assert names_of(first) == names[:100]
    rest = ok(catalog.call("GET", f"{LISTS[kind]}pageToken={first['next-page-token']}"))
    assert names_of(rest) == names[100:]
    assert "next-page-token" not in rest
    whole = ok(catalog.call("GET", LISTS[kind]))
    assert names_of(whole) == names
    assert "next-page-token" not in whole
    assert names_of(ok(catalog.call("GET", f"{LISTS[kind]}pageToken=&pageSize=103"))) == names[:103]
