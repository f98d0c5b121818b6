"""Commits to one or more tables: checks requirements and computes new metadata; `publish` writes it."""

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nunatak.catalog.cache import Loaded
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.commit_contract import REFUSALS
from nunatak.catalog.foreign_paths import NamedPath, own_places, paths_in_updates, paths_outside, refuse_foreign
from nunatak.catalog.large_work import LARGE_BYTES, LARGE_METADATA_BYTES
from nunatak.catalog.pointers import check_chosen, check_places, find_pointer, key_of, not_found, read_table
from nunatak.catalog.publish import AT_ONCE, Publication, publish
from nunatak.catalog.size_limits import MAX_TRIES, check_counts, check_properties
from nunatak.catalog.tables import default_location
from nunatak.catalog.warehouse_rules import check_format_version, require_writable
from nunatak.database.records import AddJob, Change, Key, StoredResponse
from nunatak.database.store import PointerMoved
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    CatalogError,
    CommitFailed,
    Conflict,
    NoSuchNamespace,
    NoSuchTable,
    OutcomeUnknown,
)
from nunatak.iceberg import requirements, updates
from nunatak.iceberg.chosen_places import ChosenPlace, places_of_updates
from nunatak.iceberg.commit_request import (
    AddSnapshot,
    AssertTableUuid,
    AssignUuid,
    CommitTableRequest,
    RemoveProperties,
    RemoveSnapshotRef,
    RemoveSnapshots,
    Requirement,
    SetLocation,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    Update,
    UpgradeFormatVersion,
)
from nunatak.iceberg.identifiers import Identifier, print_namespace
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import is_inside_any

MAX_TABLES = 1000  # in one transaction
MAX_PARTS = 100  # of a transaction for the same table: each is applied before the next one's requirements are checked
# The updates of an append: their cost does not depend on the size of the table.
QUICK_UPDATES = (AddSnapshot, SetSnapshotRef, SetProperties, RemoveProperties, SetStatistics, RemoveSnapshotRef)
FIRST_BACKOFF_SECONDS = 0.005
MAX_BACKOFF_SECONDS = 0.5
DELETE_OLD_METADATA = "write.metadata.delete-after-commit.enabled"
NOTHING_APPLIED = "Nothing of the transaction was applied."
RENAMED_OR_DROPPED = "The commit was applied, but one of its tables was renamed or dropped since"


class TableCommit(msgspec.Struct, frozen=True):
    """The requested changes of one table; several requests for one table are applied in order.

    `table_commit` reads everything that is needed from the updates once. `size_bytes` is the size of the request body,
    which may also change other tables.
    """

    identifier: Identifier
    parts: tuple[tuple[Sequence[Requirement], Sequence[Update]], ...]
    updates: Sequence[Update]  # of all parts
    places: Sequence[ChosenPlace]  # locations for files that the updates set
    paths: Sequence[NamedPath]  # file paths that the updates add
    snapshot_id: int | None  # the last one added; with the request hash it identifies a retry of the same commit
    summary: Mapping[str, Any] | None  # of that snapshot
    size_bytes: int = 0


def table_commit(identifier: Identifier, requests: Sequence[CommitTableRequest], size_bytes: int = 0) -> TableCommit:
    parts = tuple([(request.requirements, _merge_snapshot_removals(request.updates)) for request in requests])
    merged = parts[0][1] if len(parts) == 1 else [update for _, part in parts for update in part]
    check_counts(updates=len(merged), requirements=sum([len(required) for required, _ in parts]))
    if len(parts) > MAX_PARTS:
        raise BadRequest(
            f"Too many changes of {identifier}: {len(parts)}, at most {MAX_PARTS} are allowed in one transaction",
            hint="Send the updates of one table in one table change.",
        )
    places, paths = tuple(places_of_updates(merged)), tuple(paths_in_updates(merged))
    return TableCommit(identifier, parts, merged, places, paths, *_last_added_snapshot(merged), size_bytes)


def check_tables(count: int) -> None:
    """Checks the number of tables in one transaction, before their updates are read; raises BadRequest."""
    if count > MAX_TABLES:
        raise BadRequest(
            f"Too many tables: {count}, at most {MAX_TABLES} are allowed in one transaction",
            hint="Send several transactions, one after the other.",
        )


