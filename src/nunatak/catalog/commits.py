"""Commits to tables, one or many at once: requirements first, then files, then the pointers together."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

import msgspec

from nunatak.catalog import ownership
from nunatak.catalog.cache import Loaded
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import own_places, paths_in_updates, refuse_foreign
from nunatak.catalog.heads import (
    check_chosen,
    check_places,
    find_head,
    key_of,
    missing,
    new_version,
    places_outside,
    read_table,
    with_references,
    write_metadata_file,
)
from nunatak.catalog.large_work import LARGE_BYTES, LARGE_METADATA_BYTES
from nunatak.catalog.limits import MAX_TRIES, check_counts, check_properties
from nunatak.catalog.stowing import SMALL_BYTES
from nunatak.catalog.tables import default_location
from nunatak.catalog.write import entry, write
from nunatak.database.records import AddJob, Answer, Change, InsertHead, Key, MoveHead, Stored
from nunatak.database.store import HeadMoved
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    CatalogError,
    CommitFailed,
    NoSuchNamespace,
    NoSuchTable,
    OutcomeUnknown,
)
from nunatak.iceberg import requirements, updates
from nunatak.iceberg.chosen_places import places_of_updates
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
)
from nunatak.iceberg.identifiers import Identifier, print_namespace
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import is_inside_any

MAX_TABLES = 1000  # in one transaction
MAX_PARTS = 100  # of a transaction that are about the same table: each is worked out for the next one's requirements
TABLES_AT_ONCE = 32  # of a transaction, before others get their turn
# What an append does costs the same however large the table is.
QUICK_UPDATES = (AddSnapshot, SetSnapshotRef, SetProperties, RemoveProperties, SetStatistics, RemoveSnapshotRef)
T = TypeVar("T")
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5
NO_LONGER_THERE = "The commit was carried out, but a table of it is no longer under its name"


class TableCommit(msgspec.Struct, frozen=True):
    """What one table is asked to change; several requests for one table come one after the other.

    `size_bytes` is that of the request's body, which may be about other tables, too.
    """

    identifier: Identifier
    parts: tuple[tuple[Sequence[Requirement], Sequence[Update]], ...]
    size_bytes: int = 0

    def all_updates(self) -> list[Update]:
        return [update for _, part in self.parts for update in part]


class Planned(msgspec.Struct, frozen=True):
    """A commit worked out in memory: `after` is `before`'s metadata itself when nothing changes."""

    key: Key
    commit: TableCommit
    before: Loaded | None
    base: TableMetadata | None
    after: TableMetadata
    points_elsewhere: bool = False  # a new path lies in the warehouse, but not in the table's own places


def table_commit(identifier: Identifier, requests: Sequence[CommitTableRequest], size_bytes: int = 0) -> TableCommit:
    parts = tuple((request.requirements, _together(request.updates)) for request in requests)
    check_counts(updates=sum(len(part) for _, part in parts), requirements=sum(len(required) for required, _ in parts))
    if len(parts) > MAX_PARTS:
        raise BadRequest(
            f"Too many changes of {identifier}: {len(parts)}, at most {MAX_PARTS} are allowed in one transaction",
            hint="Put the updates of one table into one change.",
        )
    return TableCommit(identifier, parts, size_bytes)


def check_tables(count: int) -> None:
    """Of one transaction; asked before anything is told of each of them."""
    if count > MAX_TABLES:
        raise BadRequest(
            f"Too many tables: {count}, at most {MAX_TABLES} are allowed in one transaction",
            hint="Send several transactions, one after the other.",
        )


def _together(part: Sequence[Update]) -> Sequence[Update]:
    """Java's client removes thousands of snapshots one by one; those that follow each other are one removal."""
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


async def commit_tables(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, commits: Sequence[TableCommit], answer: Answer | None
) -> list[Loaded]:
    """Apply all commits or none. A repeated request gets `answer`; None means the metadata of the first table."""
    keys = [key_of(warehouse, commit.identifier) for commit in commits]
    contention = catalog.contention
    for key in keys if contention.tables else ():
        contention.arrived(key, caller.address)
    try:
        return await _commit(catalog, warehouse, caller, keys, commits, answer)
    except CommitFailed:
        for key in keys:
            contention.refused(key, caller.address)
        raise
    finally:
        for key in keys if contention.tables else ():
            contention.attempted(key, caller.address)


