"""The report as a page: what it shows of plain values, and that nothing in it is markup that should be text."""

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from nunatak_spark.telemetry import svg_plots
from nunatak_spark.telemetry.markup import Markup, concat, tag
from nunatak_spark.telemetry.report_sections import SECTIONS, format_count, format_millis, format_percent, format_size
from nunatak_spark.telemetry.svg_plots import Axis, Series
from nunatak_spark.telemetry.telemetry_page import render_page
from nunatak_spark.telemetry.telemetry_report import Row, TelemetryFindings
from nunatak_spark.telemetry.views import BY_NAME

EVIL = "<script>alert('&\"')</script>"
VOID = {"meta"}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in its turn, and gathers what would leave the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        if name not in VOID:
            self.open.append(name)
        self.outside += [value or "" for key, value in attributes if key in {"src", "href", "srcset", "action"}]

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name


def parsed(text: str) -> Balanced:
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def of_table(name: str = "orders", **fields: Any) -> Row:
    return {"warehouse": "default", "namespace": "shop", "table_name": name, **fields}


def findings(**answers: list[Row]) -> TelemetryFindings:
    every: dict[str, list[Row]] = {name: [] for name in BY_NAME}
    return TelemetryFindings(
        made_at="2026-03-03T10:00:00+00:00",
        since="2026-02-01T10:00:00+00:00",
        days=30,
        answers={**every, **answers},
        rows={"events": 1234},
        newest="2026-03-03 09:00:00",
    )


FULL = {
    "activity": [
        {"day": "2026-03-01", "commits": 90, "conflicts": 10, "p95_ms": 600.0, "scans": 3, "loads": 4},
        {"day": "2026-03-03", "commits": 10, "conflicts": 0, "p95_ms": None, "scans": 0, "loads": 0},
    ],
    "growth": [
        {"warehouse": "default", "namespace": "shop", "day": "2026-03-01", "commits": 1, "records": 5, "bytes": 1 << 30}
    ],
    "small_files": [of_table(data_files=2000, data_bytes=1 << 20, average_bytes=524)],
    "conflicts": [
        of_table(commits=100, conflicts=10, ratio=0.1, retries=3),
        of_table("b", commits=1, conflicts=0, ratio=0.0, retries=0),
    ],
    "commit_latency": [of_table(commits=100, p50_ms=4.0, p95_ms=600.0, max_ms=900.0)],
    "metadata_size": [of_table(metadata_bytes=9 << 20, commits=3)],
    "hot_columns": [
        of_table(column_name="city", filtered=5, projected=9),
        of_table(column_name="id", filtered=0, projected=9),
    ],
    "scan_planning": [
        of_table(
            scans=3,
            p50_ms=1.0,
            p95_ms=2000.0,
            files_scanned=10,
            files_skipped=30,
            manifests_scanned=4,
            manifests_skipped=0,
        )
    ],
    "top_principals": [
        {"principal": EVIL, "changes": 3, "refused": 0, "scans": 0, "denied": 2, "last_seen": "2026-03-03 09:00:00"}
    ],
}


def test_a_page_of_nothing_is_still_a_page() -> None:
    shown = render_page(findings(), catalog="empty")

    assert parsed(shown).outside == []
    assert "<h2>Commits</h2><strong>0</strong>" in shown


def test_a_full_page_shows_figures_and_the_commands_that_help() -> None:
    shown = render_page(findings(**FULL), catalog="http://127.0.0.1:8181")

    assert "<h2>Conflicts</h2><strong>9.09 %</strong>" in shown
    assert "<h2>Commit p95</h2><strong>600 ms</strong>" in shown
    assert "<h2>Growth</h2><strong>1.0 GiB</strong>" in shown
    for command in (
        "nunatak maintain compact shop.orders",
        "nunatak maintain expire shop.orders",
        "nunatak maintain manifests shop.orders",
        "nunatak health shop.orders",
        "nunatak policy set data-compaction table:default/shop/orders strategy=sort columns=city",
    ):
        assert f"<code>{command}</code>" in shown
    assert "columns=id" not in shown  # no filter names it
    assert shown.count('class="alarming"') == len(["small", "conflicts", "latency", "metadata", "planning", "denied"])


def test_the_page_asks_nobody_for_anything() -> None:
    shown = render_page(findings(**FULL), catalog="http://127.0.0.1:8181")

    assert parsed(shown).outside == []
    assert not re.search(r"url\(|@import|<script|<link|<img", shown)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.view)
