"""A catalog in memory promises what one in a file does: the same answers, in the same order, under load."""

import asyncio

from tests.api.conftest import MakeCatalog
from tests.api.wire import a_commit, a_table, done, ok, path_of, set_properties

T = path_of("ns", "tables", "t")


def test_a_list_shows_what_was_just_changed(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog(database_url="sqlite:///:memory:")
    catalog.namespace("ns")

    def names() -> list[str]:
        return [each["name"] for each in ok(catalog.call("GET", path_of("ns", "tables")))["identifiers"]]

    assert names() == []
    catalog.table("ns", "t")
    assert names() == ["t"]
    assert names() == ["t"]
    done(catalog.call("DELETE", T))
    assert names() == []


def test_of_commits_at_once_none_is_lost_and_no_load_sees_half_of_one(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog(database_url="sqlite:///:memory:")
    catalog.namespace("ns")
    catalog.table("ns", "t")

    async def one(number: int) -> None:
        answer = await catalog.request("POST", T, a_commit(set_properties(**{f"a{number}": "1", f"b{number}": "1"})))
        assert answer.status == 200
        loaded = ok(await catalog.request("GET", T))["metadata"]["properties"]
        assert {f"a{number}", f"b{number}"} <= loaded.keys()
        assert len([name for name in loaded if name[0] == "a"]) == len([name for name in loaded if name[0] == "b"])

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(20)))

    catalog.run(all_of_them())
    assert len(catalog.load("ns", "t")["metadata"]["properties"]) >= 40


def test_two_catalogs_in_memory_know_nothing_of_each_other(make_catalog: MakeCatalog) -> None:
    first, second = (make_catalog(database_url="sqlite:///:memory:") for _ in range(2))
    first.namespace("ns")

    assert second.call("POST", path_of("ns", "tables"), a_table("t")).status == 404
    assert ok(second.call("GET", "/v1/namespaces"))["namespaces"] == []
