"""Names come back as they were given, whatever is in them."""

from urllib.parse import quote, quote_plus

import pytest

from tests.api.conftest import MakeCatalog
from tests.api.wire import a_commit, a_table, a_view, done, identifier, ok, path_of, rename, set_properties
from tests.support.catalogs.local import LocalCatalog

NAMES = {
    "slash": "a/b",
    "dot": "a.b",
    "leading dot": ".hidden",
    "three dots": "...",
    "space": "a b",
    "edge spaces": " a ",
    "plus": "a+b",
    "percent": "100%",
    "looks encoded": "a%2Fb",
    "looks like our escape": "%2E%25",
    "question and hash": "a?b#c",
    "star and dollar": "*${aws:username}",
    "quotes": 'it\'s "so"',
    "backslash": "a\\b",
    "colon": "a:b",
    "unicode": "größe–数据",
    "emoji": "🏔️",
    "combining": "e\u0301",
    "upper": "UPPER",
    "255 bytes": "x" * 255,
    "255 bytes of emoji": "🏔" * 63 + "xyz",
}
each_name = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())


@each_name
def test_a_namespace_keeps_its_name(catalog: LocalCatalog, name: str) -> None:
    for levels in ([name], ["ns", name], [name, name, "c"]):
        created = ok(catalog.call("POST", "/v1/namespaces", {"namespace": levels}))
        assert created["namespace"] == levels
        assert ok(catalog.call("GET", path_of(levels)))["namespace"] == levels
        assert catalog.call("HEAD", path_of(levels)).status == 204

    assert [name] in ok(catalog.call("GET", "/v1/namespaces"))["namespaces"]
    assert ok(catalog.call("GET", f"/v1/namespaces?parent={quote(name, safe='')}"))["namespaces"] == [[name, name]]
    nested = quote(f"{name}\x1f{name}", safe="")
    assert ok(catalog.call("GET", f"/v1/namespaces?parent={nested}"))["namespaces"] == [[name, name, "c"]]

    ok(catalog.call("POST", path_of([name]) + "/properties", {"updates": {"color": "red"}}))
    assert ok(catalog.call("GET", path_of([name])))["properties"]["color"] == "red"
    for levels in ([name, name, "c"], [name, name], [name], ["ns", name]):
        done(catalog.call("DELETE", path_of(levels)))
    assert ok(catalog.call("GET", "/v1/namespaces"))["namespaces"] == [["ns"]]


@pytest.mark.parametrize("kind", ["tables", "views"])
@each_name
def test_a_table_or_view_keeps_its_name(catalog: LocalCatalog, kind: str, name: str) -> None:
    catalog.namespace(name)
    body = a_table(name) if kind == "tables" else a_view(name)
    created = ok(catalog.call("POST", path_of(name, kind), body))
    assert created["metadata"]["location"].startswith(f"file://{catalog.warehouse}/")
    assert len(created["metadata"]["location"].removeprefix(f"file://{catalog.warehouse}/").split("/")) == 2

    ok(catalog.call("POST", path_of(name, kind, name), a_commit(set_properties(color="red"))))
    assert ok(catalog.call("GET", path_of(name, kind, name)))["metadata"]["properties"]["color"] == "red"
    assert ok(catalog.call("GET", path_of(name, kind)))["identifiers"] == [identifier(name, name)]
    assert ok(catalog.call("GET", f"/v1/search?query={quote(name, safe='')}"))["results"] == [
        {"type": kind[:-1], "identifier": identifier(name, name)}
    ]

    done(catalog.call("POST", f"/v1/{kind}/rename", rename(identifier(name, name), identifier("ns", f"{name[1:]}2"))))
    done(catalog.call("POST", f"/v1/{kind}/rename", rename(identifier("ns", f"{name[1:]}2"), identifier(name, name))))
    assert catalog.call("HEAD", path_of(name, kind, name)).status == 204
    catalog.restart()
    assert ok(catalog.call("GET", path_of(name, kind, name)))["metadata"]["properties"]["color"] == "red"
    done(catalog.call("DELETE", path_of(name, kind, name)))
    assert catalog.call("HEAD", path_of(name, kind, name)).status == 404