def test_whatever_a_name_is_it_stays_text(section: Any) -> None:
    row: Row = {column.field: 1 for column in section.columns} | dict.fromkeys(
        ("warehouse", "namespace", "table_name", "column_name", "principal", "type", "state"), EVIL
    )
    row |= dict.fromkeys(("last_used", "last_scanned", "last_seen", "last_error"), EVIL)
    row |= {"filtered": 1, "denied": 1, "projected": 1}

    shown = render_page(findings(**{section.view: [row | {"files_scanned": 1, "files_skipped": 1}]}), catalog=EVIL)

    parsed(shown)
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.view)
def test_what_is_not_known_is_shown_as_such(section: Any) -> None:
    names = ("warehouse", "namespace", "table_name", "column_name", "principal", "type", "state", "filtered", "denied")
    row: Row = dict.fromkeys([column.field for column in section.columns]) | dict.fromkeys(names, "x") | {"filtered": 0}
    row |= {"denied": 0, "files_scanned": 0, "files_skipped": 0}

    assert parsed(render_page(findings(**{section.view: [row]}), catalog="x")).open == []


def test_a_long_list_is_cut_and_says_where_the_rest_is() -> None:
    rows = [of_table(f"t{n}", data_files=100, data_bytes=100, average_bytes=1) for n in range(40)]

    shown = render_page(findings(small_files=rows), catalog="x", unseen=[f"n.t{n}" for n in range(100)])

    assert "25 more in the view system.small_files." in shown
    assert "The first 60 of 100 are:" in shown


def test_every_section_asks_a_view_and_shows_columns_it_has() -> None:
    for section in SECTIONS:
        text = BY_NAME[section.view].sql()
        assert all(re.search(rf"\b{column.field}\b", text) for column in section.columns), section.view


def test_markup_escapes_whatever_is_not_markup() -> None:
    assert tag("a", "<", tag("b", 1.25), None, title='"<', class_="x", data_y=None) == (
        '<a title="&quot;&lt;" class="x">&lt;<b>1.2</b></a>'
    )
    assert isinstance(concat("&"), Markup)


DRAWN = [
    svg_plots.bars(["a", "b"], [Series("x", [1, None]), Series("y", [-3, 4], 2)], format_count),
    svg_plots.bars([], [], format_count),
    svg_plots.lines(["a", "b", "c"], [Series("x", [1.0, None, 3.0])], format_millis, limit=2.0),
    svg_plots.lines(["a"], [Series("x", [0.0])], format_millis, limit=500.0),
    svg_plots.rows(["a" * 80, EVIL], [Series("x", [1, 0]), Series("y", [2, None], 2)], format_count),
]


@pytest.mark.parametrize("drawn", DRAWN, ids=range(len(DRAWN)))
def test_a_plot_is_wellformed_and_inside_its_frame(drawn: Markup) -> None:
    picture = ElementTree.fromstring(drawn)

    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for mark in picture.iter("rect"):
        x, y, wide, high = (float(mark.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + high <= height


def test_bars_are_as_high_as_their_values() -> None:
    picture = ElementTree.fromstring(svg_plots.bars(["a", "b"], [Series("x", [1, 2])], format_count))

    one, two = (float(mark.attrib["height"]) for mark in picture.iter("rect"))
    assert two == pytest.approx(2 * one, abs=0.2)


@pytest.mark.parametrize(
    ("highest", "binary", "top"),
    [(0, False, 1), (3, False, 3), (97, False, 100), (1001, False, 1250), (5 << 30, True, 6 << 30), (700, True, 800)],
)
def test_an_axis_ends_at_a_round_number_above_everything(highest: float, binary: bool, top: float) -> None:
    axis = Axis.upto(highest, binary=binary)

    assert axis.top == pytest.approx(top)
    assert axis.ticks()[-1] == pytest.approx(top)
    assert 2 <= len(axis.ticks()) <= 6


def test_values_are_printed_for_people() -> None:
    assert [format_size(value) for value in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [format_count(value) for value in (0, 1234567, 1.5)] == ["0", "1,234,567", "1.5"]
    assert [format_millis(value) for value in (0.5, 12.34, 2500)] == ["0.5 ms", "12.3 ms", "2.5 s"]
    assert format_percent(0.0509) == "5.09 %"