async def _commit(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    keys: Sequence[Key],
    commits: Sequence[TableCommit],
    answer: Answer | None,
) -> list[Loaded]:
    async with catalog.turns.take(keys):
        for attempt in range(MAX_TRIES):
            if attempt:
                caller.progress.tries = attempt + 1
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            try:
                remembered = None if attempt else await _plan_from_memory(catalog, warehouse, caller, keys, commits)
                if remembered is not None:
                    planned = remembered
                else:
                    planned = [
                        await _plan(catalog, warehouse, caller, key, commit)
                        async for key, commit in _taking_turns(zip(keys, commits, strict=True))
                    ]
            except CatalogError as error:
                repeated = await _already_done(catalog, caller, keys, commits, error)
                if repeated is not None:
                    caller.progress.repeated = True
                    return repeated
                raise
            try:
                return await _carry_out(catalog, caller, planned, answer)
            except HeadMoved as error:
                moved: CatalogError = error
            except NoSuchTable as error:
                if remembered is None:
                    raise
                moved = error
        raise CommitFailed(
            f"Commit failed after {MAX_TRIES} tries: {moved.message}",
            hint="All of the request's tables are unchanged; refresh and try again.",
        )


async def _taking_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a pause now and then in which other requests are served."""
    for number, item in enumerate(items, 1):
        yield item
        if number % TABLES_AT_ONCE == 0:
            await asyncio.sleep(0)


async def _plan_from_memory(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, keys: Sequence[Key], commits: Sequence[TableCommit]
) -> list[Planned] | None:
    """As `_plan` for all of them without a look at the database: the pointer is compared when it is moved.

    None if that has to be looked at: where others write, too, where rights are read along with the pointer, and for
    whatever would be refused, or answered without a change, because of what may have changed meanwhile.
    """
    if catalog.stowing is None or caller.policy is not None:
        return None
    planned: list[Planned] = []
    async for key, commit in _taking_turns(zip(keys, commits, strict=True)):
        before = catalog.cache.find(key)
        if before is None or not isinstance(before.parsed, TableMetadata):
            return None
        try:
            plan = await _work_out(catalog, warehouse, caller, key, commit, before)
        except CatalogError:
            return None
        if plan.after is plan.base:
            return None
        planned.append(plan)
    return planned


async def _plan(catalog: Catalog, warehouse: WarehousePlace, caller: Caller, key: Key, commit: TableCommit) -> Planned:
    """Check every requirement and work out the new metadata; nothing is written."""
    before = await find_head(catalog, key, "TABLE", caller.policy)
    if before is None and await _was_created(catalog, caller, commit):
        raise OutcomeUnknown(NO_LONGER_THERE)
    return await _work_out(catalog, warehouse, caller, key, commit, before)


async def _work_out(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    key: Key,
    commit: TableCommit,
    before: Loaded | None,
) -> Planned:
    base = await read_table(catalog, before) if before is not None else None
    if base is None:
        await _check_creation(catalog, key, commit)
    state = base
    for required, part in commit.parts:
        requirements.check_all(required, state)
        if len(commit.parts) > 1:
            state = await _apply(catalog, warehouse, commit, part, state, before)
    check_chosen(warehouse, places_of_updates(commit.all_updates()))
    after = await _apply(catalog, warehouse, commit, commit.all_updates(), base, before)
    if after is not base:
        if base is None or after.properties is not base.properties:
            check_properties(after.properties)
        await check_places(catalog, warehouse, key, after)
        await refuse_foreign(catalog, caller, key, after, base, paths_in_updates(commit.all_updates()))
    elsewhere = after is not base and _points_elsewhere(warehouse, after, commit)
    return Planned(key, commit, before, base, after, elsewhere)


def _points_elsewhere(warehouse: WarehousePlace, after: TableMetadata, commit: TableCommit) -> bool:
    new = [path for _, path in paths_in_updates(commit.all_updates())]
    own = own_places(after) if new else ()
    return any(not is_inside_any(own, path) and is_inside_any(warehouse.allowed, path) for path in new)


async def _apply(
    catalog: Catalog,
    warehouse: WarehousePlace,
    commit: TableCommit,
    part: Sequence[Update],
    base: TableMetadata | None,
    before: Loaded | None,
) -> TableMetadata:
    if base is None:
        part = _with_essentials(catalog, warehouse, commit.identifier, part)
    base_location = before.metadata_location if before is not None else None
    is_large, now_ms = _is_large(commit, part, before), catalog.now_ms()
    return await catalog.large_work.run_if(
        is_large, updates.apply_all, part, base, base_location=base_location, now_ms=now_ms
    )


def _is_large(commit: TableCommit, part: Sequence[Update], before: Loaded | None) -> bool:
    """Whether working it out may take longer than others should wait."""
    if commit.size_bytes > LARGE_BYTES:
        return True
    if before is None or len(before.answer) <= LARGE_METADATA_BYTES:
        return False
    return not all(isinstance(update, QUICK_UPDATES) for update in part)


def _with_essentials(
    catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier, part: Sequence[Update]
) -> list[Update]:
    """A table made by a commit needs a uuid and a folder; what the client leaves out the catalog chooses."""
    chosen: list[Update] = []
    table_uuid = next((update.uuid for update in part if isinstance(update, AssignUuid)), None)
    if table_uuid is None:
        table_uuid = catalog.new_uuid()
        chosen.append(AssignUuid(table_uuid))
    if not any(isinstance(update, SetLocation) for update in part):
        chosen.append(SetLocation(default_location(warehouse, None, identifier, table_uuid)))
    return [*chosen, *part]


async def _check_creation(catalog: Catalog, key: Key, commit: TableCommit) -> None:
    """A commit to a table that is not there is a creation, or it names a missing table."""
    if not requirements.is_create(commit.parts[0][0]):
        raise await missing(catalog, key, commit.identifier, "TABLE")
    if await catalog.store.find_kind(key) == "VIEW":
        raise AlreadyExists(f"View with same name already exists: {commit.identifier}")
    if not await catalog.store.namespace_exists(key.catalog, key.namespace):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(commit.identifier.namespace)}")


async def _carry_out(
    catalog: Catalog, caller: Caller, planned: Sequence[Planned], answer: Answer | None
) -> list[Loaded]:
    """Write the files, then move all pointers in one transaction."""
    changed = [plan for plan in planned if plan.after is not plan.base]
    fresh = [new_version(catalog, plan.after, plan.before) async for plan in _taking_turns(changed)]
    written = await _write_files(catalog, changed, fresh)
    try:
        changes: list[Change] = []
        for plan, stored in zip(changed, written, strict=True):
            changes += _changes_of(catalog, caller, plan, stored)
        results = iter(fresh)
        loaded = [next(results) if plan.after is not plan.base else _unchanged(plan) for plan in planned]
        if changes or caller.key is not None:
            kept = answer or Answer(200, metadata_location=loaded[0].metadata_location)
            await write(catalog, caller, changes, kept)
    except OutcomeUnknown:
        raise  # a file may be the head: it stays
    except CatalogError:
        await _delete_files(catalog, written)
        raise
    for plan, new, stored in zip(changed, fresh, written, strict=True):
        catalog.cache.keep(plan.key, new)
        if catalog.stowing is not None and stored.content is None and len(new.data) <= SMALL_BYTES:
            catalog.stowing.add(plan.key, new)
    if any(isinstance(change, AddJob) for change in changes):
        catalog.job_added.set()
    return loaded


def _unchanged(plan: Planned) -> Loaded:
    assert plan.before is not None
    return plan.before


async def _write_files(catalog: Catalog, changed: Sequence[Planned], fresh: Sequence[Loaded]) -> list[Stored]:
    """All files at once; if one cannot be written, none is kept."""
    stowed = catalog.stowing is not None
    writes = [
        write_metadata_file(catalog, plan.after, new, stowed=stowed) for plan, new in zip(changed, fresh, strict=True)
    ]
    if len(writes) == 1:
        return [await writes[0]]
    outcomes: list[Stored | BaseException] = []
    for start in range(0, len(writes), TABLES_AT_ONCE):
        outcomes += await asyncio.gather(*writes[start : start + TABLES_AT_ONCE], return_exceptions=True)
    failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
    if failed is not None:
        await _delete_files(catalog, [outcome for outcome in outcomes if isinstance(outcome, Stored)])
        raise failed
    return [outcome for outcome in outcomes if isinstance(outcome, Stored)]


async def _delete_files(catalog: Catalog, written: Sequence[Stored]) -> None:
    """Known to have failed: nobody points at these."""
    deletes = (catalog.objects.delete(stored.metadata_location) for stored in written)
    await asyncio.gather(*deletes, return_exceptions=True)


def _changes_of(catalog: Catalog, caller: Caller, plan: Planned, stored: Stored) -> list[Change]:
    snapshot_id = added_snapshot(plan.commit)
    printed = str(plan.commit.identifier)
    if plan.before is None or plan.base is None:
        line = entry(catalog, caller, "create-table", snapshot_id=snapshot_id)
        parent = print_namespace(plan.commit.identifier.namespace)
        owned = ownership.owned(catalog, caller, ownership.securable_of(plan.key))
        stored = with_references(stored, plan.after)
        return [InsertHead(plan.key, "TABLE", stored, line, printed, parent), *owned]
    line = entry(catalog, caller, "commit-table", snapshot_id=snapshot_id)
    resettled = _steers_elsewhere(plan.base, plan.after) and stored.places != places_outside(plan.base)
    if resettled or plan.points_elsewhere:
        resettled, stored = True, with_references(stored, plan.after)
    changes: list[Change] = [
        MoveHead(
            plan.key,
            "TABLE",
            plan.before.metadata_location,
            stored,
            line,
            printed,
            check_overlap=plan.after.location != plan.base.location,
            places_changed=resettled,
        )
    ]
    if plan.after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() == "true":
        kept = {log["metadata-file"] for log in plan.after.metadata_log}
        trimmed = [log["metadata-file"] for log in plan.base.metadata_log if log["metadata-file"] not in kept]
        if trimmed:
            places = [str(each) for each in (*own_places(plan.after), *own_places(plan.base))]
            payload = {
                "catalog": plan.key.catalog,
                "table-uuid": plan.after.table_uuid,
                "files": trimmed,
                "places": list(dict.fromkeys(places)),
            }
            changes.append(AddJob("delete-files", msgspec.json.encode(payload)))
    return changes


def _steers_elsewhere(base: TableMetadata, after: TableMetadata) -> bool:
    """Whether what says where writers put files is another; it may still say the same."""
    return after.properties is not base.properties or after.location != base.location


def added_snapshot(commit: TableCommit) -> int | None:
    """The snapshot a commit adds last: with the request's hash it recognises the same commit sent again."""
    for update in reversed(commit.all_updates()):
        if isinstance(update, AddSnapshot):
            found = update.snapshot.get("snapshot-id")
            return found if isinstance(found, int) and 0 <= found < 2**63 else None
    return None


