"""Renders the telemetry report as one self-contained HTML page: figures, plots, and tables with commands to run."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib import resources
from typing import Any

from nunatak.iceberg.conventions import LARGE_METADATA_FILE_BYTES
from nunatak_spark.telemetry import svg_plots
from nunatak_spark.telemetry.markup import Markup, concat, tag
from nunatak_spark.telemetry.svg_plots import Series
from nunatak_spark.telemetry.telemetry_report import Row, TelemetryFindings

SHOWN = 15  # rows per table; the views have all
NAMESPACES = 5  # in the growth plot
CONFLICT_RATIO, COMMIT_P95_MS, PLANNING_P95_MS = 0.05, 500, 1000
DRAG, MANY_FILES = 0.1, 99


@dataclass(frozen=True)
class ReportColumn:
    title: str
    field: str
    printed: Callable[[Any], str] = str
    number: bool = True


@dataclass(frozen=True)
class ReportSection:
    """A table of the page: which rows are alarming, and the command for a row."""

    view: str
    title: str
    advice: str
    columns: tuple[ReportColumn, ...]
    alarming: Callable[[Row], bool] = lambda row: False
    command: Callable[[Row], str | None] = lambda row: None
    named: Callable[[Row], str] | None = None


# Formatting


def format_size(value: float) -> str:
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:g} B"


def format_count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def format_millis(value: float) -> str:
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def format_percent(value: float) -> str:
    return f"{value * 100:.3g} %"


def format_time(value: str) -> str:
    return value[:16]


def table_name(row: Row) -> str:
    return f"{row['namespace']}.{row['table_name']}"


def table_command(words: str) -> Callable[[Row], str]:
    """Returns a function that builds the command for a row's table."""

    def command(row: Row) -> str:
        place = "" if row["warehouse"] == "default" else f" --warehouse {shlex.quote(row['warehouse'])}"
        return f"nunatak {words} {shlex.quote(table_name(row))}{place}"

    return command


def exceeds(field: str, limit: float) -> Callable[[Row], bool]:
    return lambda row: (row[field] or 0) > limit


def command_if(alarming: Callable[[Row], bool], words: str) -> Callable[[Row], str | None]:
    """Returns a function that builds the command for alarming rows only."""
    return lambda row: table_command(words)(row) if alarming(row) else None


def sort_command(row: Row) -> str | None:
    """Returns the command to sort by the column; None if no filter uses it."""
    if not row["filtered"]:
        return None
    place = shlex.quote(f"table:{row['warehouse']}/{row['namespace'].replace('.', '/')}/{row['table_name']}")
    return f"nunatak policy set data-compaction {place} strategy=sort columns={shlex.quote(row['column_name'])}"


