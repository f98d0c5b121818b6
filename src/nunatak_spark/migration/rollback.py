"""The way back to the source, and the end of the way there: what the operator decides about a table that has moved."""

from collections.abc import Sequence

import msgspec

from nunatak.errors import CatalogError, NotFound
from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.cutover import GONE, late_writes, pair_of
from nunatak_spark.migration.file_check import Access, FilesFound, described, find_files
from nunatak_spark.migration.migration_run import Run, Stuck, name_now, reason
from nunatak_spark.migration.model import Frozen, Table, printed_name
from nunatak_spark.migration.shadow import drop_target, planned_of
from nunatak_spark.migration.shadow_flags import lift_flag
from nunatak_spark.migration.source_files import Unreadable
from nunatak_spark.migration.sources.source_catalog import Origin
from nunatak_spark.migration.state import wall_clock_ms
from nunatak_spark.migration.target_access import file_access


def roll_back(run: Run, tables: Sequence[Table], *, discard: bool, accept_loss: bool = False) -> list[Table]:
    def step(table: Table) -> Table:
        return _roll_back(run, table, discard=discard, accept_loss=accept_loss)

    return run.each(tables, "rollback", step)


def _roll_back(run: Run, table: Table, *, discard: bool, accept_loss: bool) -> Table:
    """The target's entry goes first: two catalogs that both take commits would part for good.

    Before anything is changed, the source is looked at: after the drop nobody but the source knows the table.
    """
    found, origin, frozen = table.found, run.origin(table.found), table.frozen
    said = _look_at_source(run, origin, table, accept_loss=accept_loss)
    drop_target(run, table, discard=discard)
    if frozen.how == "renamed" and origin.find_pointer(found, name_now(table)):
        origin.rename(found, name_now(table), found.name)
    if frozen.how == "blocked":
        origin.unblock(found, frozen.pointer)
        if origin.is_blocked(found, frozen.pointer):
            raise Stuck("the source is still blocked, because somebody changed it meanwhile; roll back again")
    back = msgspec.structs.replace(
        table,
        state="rolled-back",
        frozen=Frozen(),
        source_pointer="",
        target_pointer="",
        problem="",
        failed_at="",
        rolled_back_ms=wall_clock_ms(),
    )
    return run.folder.save_table(back, f"the source is as it was; the target's entry is gone; {said}")


def _look_at_source(run: Run, origin: Origin, table: Table, *, accept_loss: bool) -> str:
    """What to say about the source's files; Stuck if something is missing and nobody accepted that."""
    method = planned_of(table).method
    if method == "adopt":
        return "both catalogs serve the same row, so nothing was changed"
    pointer = _source_pointer(origin, table)
    if not pointer:
        problem = f"the source no longer has {printed_name(table.found.name)}"
    elif method == "copy":
        return "the source's files were never the target's"
    else:
        found = _find_source_files(run, table, pointer)
        problem = described(found)
        if not found.missing:
            return problem
    if accept_loss:
        return problem
    raise Stuck(f"{problem}; nothing was rolled back, because the target may hold the only copy (see --accept-loss)")


def _source_pointer(origin: Origin, table: Table) -> str:
    """Where the source stands, under whichever of its two names; Stuck if both of them are taken."""
    found, frozen = table.found, table.frozen
    if frozen.how == "blocked" and origin.is_blocked(found, frozen.pointer):
        return frozen.pointer
    try:
        pointer = origin.find_pointer(found, found.name)
    except Unreadable:  # the folder of its files is gone
        pointer = ""
    if frozen.how != "renamed":
        return pointer
    moved = origin.find_pointer(found, name_now(table))
    if moved and pointer:
        name, other = printed_name(found.name), printed_name(name_now(table))
        raise Stuck(
            f"the source has a new table {name}, so {other} cannot get its name back; rename or drop the new one"
        )
    return moved or pointer


def _find_source_files(run: Run, table: Table, pointer: str) -> FilesFound:
    if table.found.kind == "iceberg":
        return find_files(run.spark, pointer, lambda: _access(run, table))
    if pointer == table.source_pointer:  # a digest of the list of all files
        return FilesFound(table.found.files or 0)
    # Files were added or removed since: the ones that the target was made of are those that have to be there.
    return find_files(run.spark, table.target_pointer, lambda: _access(run, table))


def _access(run: Run, table: Table) -> Access:
    """As the target opens the files, or as the session does if an earlier attempt dropped the target's entry."""
    try:
        return file_access(pair_of(run, table))
    except NotFound:
        return [("", {})]


# When the source is retired


def retire(run: Run, tables: Sequence[Table]) -> list[Table]:
    """The operator says that the source is switched off for good: its files belong to the target from now on."""
    return run.each(tables, "retire", lambda table: _retire(run, table))


def _retire(run: Run, table: Table) -> Table:
    asked = _refuse_late_writes(run, table)
    lift_flag(run.client, table)
    retired = msgspec.structs.replace(table, state="retired", problem="", failed_at="")
    return run.folder.save_table(retired, f"the source is retired ({asked}): the target's maintenance may delete files")


def _refuse_late_writes(run: Run, table: Table) -> str:
    """A source that still answers must not hold commits that the target lacks; one that is off cannot be asked.

    Returns what was learned. That the source dropped the table is no late write: retiring it may mean just that.
    """
    try:
        findings = late_writes(run, table)
    except (CannotRun, CatalogError, Unreadable, ConnectionError) as error:
        return f"it could not be asked for late writes: {reason(error)}"
    late = [finding.text for finding in findings if finding != GONE]
    if late:
        raise Stuck(f"{'; '.join(late)}: what was written there is not at the target")
    return "it has no late writes"
