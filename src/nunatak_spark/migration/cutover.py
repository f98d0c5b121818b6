"""Cut-over to the target: verify, freeze the source, catch up, verify again; and checks of the source afterwards."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from nunatak_spark.migration.migration_run import (
    MOVED,
    MigrationRun,
    StepBlocked,
    current_source_name,
    translate_source_errors,
)
from nunatak_spark.migration.model import (
    LEVELS,
    Evidence,
    LevelName,
    MigrationFinding,
    MigrationTable,
    SourceFreeze,
    TablePair,
)
from nunatak_spark.migration.namespace_properties import namespace_pairs
from nunatak_spark.migration.pinned_source import pin_source
from nunatak_spark.migration.shadow import refresh_shadow, require_plan, require_pointer
from nunatak_spark.migration.shadow_flags import mark_cut_over
from nunatak_spark.migration.sources.source_catalog import SourceCatalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES = 3  # a source with constant writes must be frozen first
FINAL_LEVELS: tuple[LevelName, ...] = ("L0", "L1", "L2")
MOVED_SOURCE = "moved-source"
SOURCE_GONE = MigrationFinding("late-drop", "the source changed after the cut-over: the table is gone")

Verify = Callable[[TablePair, Sequence[LevelName]], list[Evidence]]


def verify_table(
    run: MigrationRun, verify: Verify, table: MigrationTable, levels: Sequence[LevelName] = LEVELS
) -> MigrationTable:
    """Brings the shadow up to date and runs the levels; repeats if the source was written to meanwhile."""
    for _ in range(TRIES):
        table = refresh_shadow(run, table)
        evidence = verify(table_pair(run, table), levels)
        run.state.save_evidence(table, evidence)
        if not is_outdated(evidence):
            break
    require_green(evidence)
    return table


def is_outdated(evidence: Sequence[Evidence]) -> bool:
    return any(finding.kind == MOVED_SOURCE for each in evidence for finding in each.findings)


def require_green(evidence: Sequence[Evidence]) -> None:
    problems = [f"{each.level}: {finding.text}" for each in evidence for finding in each.findings if not each.ok]
    if not all(each.ok for each in evidence):
        raise StepBlocked("; ".join(problems) or "a level of the verification is not green")


def table_pair(run: MigrationRun, table: MigrationTable, *, may_move: bool = False) -> TablePair:
    """Returns both ends of a table. With `may_move`, the source may change if its snapshot stays readable."""
    found, origin, name = table.found, run.source_catalog(table.found), current_source_name(table)
    source, planned = pin_source(origin, found, name, table.source_pointer), require_plan(table)

    def pointer() -> str:
        with run.source_lock:
            return origin.find_pointer(found, name)

    def rows() -> "DataFrame":
        with run.source_lock:
            return source.rows()

    return TablePair(
        spark=run.spark(),
        client=run.client,
        catalog=run.catalog,
        table=table,
        planned=planned,
        source_pointer=pointer,
        source_metadata=lambda: source.document,
        source_rows=rows,
        may_move=may_move and source.is_fixed and planned.method != "adopt",
        namespaces=tuple(namespace_pairs(run, table)),
    )


# Cut-over


def cut_over(
    run: MigrationRun, verify: Verify, tables: Sequence[MigrationTable], *, freeze: bool
) -> list[MigrationTable]:
    return run.run_step(tables, "cutover", lambda table: _cut_over(run, verify, table, freeze=freeze))


def _cut_over(run: MigrationRun, verify: Verify, table: MigrationTable, *, freeze: bool) -> MigrationTable:
    if table.state != "done":
        table = _verify_and_freeze(run, verify, table, freeze=freeze)
        over = msgspec.structs.replace(table, state="done", problem="", failed_at="")
        table = run.state.save_table(over, "L0 L1 L2 green; the target is the source of truth")
    # Save the state before writers are allowed: a cut-over that is repeated after their first commit must know that the
    # table is done. After a crash between the two, the target refuses commits and names this command.
    mark_cut_over(run.client, table)
    if table.problem:
        table = run.state.save_table(msgspec.structs.replace(table, problem="", failed_at=""))
    return table


def _verify_and_freeze(run: MigrationRun, verify: Verify, table: MigrationTable, *, freeze: bool) -> MigrationTable:
    how, because = _how_to_freeze(run, table, freeze=freeze)
    match how:
        case "renamed":
            return verify_table(run, verify, _freeze_by_renaming(run, table, because), FINAL_LEVELS)
        case "blocked":
            return _freeze_by_blocking(run, verify, table, because)
        case _:
            intent = msgspec.structs.replace(table, state="cutover", frozen=SourceFreeze(because=because))
            return verify_table(run, verify, run.state.save_table(intent, f"not frozen: {because}"), FINAL_LEVELS)


def _how_to_freeze(run: MigrationRun, table: MigrationTable, *, freeze: bool) -> tuple[str, str]:
    if table.frozen.how:  # frozen by an earlier attempt
        return table.frozen.how, table.frozen.because
    if require_plan(table).method == "adopt":
        return "", "both catalogs serve the same row: writers of either kind go on, and nothing gets lost"
    if not freeze:
        return "", "the operator chose --no-freeze"
    how, because = run.source_catalog(table.found).freeze_method(table.found)
    if not how:
        raise StepBlocked(f"the source cannot be frozen: {because}; then use --no-freeze")
    return how, because


def _freeze_by_renaming(run: MigrationRun, table: MigrationTable, because: str) -> MigrationTable:
    """Renames the source table: writers no longer find it, and everything committed before is read afterwards."""
    found, origin = table.found, run.source_catalog(table.found)
    to = f"{found.name[-1]}{MOVED}"
    if table.frozen.how != "renamed":
        if origin.find_pointer(found, (*found.name[:-1], to)):
            raise StepBlocked(f"the source has a table {to} already, which is the name that a frozen table gets")
        frozen = SourceFreeze("renamed", require_pointer(run, table), to, because)
        # Save the intent before the rename: after a crash, the next attempt checks which of the two names exists.
        intent = msgspec.structs.replace(table, state="cutover", frozen=frozen)
        table = run.state.save_table(intent, f"renaming it to {to} at the source")
    if not origin.find_pointer(found, current_source_name(table)):
        origin.rename(found, found.name, current_source_name(table))
    return table


def _freeze_by_blocking(run: MigrationRun, verify: Verify, table: MigrationTable, because: str) -> MigrationTable:
    """Verifies, then blocks the source if it has not changed since; a blocked table cannot be read."""
    origin = run.source_catalog(table.found)
    if table.frozen.how == "blocked" and origin.block(table.found, table.frozen.pointer):
        return table
    for _ in range(TRIES):
        table = verify_table(run, verify, msgspec.structs.replace(table, frozen=SourceFreeze()), FINAL_LEVELS)
        frozen = SourceFreeze("blocked", table.source_pointer, "", because)
        intent = msgspec.structs.replace(table, state="cutover", frozen=frozen)
        table = run.state.save_table(intent, "blocking further commits at the source")
        if origin.block(table.found, table.source_pointer):
            return table
    raise StepBlocked(f"the source was written to {TRIES} times while it was verified; stop the writers")


# Afterwards


def late_writes(run: MigrationRun, table: MigrationTable) -> list[MigrationFinding]:
    """Returns changes at the source after the cut-over; there should be none."""
    origin = run.source_catalog(table.found)
    with translate_source_errors(origin.source):
        return _late_writes(origin, table)


def _late_writes(origin: SourceCatalog, table: MigrationTable) -> list[MigrationFinding]:
    found = table.found
    if table.frozen.how == "blocked":
        if origin.is_blocked(found, table.frozen.pointer):
            return []
        if not origin.find_pointer(found, found.name):
            return [SOURCE_GONE]
        return [MigrationFinding("late-write", "the block at the source was removed")]
    findings = []
    if table.frozen.how == "renamed" and origin.find_pointer(found, found.name):
        findings.append(
            MigrationFinding("late-table", "the source has a table of the old name again", ".".join(found.name))
        )
    now = origin.find_pointer(found, current_source_name(table))
    if require_plan(table).method == "adopt" or now == table.source_pointer:
        return findings
    if not now:
        return [*findings, SOURCE_GONE]
    return [
        *findings,
        MigrationFinding("late-write", f"the source changed after the cut-over: it points at {now}", now),
    ]
