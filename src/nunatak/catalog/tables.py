"""Tables: create, list, load, drop, rename and register. Commits are in commits.py."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from nunatak.access import securables
from nunatak.access.decisions import PolicyChanged
from nunatak.access.denials import explain_hint
from nunatak.access.privileges import ENTRY_BITS, Privilege, names_of
from nunatak.catalog import ownership
from nunatak.catalog.cache import NO_CONFIG, Loaded, storage_facts
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import Registering, refuse_foreign
from nunatak.catalog.pointers import (
    check_file,
    check_places,
    find_pointer,
    key_of,
    load_pointer,
    make_loaded,
    not_found,
)
from nunatak.catalog.publish import Publication, publish
from nunatak.catalog.shadows import Shadow, register_changes
from nunatak.catalog.size_limits import MAX_TRIES, check_properties
from nunatak.catalog.temporary_access import record_access, record_dropped
from nunatak.catalog.warehouse_rules import check_format_version, require_writable
from nunatak.catalog.write import entry, write
from nunatak.database import refusals
from nunatak.database.records import AddJob, Change, DeletePointer, Key, Kind, RenamePointer, SaveReport, StoredResponse
from nunatak.database.store import PointerMoved
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    CatalogError,
    CommitFailed,
    Forbidden,
    NoSuchNamespace,
    NoSuchTable,
    OutcomeUnknown,
)
from nunatak.iceberg import create, java_readable, table_metadata
from nunatak.iceberg.identifiers import Identifier, Namespace, print_namespace, to_jdbc
from nunatak.iceberg.metadata_files import new_folder, plain_folder
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.objectstore.location import Location, parse_location, require_inside
from nunatak.objectstore.profile import LocalProfile
from nunatak.objectstore.storage import AccessLevel

STAGED_MS = 86_400_000  # a day: longer than it takes to write a table's first files

MAX_NARROW_COLUMNS = 200  # columns; up to here creating the metadata takes less time than a few thread switches


@dataclass(frozen=True)
class NewTable:
    """The table that a client asks to create."""

    identifier: Identifier
    schema: dict[str, Any]
    partition_spec: dict[str, Any] | None
    sort_order: dict[str, Any] | None
    location: str | None
    properties: Mapping[str, str]


async def create_table(catalog: Catalog, warehouse: WarehousePlace, caller: Caller, wanted: NewTable) -> Loaded:
    require_writable(warehouse)
    key = key_of(warehouse, wanted.identifier)
    metadata = await _new_metadata(catalog, warehouse, caller, key, wanted, claims_folder=warehouse.plain)
    # Make the folders before the pointer: once the table exists, no later failure may turn the response into a refusal.
    folders = _local_folders(metadata)
    new = Publication(key, wanted.identifier, "create-table", None, None, metadata, folders=folders)
    try:
        (loaded,) = await publish(catalog, caller, [new])
    except OutcomeUnknown:
        raise  # the table may exist
    except CatalogError:
        # An existing folder is never claimed: left behind, it would cost the next attempt the plain name.
        if warehouse.plain and wanted.location is None:
            await catalog.objects.remove_empty_folders(metadata.location)
        raise
    return loaded


async def stage_table(catalog: Catalog, warehouse: WarehousePlace, caller: Caller, wanted: NewTable) -> bytes:
    """Returns the metadata that the table would have; only a commit with assert-create creates it."""
    require_writable(warehouse)
    key = key_of(warehouse, wanted.identifier)
    metadata = await _new_metadata(catalog, warehouse, caller, key, wanted)
    place = parse_location(metadata.location)
    is_local = isinstance(warehouse.profile, LocalProfile)
    # Without credentials only a requested location is checked: the default one ends in a new UUID.
    if wanted.location is not None or not is_local:
        await _refuse_overlap(catalog, place)
    body = b'{"metadata":' + table_metadata.encode(metadata) + NO_CONFIG
    await asyncio.gather(*map(catalog.objects.make_folder, _local_folders(metadata)))
    # A job removes the folders if no table uses them after STAGED_MS.
    changes: list[Change] = [_removal_job(catalog, warehouse, place)] if place.scheme == "file" else []
    if not is_local:
        facts = storage_facts(metadata)
        changes += record_access(catalog, caller, key, "staged", AccessLevel.READ_WRITE, facts)
    if changes or caller.key is not None:
        await write(catalog, caller, changes, StoredResponse(200, body=body))
    return body


async def _refuse_overlap(catalog: Catalog, place: Location) -> None:
    """Checks at staging, before the client writes into another table's folder; the commit checks again."""
    if await _overlaps(catalog, place):
        raise refusals.overlap(str(place))


