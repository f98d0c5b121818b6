"""Shadow tables: creates a table at the target beside the source, refreshes it, and drops it. Deletes no file."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress

import msgspec

from nunatak.client import Client, Json
from nunatak.errors import NotFound
from nunatak_spark.jobs import ProgressStep
from nunatak_spark.migration.migration_run import MigrationRun, StepBlocked, current_source_name
from nunatak_spark.migration.model import InventoryTable, MigrationTable, TablePlan, display_name, sql_name, table_title
from nunatak_spark.migration.namespace_properties import copy_namespaces
from nunatak_spark.migration.pinned_source import pin_source
from nunatak_spark.migration.planning_rules import FATAL
from nunatak_spark.migration.shadow_flags import ensure_shadow, find_flag, shadow_source
from nunatak_spark.migration.source_files import location_segments
from nunatak_spark.migration.sources.folder import plain_type
from nunatak_spark.sql_text import literal, quote_identifier

THREADS = 8  # registering waits for the two catalogs
NOT_FROM_HERE = "the target has a table {} that does not come from here; plan another name"
FROM, POINTER = "nunatak.migrated-from", "nunatak.source-pointer"  # properties that identify a table that we created


def shadow(run: MigrationRun, tables: Sequence[MigrationTable]) -> list[MigrationTable]:
    """Creates every table at the target; registrations run in several threads, copies one by one."""
    pointers = [table for table in tables if require_plan(table).method in {"register", "adopt"}]
    files = [table for table in tables if require_plan(table).method in {"add_files", "copy"}]
    return [*_register_tables(run, pointers), *run.run_step(files, "shadow", lambda table: refresh_shadow(run, table))]


def _register_tables(run: MigrationRun, tables: Sequence[MigrationTable]) -> list[MigrationTable]:
    """Registers tables: this thread asks the sources and writes the state, the others call the target."""
    results = []
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = {}
        for table in tables:
            try:
                pointer = require_pointer(run, table)
                copy_namespaces(run, table)
            except Exception as error:
                results.append(run.mark_failed(table, "shadow", error))
                continue
            intended = _save_intent(run, table, pointer)
            is_begun = bool(table.source_pointer)
            waiting[pool.submit(_register, run, intended, pointer, is_begun=is_begun)] = (intended, pointer)
        for done, future in enumerate(as_completed(waiting), 1):
            table, pointer = waiting[future]
            run.progress(ProgressStep("register", done, len(waiting)))
            results.append(
                run.attempt(table, "shadow", lambda table: _save(run, table, pointer, future.result()))  # noqa: B023
            )
    return results


def refresh_shadow(run: MigrationRun, table: MigrationTable) -> MigrationTable:
    """Brings the target's table up to date: creates it if missing, replaces it if the source has changed."""
    pointer = require_pointer(run, table)
    copy_namespaces(run, table)
    if require_plan(table).method in {"register", "adopt"}:
        is_begun = bool(table.source_pointer)
        table = _save_intent(run, table, pointer)
        return _save(run, table, pointer, _register(run, table, pointer, is_begun=is_begun))
    is_same = pointer == table.source_pointer and _target_pointer(run, table) == table.target_pointer
    if is_same and not table.problem:
        ensure_shadow(run.client, table, require_plan(table).target)
        return table
    table = _look_again(run, table)
    return _save(run, table, pointer, _create_and_fill(run, table, pointer))


def _save_intent(run: MigrationRun, table: MigrationTable, pointer: str) -> MigrationTable:
    """Saves what the target will point at, so that it is recognized as ours after a crash.

    If an earlier attempt may have registered another pointer, that is checked before its intent is overwritten.
    """
    if table.source_pointer == pointer:
        return table
    known = table.target_pointer
    if table.source_pointer:
        there = _target_pointer(run, table)
        known = there if there and is_ours(table, there) else known
    return run.state.save_table(msgspec.structs.replace(table, source_pointer=pointer, target_pointer=known))


def _look_again(run: MigrationRun, table: MigrationTable) -> MigrationTable:
    """Reloads the table from the source; keeps what only the inventory knew."""
    again = run.source_catalog(table.found).reload(table.found, current_source_name(table))
    fatal = [risk.text for risk in again.risks if risk.kind in FATAL]
    if fatal:
        raise StepBlocked(fatal[0])
    known = {risk.kind for risk in again.risks}
    risks = (*again.risks, *(risk for risk in table.found.risks if risk.kind not in known))
    return msgspec.structs.replace(table, found=msgspec.structs.replace(again, risks=risks))


