"""Names as they are typed: levels joined by dots, quoted where a level holds a dot or a quote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.cli.names import beside, parse_name, print_name

LEVELS = st.lists(st.text(min_size=1), min_size=1, max_size=5).map(tuple)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("orders", ("orders",)),
        ("shop.eu.orders", ("shop", "eu", "orders")),
        ('shop."a.b".orders', ("shop", "a.b", "orders")),
        ('"say ""hi""".t', ('say "hi"', "t")),
        ("with space.and-dash.ünïcode/slash", ("with space", "and-dash", "ünïcode/slash")),
    ],
)
def test_a_typed_name_has_these_levels(text: str, levels: tuple[str, ...]) -> None:
    assert parse_name(text) == levels


@given(LEVELS)
def test_every_printed_name_reads_back(levels: tuple[str, ...]) -> None:
    assert parse_name(print_name(levels)) == levels


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a"b', '"a"b', '"a".'])
def test_a_broken_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a name: expected"):
        parse_name(text)


def test_a_new_name_of_one_level_stays_in_its_namespace() -> None:
    assert beside(("shop", "eu", "orders"), ("sales",)) == ("shop", "eu", "sales")
    assert beside(("shop", "orders"), ("archive", "orders")) == ("archive", "orders")