async def _overlaps(catalog: Catalog, place: Location) -> bool:
    ancestors = [str(place.parent(size)) for size in range(len(place.segments))]
    return bool(await catalog.store.find_overlapping(str(place), ancestors))


def _removal_job(catalog: Catalog, warehouse: WarehousePlace, place: Location) -> AddJob:
    payload = msgspec.json.encode({"catalog": warehouse.name, "location": str(place)})
    return AddJob("remove-staged", payload, catalog.now_ms() + STAGED_MS)


async def _new_metadata(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    key: Key,
    wanted: NewTable,
    *,
    claims_folder: bool = False,
) -> TableMetadata:
    namespace = await catalog.store.find_namespace(key.catalog, key.namespace)
    if namespace is None:
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(wanted.identifier.namespace)}")
    await refuse_existing(catalog, key, wanted.identifier, "TABLE")
    check_properties(wanted.properties)
    table_uuid = catalog.new_uuid()
    claimed = None
    if claims_folder and wanted.location is None:
        claimed = await _claim_folder(catalog, warehouse, namespace, wanted.identifier)
    default = default_location(warehouse, namespace, wanted.identifier, table_uuid)
    try:
        metadata = await catalog.large_work.run_if(
            is_wide(wanted.schema),
            create.new_table,
            schema=wanted.schema,
            partition_spec=wanted.partition_spec,
            sort_order=wanted.sort_order,
            location=wanted.location or claimed or default,
            properties=wanted.properties,
            table_uuid=table_uuid,
            now_ms=catalog.now_ms(),
            default_format_version=warehouse.default_format_version,
        )
        check_format_version(warehouse, metadata.format_version)
        own = await check_places(catalog, warehouse, key, metadata)
        await refuse_foreign(catalog, caller, key, metadata, None, own, ())
    except CatalogError:
        if claimed is not None:
            await catalog.objects.remove_empty_folders(claimed)
        raise
    return metadata


async def _claim_folder(
    catalog: Catalog, warehouse: WarehousePlace, namespace: Mapping[str, str], identifier: Identifier
) -> str | None:
    """Creates the folder `<namespace>/<table>`; returns None if it exists already or overlaps another table.

    An existing folder may hold files of a table that was dropped or renamed: it is never used again.
    """
    given = _namespace_location(warehouse, namespace)
    base, named = (given, Identifier((), identifier.name)) if given else (warehouse.location, identifier)
    folder = plain_folder(base, named)
    if folder is None:
        return None
    if await _overlaps(catalog, parse_location(folder)):
        return None
    return folder if catalog.objects.claim_folder(folder) else None


def is_wide(schema: Mapping[str, Any]) -> bool:
    """Whether the schema may have many columns, including nested ones."""
    fields = schema.get("fields")
    if not isinstance(fields, list) or len(fields) > MAX_NARROW_COLUMNS:
        return True
    return any(isinstance(field, dict) and not isinstance(field.get("type"), str) for field in fields)


def default_location(
    warehouse: WarehousePlace, namespace: Mapping[str, str] | None, identifier: Identifier, table_uuid: str
) -> str:
    """Returns a new folder in the namespace's location if that lies inside the warehouse, else in the warehouse."""
    given = _namespace_location(warehouse, namespace)
    if given or warehouse.plain:
        # Without the namespace in a plain layout: `<a>/<b>` may be table b of a, which no table of a.b may lie in.
        return new_folder(given or warehouse.location, Identifier((), identifier.name), table_uuid)
    return new_folder(warehouse.location, identifier, table_uuid)