def _save(run: MigrationRun, table: MigrationTable, source_pointer: str, target_pointer: str) -> MigrationTable:
    said = "caught up with the source" if table.target_pointer else "shadowed"
    if table.target_pointer == target_pointer:
        said = ""
    state = table.state
    if state in {"planned", "rolled-back"}:
        state = "cutover" if table.frozen.how else "shadowed"
    changed = msgspec.structs.replace(
        table, state=state, source_pointer=source_pointer, target_pointer=target_pointer, problem="", failed_at=""
    )
    return run.state.save_table(changed, said)


def require_pointer(run: MigrationRun, table: MigrationTable) -> str:
    pointer = run.source_catalog(table.found).find_pointer(table.found, current_source_name(table))
    if not pointer:
        raise StepBlocked(f"{display_name(current_source_name(table))} is no longer at the source")
    if require_plan(table).method != "adopt":
        run.require_shadow_support()
    return pointer


def require_plan(table: MigrationTable) -> TablePlan:
    if table.planned is None:
        raise StepBlocked("there is no plan for it; run `nunatak migrate plan`")
    return table.planned


# By its pointer


def _register(run: MigrationRun, table: MigrationTable, pointer: str, *, is_begun: bool) -> str:
    """Points the target at the source's metadata file; returns its metadata location at the target.

    Before a first attempt was saved, no table at the target can be ours, even if it points at the same file.
    """
    planned = require_plan(table)
    with run.connect() as client:
        there = find_target(client, planned.target)
        if planned.method == "adopt":
            return _check_adopted(there, pointer)
        if there is None:
            answer = client.register_table(planned.target, pointer, shadow_of=shadow_source(table))
        elif not is_begun:
            raise StepBlocked(NOT_FROM_HERE.format(display_name(planned.target)))
        elif location_segments(metadata_location(there)) == location_segments(pointer):
            answer = there  # registered by an earlier attempt, perhaps by a version without flags
            ensure_shadow(client, table, planned.target)
        else:
            require_ours(table, there)
            source = shadow_source(table)
            answer = client.register_table(planned.target, pointer, overwrite=True, shadow_of=source)
        return metadata_location(answer)


def _check_adopted(there: Json | None, pointer: str) -> str:
    if there is None or location_segments(metadata_location(there)) != location_segments(pointer):
        raise StepBlocked(
            "the target does not serve the source's database; start it there, as docs/how-to/move-a-jdbc-catalog.md "
            "says, or plan without --adopt"
        )
    return metadata_location(there)


def find_target(client: Client, name: tuple[str, ...]) -> Json | None:
    try:
        return client.load_table(name)
    except NotFound:
        return None


def metadata_location(answer: Json) -> str:
    return str(answer.get("metadata-location") or "")


def _target_pointer(run: MigrationRun, table: MigrationTable) -> str:
    with run.connect() as client:
        there = find_target(client, require_plan(table).target)
    return "" if there is None else metadata_location(there)


def is_ours(table: MigrationTable, location: str) -> bool:
    """Returns whether the target points where we left it, or where an earlier attempt intended."""
    known = [pointer for pointer in (table.target_pointer, table.source_pointer) if pointer]
    return any(location_segments(pointer) == location_segments(location) for pointer in known)


def require_ours(table: MigrationTable, there: Json) -> None:
    """Raises StepBlocked if somebody else changed or created the table at the target."""
    if is_ours(table, metadata_location(there)):
        return
    if (
        there.get("metadata", {}).get("properties", {}).get(FROM) == table_title(table.found)
        and not table.target_pointer
    ):
        return
    name = display_name(require_plan(table).target)
    if table.target_pointer:
        raise StepBlocked(f"{name} at the target has commits since it was created; it is not overwritten")
    raise StepBlocked(NOT_FROM_HERE.format(name))


# By its files