async def _already_done(
    catalog: Catalog, caller: Caller, keys: Sequence[Key], commits: Sequence[TableCommit], error: CatalogError
) -> list[Loaded] | None:
    """A request whose reply was lost is sent again and refused by its own effect: answer it as done."""
    snapshots = [added_snapshot(commit) for commit in commits]
    if not any(snapshot is not None for snapshot in snapshots) or not caller.request_hash:
        return None
    loaded: list[Loaded] = []
    for key, commit, snapshot_id in zip(keys, commits, snapshots, strict=True):
        current = await find_head(catalog, key, "TABLE", caller.policy)
        here = current.table().table_uuid if current is not None else None
        uuid = _asserted_uuid(commit) or here
        if snapshot_id is not None and (
            uuid is None or not await catalog.store.find_commit(uuid, snapshot_id, caller.request_hash)
        ):
            return None
        if current is not None and here == uuid:
            loaded.append(current)
    if len(loaded) < len(keys):
        # Renamed or dropped since: a 404 would deny what happened, and the client would delete files that are needed.
        raise OutcomeUnknown(NO_LONGER_THERE) from error
    return loaded


async def _was_created(catalog: Catalog, caller: Caller, commit: TableCommit) -> bool:
    """Whether this very request has made the table once: doing it again would make a second one of the same files."""
    snapshot_id = added_snapshot(commit)
    uuid = next((each.uuid for each in commit.all_updates() if isinstance(each, AssignUuid)), None)
    if uuid is None or snapshot_id is None or not caller.request_hash:
        return False
    return await catalog.store.find_commit(uuid, snapshot_id, caller.request_hash)


def _asserted_uuid(commit: TableCommit) -> str | None:
    return next((each.uuid for part, _ in commit.parts for each in part if isinstance(each, AssertTableUuid)), None)