def _merge_snapshot_removals(part: Sequence[Update]) -> Sequence[Update]:
    """Merges consecutive snapshot removals into one: the Java client removes thousands of snapshots one by one."""
    if len([update for update in part if isinstance(update, RemoveSnapshots)]) < 2:
        return part
    merged: list[Update] = []
    for removes, run in itertools.groupby(part, lambda update: isinstance(update, RemoveSnapshots)):
        if removes:
            ids = [each for update in run if isinstance(update, RemoveSnapshots) for each in update.snapshot_ids]
            merged.append(RemoveSnapshots(ids))
        else:
            merged += run
    return merged


async def commit_transaction(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, commits: Sequence[TableCommit]
) -> list[Loaded]:
    """Calls `commit_tables`; adds to the hint of a refusal that no table was changed."""
    try:
        return await commit_tables(catalog, warehouse, caller, commits, StoredResponse(204))
    except CatalogError as error:
        if error.status not in REFUSALS:
            raise
        hint = NOTHING_APPLIED if error.hint is None else f"{NOTHING_APPLIED} {error.hint}"
        raise error.reworded(error.message, hint) from error


async def commit_tables(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    commits: Sequence[TableCommit],
    answer: StoredResponse | None = None,
) -> list[Loaded]:
    """Plan and publish all commits or none; start again if another process moves a pointer in between.

    `answer` is the response of a transaction. Without it the response is the metadata of the single table.
    """
    keys = [key_of(warehouse, commit.identifier) for commit in commits]
    contention, is_transaction = catalog.contention, answer is not None
    # `tables` is nearly always empty: the test spares most commits the loop.
    for key in keys if contention.tables else ():
        contention.commit_started(key, caller.address)
    try:
        async with catalog.table_locks.acquire(keys):
            for attempt in range(MAX_TRIES):
                if attempt:
                    caller.progress.tries = attempt + 1
                    await _back_off(attempt)
                try:
                    # Here, since a commit that was applied before the warehouse became read-only is not refused.
                    require_writable(warehouse)
                    # A lost compare-and-swap proves the cache outdated: only the first attempt may use it.
                    from_cache = None if attempt else await _plan_from_cache(catalog, warehouse, caller, keys, commits)
                    planned = from_cache or await _plan_all(
                        catalog, warehouse, caller, keys, commits, is_transaction=is_transaction
                    )
                except CatalogError as error:
                    repeated = await _find_applied(catalog, caller, keys, commits, error)
                    if repeated is not None:
                        caller.progress.repeated = True
                        return repeated
                    raise
                try:
                    return await publish(catalog, caller, planned, answer)
                except PointerMoved as error:
                    moved: CatalogError = error
                except NoSuchTable as error:
                    # The cache may hold a table that was dropped: the next attempt reads the database.
                    if from_cache is None:
                        raise
                    moved = error
            hint = "Refresh and try again." if is_transaction else "The table is unchanged; refresh it and try again."
            raise CommitFailed(f"Commit failed after {MAX_TRIES} tries: {moved.message}", hint=hint)
    except CommitFailed:
        for key in keys:
            contention.add_conflict(key, caller.address)
        raise
    finally:
        for key in keys if contention.tables else ():
            contention.commit_ended(key, caller.address)


async def _back_off(attempt: int) -> None:
    """Sleeps with exponential backoff and jitter, so that two servers do not retry in step."""
    pause = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**attempt)
    await asyncio.sleep(pause * random.uniform(0.5, 1.0))


async def _plan_from_cache(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, keys: Sequence[Key], commits: Sequence[TableCommit]
) -> list[Publication] | None:
    """Plans like `_plan_all`, but from the cache: the compare-and-swap of the pointer detects an outdated entry.

    Returns None if the database must be read: if other servers write to it, if privileges are read with the pointer,
    and if a commit would be refused or change nothing, since the cached state may be outdated.
    """
    if catalog.write_behind is None or caller.policy is not None:
        return None
    planned: list[Publication] = []
    for key, commit in zip(keys, commits, strict=True):
        before = catalog.cache.find(key)
        if before is None or not isinstance(before.parsed, TableMetadata):
            return None
        try:
            plan = await _plan(catalog, warehouse, caller, key, commit, before, before.parsed)
        except CatalogError:
            return None
        if plan.after is plan.base:
            return None
        planned.append(plan)
        if len(planned) % AT_ONCE == 0:
            await asyncio.sleep(0)  # lets the event loop serve other requests
    return planned


