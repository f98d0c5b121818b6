"""The alert rules of the documents, evaluated over metrics pages: each fires for what it is about, and only then."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nunatak.catalog import commits as table_commits
from nunatak.database.sqlite import SqliteStore
from tests.api.conftest import MakeCatalog
from tests.api.test_service import WATCHING
from tests.api.wire import a_commit, a_table, branch_is_at, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog
from tests.support.pages import blocks_with
from tests.support.promql import Scrape, evaluate

DAY = 86_400
NOW = 10 * DAY
T = path_of("ns", "tables", "t")


def rules() -> dict[str, str]:
    """The expression of each alert."""
    (text,) = blocks_with(WATCHING, "yaml", "rules")
    found = re.findall(r"- alert: (\w+)\n +expr: (?:>-\n)?(.*?)\n +(?:for|annotations):", text, re.DOTALL)
    return {name: " ".join(expression.split()) for name, expression in found}


def page(catalog: LocalCatalog) -> str:
    return catalog.call("GET", "/metrics").body.decode()


def fires(alert: str, *scrapes: Scrape) -> bool:
    return bool(evaluate(rules()[alert], scrapes, NOW))


def around(catalog: LocalCatalog, work: Callable[[], object]) -> tuple[Scrape, Scrape]:
    """What Prometheus would have read a minute before now, and now, after the work."""
    before = page(catalog)
    work()
    return Scrape(NOW - 60, before), Scrape(NOW, page(catalog))


def commits(catalog: LocalCatalog, count: int, status: int = 200) -> None:
    stale = a_commit(set_properties(a="b"), requires=[branch_is_at(1)])
    for number in range(count):
        body = a_commit(set_properties(a=str(number))) if status == 200 else stale
        assert catalog.call("POST", T, body).status == status


@pytest.fixture
def busy(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t")
    commits(catalog, 1)
    return catalog


def test_slow_commits_are_noticed(busy: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """MISSION: 003-49, 003-77"""
    commit_tables = table_commits.commit_tables

    async def slowly(*arguments: Any) -> Any:
        await asyncio.sleep(0.6)
        return await commit_tables(*arguments)

    quick = around(busy, lambda: busy.app.metrics.count("updateTable", "POST", 200, 0.001))
    monkeypatch.setattr(table_commits, "commit_tables", slowly)
    slow = around(busy, lambda: commits(busy, 1))

    assert not fires("CommitsAreSlow", *quick)
    assert fires("CommitsAreSlow", *slow)


def test_competing_commits_are_noticed(busy: LocalCatalog) -> None:
    """MISSION: 003-50, 003-77"""
    alone = around(busy, lambda: commits(busy, 10))
    against_others = around(busy, lambda: commits(busy, 2, status=409))

    assert not fires("CommitsCompete", *alone)
    assert fires("CommitsCompete", *against_others)


def test_more_commits_than_yesterday_are_noticed(busy: LocalCatalog) -> None:
    """MISSION: 003-48, 003-77"""
    start = page(busy)
    commits(busy, 20)
    yesterday = Scrape(NOW - DAY - 60, start), Scrape(NOW - DAY, page(busy))
    usual = around(busy, lambda: commits(busy, 80))
    unusual = around(busy, lambda: commits(busy, 120))

    assert not fires("CommitsAreMoreThanUsual", *yesterday, *usual)
    assert fires("CommitsAreMoreThanUsual", *yesterday, *unusual)


def test_more_tokens_than_yesterday_are_noticed(catalog: LocalCatalog) -> None:
    """Each request for one counts, whatever it is answered. MISSION: 003-51, 003-77"""

    def ask(count: int) -> None:
        form = {"content-type": "application/x-www-form-urlencoded"}
        for _ in range(count):
            catalog.call("POST", "/v1/oauth/tokens", b"grant_type=client_credentials", form)

    start = page(catalog)
    ask(20)
    yesterday = Scrape(NOW - DAY - 60, start), Scrape(NOW - DAY, page(catalog))
    usual = around(catalog, lambda: ask(80))
    unusual = around(catalog, lambda: ask(120))

    assert not fires("TokensAreMoreThanUsual", *yesterday, *usual)
    assert fires("TokensAreMoreThanUsual", *yesterday, *unusual)


def test_failing_requests_are_noticed(busy: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """MISSION: 003-54, 003-77"""

    async def broken(*_: object) -> None:
        raise RuntimeError

    def missing() -> None:
        assert busy.call("GET", path_of("ns", "tables", "no")).status == 404

    fine = around(busy, missing)
    monkeypatch.setattr(SqliteStore, "find_pointer", broken)

    def failing() -> None:
        assert busy.call("GET", path_of("ns", "tables", "other")).status == 500

    assert not fires("RequestsFail", *fine)
    assert fires("RequestsFail", *around(busy, failing))


def test_large_metadata_is_noticed(make_catalog: MakeCatalog) -> None:
    """MISSION: 003-55, 003-77"""
    catalog = make_catalog(max_body_bytes="33554432")
    catalog.namespace("ns")
    fields = [{"id": n, "name": f"f{n}", "type": "long", "required": False, "doc": "x" * 1000} for n in range(1, 9001)]
    wide = a_table("wide") | {"schema": {"type": "struct", "schema-id": 0, "fields": fields}}

    def create(body: Any) -> None:
        assert catalog.call("POST", path_of("ns", "tables"), body).status == 200

    small = around(catalog, lambda: create(a_table("small")))
    large = around(catalog, lambda: create(wide))

    assert not fires("MetadataGrows", *small)
    assert fires("MetadataGrows", *large)


@pytest.mark.parametrize(("in_use", "noticed"), [(8, False), (9, True)])
def test_connections_that_run_out_are_noticed(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch, in_use: int, noticed: bool
) -> None:
    """The figures of a pool of ten; SQLite has none. MISSION: 003-52, 003-77"""
    figures = {"connection in use": in_use, "connection idle": 10 - in_use, "connection limit": 10}
    monkeypatch.setattr(catalog.app.metrics, "_database", lambda: figures)

    assert fires("DatabaseConnectionsRunOut", Scrape(NOW, page(catalog))) is noticed


def test_every_rule_is_tried_here() -> None:
    source = Path(__file__).read_text("utf-8")

    assert len(rules()) == 7
    assert {name for name in rules() if f'fires("{name}"' in source} == set(rules())
