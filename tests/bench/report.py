"""Readings made readable: a table on a terminal, Markdown, JSON. Nothing is measured here."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.rounds import Plan, Reading, Result, Standing

GENERATOR_LIMIT = 0.9  # of a core; beyond it a faster server would not show
NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """One workload on one server over all rounds; the two ratios are above 1 where it is better than the baseline."""

    workload: str
    server: str
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float | None
    tries_per_operation: float
    operations: int
    failed: int
    speed_ratio: float | None
    cpu_ratio: float | None
    generator_was_the_limit: bool


@dataclass(frozen=True)
class Report:
    machine: dict[str, Any]
    plan: Plan
    baseline: str | None
    rows: tuple[Row, ...]
    standings: tuple[Standing, ...]

    @property
    def broken_promises(self) -> int:
        return sum(standing.verdict.lost + standing.verdict.applied for standing in self.standings)


def summarize(result: Result, baseline: str | None, machine: dict[str, Any]) -> Report:
    rows = [
        _row(result.readings, workload.name, standing.server, baseline)
        for workload in result.plan.workloads
        for standing in result.standings
    ]
    return Report(machine, result.plan, baseline, tuple(row for row in rows if row is not None), result.standings)


def geometric_mean_of_ratios(numerators: Sequence[float | None], denominators: Sequence[float | None]) -> float | None:
    """Over the rounds in which both were measured; None if there are none."""
    pairs = [(above, below) for above, below in zip(numerators, denominators, strict=False) if above and below]
    return math.exp(statistics.fmean(math.log(above / below) for above, below in pairs)) if pairs else None


def as_json(report: Report) -> dict[str, Any]:
    return asdict(report)


def as_markdown(report: Report) -> str:
    sections = ["# Speed", "", _circumstances(report)]
    for header, lines in _tables(report):
        sections += ["", _line(header), _line(["---"] * len(header)), *map(_line, lines)]
    return "\n".join([*sections, "", *_remarks(report), ""])


def print_tables(report: Report, console: Console) -> None:
    console.print(_circumstances(report))
    for header, lines in _tables(report):
        table = Table(*header)
        for column in table.columns[2 if header[1] == "server" else 1 :]:
            column.justify = "right"
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for remark in _remarks(report):
        console.print(remark)


def _row(readings: Sequence[Reading], workload: str, server: str, baseline: str | None) -> Row | None:
    mine = [one for one in readings if (one.workload, one.server) == (workload, server)]
    if not mine:
        return None
    base = [one for one in readings if (one.workload, one.server) == (workload, baseline)]
    cpu = [one.cpu_ms_per_operation for one in mine]
    operations = sum(one.operations for one in mine)
    return Row(
        workload=workload,
        server=server,
        per_second=_geometric_mean([one.per_second for one in mine]) or 0.0,
        p50_ms=statistics.median(one.p50_ms for one in mine),
        p99_ms=statistics.median(one.p99_ms for one in mine),
        cpu_ms=_geometric_mean(cpu),
        tries_per_operation=sum(one.tries for one in mine) / operations if operations else 0.0,
        operations=operations,
        failed=sum(one.failed for one in mine),
        speed_ratio=geometric_mean_of_ratios([one.per_second for one in mine], [one.per_second for one in base]),
        cpu_ratio=geometric_mean_of_ratios([one.cpu_ms_per_operation for one in base], cpu),
        generator_was_the_limit=statistics.median(one.generator_busy for one in mine) > GENERATOR_LIMIT,
    )


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    return geometric_mean_of_ratios(values, [1.0] * len(values))


def _tables(report: Report) -> list[tuple[list[str], list[list[str]]]]:
    compared = report.baseline is not None
    header = ["workload", "server", "op/s", "p50 ms", "p99 ms", "CPU ms/op", "tries/op", "failed"]
    header += [f"speed vs {report.baseline}", f"CPU thrift vs {report.baseline}"] if compared else []
    lines = []
    for row in report.rows:
        line = [
            row.workload,
            row.server,
            _number(row.per_second) + ("*" if row.generator_was_the_limit else ""),
            _number(row.p50_ms),
            _number(row.p99_ms),
            _number(row.cpu_ms),
            _number(row.tries_per_operation or None),
            str(row.failed),
        ]
        lines.append([*line, _times(row.speed_ratio), _times(row.cpu_ratio)] if compared else line)
    facts = ["server", "cold start s", "idle MB", "after MB", "commits", "lost", "refused but applied"]
    return [(header, lines), (facts, [_facts(standing) for standing in report.standings])]


def _facts(standing: Standing) -> list[str]:
    starts = standing.cold_start_seconds
    return [
        standing.server,
        _number(statistics.median(starts) if starts else None),
        _number(standing.idle_bytes and standing.idle_bytes / 1e6),
        _number(standing.after_bytes and standing.after_bytes / 1e6),
        str(standing.verdict.acknowledged),
        str(standing.verdict.lost),
        str(standing.verdict.applied),
    ]


def _circumstances(report: Report) -> str:
    plan = report.plan
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    size = f"{plan.tables:,} tables and one of {plan.snapshots:,} snapshots"
    return f"{plan.rounds} × {plan.seconds:g} s for each workload on {size}. {facts}."


def _remarks(report: Report) -> list[str]:
    remarks = ["Only ratios of one run mean something: the machine differs from minute to minute."]
    if any(row.generator_was_the_limit for row in report.rows):
        remarks.append("* The generator had no CPU left: the server may be faster than this.")
    return remarks


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}×"