@each_name
def test_a_name_in_the_form_encoding_of_java_is_understood(catalog: LocalCatalog, name: str) -> None:
    """A Java client writes a space as a plus and leaves the dot and the star as they are."""
    catalog.namespace(name)
    ok(catalog.call("POST", path_of(name, "tables"), a_table(name)))
    form = quote_plus(name, safe=".*-_")

    assert ok(catalog.call("GET", f"/v1/namespaces/{form}/tables/{form}"))["metadata"]


def test_levels_with_dots_are_not_mixed_up_with_levels(catalog: LocalCatalog) -> None:
    different = [["a", "b", "c"], ["a.b", "c"], ["a", "b.c"], ["a.b.c"], ["a%2Eb", "c"]]
    for number, levels in enumerate(different):
        ok(catalog.call("POST", "/v1/namespaces", {"namespace": levels, "properties": {"number": str(number)}}))

    for number, levels in enumerate(different):
        loaded = ok(catalog.call("GET", path_of(levels)))
        assert (loaded["namespace"], loaded["properties"]["number"]) == (levels, str(number))
    assert ok(catalog.call("GET", "/v1/namespaces?parent=a"))["namespaces"] == [["a", "b"], ["a", "b.c"]]
    assert ok(catalog.call("GET", "/v1/namespaces"))["namespaces"] == [["a"], ["a%2Eb"], ["a.b"], ["a.b.c"], ["ns"]]


def test_names_that_differ_only_in_case_are_two_names_and_a_404_says_so(catalog: LocalCatalog) -> None:
    catalog.table("ns", "Orders")

    answer = catalog.call("GET", path_of("NS", "tables", "orders"))
    assert answer.error == (404, "NoSuchTableException", "Table does not exist: NS.orders")
    assert answer.hint == "Names are case-sensitive; did you mean ns.Orders?"

    lower = catalog.table("ns", "orders")
    assert catalog.load("ns", "orders") == lower
    assert catalog.load("ns", "Orders") != lower


def test_a_404_names_the_other_kind_of_that_name(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    catalog.view("ns", "v")

    assert catalog.call("GET", path_of("ns", "views", "t")).hint == "A table with this name exists."
    assert catalog.call("GET", path_of("ns", "tables", "v")).hint == "A view with this name exists."


@pytest.mark.parametrize("separator", [".", "$", "~", "é"])
def test_a_chosen_separator_parts_levels_and_so_does_the_standard_one(
    make_catalog: MakeCatalog, separator: str
) -> None:
    catalog = make_catalog(namespace_separator=separator)
    ok(catalog.call("POST", "/v1/namespaces", {"namespace": ["a", "b"]}))
    written = "".join(f"%{byte:02X}" for byte in separator.encode())

    for path in (f"/v1/namespaces/a{written}b", f"/v1/namespaces/a{written.lower()}b", "/v1/namespaces/a%1Fb"):
        assert ok(catalog.call("GET", path))["namespace"] == ["a", "b"]
    for parent in ("a", "A"):
        status = catalog.call("GET", f"/v1/namespaces?parent={parent}").status
        assert status == (200 if parent == "a" else 404)
    ok(catalog.call("POST", "/v1/namespaces", {"namespace": ["a", "b", "c"]}))
    for parent in (f"a{written}b", "a%1Fb"):
        assert ok(catalog.call("GET", f"/v1/namespaces?parent={parent}"))["namespaces"] == [["a", "b", "c"]]


def test_a_dot_in_a_level_is_told_from_the_separator_dot(make_catalog: MakeCatalog) -> None:
    """Java leaves a dot of a name as it is and writes the separator as %2E."""
    catalog = make_catalog(namespace_separator=".")
    ok(catalog.call("POST", "/v1/namespaces", {"namespace": ["new.db"]}))

    assert ok(catalog.call("GET", "/v1/namespaces/new.db"))["namespace"] == ["new.db"]
    assert catalog.call("GET", "/v1/namespaces/new%2Edb").status == 404
