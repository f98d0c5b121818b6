"""Securables as text: what contains what, and how people write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.access import securables
from nunatak.errors import BadRequest

names = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1, max_size=12)
levels = st.lists(names, min_size=1, max_size=4).map(tuple)


@given(names.filter(lambda name: "/" not in name), levels, names)
def test_whatever_lies_inside_begins_with_the_text_of_what_it_lies_in(
    home: str, path: tuple[str, ...], name: str
) -> None:
    table = securables.entry(home, path, name)

    chain = securables.chain(table)

    assert chain[0] == securables.SERVER
    assert chain[1] == securables.warehouse(home)
    assert chain[2:-1] == [securables.namespace(home, path[:depth]) for depth in range(1, len(path) + 1)]
    assert chain[-1] == table
    assert all(table.startswith(outer) for outer in chain)
    assert securables.parts(table) == (home, path, name)


@given(names, levels, names)
def test_what_is_printed_is_read_back(home: str, path: tuple[str, ...], name: str) -> None:
    for securable in (
        securables.SERVER,
        securables.warehouse(home),
        securables.namespace(home, path),
        securables.entry(home, path, name),
    ):
        assert securables.parse_securable(securables.format_securable(securable)) == securable


@given(names, levels, names, names)
def test_a_neighbour_whose_name_begins_alike_is_not_inside(
    home: str, path: tuple[str, ...], name: str, more: str
) -> None:
    outer = securables.namespace(home, path)

    assert not securables.namespace(home, (*path[:-1], path[-1] + more)).startswith(outer)
    assert not securables.namespace(home + more, path).startswith(securables.warehouse(home))
    assert securables.entry(home, path, name + more) not in securables.chain(securables.entry(home, path, name))


@pytest.mark.parametrize(
    "text", ["", "tables", "warehouse:", "warehouse:a/b", "namespace:a", "table:a/b", "table:a//b", "role:x"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Not a securable"):
        securables.parse_securable(text)