async def _plan_all(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    keys: Sequence[Key],
    commits: Sequence[TableCommit],
    *,
    is_transaction: bool,
) -> list[Publication]:
    """Plan each commit on the current metadata of its table. A refused transaction names the table that caused it."""
    planned: list[Publication] = []
    for key, commit in zip(keys, commits, strict=True):
        try:
            before = await find_pointer(catalog, key, "TABLE", caller.policy)
            if before is None and await _was_created(catalog, caller, commit):
                raise OutcomeUnknown(RENAMED_OR_DROPPED)
            base = await read_table(catalog, before) if before is not None else None
            planned.append(await _plan(catalog, warehouse, caller, key, commit, before, base))
        except CatalogError as error:
            if is_transaction and error.status in REFUSALS and str(commit.identifier) not in error.message:
                raise _name_table(error, commit.identifier) from error
            raise
        if len(planned) % AT_ONCE == 0:
            await asyncio.sleep(0)  # lets the event loop serve other requests
    return planned


def _name_table(error: CatalogError, identifier: Identifier) -> CatalogError:
    """Adds the table to the error of a refused transaction: in the hint and, for a conflict, which clients log and
    retry, in the message. Other messages stay equal to those of the reference implementation."""
    message = f"{identifier}: {error.message}" if isinstance(error, Conflict) else error.message
    refused = f"{identifier} was refused."
    return error.reworded(message, refused if error.hint is None else f"{refused} {error.hint}")


async def _plan(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    key: Key,
    commit: TableCommit,
    before: Loaded | None,
    base: TableMetadata | None,
) -> Publication:
    """Check every requirement and compute the new metadata; writes nothing."""
    if base is None:
        await _check_creation(catalog, key, commit)
    state = base
    for required, part in commit.parts:
        requirements.check_all(required, state)
        if len(commit.parts) > 1:
            state = await _apply(catalog, warehouse, commit, part, state, before)
    check_chosen(warehouse, commit.places)
    # All updates at once on `base`: the states between the parts only serve to check requirements.
    after = await _apply(catalog, warehouse, commit, commit.updates, base, before)
    operation = "create-table" if base is None else "commit-table"
    if after is base:
        return Publication(key, commit.identifier, operation, before, base, after)
    check_format_version(warehouse, after.format_version, base.format_version if base is not None else None)
    # Only changed properties are checked: most commits leave them alone.
    if base is None or after.properties is not base.properties:
        check_properties(after.properties)
    own = await check_places(catalog, warehouse, key, after)
    outside = paths_outside(own, commit.paths)
    if caller.rights is not None:
        await refuse_foreign(catalog, caller, key, after, base, own, outside)
    deletes_files = after.properties.get(DELETE_OLD_METADATA, "false").lower() == "true"
    return Publication(
        key,
        commit.identifier,
        operation,
        before,
        base,
        after,
        commit.snapshot_id,
        commit.summary,
        references_outside=any(is_inside_any(warehouse.allowed, path) for _, path in outside),
        changes_after=_old_files_job(key, base, after) if base is not None and deletes_files else (),
    )


async def _apply(
    catalog: Catalog,
    warehouse: WarehousePlace,
    commit: TableCommit,
    part: Sequence[Update],
    base: TableMetadata | None,
    before: Loaded | None,
) -> TableMetadata:
    if base is None:
        part = _with_uuid_and_location(catalog, warehouse, commit.identifier, part)
    base_location = before.metadata_location if before is not None else None
    now_ms = catalog.now_ms()
    if _is_large(commit, part, before):
        return await catalog.large_work.run(updates.apply_all, part, base, base_location=base_location, now_ms=now_ms)
    return updates.apply_all(part, base, base_location=base_location, now_ms=now_ms)


def _is_large(commit: TableCommit, part: Sequence[Update], before: Loaded | None) -> bool:
    """Whether applying the updates may block the event loop for too long."""
    if commit.size_bytes > LARGE_BYTES:
        return True
    if before is None or len(before.answer) <= LARGE_METADATA_BYTES:
        return False
    return not all(isinstance(update, QUICK_UPDATES) for update in part)


