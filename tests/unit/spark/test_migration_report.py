"""The page of a migration: complete in itself, whatever the tables are called. MISSION: 003-67, 003-71"""

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from nunatak_spark.migration import migration_report
from nunatak_spark.migration.migration_report import as_json, format_number, format_size, format_time, render
from nunatak_spark.migration.model import (
    Evidence,
    InventoryTable,
    LevelName,
    LogEntry,
    Migration,
    MigrationFinding,
    MigrationSource,
    MigrationTable,
    SourceFreeze,
    SourcePermission,
    State,
    TablePlan,
    table_title,
)

HOSTILE = "<script>alert('x')</script>&\"quoted\""
HIVE = MigrationSource(kind="hive", name="hive", address="thrift://metastore:9083")


def a_table(name: str, state: State = "done", *, method: Any = "register", **more: Any) -> MigrationTable:
    found = InventoryTable(
        source="hive",
        name=("sales", name),
        kind="iceberg",
        files=3,
        rows=1000,
        size_bytes=2048,
        **more.pop("found", {}),
    )
    planned = None if method is None else TablePlan(method, ("sales", name), 1, more.pop("because", ""))
    return MigrationTable(found=found, state=state, planned=planned, **more)


def fingerprints(source_sum: str = "ab", target_sum: str = "ab") -> dict[str, Any]:
    def side(total: str) -> dict[str, Any]:
        return {"rows": 1000, "sum": total, "columns": {"price": {"type": "long", "nulls": 2, "sum": total}}}

    return {"rows": 1000, "source": side(source_sum), "target": side(target_sum)}


FACTS: Mapping[LevelName, dict[str, Any]] = {
    "L0": {"compared": "metadata documents", "snapshots": 4, "refs": {"main": 12}},
    "L1": {"files": 9, "bytes": 4096, "by-kind": {"data file": 9}},
    "L2": fingerprints(),
    "L3": {"engines": {"spark": "answered", "duckdb": "could not: x"}, "answers": {"rows": "1000"}},
}


def evidence(level: LevelName, *findings: MigrationFinding, **facts: Any) -> Evidence:
    return Evidence(
        level=level,
        ok=not findings,
        findings=findings,
        facts={**FACTS[level], **facts},
        statements=(f"SELECT '{level}'",),
        started_ms=1_794_000_000_000,
        ended_ms=1_794_000_001_500,
        source_pointer="s3://old/v1.json",
        target_pointer="s3://old/v1.json",
    )


GREEN = tuple(evidence(level) for level in FACTS)


def a_migration(*tables: MigrationTable, **more: Any) -> Migration:
    given = {table_title(table.found): GREEN for table in tables if table.state in {"done", "verified"}}
    members = {"evidence": given, "log": (), **more}
    return Migration(target_uri="http://127.0.0.1:8181", warehouse="main", sources=(HIVE,), tables=tables, **members)


