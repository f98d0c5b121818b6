"""The sections of the telemetry page: columns, limits that make a row alarming, and the command for a row."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nunatak.iceberg.conventions import LARGE_METADATA_FILE_BYTES
from nunatak_spark.telemetry.telemetry_report import Row

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
        "Columns in filters",
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
        "Denied requests in large numbers are a wrong configuration, or an attack.",
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