def _with_uuid_and_location(
    catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier, part: Sequence[Update]
) -> list[Update]:
    """Adds what the client left out to the updates of a commit that creates a table: UUID, location, format version."""
    chosen: list[Update] = []
    table_uuid = next((update.uuid for update in part if isinstance(update, AssignUuid)), None)
    if table_uuid is None:
        table_uuid = catalog.new_uuid()
        chosen.append(AssignUuid(table_uuid))
    if not any(isinstance(update, SetLocation) for update in part):
        chosen.append(SetLocation(default_location(warehouse, None, identifier, table_uuid)))
    if not any(isinstance(update, UpgradeFormatVersion) for update in part):
        chosen.append(UpgradeFormatVersion(warehouse.default_format_version))
    return [*chosen, *part]


async def _check_creation(catalog: Catalog, key: Key, commit: TableCommit) -> None:
    """Checks that a commit to a table that does not exist may create it; raises NoSuchTable without assert-create."""
    if not requirements.is_create(commit.parts[0][0]):
        raise await not_found(catalog, key, commit.identifier, "TABLE")
    if await catalog.store.find_kind(key) == "VIEW":
        raise AlreadyExists(f"View with same name already exists: {commit.identifier}")
    if not await catalog.store.namespace_exists(key.catalog, key.namespace):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(commit.identifier.namespace)}")


def _old_files_job(key: Key, base: TableMetadata, after: TableMetadata) -> list[Change]:
    """Returns the job that deletes the metadata files dropped from the metadata log by this commit."""
    kept = {log["metadata-file"] for log in after.metadata_log}
    trimmed = [log["metadata-file"] for log in base.metadata_log if log["metadata-file"] not in kept]
    if not trimmed:
        return []
    places = [str(each) for each in (*own_places(after), *own_places(base))]
    payload = {
        "catalog": key.catalog,
        "table-uuid": after.table_uuid,
        "files": trimmed,
        "places": list(dict.fromkeys(places)),
    }
    return [AddJob("delete-files", msgspec.json.encode(payload))]


def _last_added_snapshot(part: Sequence[Update]) -> tuple[int | None, Mapping[str, Any] | None]:
    """Returns the id and the summary of the snapshot that is added last; None for what is missing."""
    for update in reversed(part):
        if isinstance(update, AddSnapshot):
            found, summary = update.snapshot.get("snapshot-id"), update.snapshot.get("summary")
            # Other values do not fit the database column; such a commit has no detection of retries.
            snapshot_id = found if isinstance(found, int) and 0 <= found < 2**63 else None
            return snapshot_id, summary if isinstance(summary, dict) else None
    return None, None


async def _find_applied(
    catalog: Catalog, caller: Caller, keys: Sequence[Key], commits: Sequence[TableCommit], error: CatalogError
) -> list[Loaded] | None:
    """Returns the current metadata if this request is a retry of a commit that was applied, else None.

    A client that lost the response sends the commit again, and its own effect then violates its requirements.
    """
    if not any(commit.snapshot_id is not None for commit in commits) or not caller.request_hash:
        return None
    loaded: list[Loaded] = []
    for key, commit in zip(keys, commits, strict=True):
        snapshot_id = commit.snapshot_id
        current = await find_pointer(catalog, key, "TABLE", caller.policy)
        here = current.table().table_uuid if current is not None else None
        # The asserted UUID finds the commit even if the table was renamed or replaced since.
        uuid = _asserted_uuid(commit) or here
        if snapshot_id is not None and (
            uuid is None or not await catalog.store.find_commit(uuid, snapshot_id, caller.request_hash)
        ):
            return None
        if current is not None and here == uuid:
            loaded.append(current)
    if len(loaded) < len(keys):
        # Renamed or dropped since: after a 404 the client would delete the files of a commit that was applied.
        raise OutcomeUnknown(RENAMED_OR_DROPPED) from error
    return loaded


async def _was_created(catalog: Catalog, caller: Caller, commit: TableCommit) -> bool:
    """Whether this same request already created the table: a second creation would give two tables the same files."""
    uuid = next((each.uuid for each in commit.updates if isinstance(each, AssignUuid)), None)
    if uuid is None or commit.snapshot_id is None or not caller.request_hash:
        return False
    return await catalog.store.find_commit(uuid, commit.snapshot_id, caller.request_hash)


def _asserted_uuid(commit: TableCommit) -> str | None:
    return next((each.uuid for part, _ in commit.parts for each in part if isinstance(each, AssertTableUuid)), None)
