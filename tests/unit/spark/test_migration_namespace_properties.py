"""Properties of namespaces on their way to the target: which namespace becomes which, and what L0 says about them."""

import pytest

from nunatak_spark.migration.model import InventoryTable, NamespacePair
from nunatak_spark.migration.namespace_properties import compare_namespaces, match_namespaces


@pytest.mark.parametrize(
    ("name", "target", "pairs"),
    [
        (("sales", "orders"), ("sales", "orders"), [(("sales",), ("sales",))]),
        (("sales", "orders"), ("shop", "orders"), [(("sales",), ("shop",))]),
        (
            ("sales", "eu", "orders"),
            ("sales", "eu", "orders"),
            [(("sales",), ("sales",)), (("sales", "eu"), ("sales", "eu"))],
        ),
        (
            ("sales", "eu", "orders"),
            ("into", "shop", "eu", "orders"),
            [(("sales",), ("into", "shop")), (("sales", "eu"), ("into", "shop", "eu"))],
        ),
        (("sales", "eu", "orders"), ("flat", "orders"), [(("sales", "eu"), ("flat",))]),
        (("orders",), ("folder", "orders"), []),
    ],
)
def test_a_namespace_is_paired_with_what_it_becomes(
    name: tuple[str, ...], target: tuple[str, ...], pairs: list[tuple[tuple[str, ...], tuple[str, ...]]]
) -> None:
    assert match_namespaces(InventoryTable(source="old", name=name, kind="iceberg"), target) == pairs


def a_pair(before: dict[str, str], after: dict[str, str], *kept: str) -> NamespacePair:
    return NamespacePair(("sales",), ("shop",), before, after, kept)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (a_pair({"owner": "ana"}, {"owner": "ana", "more": "of the target's"}), []),
        (a_pair({"owner": "ana"}, {}), ["property owner of the namespace shop is missing"]),
        (a_pair({"owner": "ana"}, {}, "owner"), ["property owner of the namespace shop is missing"]),
        (a_pair({"owner": "ana"}, {"owner": "bo"}), ["property owner of the namespace shop is 'bo' instead of 'ana'"]),
        (a_pair({"owner": "ana"}, {"owner": "bo"}, "owner"), []),
        (a_pair({"owner": ""}, {}), ["property owner of the namespace shop is missing"]),
    ],
)
def test_l0_finds_properties_that_did_not_arrive(pair: NamespacePair, said: list[str]) -> None:
    looked = compare_namespaces([pair])

    assert [finding.text for finding in looked.findings] == said
    assert looked.facts["namespaces"][0]["kept-at-target"] == list(pair.kept)
    assert looked.facts["namespaces"][0]["not-compared"] == ["location"]