class Page(HTMLParser):
    """What a browser would make of it: elements with their attributes, and the text that people see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag in {"script", "style"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def seen(migration: Migration) -> Page:
    return Page(render(migration, now_ms=lambda: 1_794_000_005_000))


def everything() -> Migration:
    """Every state, hostile names wherever a name can stand, findings and permissions."""
    hostile = a_table(
        HOSTILE,
        "failed",
        failed_at="verify",
        problem=f"L2: {HOSTILE}",
        found={
            "risks": (MigrationFinding(HOSTILE, HOSTILE),),
            "owner": HOSTILE,
            "location": f"file:///{HOSTILE}",
            "permissions": (SourcePermission(HOSTILE, HOSTILE),),
        },
    )
    bad = evidence("L2", MigrationFinding("changed-values", HOSTILE, HOSTILE), **fingerprints(target_sum="cd"))
    bad.facts["rows-only-at-source"] = [HOSTILE]
    bad.facts["source"]["columns"][HOSTILE] = {"type": HOSTILE, "nulls": 0, "sum": "1"}
    states: list[State] = ["discovered", "planned", "shadowed", "verified", "cutover", "rolled-back"]
    tables = (
        hostile,
        a_table("orders", frozen=SourceFreeze("renamed", "p", "orders__moved", "no writer finds it")),
        a_table("view", "planned", method="refused", because="views are not moved"),
        *(a_table(state, state) for state in states),
    )
    found = a_migration(
        *tables,
        log=(LogEntry(1_794_000_000_000, "shadow", HOSTILE, HOSTILE),),
        grants=(f"nunatak grant add {HOSTILE}",),
        unmapped=(MigrationFinding("unmapped", HOSTILE, HOSTILE),),
    )
    return msgspec.structs.replace(found, evidence={**found.evidence, table_title(hostile.found): (*GREEN, bad)})


def test_nothing_is_asked_of_anybody() -> None:
    html = render(everything())
    page = Page(html)

    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "video", "audio", "base", "form"}
        for name in ("src", "href", "action", "data", "srcset", "poster", "xlink:href"):
            assert re.match(r"$|#", attributes.get(name, "")), (tag, attributes)
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|@font-face", style)
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]


def test_a_table_with_a_hostile_name_is_only_text() -> None:
    html = render(everything())
    page = Page(html)

    assert len(page.all("script")) == 1
    assert "alert('x')" in page.text
    assert "<script>alert" not in html
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_every_link_leads_somewhere_and_no_name_is_given_twice() -> None:
    page = seen(everything())
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]

    assert len(names) == len(set(names))
    assert {one["href"][1:] for one in page.all("a")} <= set(names)


def test_the_summary_counts_what_is_proven() -> None:
    told = msgspec.json.decode(as_json(everything()))

    assert told["summary"] == {
        "tables": 9,
        "sources": 1,
        "done": 1,
        "green": 2,
        "need-attention": 1,
        "refused": 1,
        "rows-compared": 2000,
        "columns-compared": 2,
        "files-opened": 27,
        "bytes-opened": 12288,
        "states": {
            "discovered": 1,
            "planned": 2,
            "shadowed": 1,
            "verified": 1,
            "cutover": 1,
            "done": 1,
            "rolled-back": 1,
            "failed": 1,
        },
    }
    assert len(told["tables"]) == 9
    assert [one["level"] for one in told["evidence"]["hive:sales.orders"]] == ["L0", "L1", "L2", "L3"]


def test_the_bar_has_a_piece_for_each_state_and_is_full() -> None:
    html = render(everything())
    bar = html.partition('aria-label="Tables by state"')[2].partition("</svg>")[0]
    pieces = [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)"', bar)]

    assert len(pieces) == 8
    assert pieces[0][0] == 0
    assert sum(width for _, width in pieces) == pytest.approx(1000, abs=0.1)


def test_both_fingerprints_stand_side_by_side_and_the_difference_is_marked() -> None:
    page = seen(everything())
    html = render(everything())

    marked = re.findall(r'<tr class="differs">(.*?)</tr>', html)
    assert len(marked) == 3  # all rows, price, and the column that only the source has
    assert '<td class="mono">ab</td><td class="mono">cd</td>' in marked[1]
    assert "Rows that only the source has" in page.text


def test_each_level_shows_what_it_looked_at() -> None:
    page = seen(a_migration(a_table("orders")))

    for text in (
        "L0 · identity",
        "main: 12",
        "data file: 9",
        "4.0\u00a0KiB",
        "took 1.5 s",
        "spark: answered · duckdb: could not: x",
        "SELECT 'L1'",
        "s3://old/v1.json",
        "2026-11-06 21:20:00 UTC",
    ):
        assert text in page.text


def test_only_the_newest_look_of_a_level_counts() -> None:
    table = a_table("orders", "verified")
    late = evidence("L1", MigrationFinding("missing-file", "gone", "f"))
    page = seen(a_migration(table, evidence={table_title(table.found): (late, *GREEN)}))

    assert "2 looks so far" in page.text
    assert "missing-file" not in page.text


def test_what_remains_names_the_command() -> None:
    page = seen(everything())
    commands = page.text.partition("What remains")[2].partition("What stays behind")[0]

    for state, command in migration_report.NEXT.items():
        assert command in commands, state
    assert "nunatak migrate verify for 2 tables" in commands  # one is shadowed, one failed there
    assert "views are not moved" in page.text.partition("What stays behind")[2]


def test_a_source_may_go_when_all_its_tables_are_over() -> None:
    half = seen(a_migration(a_table("orders"), a_table("late", "shadowed"))).text
    whole = seen(a_migration(a_table("orders"), a_table("copied", method="add_files"))).text

    assert "Keep it running: 1 of its tables is not over." in half
    assert "All its tables are over." in whole
    assert "never a file" in whole
    assert "Every table is over, and every one is verified." in whole


def test_a_table_that_was_refused_keeps_nobody_waiting() -> None:
    page = seen(a_migration(a_table("orders"), a_table("view", "planned", method="refused", because="a view")))

    assert "Nothing: every table that was planned is over." in page.text


def test_a_migration_without_tables_has_a_page_too() -> None:
    assert "begin with nunatak migrate inventory" in seen(a_migration()).text


def test_the_page_of_very_many_tables_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [a_table(f"t{n}", "verified") for n in range(20)]
    bad = table_title(tables[7].found)
    migration = a_migration(*tables)
    broken = evidence("L2", MigrationFinding("changed-values", "price", "price"), **fingerprints(target_sum="cd"))
    migration = msgspec.structs.replace(migration, evidence={**migration.evidence, bad: (*GREEN, broken)})
    whole = render(migration)
    monkeypatch.setattr(migration_report, "FULL_TABLES", 10)

    short = render(migration)

    assert len(short) < len(whole) * 0.7
    assert short.count("source ab · target ab") == 19  # the sums stay
    assert short.count('<tr class="differs">') == 2  # and everything about the table that needs a look


def test_numbers_are_for_people() -> None:
    assert [format_size(n) for n in (None, 0, 1023, 1536, 150 * 1024, 3 * 1024**4)] == [
        "–",
        "0\u00a0B",
        "1023\u00a0B",
        "1.5\u00a0KiB",
        "150\u00a0KiB",
        "3.0\u00a0TiB",
    ]
    assert format_number(1234567) == "1\u202f234\u202f567"
    assert format_time(0) == "–"


def test_what_was_shown_before_a_rollback_proves_nothing_any_more() -> None:
    """Neither for a table that is rolled back, nor for one that was shadowed again since and not verified."""
    rolled_back = a_table("orders", "rolled-back", rolled_back_ms=1_794_000_002_000)
    shadowed_again = a_table("cities", "shadowed", rolled_back_ms=1_794_000_002_000)
    migration = a_migration(
        rolled_back, shadowed_again, evidence={table_title(one.found): GREEN for one in (rolled_back, shadowed_again)}
    )

    told = msgspec.json.decode(as_json(migration))

    assert (told["summary"]["green"], told["summary"]["rows-compared"]) == (0, 0)
    assert "0 of 2 green" in seen(migration).text


def test_a_table_whose_source_is_retired_is_over() -> None:
    told = msgspec.json.decode(as_json(a_migration(a_table("orders", "retired"), a_table("cities", "done"))))

    assert told["summary"]["done"] == 2