def _create_and_fill(run: MigrationRun, table: MigrationTable, pointer: str) -> str:
    """Creates a table over the source's files, or with its rows; replaces one of an earlier attempt or state."""
    planned = require_plan(table)
    with run.connect() as client:
        there = find_target(client, planned.target)
        if there is not None:
            require_ours(table, there)
            properties = there["metadata"].get("properties", {})
            is_whole = there["metadata"].get("current-snapshot-id") not in {None, -1} or not table.found.files
            if properties.get(POINTER) == pointer and is_whole:
                ensure_shadow(client, table, planned.target)
                return metadata_location(there)
            client.drop_table(planned.target)  # without purge: all files stay, above all the source's
        _forget(run, table)
        try:
            if planned.method == "add_files":
                _add_files(run, table, pointer)
            else:
                _copy(run, table, pointer)
        except Exception:
            _drop_unfinished(client, table, pointer)
            raise
        # Set the flag last, because a shadow accepts no commits; until then gc.enabled=false protects the source's
        # files.
        ensure_shadow(client, table, planned.target)
        return metadata_location(client.load_table(planned.target))


def _drop_unfinished(client: Client, table: MigrationTable, pointer: str) -> None:
    """Drops a table that was created but not filled: it would look like an empty table."""
    target = require_plan(table).target
    there = find_target(client, target)
    marks = {} if there is None else there["metadata"].get("properties", {})
    if marks.get(FROM) == table_title(table.found) and marks.get(POINTER) == pointer:
        client.drop_table(target)


def _forget(run: MigrationRun, table: MigrationTable) -> None:
    """Refreshes the name in Spark, which caches tables for half a minute, also dropped ones."""
    with suppress(Exception):  # Spark has not cached it
        run.spark().sql(f"REFRESH TABLE {sql_name(run.catalog, require_plan(table).target)}")


def _add_files(run: MigrationRun, table: MigrationTable, pointer: str) -> None:
    found, name = table.found, sql_name(run.catalog, require_plan(table).target)
    spark = run.spark()
    spark.sql(create_statement(name, found, _marks(table, pointer, keeps_files=True)))
    if found.files:
        # add_files checks for duplicates by default: adding a file twice would silently double its rows.
        spark.sql(add_files_statement(run.catalog, name, found))


def _copy(run: MigrationRun, table: MigrationTable, pointer: str) -> None:
    found, name = table.found, sql_name(run.catalog, require_plan(table).target)
    view = f"nunatak_source_{abs(hash(table_title(found)))}"
    pin_source(run.source_catalog(found), found, current_source_name(table), pointer).rows().createOrReplaceTempView(
        view
    )
    try:
        run.spark().sql(
            f"{create_table_head(name, found, _marks(table, pointer, keeps_files=False))} AS SELECT * FROM {view}"
        )
    finally:
        run.spark().catalog.dropTempView(view)


def create_statement(name: str, found: InventoryTable, properties: dict[str, str]) -> str:
    columns = ", ".join(f"{quote_identifier(column.name)} {plain_type(column.type)}" for column in found.columns)
    return create_table_head(f"{name} ({columns})", found, properties)


def create_table_head(name: str, found: InventoryTable, properties: dict[str, str]) -> str:
    """Returns the start of a CREATE TABLE; columns are quoted, partition expressions are used as they are."""
    names = {column.name for column in found.columns}
    parts = ", ".join(quote_identifier(part) if part in names else part for part in found.partitioned_by)
    pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    partitioned = f" PARTITIONED BY ({parts})" if parts else ""
    return f"CREATE TABLE {name} USING iceberg{partitioned} TBLPROPERTIES ({pairs})"


def add_files_statement(catalog: str, name: str, found: InventoryTable) -> str:
    place = f"{quote_identifier(found.format)}.{quote_identifier(found.location)}"
    return (
        f"CALL {quote_identifier(catalog)}.system.add_files(table => {literal(name)}, source_table => {literal(place)})"
    )


def _marks(table: MigrationTable, pointer: str, *, keeps_files: bool) -> dict[str, str]:
    """Returns the properties of a table that we create.

    The target must never remove files that belong to the source.
    """
    marks = {FROM: table_title(table.found), POINTER: pointer}
    return {**marks, "gc.enabled": "false"} if keeps_files else marks


# Taking it away


def drop_target(run: MigrationRun, table: MigrationTable, *, discard: bool) -> None:
    """Drops the target's entry without files; with `discard` also if somebody committed to it."""
    planned = require_plan(table)
    if planned.method == "adopt":
        return  # it is the source's own database row
    with run.connect() as client:
        there = find_target(client, planned.target)
        if there is None:
            flag = find_flag(client, table)
            if flag is not None:
                raise StepBlocked(
                    f"the table was renamed at the target and is {flag['securable']} now; rename it back first"
                )
            return
        if not discard:
            require_ours(table, there)
        client.drop_table(planned.target)
