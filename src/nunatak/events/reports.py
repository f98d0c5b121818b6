"""Flattens the scan and commit reports of engines. No I/O; a report may be any JSON."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from nunatak.events.spool import Fields, Kind

MAX_FILTER_LENGTH = 10_000
MAX_NAME_LENGTH = 255
MAX_NAMES = 1000  # columns of a report, its counters and its timers
UNITS_PER_MS = {"nanoseconds": 1e6, "microseconds": 1e3, "milliseconds": 1.0, "seconds": 1e-3}
_ENGINE = {"engine": "engine-name", "engine_version": "engine-version", "app_id": "app-id"}
_KNOWN = frozenset(
    {
        "report-type",
        "table-name",
        "snapshot-id",
        "schema-id",
        "projected-field-names",
        "projected-field-ids",
        "filter",
        "metrics",
        "metadata",
        "operation",
        "sequence-number",
    }
)
_SCAN = ("projected-field-names", "projected-field-ids", "schema-id", "filter")


def flat_report(body: bytes, about: Fields) -> tuple[Kind, Fields]:
    """Returns the kind of a report and its fields; `about` gives the table and the sender."""
    report = _decode_known_fields(body)
    kind = _kind_of(report)
    counters, timers = _read_measurements(report.get("metrics"))
    metadata = report.get("metadata") if isinstance(report.get("metadata"), dict) else {}
    assert isinstance(metadata, dict)
    fields: dict[str, Any] = {
        **about,
        "reported_table": _text(report.get("table-name")),
        "snapshot_id": _number(report.get("snapshot-id")),
        "counters": counters,
        "timers_ms": timers,
        **{name: _text(metadata.get(key)) for name, key in _ENGINE.items()},
        "metadata": {_text(key): _text(value) for key, value in islice(metadata.items(), MAX_NAMES)},
    }
    if kind == "commit_reports":
        fields["operation"] = _text(report.get("operation"))
        fields["sequence_number"] = _number(report.get("sequence-number"))
    else:
        names = report.get("projected-field-names")
        condition = report.get("filter")
        fields["schema_id"] = _number(report.get("schema-id"))
        fields["projected_fields"] = [_text(name) for name in names[:MAX_NAMES]] if isinstance(names, list) else []
        fields["filter_json"] = (
            None if condition is None else msgspec.json.encode(condition).decode()[:MAX_FILTER_LENGTH]
        )
        fields["filter_columns"] = sorted(set(filter_columns(condition)))[:MAX_NAMES]
    return kind, fields


def _decode_known_fields(body: bytes) -> dict[str, Any]:
    """Decodes the known fields; the others, which may be anything, are skipped as raw bytes."""
    raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return {name: msgspec.json.decode(value) for name, value in raw.items() if name in _KNOWN}


def _kind_of(report: Mapping[str, Any]) -> Kind:
    """Returns the kind. Some clients omit `report-type`; only scans have a filter and projected columns."""
    said = report.get("report-type")
    if said in ("scan-report", "commit-report"):
        return "scan_reports" if said == "scan-report" else "commit_reports"
    return "scan_reports" if any(name in report for name in _SCAN) else "commit_reports"


def _read_measurements(metrics: Any) -> tuple[dict[str, int], dict[str, float]]:
    """Returns counters ({unit, value}) and, in milliseconds, timers ({count, time-unit, total-duration})."""
    counters: dict[str, int] = {}
    timers: dict[str, float] = {}
    for name, measured in islice(metrics.items(), MAX_NAMES) if isinstance(metrics, dict) else ():
        if not isinstance(measured, dict):
            continue
        value, total = _number(measured.get("value")), measured.get("total-duration")
        unit = UNITS_PER_MS.get(str(measured.get("time-unit")).lower())
        if value is not None:
            counters[_text(name) or ""] = value
        elif isinstance(total, int | float) and unit is not None:
            timers[_text(name) or ""] = total / unit
    return counters, timers


def filter_columns(condition: Any) -> Iterator[str]:
    """Yields the columns that a filter compares; the depth is limited by that of request bodies."""
    if not isinstance(condition, dict):
        return
    term = condition.get("term")
    while isinstance(term, dict):  # a transform of a column, such as bucket or year
        term = term.get("term")
    if isinstance(term, str):
        yield term[:MAX_NAME_LENGTH]
    for part in ("left", "right", "child"):
        yield from filter_columns(condition.get(part))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def _text(value: Any) -> str | None:
    return value[:MAX_NAME_LENGTH] if isinstance(value, str) else None