SECTIONS = (
    ReportSection(
        "small_files",
        "Small files",
        "Every scan opens every file: many small ones make it slow. Compaction joins them.",
        (
            ReportColumn("data files", "data_files", format_count),
            ReportColumn("size", "data_bytes", format_size),
            ReportColumn("average", "average_bytes", format_size),
        ),
        alarming=exceeds("data_files", MANY_FILES),
        command=table_command("maintain compact"),
    ),
    ReportSection(
        "conflicts",
        "Conflicts",
        "A commit that is refused with 409 is work done for nothing. Above 5 %, let writers of one table commit less "
        "often or through one of them.",
        (
            ReportColumn("commits", "commits", format_count),
            ReportColumn("conflicts", "conflicts", format_count),
            ReportColumn("ratio", "ratio", format_percent),
            ReportColumn("retried inside", "retries", format_count),
        ),
        alarming=exceeds("ratio", CONFLICT_RATIO),
        command=command_if(exceeds("ratio", CONFLICT_RATIO), "health"),
    ),
    ReportSection(
        "commit_latency",
        "Slow commits",
        "The time the catalog took. Above 500 ms, look at the size of the table's metadata, and at the database.",
        (
            ReportColumn("commits", "commits", format_count),
            ReportColumn("median", "p50_ms", format_millis),
            ReportColumn("p95", "p95_ms", format_millis),
            ReportColumn("longest", "max_ms", format_millis),
        ),
        alarming=exceeds("p95_ms", COMMIT_P95_MS),
        command=command_if(exceeds("p95_ms", COMMIT_P95_MS), "health"),
    ),
    ReportSection(
        "metadata_size",
        "Large metadata",
        "Each commit writes the whole metadata file, and each load carries it. Above 8 MiB, expire snapshots.",
        (ReportColumn("metadata", "metadata_bytes", format_size), ReportColumn("commits", "commits", format_count)),
        alarming=exceeds("metadata_bytes", LARGE_METADATA_FILE_BYTES),
        command=command_if(exceeds("metadata_bytes", LARGE_METADATA_FILE_BYTES), "maintain expire"),
    ),
    ReportSection(
        "scan_planning",
        "Scans",
        "Before a scan reads, it plans: many manifests make that slow, and files that filters cannot leave out make "
        "it read too much.",
        (
            ReportColumn("scans", "scans", format_count),
            ReportColumn("planning, median", "p50_ms", format_millis),
            ReportColumn("p95", "p95_ms", format_millis),
            ReportColumn("files read", "files_scanned", format_count),
            ReportColumn("left out", "files_skipped", format_count),
            ReportColumn("manifests read", "manifests_scanned", format_count),
        ),
        alarming=exceeds("p95_ms", PLANNING_P95_MS),
        command=command_if(exceeds("p95_ms", PLANNING_P95_MS), "maintain manifests"),
    ),
    ReportSection(
        "delete_drag",
        "Delete files",
        "Scans read delete files beside data files to know which rows are gone. Compaction applies them for good.",
        (
            ReportColumn("scans", "scans", format_count),
            ReportColumn("delete files", "delete_files", format_count),
            ReportColumn("data files", "data_files", format_count),
            ReportColumn("for each data file", "deletes_per_file", lambda value: f"{value:.3g}"),
        ),
        alarming=exceeds("deletes_per_file", DRAG),
        command=table_command("maintain compact"),
    ),
    ReportSection(
        "hot_columns",
        "Columns that are asked for",
        "Tables sorted by the columns that filters name let scans leave out files.",
        (
            ReportColumn("column", "column_name", number=False),
            ReportColumn("filtered by", "filtered", format_count),
            ReportColumn("read", "projected", format_count),
        ),
        command=sort_command,
    ),
    ReportSection(
        "unused_tables",
        "Unused tables",
        "No load, scan or commit in this time. Ask the owners before you drop one.",
        (
            ReportColumn("last used", "last_used", format_time, number=False),
            ReportColumn("last scanned", "last_scanned", format_time, number=False),
        ),
        command=table_command("table show"),
    ),
    ReportSection(
        "top_principals",
        "Who works with the catalog",
        "Denied requests in large numbers are a wrong configuration, or somebody who tries.",
        (
            ReportColumn("changes", "changes", format_count),
            ReportColumn("refused", "refused", format_count),
            ReportColumn("scans", "scans", format_count),
            ReportColumn("denied", "denied", format_count),
            ReportColumn("last seen", "last_seen", format_time, number=False),
        ),
        alarming=exceeds("denied", 0),
        command=lambda row: (
            f"nunatak audit list --outcome denied --principal {shlex.quote(row['principal'])}"
            if row["denied"] and row["principal"]
            else None
        ),
        named=lambda row: row["principal"] or "nobody known",
    ),
    ReportSection(
        "maintenance_outcomes",
        "Maintenance jobs",
        "What workers have done to tables.",
        (
            ReportColumn("became", "state", number=False),
            ReportColumn("jobs", "jobs", format_count),
            ReportColumn("changed a table", "changed", format_count),
            ReportColumn("rewritten", "bytes", format_size),
            ReportColumn("last error", "last_error", number=False),
        ),
        alarming=lambda row: row["state"] == "failed",
        command=lambda row: "nunatak job list" if row["state"] == "failed" else None,
        named=lambda row: row["type"] or "unknown",
    ),
)


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
    said = f"The catalog lists these, and in all that was ingested nobody has touched them.{more}"
    return tag("section", tag("h2", "Tables without a trace"), tag("p", said), tag("ul", *shown, class_="names"))


def _sources(findings: TelemetryFindings) -> Markup:
    rows = ", ".join(f"system.{table} ({format_count(number)} rows)" for table, number in findings.rows.items())
    return tag("p", f"From {rows}. The views of the same names as these tables' questions are in the namespace system.")