def _namespace_location(warehouse: WarehousePlace, namespace: Mapping[str, str] | None) -> str | None:
    """Returns the location of the namespace, or None if it has none inside the warehouse."""
    given = (namespace or {}).get("location")
    if not given:
        return None
    try:
        require_inside(given, warehouse.allowed, "namespace location")
    except BadRequest:
        return None  # written by another client of the database, or before the settings changed
    return given.rstrip("/")


def _local_folders(metadata: TableMetadata) -> list[str]:
    """Returns the folders that some clients write into without creating them, for a table in a local file system."""
    if parse_location(metadata.location).scheme != "file":
        return []
    base = metadata.location.rstrip("/")
    return [f"{base}/metadata", f"{base}/data"]


async def refuse_existing(catalog: Catalog, key: Key, identifier: Identifier, kind: Kind) -> None:
    """Raises AlreadyExists before a file is written; the database checks again in the transaction."""
    found = await catalog.store.find_kind(key)
    if found is None:
        return
    what = "View" if found == "VIEW" else "Table"
    same = "already exists" if found == kind else "with same name already exists"
    raise AlreadyExists(f"{what} {same}: {identifier}")


async def load_table(
    catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier, policy: int | None = None
) -> Loaded:
    loaded = await load_pointer(catalog, warehouse, identifier, "TABLE", policy)
    check_file(loaded)
    return loaded


async def list_entries(
    catalog: Catalog, warehouse: WarehousePlace, namespace: Namespace, kind: Kind, after: str, limit: int
) -> tuple[str, str | None]:
    """Returns sorted identifiers as JSON, and the name the next page starts after; raises NoSuchNamespace."""
    joined = to_jdbc(namespace)
    prefix = f'{{"namespace":{msgspec.json.encode(namespace).decode()},"name":'
    listed, last, more = await catalog.store.list_pointers(warehouse.name, joined, kind, after, limit, prefix)
    # An entry proves that the namespace exists: only an empty page needs a second query.
    if not listed and not await catalog.store.namespace_exists(warehouse.name, joined):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(namespace)}")
    return listed, last if more else None


async def drop_entry(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, identifier: Identifier, kind: Kind, *, purge: bool
) -> None:
    """Delete the pointer; with `purge` a durable job deletes exactly the files it reaches."""
    require_writable(warehouse)
    key = key_of(warehouse, identifier)
    line = entry(catalog, caller, f"drop-{kind.lower()}")
    async with catalog.table_locks.acquire([key]):
        change = DeletePointer(key, kind, line, str(identifier), purge=purge)
        access = await record_dropped(catalog, warehouse, caller, key) if kind == "TABLE" else []
        await write(catalog, caller, [change, *ownership.revoke_all_grants(key), *access], StoredResponse(204))
        # Inside the lock: the next commit must not plan on the cached metadata of the dropped table.
        catalog.cache.forget(key)
    if purge:
        catalog.job_added.set()


async def unregister_table(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, identifier: Identifier
) -> Loaded:
    """Delete the pointer and return the table's last metadata; deletes no file."""
    require_writable(warehouse)
    key = key_of(warehouse, identifier)
    async with catalog.table_locks.acquire([key]):
        for _ in range(MAX_TRIES):
            loaded = await load_pointer(catalog, warehouse, identifier, "TABLE")
            line = entry(catalog, caller, "unregister-table")
            change = DeletePointer(key, "TABLE", line, str(identifier), expected=loaded.metadata_location)
            try:
                changes = [change, *ownership.revoke_all_grants(key)]
                await write(catalog, caller, changes, StoredResponse(200, metadata_location=loaded.metadata_location))
            except PointerMoved as error:  # another server committed: return its metadata, not the version before
                moved = error
                continue
            catalog.cache.forget(key)
            return loaded
    raise CommitFailed(
        f"Cannot unregister {identifier}: {moved.message}", hint="Other writers commit to the table; try again later."
    )


