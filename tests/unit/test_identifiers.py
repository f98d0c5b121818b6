"""Names: what is refused, how they print, and how they are written into the JDBC tables and read back exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import BadRequest
from nunatak.iceberg.identifiers import Identifier, check_name, check_namespace, from_jdbc, print_namespace, to_jdbc

level = st.text(
    st.one_of(st.sampled_from("%.25Ea/"), st.characters(codec="utf-8", min_codepoint=32)), min_size=1, max_size=12
)
namespaces = st.lists(level, min_size=1, max_size=4).map(tuple)


@given(namespaces)
def test_a_namespace_is_read_back_from_the_database_exactly(namespace: tuple[str, ...]) -> None:
    assert from_jdbc(to_jdbc(namespace)) == namespace


@given(namespaces, namespaces)
def test_two_namespaces_are_never_written_alike(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (to_jdbc(one) == to_jdbc(other)) == (one == other)


@given(namespaces)
def test_a_child_is_written_below_its_parent(namespace: tuple[str, ...]) -> None:
    assert to_jdbc((*namespace, "child")) == f"{to_jdbc(namespace)}.child"


@pytest.mark.parametrize(
    ("namespace", "written"),
    [
        (("db",), "db"),
        (("db", "sub"), "db.sub"),
        (("a b", "c-d_e"), "a b.c-d_e"),
        (("50%",), "50%"),
        (("new.db",), "new%2Edb"),
        (("%2E",), "%252E"),
        (("%25",), "%2525"),
    ],
)
def test_names_without_dots_look_as_jdbc_clients_write_them(namespace: tuple[str, ...], written: str) -> None:
    assert to_jdbc(namespace) == written
    assert from_jdbc(written) == namespace


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("", "must not be empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("a\x00", "holds a control character"),
        ("a\x1fb", "holds a control character"),
        ("\x7f", "holds a control character"),
        ("\ud800", "not valid Unicode"),
        ("x" * 256, "256 bytes, at most 255 are allowed"),
        ("é" * 128, "256 bytes, at most 255 are allowed"),
    ],
    ids=repr,
)
def test_a_name_nobody_could_address_is_refused(name: str, refusal: str) -> None:
    with pytest.raises(BadRequest, match=f"Invalid table name: .*{refusal}"):
        check_name(name, "table")


@pytest.mark.parametrize("name", ["a", "...", ".a", " ", "a/b", "x" * 255, "é" * 127, "*", "🏔", "a\u0085"], ids=repr)
def test_any_other_name_is_allowed(name: str) -> None:
    assert check_name(name, "table") == name


def test_a_namespace_has_one_to_sixteen_good_levels() -> None:
    assert check_namespace(("a",) * 16) == ("a",) * 16
    for bad in ((), ("a",) * 17, ("a", ""), ("a", "..")):
        with pytest.raises(BadRequest, match="Invalid namespace"):
            check_namespace(bad)


def test_names_print_with_dots_and_without_quotes() -> None:
    assert str(Identifier(("a", "b c"), "t.x")) == "a.b c.t.x"
    assert print_namespace(("a", "b")) == "a.b"
