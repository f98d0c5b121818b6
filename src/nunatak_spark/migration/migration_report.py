"""Renders a migration as one self-contained HTML page with all evidence, or as JSON."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from nunatak_spark.maintenance.job_context import wall_clock_ms
from nunatak_spark.migration.model import (
    LEVELS,
    STATES,
    Evidence,
    LevelName,
    Migration,
    MigrationFinding,
    MigrationTable,
    State,
    table_title,
)
from nunatak_spark.migration.optional_packages import load_module
from nunatak_spark.migration.verification import MEANINGS

HERE = Path(__file__).parent
FULL_TABLES = 500  # above this, tables without findings show only totals: browsers must open the page
SHOWN_LOG = 300
BAR_WIDTH = 1000
NEXT: Mapping[State, str] = {
    "discovered": "nunatak migrate plan",
    "planned": "nunatak migrate shadow",
    "shadowed": "nunatak migrate verify",
    "verified": "nunatak migrate cutover",
    "cutover": "nunatak migrate cutover",
    "rolled-back": "nunatak migrate shadow",
}
OVER: tuple[State, ...] = ("done", "retired")
KEEPS: Mapping[str, str] = {
    "register": "Its files stay where they are and belong to the target now: drop the entry without purge.",
    "adopt": "The target serves the source's own database row: nothing is to be removed.",
    "add_files": "The target reads the source's files in place: drop the entry, and never a file.",
    "copy": "The rows were copied: entry and files of the source can go.",
}


def render(migration: Migration, *, now_ms: Callable[[], int] = wall_clock_ms) -> str:
    """Returns the page. All names are escaped, and a CSP allows only our own script."""
    jinja2 = load_module("jinja2", "the HTML report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FileSystemLoader(HERE),
    )
    environment.filters |= {
        "number": format_number,
        "size": format_size,
        "moment": format_time,
        "took": format_duration,
    }
    style, script = ((HERE / name).read_text("utf-8") for name in ("report.css", "report.js"))
    views = [_table_view(migration, table) for table in migration.tables]
    page: str = environment.get_template("report.html.j2").render(
        migration=migration,
        made_ms=now_ms(),
        tables=views,
        summary=summary(migration, views),
        states=_segments([(state, count) for state, count in _states(migration).items() if count]),
        levels=[_level_bar(level, views) for level in LEVELS],
        remaining=_remaining(views),
        retired=_retirement_views(migration, views),
        log=migration.log[-SHOWN_LOG:],
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        meanings=MEANINGS,
    )
    return page


def as_json(migration: Migration) -> bytes:
    """Returns everything as JSON, also what the page leaves out."""
    views = [_table_view(migration, table) for table in migration.tables]
    told = {"summary": summary(migration, views), **msgspec.to_builtins(migration)}
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


# View models of the page


@dataclass(frozen=True)
class LevelView:
    """The newest evidence of one level; `status` is green, red or open."""

    level: LevelName
    status: str
    evidence: Evidence | None = None
    looks: int = 0
    columns: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class TableView:
    table: MigrationTable
    title: str
    anchor: str
    levels: Sequence[LevelView]
    findings: Sequence[tuple[LevelName, MigrationFinding]]
    is_whole: bool

    @property
    def needs_attention(self) -> bool:
        return bool(self.findings or self.table.problem)

    @property
    def is_refused(self) -> bool:
        return self.table.planned is not None and self.table.planned.method == "refused"


def _table_view(migration: Migration, table: MigrationTable) -> TableView:
    name = table_title(table.found)
    evidence = [one for one in migration.evidence.get(name, ()) if is_current(table, one)]
    levels = [_level_view(level, evidence) for level in LEVELS]
    findings = [(one.level, finding) for one in levels if one.evidence is not None for finding in one.evidence.findings]
    anchor = "t-" + hashlib.sha256(name.encode()).hexdigest()[:12]
    is_whole = len(migration.tables) <= FULL_TABLES or bool(findings)
    return TableView(table, name, anchor, levels, findings, is_whole)


def is_current(table: MigrationTable, evidence: Evidence) -> bool:
    """Returns whether the evidence is about the table now at the target; a rollback invalidates earlier evidence."""
    return table.state != "rolled-back" and evidence.started_ms >= table.rolled_back_ms


def _level_view(level: LevelName, evidence: Sequence[Evidence]) -> LevelView:
    looks = [one for one in evidence if one.level == level]
    if not looks:
        return LevelView(level, "open")
    newest = looks[-1]
    return LevelView(level, "green" if newest.ok else "red", newest, len(looks), _columns(newest.facts))


def _columns(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns both fingerprints of L2 side by side: a line for all rows, then one per column."""
    source, target = facts.get("source"), facts.get("target")
    if not isinstance(source, dict) or not isinstance(target, dict):
        return []
    before, after = source["columns"], target["columns"]
    lines = [_line(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]
    return [_line("all rows", source, target), *lines]


def _line(name: str, source: Mapping[str, Any] | None, target: Mapping[str, Any] | None) -> Mapping[str, Any]:
    sides = [side or {} for side in (source, target)]
    shown = [{key: side.get(key, "") for key in ("type", "nulls", "rows", "sum")} for side in sides]
    compared = [(side["nulls"], side["rows"], side["sum"]) for side in shown]
    return {"name": name, "source": shown[0], "target": shown[1], "same": compared[0] == compared[1]}


def summary(migration: Migration, views: Sequence[TableView]) -> dict[str, Any]:
    """Returns the totals at the top of the page."""
    newest = [one.evidence for view in views for one in view.levels if one.evidence is not None]
    read = [one.facts for one in newest if one.level == "L2" and one.ok]
    opened = [one.facts for one in newest if one.level == "L1" and one.ok]
    return {
        "tables": len(views),
        "sources": len(migration.sources),
        "done": sum(view.table.state in OVER for view in views),
        "green": sum(all(one.status == "green" for one in view.levels) for view in views),
        "need-attention": sum(view.needs_attention for view in views),
        "refused": sum(view.is_refused for view in views),
        "rows-compared": sum(facts.get("rows", 0) for facts in read),
        "columns-compared": sum(len(facts.get("target", {}).get("columns", {})) for facts in read),
        "files-opened": sum(facts.get("files", 0) for facts in opened),
        "bytes-opened": sum(facts.get("bytes", 0) for facts in opened),
        "states": {state: count for state, count in _states(migration).items() if count},
    }


def _states(migration: Migration) -> dict[State, int]:
    counts = Counter(table.state for table in migration.tables)
    return {state: counts[state] for state in STATES}


def _segments(counts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Returns the segments of a bar with position and width."""
    total = sum(count for _, count in counts) or 1
    pieces, before = [], 0
    for name, count in counts:
        x = BAR_WIDTH * before / total
        pieces.append({"name": name, "count": count, "x": round(x, 2), "width": round(BAR_WIDTH * count / total, 2)})
        before += count
    return pieces


def _level_bar(level: LevelName, views: Sequence[TableView]) -> dict[str, Any]:
    statuses = Counter(one.status for view in views for one in view.levels if one.level == level)
    pieces = [(status, statuses[status]) for status in ("green", "red", "open") if statuses[status]]
    return {"level": level, "meaning": MEANINGS[level], "pieces": _segments(pieces), "green": statuses["green"]}


def _remaining(views: Sequence[TableView]) -> list[dict[str, Any]]:
    """Returns the open tables by the command to run next."""
    found: dict[str, list[TableView]] = {}
    for view in views:
        if view.table.state in OVER or view.is_refused:
            continue
        command = NEXT.get(view.table.state)
        if command is None:
            command = f"nunatak migrate {view.table.failed_at or 'status'}"
        found.setdefault(command, []).append(view)
    return [{"command": command, "views": waiting} for command, waiting in found.items()]


def _retirement_views(migration: Migration, views: Sequence[TableView]) -> list[dict[str, Any]]:
    """Returns for each source what may be removed there, and which tables have to be migrated first."""
    return [
        {
            "source": source,
            "done": [
                {"view": view, "keeps": KEEPS.get(view.table.planned.method, "") if view.table.planned else ""}
                for view in mine
                if view.table.state in OVER
            ],
            "waiting": [view for view in mine if view.table.state not in OVER],
        }
        for source in migration.sources
        for mine in [[view for view in views if view.table.found.source == source.name]]
    ]


# Formatting


def format_number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def format_size(value: int | None) -> str:
    if value is None:
        return "–"
    amount, units = float(value), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f}\u00a0{unit}" if unit == "B" or amount >= 100 else f"{amount:.1f}\u00a0{unit}"


def format_time(at_ms: int | None) -> str:
    return "–" if not at_ms else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_duration(evidence: Evidence) -> str:
    seconds = (evidence.ended_ms - evidence.started_ms) / 1000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