async def rename_entry(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, source: Identifier, to: Identifier, kind: Kind
) -> None:
    """Rename the pointer; writes no file, and the table keeps its UUID and its folder."""
    require_writable(warehouse)
    key, new_key = key_of(warehouse, source), key_of(warehouse, to)
    if key == new_key:
        # The names are equal: there is nothing to rename, but a missing table is still an error.
        if await catalog.store.find_kind(key) != kind:
            raise await not_found(catalog, key, source, kind)
        if caller.key is not None:
            await write(catalog, caller, [], StoredResponse(204))
        return
    line = entry(catalog, caller, f"rename-{kind.lower()}", renamed_to=to)
    change = RenamePointer(key, new_key, kind, line, str(source), str(to), print_namespace(to.namespace))
    async with catalog.table_locks.acquire([key, new_key]):
        await write(catalog, caller, [change, *ownership.move_grants(key, new_key)], StoredResponse(204))
        catalog.cache.forget(key)
        catalog.cache.forget(new_key)


async def register_table(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    identifier: Identifier,
    metadata_location: str,
    *,
    overwrite: bool,
    may_replace: bool = True,
    shadow_of: str | None = None,
) -> Loaded:
    """Register an existing metadata file as the table; it must lie inside the warehouse and be readable by all clients.

    `shadow_of` names the table of another catalog that owns the file. Raises PolicyChanged if a table exists now, and
    the caller was authorized when there was none.
    """
    require_writable(warehouse)
    key = key_of(warehouse, identifier)
    async with catalog.table_locks.acquire([key]):
        if not overwrite:
            await refuse_existing(catalog, key, identifier, "TABLE")
        elif await catalog.store.find_kind(key) == "VIEW":
            raise AlreadyExists(f"View with same name already exists: {identifier}")
        if not await catalog.store.namespace_exists(key.catalog, key.namespace):
            raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(identifier.namespace)}")
        require_inside(metadata_location, warehouse.allowed, "metadata location")
        registering = Registering(catalog, caller, key, metadata_location)
        data = await registering.read()
        metadata = await catalog.large_work.run(_read_registered, data)
        check_format_version(warehouse, metadata.format_version)
        await registering.check(metadata)
        registered = make_loaded(metadata_location, table_metadata.with_uuid(data, metadata), metadata)
        await check_places(catalog, warehouse, key, metadata)
        before = await find_pointer(catalog, key, "TABLE", caller.policy) if overwrite else None
        if before is not None:
            # The caller was authorized for what existed at that time: a table created since is not replaced.
            if not may_replace:
                raise PolicyChanged
            await require_replaceable(caller, identifier, key)
        shadow = Shadow(shadow_of, "shadow", catalog.now_ms()) if shadow_of is not None else None
        first, then = await register_changes(catalog.store, key, before, metadata.table_uuid, shadow)
        base = before.table() if before is not None else None
        new = Publication(
            key,
            identifier,
            "register-table",
            before,
            base,
            metadata,
            registered=registered,
            changes_before=first,
            changes_after=then,
        )
        (loaded,) = await publish(catalog, caller, [new])
        return loaded


def _read_registered(data: bytes) -> TableMetadata:
    """Decodes a metadata file that another writer made, with the same checks as for a commit."""
    metadata = table_metadata.decode(data)
    java_readable.check_table(data, metadata)
    check_properties(metadata.properties)
    return metadata


async def require_replaceable(caller: Caller, identifier: Identifier, key: Key) -> None:
    """Raises NoSuchTable or Forbidden unless the caller has TABLE_WRITE and TABLE_ALTER: replacing may change all."""
    if caller.rights is None:
        return
    needed = Privilege.TABLE_WRITE | Privilege.TABLE_ALTER
    held = await caller.rights(ownership.securable_of(key))
    if held & needed == needed:
        return
    if not held & ENTRY_BITS:  # the caller may not learn that the table exists
        raise NoSuchTable(f"Table does not exist: {identifier}")
    missing, securable = needed & ~held, ownership.securable_of(key)
    lacking, where = ", ".join(names_of(missing)), securables.format_securable(securable)
    raise Forbidden(
        f"Principal {caller.principal} lacks {lacking} on {where}",
        hint=explain_hint(caller.principal, missing, securable),
    )


async def save_report(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, identifier: Identifier, report: bytes
) -> None:
    """Store a client's scan or commit report; raises NoSuchTable."""
    key = key_of(warehouse, identifier)
    if await catalog.store.find_kind(key) != "TABLE":
        raise await not_found(catalog, key, identifier, "TABLE")
    await write(catalog, caller, [SaveReport(key, catalog.now_ms(), report)], StoredResponse(204))
