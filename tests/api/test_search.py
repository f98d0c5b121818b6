"""Search by a part of a name: complete over its pages, and short in the event loop however many tables there are."""

import asyncio
from typing import Any

import pytest

from nunatak.catalog import search
from tests.api.wire import ok
from tests.support.catalogs.local import LocalCatalog

STEPS = 100  # of SQLite's virtual machine, for each of which it is counted once
MANY = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    "INSERT INTO iceberg_tables SELECT 'default', 'ns', 'table_' || i, 'file:///x', NULL, 'TABLE' FROM n"
)


def names(page: Any) -> list[str]:
    return [found["identifier"]["name"] for found in page["results"]]


def all_pages(catalog: LocalCatalog, query: str) -> list[list[str]]:
    pages, token = [], ""
    for _ in range(100):
        page = ok(catalog.call("GET", f"/v1/search?{query}&pageToken={token}"))
        pages.append(names(page))
        token = page.get("next-page-token", "")
        if not token:
            return pages
    raise AssertionError("the search does not end")


def longest_stretch(catalog: LocalCatalog, query: str) -> int:
    """The most steps that SQLite takes for a search before others get their turn in the event loop."""
    steps, longest = 0, 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    async def look_on() -> None:
        nonlocal steps, longest
        while True:
            longest, steps = max(longest, steps), 0
            await asyncio.sleep(0)

    async def both() -> None:
        watcher = asyncio.create_task(look_on())
        await asyncio.sleep(0)
        answer = await catalog.request("GET", f"/v1/search?{query}")
        await asyncio.sleep(0)
        watcher.cancel()
        ok(answer)

    catalog.store._reader.set_progress_handler(count, STEPS)
    catalog.run(both())
    catalog.store._reader.set_progress_handler(None)
    return longest


@pytest.mark.parametrize("query", ["query=table_77", "query=nothing", "query=NS&type=view"])
def test_the_steps_of_a_search_between_other_requests_do_not_grow_with_the_catalog(
    catalog: LocalCatalog, query: str
) -> None:
    catalog.rows(MANY, 3 * search.NAMES_PER_QUERY)
    few = longest_stretch(catalog, query)
    catalog.rows(MANY.replace("'ns'", "'other'"), 20 * search.NAMES_PER_QUERY)

    many = longest_stretch(catalog, query)

    assert 0 < many <= 1.2 * few


def test_a_page_looks_at_so_many_names_and_the_next_goes_on(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "NAMES_PER_QUERY", 2)
    monkeypatch.setattr(search, "MAX_NAMES_READ", 4)
    catalog.rows(MANY, 9)  # table_1 … table_9

    assert all_pages(catalog, "query=table_9") == [[], [], ["table_9"]]
    assert all_pages(catalog, "query=table&pageSize=3") == [
        ["table_1", "table_2", "table_3"],
        ["table_4", "table_5", "table_6"],
        ["table_7", "table_8", "table_9"],
    ]
    assert all_pages(catalog, "query=ns") == [
        ["table_1", "table_2", "table_3", "table_4"],
        ["table_5", "table_6", "table_7", "table_8"],
        ["table_9"],
    ]


def test_whoever_asks_for_no_page_is_told_where_the_first_thousand_end(catalog: LocalCatalog) -> None:
    catalog.rows(MANY, 1200)

    page = ok(catalog.call("GET", "/v1/search?query=TABLE_"))

    assert len(page["results"]) == 1000
    rest = ok(catalog.call("GET", f"/v1/search?query=TABLE_&pageToken={page['next-page-token']}"))
    assert len({*names(page), *names(rest)}) == 1200
    assert "next-page-token" not in rest


def test_a_page_token_is_of_one_search(catalog: LocalCatalog) -> None:
    catalog.rows(MANY, 5)
    token = ok(catalog.call("GET", "/v1/search?query=t&pageSize=1"))["next-page-token"]

    assert catalog.call("GET", f"/v1/search?query=o&pageSize=1&pageToken={token}").status == 400
