"""Runs the verification levels one after the other and returns evidence: what was compared, found, and when.

A level that fails is evidence too, and not green. All levels look at one state: the source at the pointer from which
the target was made, and the target as it is when the first level starts. A source without snapshots, or one about to be
cut over, must not change meanwhile; the target never may.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from nunatak.errors import NotFound
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.jobs import Progress, ProgressStep, no_progress
from nunatak_spark.maintenance.job_context import wall_clock_ms
from nunatak_spark.migration import content_comparison, engine_comparison, file_reachability, metadata_comparison
from nunatak_spark.migration.model import (
    LEVELS,
    Evidence,
    LevelName,
    LevelResult,
    MigrationFinding,
    TablePair,
    table_title,
)
from nunatak_spark.migration.namespace_properties import add_namespace_findings

Json = dict[str, Any]

MEANINGS: dict[LevelName, str] = {
    "L0": "identity: the metadata are equal",
    "L1": "reach: every file can be opened through the target",
    "L2": "contents: every value was read and is the same",
    "L3": "engines: several of them give the same answers",
}
NEEDS_SOURCE: tuple[LevelName, ...] = ("L0", "L2")
# Spark's messages for a file that it could not open; the path is the useful part.
LOST_FILE = re.compile(
    r"(?:Failed to open input stream for file|File does not exist|Location does not exist): (?P<path>\S+)"
)


def verify(
    pair: TablePair,
    levels: Sequence[LevelName] = LEVELS,
    *,
    progress: Progress = no_progress,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> list[Evidence]:
    """Returns the evidence of each level in order; a finding `moved-source` means: refresh and verify again."""
    wanted = [level for level in LEVELS if level in levels]
    started, source = now_ms(), pair.table.source_pointer if pair.may_move else pair.source_pointer()
    target = _load_target(pair)
    early = _find_early_mismatch(pair, source, target)
    if early is not None or target is None:
        found = (early,) if early is not None else ()
        return [_evidence(level, LevelResult(found), started, now_ms(), source, _pointer(target)) for level in wanted]
    pair.spark.sql(f"REFRESH TABLE {pair.target_name}")  # Spark caches tables for half a minute
    evidence = []
    for done, level in enumerate(wanted):
        progress(ProgressStep(f"{level} of {table_title(pair.table.found)}", done, len(wanted)))
        begun = now_ms()
        looked = _run_level(pair, level, target, source)
        evidence.append(_evidence(level, looked, begun, now_ms(), source, _pointer(target)))
    is_green = all(one.ok for one in evidence)
    moved = _find_moved_pointers(pair, source, _pointer(target), ask_source=not (pair.may_move and is_green))
    return [_add_findings(one, moved) for one in evidence] if moved else evidence


def check_files_of_many(pairs: Sequence[TablePair]) -> list[TablePair]:
    """Returns the pairs; small tables with their L1 result, computed by one job."""
    targets = [(number, _load_target(pair)) for number, pair in enumerate(pairs)]
    small = [
        (number, target)
        for number, target in targets
        if target is not None and file_reachability.is_small(target["metadata"])
    ]
    for number, _ in small:
        pairs[number].spark.sql(f"REFRESH TABLE {pairs[number].target_name}")
    found = file_reachability.check_reachability_together(
        [(pairs[number], target["metadata"], _pointer(target)) for number, target in small]
    )
    reached = {number: looked for (number, _), looked in zip(small, found, strict=True)}
    return [replace(pair, reached=reached.get(number)) for number, pair in enumerate(pairs)]


def _run_level(pair: TablePair, level: LevelName, target: Json, source_pointer: str) -> LevelResult:
    if level in NEEDS_SOURCE and not source_pointer:
        return LevelResult(
            (MigrationFinding("no-source", "the table is no longer at the source: there is nothing to compare with"),)
        )
    try:
        match level:
            case "L0":
                return add_namespace_findings(_identity(pair, target["metadata"]), pair.namespaces)
            case "L1":
                return pair.reached or file_reachability.check_reachability(pair, target["metadata"], _pointer(target))
            case "L2":
                return content_comparison.compare_contents(pair, target["metadata"])
            case "L3":
                return engine_comparison.compare_engines(pair, target["metadata"])
    except Exception as error:  # any failure is the level's finding
        return LevelResult((failure_finding(error),))


def _identity(pair: TablePair, document: Json) -> LevelResult:
    source = pair.source_metadata()
    if source is not None and pair.planned.method in {"register", "adopt"}:
        return LevelResult(
            metadata_comparison.compare_documents(source, document),
            metadata_comparison.document_facts(source, document),
        )
    columns = metadata_comparison.compare_columns(
        pair.source_rows().schema.jsonValue(), pair.spark.table(pair.target_name).schema.jsonValue()
    )
    facts: Json = {
        "compared": f"columns only: {pair.planned.method} makes a table with ids and snapshots of its own",
        "table-uuid": document.get("table-uuid"),
        "format-version": document.get("format-version"),
        "current-snapshot-id": document.get("current-snapshot-id"),
    }
    accepted = [
        *columns.accepted,
        *(metadata_comparison.replaced_types(source, document) if source is not None else ()),
    ]
    return LevelResult(tuple(columns.findings), {**facts, "accepted": accepted} if accepted else facts)


# Other findings


def _load_target(pair: TablePair) -> Json | None:
    try:
        return pair.client.load_table(pair.planned.target)
    except NotFound:
        return None


def _pointer(target: Json | None) -> str:
    return str((target or {}).get("metadata-location") or "")


def _find_early_mismatch(pair: TablePair, source: str, target: Json | None) -> MigrationFinding | None:
    """Returns a finding if the target cannot match the source, so that no level needs to run."""
    if target is None:
        return MigrationFinding("no-target", f"the target has no table {'.'.join(pair.planned.target)}")
    known = pair.table.source_pointer
    if known and source and source != known:
        return _moved_source_finding(known, source, "before the verification began")
    return None


def _find_moved_pointers(
    pair: TablePair, source: str, target: str, *, ask_source: bool
) -> tuple[MigrationFinding, ...]:
    """Returns findings about changed pointers.

    A source that may change is asked only if a level is red: its snapshot may have been expired.
    """
    findings = []
    now = pair.source_pointer() if ask_source else source
    if now != source:
        findings.append(_moved_source_finding(source, now, "while it was verified"))
    there = _pointer(_load_target(pair))
    if there != target:
        findings.append(
            MigrationFinding("moved-target", f"the target went on from {target} to {there} meanwhile", there)
        )
    return tuple(findings)


def _moved_source_finding(before: str, now: str, when: str) -> MigrationFinding:
    return MigrationFinding(
        "moved-source", f"the source was written to {when}: its pointer moved from {before} to {now}", now
    )


def failure_finding(error: Exception) -> MigrationFinding:
    """Returns why a level failed, above all the file that Spark could not open."""
    text = str(error).strip()
    lost = LOST_FILE.search(text)
    if lost:
        path = lost.group("path").rstrip(".,:;")
        return MigrationFinding("missing-file", f"Spark could not open {path}", path)
    return MigrationFinding("not-carried-out", f"this level could not be carried out: {failure_reason(error)}")


def _evidence(level: LevelName, looked: LevelResult, started: int, ended: int, source: str, target: str) -> Evidence:
    return Evidence(
        level=level,
        ok=not looked.findings,
        findings=looked.findings,
        facts=looked.facts,
        statements=looked.statements,
        started_ms=started,
        ended_ms=ended,
        source_pointer=source,
        target_pointer=target,
    )


def _add_findings(evidence: Evidence, findings: tuple[MigrationFinding, ...]) -> Evidence:
    return msgspec.structs.replace(evidence, ok=False, findings=(*evidence.findings, *findings))
