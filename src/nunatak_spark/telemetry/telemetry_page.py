"""Renders the telemetry report as one self-contained HTML page: figures, plots, and tables with commands to run."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from importlib import resources

from nunatak_spark.telemetry import svg_plots
from nunatak_spark.telemetry.markup import Markup, concat, tag
from nunatak_spark.telemetry.report_sections import (
    COMMIT_P95_MS,
    CONFLICT_RATIO,
    SECTIONS,
    ReportSection,
    format_count,
    format_millis,
    format_percent,
    format_size,
    format_time,
    table_name,
)
from nunatak_spark.telemetry.svg_plots import Series
from nunatak_spark.telemetry.telemetry_report import Row, TelemetryFindings

SHOWN = 15  # rows per table; the views have all
NAMESPACES = 5  # in the growth plot


def render_page(findings: TelemetryFindings, *, catalog: str, unseen: Sequence[str] = ()) -> str:
    """Returns the page; `unseen` are tables of the catalog that telemetry has never seen."""
    style = resources.files(__package__).joinpath("report.css").read_text("utf-8")
    title = f"Catalog report: {catalog}"
    head = concat(
        tag("title", title),
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f"<style>{style}</style>"),
    )
    body = tag(
        "main",
        tag("header", tag("h1", title), tag("p", _about(findings))),
        _headlines(findings),
        _plots(findings),
        *(_section(section, findings.answers.get(section.view, [])) for section in SECTIONS),
        _unseen(unseen),
        tag("footer", _sources(findings)),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _about(findings: TelemetryFindings) -> str:
    newest = f"; the newest event is of {format_time(findings.newest)}" if findings.newest else ""
    return f"The {findings.days} days before {format_time(findings.made_at).replace('T', ' ')} UTC{newest}."


def _headlines(findings: TelemetryFindings) -> Markup:
    days, found = findings.answers["activity"], findings.answers
    commits, conflicts = _sum(days, "commits"), _sum(days, "conflicts")
    ratio = conflicts / (commits + conflicts) if commits + conflicts else 0.0
    slowest = max((row["p95_ms"] for row in days if row["p95_ms"] is not None), default=None)
    grown = _sum(found["growth"], "bytes")
    cards = [
        _card("Commits", format_count(commits), f"to {format_count(len(found['commit_latency']))} tables"),
        _card(
            "Conflicts", format_percent(ratio), f"{format_count(conflicts)} refused", alarming=ratio > CONFLICT_RATIO
        ),
        _card(
            "Commit p95",
            "–" if slowest is None else format_millis(slowest),
            "on the slowest day",
            alarming=(slowest or 0) > COMMIT_P95_MS,
        ),
        _card("Growth", format_size(grown), f"{format_count(_sum(found['growth'], 'records'))} rows"),
        _card("Scans", format_count(_sum(days, "scans")), f"{format_count(_sum(days, 'loads'))} loads"),
        _card("To look at", format_count(_alarms(findings)), "marked lines below", alarming=_alarms(findings) > 0),
    ]
    return tag("section", *cards, class_="cards")


def _alarms(findings: TelemetryFindings) -> int:
    return sum(
        sum(1 for row in findings.answers.get(section.view, []) if section.alarming(row)) for section in SECTIONS
    )


def _sum(rows: Iterable[Row], field: str) -> int:
    return sum(row[field] or 0 for row in rows)


def _card(title: str, value: str, note: str, *, alarming: bool = False) -> Markup:
    kind = "card alarming" if alarming else "card"
    return tag("div", tag("h2", title), tag("strong", value), tag("span", note), class_=kind)


def _plots(findings: TelemetryFindings) -> Markup:
    days = _days(findings)
    labels = [f"{day.day}.{day.month}." for day in days]
    activity = {row["day"]: row for row in findings.answers["activity"]}

    def by_day(field: str) -> list[float | None]:
        return [activity.get(day.isoformat(), {}).get(field) for day in days]

    commits = [Series("commits", by_day("commits"), 1), Series("conflicts", by_day("conflicts"), 4)]
    figures = [
        _figure("Commits and conflicts, by the day", svg_plots.bars(labels, commits, format_count), commits),
        _figure(
            "Commit p95, by the day",
            svg_plots.lines(labels, [Series("p95", by_day("p95_ms"), 2)], format_millis, COMMIT_P95_MS),
        ),
        _figure("Scans, by the day", svg_plots.bars(labels, [Series("scans", by_day("scans"), 3)], format_count)),
        _growth(findings, days, labels),
        _scanned_files_figure(findings),
        _filters(findings),
    ]
    return tag("section", *(figure for figure in figures if figure is not None), class_="plots")


def _days(findings: TelemetryFindings) -> list[date]:
    """Returns every day of the report, but none before the first event."""
    last, first = datetime.fromisoformat(findings.made_at).date(), datetime.fromisoformat(findings.since).date()
    known = [date.fromisoformat(row["day"]) for row in findings.answers["activity"] + findings.answers["growth"]]
    first = max(first, min([*known, last]))
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def _growth(findings: TelemetryFindings, days: list[date], labels: list[str]) -> Markup | None:
    """Plots the namespaces that grew most."""
    grown: dict[str, dict[str, float]] = {}
    for row in findings.answers["growth"]:
        of_day = grown.setdefault(row["namespace"] or "", {})
        of_day[row["day"]] = of_day.get(row["day"], 0) + row["bytes"]
    if not grown:
        return None
    most = sorted(grown, key=lambda name: -sum(grown[name].values()))[:NAMESPACES]
    layers = [
        Series(name, [grown[name].get(day.isoformat(), 0) for day in days], n) for n, name in enumerate(most, start=1)
    ]
    return _figure(
        "Bytes added, by the day and namespace", svg_plots.bars(labels, layers, format_size, binary=True), layers
    )


def _scanned_files_figure(findings: TelemetryFindings) -> Markup | None:
    rows = [row for row in findings.answers["scan_planning"] if row["files_scanned"] + row["files_skipped"]][:8]
    if not rows:
        return None
    layers = [
        Series("read", [row["files_scanned"] for row in rows], 2),
        Series("left out", [row["files_skipped"] for row in rows], 3),
    ]
    drawn = svg_plots.rows([table_name(row) for row in rows], layers, format_count)
    return _figure("Files that scans read and left out", drawn, layers)


def _filters(findings: TelemetryFindings) -> Markup | None:
    rows = [row for row in findings.answers["hot_columns"] if row["filtered"]][:8]
    if not rows:
        return None
    names = [f"{table_name(row)}: {row['column_name']}" for row in rows]
    drawn = svg_plots.rows(names, [Series("filters", [row["filtered"] for row in rows], 1)], format_count)
    return _figure("Columns that filters name", drawn)


def _figure(title: str, drawn: Markup, series: Sequence[Series] = ()) -> Markup:
    keys = [tag("span", tag("i", class_=f"b{one.colour}"), one.name) for one in series]
    return tag("figure", tag("figcaption", title, tag("span", *keys, class_="keys")), drawn)


def _section(section: ReportSection, rows: Sequence[Row]) -> Markup | None:
    if not rows:
        return None
    named = section.named or table_name
    has_command = any(section.command(row) for row in rows[:SHOWN])
    titles = [
        tag("th", "" if section.named else "table"),
        *(tag("th", column.title, class_="number" if column.number else None) for column in section.columns),
        tag("th", "what helps") if has_command else None,
    ]
    lines = [_line(section, row, named, has_command=has_command) for row in rows[:SHOWN]]
    more = f"{len(rows) - SHOWN} more in the view system.{section.view}." if len(rows) > SHOWN else None
    return tag(
        "section",
        tag("h2", section.title),
        tag("p", section.advice),
        tag("div", tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines)), class_="wide"),
        tag("p", more, class_="more") if more else None,
    )


def _line(section: ReportSection, row: Row, named: Callable[[Row], str], *, has_command: bool) -> Markup:
    command = section.command(row)
    cells = [
        tag(
            "td",
            "–" if row[column.field] is None else column.printed(row[column.field]),
            class_="number" if column.number else None,
        )
        for column in section.columns
    ]
    helps = tag("td", tag("code", command) if command else None) if has_command else None
    return tag("tr", tag("th", named(row)), *cells, helps, class_="alarming" if section.alarming(row) else None)


def _unseen(tables: Sequence[str]) -> Markup | None:
    if not tables:
        return None
    shown = [tag("li", name) for name in tables[: 4 * SHOWN]]
    more = f" The first {len(shown)} of {len(tables)} are:" if len(tables) > len(shown) else ""
    said = f"The catalog lists these tables, and the ingested telemetry contains no load, scan or commit of them.{more}"
    return tag("section", tag("h2", "Tables without a trace"), tag("p", said), tag("ul", *shown, class_="names"))


def _sources(findings: TelemetryFindings) -> Markup:
    rows = ", ".join(f"system.{table} ({format_count(number)} rows)" for table, number in findings.rows.items())
    return tag("p", f"From {rows}. The views of the same names as these tables' questions are in the namespace system.")
