"""Rollback to the source, and retirement of the source: the operator's decisions about a table at the target."""

from collections.abc import Sequence

import msgspec

from nunatak.errors import CatalogError, NotFound
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.cutover import SOURCE_GONE, late_writes, table_pair
from nunatak_spark.migration.file_check import Access, FileCounts, check_files, describe_files
from nunatak_spark.migration.migration_run import MigrationRun, StepBlocked, current_source_name, error_text
from nunatak_spark.migration.model import MigrationTable, SourceFreeze, display_name
from nunatak_spark.migration.shadow import drop_target, require_plan
from nunatak_spark.migration.shadow_flags import lift_flag
from nunatak_spark.migration.source_files import UnreadableFile
from nunatak_spark.migration.sources.source_catalog import SourceCatalog
from nunatak_spark.migration.state import wall_clock_ms
from nunatak_spark.migration.target_access import file_access


def roll_back(
    run: MigrationRun, tables: Sequence[MigrationTable], *, discard: bool, accept_loss: bool = False
) -> list[MigrationTable]:
    def step(table: MigrationTable) -> MigrationTable:
        return _roll_back(run, table, discard=discard, accept_loss=accept_loss)

    return run.run_step(tables, "rollback", step)


def _roll_back(run: MigrationRun, table: MigrationTable, *, discard: bool, accept_loss: bool) -> MigrationTable:
    """Drops the target's entry first: two catalogs that both accept commits would diverge for good.

    The source is checked before anything is changed: after the drop only the source has the table.
    """
    found, origin, frozen = table.found, run.source_catalog(table.found), table.frozen
    said = _look_at_source(run, origin, table, accept_loss=accept_loss)
    drop_target(run, table, discard=discard)
    if frozen.how == "renamed" and origin.find_pointer(found, current_source_name(table)):
        origin.rename(found, current_source_name(table), found.name)
    if frozen.how == "blocked":
        origin.unblock(found, frozen.pointer)
        if origin.is_blocked(found, frozen.pointer):
            raise StepBlocked("the source is still blocked, because it was changed meanwhile; roll back again")
    back = msgspec.structs.replace(
        table,
        state="rolled-back",
        frozen=SourceFreeze(),
        source_pointer="",
        target_pointer="",
        problem="",
        failed_at="",
        rolled_back_ms=wall_clock_ms(),
    )
    return run.state.save_table(back, f"the source is as it was; the target's entry is gone; {said}")


def _look_at_source(run: MigrationRun, origin: SourceCatalog, table: MigrationTable, *, accept_loss: bool) -> str:
    """Returns a text about the source's files; raises StepBlocked if some are missing, unless accepted."""
    method = require_plan(table).method
    if method == "adopt":
        return "both catalogs serve the same row, so nothing was changed"
    pointer = _source_pointer(origin, table)
    if not pointer:
        problem = f"the source no longer has {display_name(table.found.name)}"
    elif method == "copy":
        return "the source's files were never the target's"
    else:
        found = _find_source_files(run, table, pointer)
        problem = describe_files(found)
        if not found.missing:
            return problem
    if accept_loss:
        return problem
    raise StepBlocked(
        f"{problem}; nothing was rolled back, because the target may hold the only copy (see --accept-loss)"
    )


def _source_pointer(origin: SourceCatalog, table: MigrationTable) -> str:
    """Returns the source's pointer under either of its two names; raises StepBlocked if both exist."""
    found, frozen = table.found, table.frozen
    if frozen.how == "blocked" and origin.is_blocked(found, frozen.pointer):
        return frozen.pointer
    try:
        pointer = origin.find_pointer(found, found.name)
    except UnreadableFile:  # the folder is gone
        pointer = ""
    if frozen.how != "renamed":
        return pointer
    moved = origin.find_pointer(found, current_source_name(table))
    if moved and pointer:
        name, other = display_name(found.name), display_name(current_source_name(table))
        raise StepBlocked(
            f"the source has a new table {name}, so {other} cannot get its name back; rename or drop the new one"
        )
    return moved or pointer


def _find_source_files(run: MigrationRun, table: MigrationTable, pointer: str) -> FileCounts:
    if table.found.kind == "iceberg":
        return check_files(run.spark, pointer, lambda: _access(run, table))
    if pointer == table.source_pointer:  # a digest of the list of all files
        return FileCounts(table.found.files or 0)
    # Files were added or removed since: check those that the target references.
    return check_files(run.spark, table.target_pointer, lambda: _access(run, table))


def _access(run: MigrationRun, table: MigrationTable) -> Access:
    """Returns file access as the target grants it, or the session's own if an earlier attempt dropped the entry."""
    try:
        return file_access(table_pair(run, table))
    except NotFound:
        return [("", {})]


# When the source is retired


def retire(run: MigrationRun, tables: Sequence[MigrationTable]) -> list[MigrationTable]:
    """Retires the source: from now on its files belong to the target."""
    return run.run_step(tables, "retire", lambda table: _retire(run, table))


def _retire(run: MigrationRun, table: MigrationTable) -> MigrationTable:
    asked = _refuse_late_writes(run, table)
    lift_flag(run.client, table)
    retired = msgspec.structs.replace(table, state="retired", problem="", failed_at="")
    return run.state.save_table(retired, f"the source is retired ({asked}): the target's maintenance may delete files")


def _refuse_late_writes(run: MigrationRun, table: MigrationTable) -> str:
    """Raises StepBlocked if the source has commits that the target lacks. A source that does not answer is accepted.

    Returns a text for the log. A dropped source table is no late write: retiring may mean just that.
    """
    try:
        findings = late_writes(run, table)
    except (CannotRun, CatalogError, UnreadableFile, ConnectionError) as error:
        return f"it could not be asked for late writes: {error_text(error)}"
    late = [finding.text for finding in findings if finding != SOURCE_GONE]
    if late:
        raise StepBlocked(f"{'; '.join(late)}: what was written there is not at the target")
    return "it has no late writes"
