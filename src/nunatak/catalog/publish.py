"""Publishes metadata: writes the files, moves the pointers in one transaction, deletes the files of a refused change.

Every create, commit and register of a table or view goes through `publish`. It keeps the commit contract
(docs/explanation/commit-contract.md): a file is on disk before a pointer leads to it, and a file is deleted only when
the database has refused the pointer. If the outcome is unknown, the files stay.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec

from nunatak.catalog import ownership
from nunatak.catalog.cache import Loaded
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.pointers import (
    Metadata,
    compress_metadata,
    local_path,
    make_loaded,
    make_stored,
    metadata_uuid,
    places_outside,
    stored_with_content,
    with_references,
)
from nunatak.catalog.unpublished_files import REFUSED_MS, UNKNOWN_SWAP_MS, UNKNOWN_WRITE_MS, UnpublishedFile
from nunatak.catalog.write import entry, write
from nunatak.catalog.write_behind import SMALL_BYTES
from nunatak.database.records import AddJob, Change, InsertPointer, Key, Kind, MovePointer, Stored, StoredResponse
from nunatak.errors import CatalogError, OutcomeUnknown, ServiceUnavailable
from nunatak.iceberg import view_metadata
from nunatak.iceberg.identifiers import Identifier, print_namespace
from nunatak.iceberg.metadata_files import new_metadata_location
from nunatak.iceberg.table_metadata import TableMetadata

AT_ONCE = 32  # tables of one transaction that are worked on before the event loop serves other requests


class Publication(msgspec.Struct, frozen=True):
    """A pointer to set or move to the metadata `after`.

    `before` is the current version and `base` its metadata; both are None for a new table or view. If `after` is `base`
    itself, nothing is published. `operation` is the name in the commit log.
    """

    key: Key
    identifier: Identifier
    operation: str
    before: Loaded | None
    base: Metadata | None
    after: Metadata
    snapshot_id: int | None = None  # that the change adds; identifies a retry of the same commit
    summary: Mapping[str, Any] | None = None  # of that snapshot
    references_outside: bool = False  # a new path lies in the warehouse, but outside the table's own places
    registered: Loaded | None = None  # `after` in a file that another writer made: neither written nor deleted here
    folders: Sequence[str] = ()  # that must exist before the pointer does
    changes_before: Sequence[Change] = ()  # applied before the pointer, in the same transaction
    changes_after: Sequence[Change] = ()  # applied after it


async def publish(
    catalog: Catalog, caller: Caller, publications: Sequence[Publication], answer: StoredResponse | None = None
) -> list[Loaded]:
    """Publish all or none; returns the metadata that each pointer leads to.

    `answer` is stored for the request's idempotency key; None means the metadata of the first publication. Raises
    PointerMoved if a pointer no longer leads to `before`, and the errors of `write`.
    """
    changed = [each for each in publications if each.after is not each.base]
    commit_ids, versions = await _new_versions(catalog, changed)
    loaded = versions if len(changed) == len(publications) else _with_unchanged(publications, versions)
    # Files first: a pointer must never lead to a file that is not on disk.
    try:
        written = await _write_files(catalog, changed, versions)
    except asyncio.CancelledError:
        _note_files(catalog, changed, versions, UNKNOWN_WRITE_MS)
        raise
    try:
        changes = [
            change
            for each, stored, version, commit_id in zip(changed, written, versions, commit_ids, strict=True)
            for change in _changes(catalog, caller, each, stored, commit_id, len(version.answer))
        ]
        # Without changes the response must still be stored for the idempotency key.
        if changes or caller.key is not None:
            kept = answer or StoredResponse(200, metadata_location=loaded[0].metadata_location)
            await write(catalog, caller, changes, kept)
    except (OutcomeUnknown, asyncio.CancelledError):
        _note_files(catalog, changed, versions, UNKNOWN_SWAP_MS)
        raise  # A pointer may lead to the files: they stay.
    except CatalogError:
        await _delete_files(catalog, changed, written)
        raise
    for each, version, stored in zip(changed, versions, written, strict=True):
        catalog.cache.keep(each.key, version)
        # A larger file without content is too large for the database, which never stores it.
        if catalog.write_behind is not None and stored.content is None and len(version.data) <= SMALL_BYTES:
            catalog.write_behind.add(each.key, version)
    # A plain commit has one change per table: comparing the lengths spares it the search.
    if len(changes) > len(changed) and any(isinstance(change, AddJob) for change in changes):
        catalog.job_added.set()
    return loaded


async def _new_versions(catalog: Catalog, changed: Sequence[Publication]) -> tuple[list[str], list[Loaded]]:
    """Returns a commit id and the encoded metadata for each; the file name contains the id. Writes nothing."""
    commit_ids, versions = [], []
    for number, each in enumerate(changed, 1):
        commit_id, metadata, before = catalog.new_uuid(), each.after, each.before
        if each.registered is not None:
            version = each.registered
        else:
            previous = before.metadata_location if before is not None else None
            location = new_metadata_location(metadata.location, metadata.properties, previous, commit_id)
            if isinstance(metadata, TableMetadata):
                version = Loaded.of_table(location, metadata, local_path(location), before)
            else:
                version = make_loaded(location, view_metadata.encode(metadata), metadata)
        commit_ids.append(commit_id)
        versions.append(version)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # lets the event loop serve other requests
    return commit_ids, versions


def _with_unchanged(publications: Sequence[Publication], versions: Sequence[Loaded]) -> list[Loaded]:
    """Returns one version for each publication: the new one, or the current one if nothing changes."""
    new, loaded = iter(versions), []
    for each in publications:
        if each.after is not each.base:
            loaded.append(next(new))
        else:
            assert each.before is not None
            loaded.append(each.before)
    return loaded


# Files


async def _write_files(catalog: Catalog, changed: Sequence[Publication], versions: Sequence[Loaded]) -> list[Stored]:
    """Write all files and folders; if one fails, delete the files. Returns the row to store with each pointer."""
    if len(changed) == 1 and not changed[0].folders:  # a commit to one table
        return [await _write_file(catalog, changed[0], versions[0])]
    writes: list[Awaitable[Stored | None]] = [
        _write_file(catalog, each, version) for each, version in zip(changed, versions, strict=True)
    ]
    writes += [
        catalog.objects.make_folder(folder)
        for each, version in zip(changed, versions, strict=True)
        for folder in each.folders
        if not version.metadata_location.startswith(f"{folder}/")  # writing the file creates that folder
    ]
    outcomes: list[Stored | BaseException | None] = []
    # Wait for all writes, also after a failure: one that is still running could leave its file behind.
    for start in range(0, len(writes), AT_ONCE):
        outcomes += await asyncio.gather(*writes[start : start + AT_ONCE], return_exceptions=True)
    written = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
    if failed is not None:
        await _delete_files(catalog, changed, written)
        raise failed
    return written


async def _write_file(catalog: Catalog, publication: Publication, version: Loaded) -> Stored:
    if publication.registered is not None:
        return await make_stored(version.metadata_location, publication.after, version.data)
    try:
        return await _write_new_file(catalog, publication, version)
    except OutcomeUnknown as error:
        # No pointer will ever lead to the file, so the commit is refused; but the store may still create it.
        _note_files(catalog, [publication], [version], UNKNOWN_WRITE_MS)
        raise ServiceUnavailable(error.message, hint=error.hint) from error


async def _write_new_file(catalog: Catalog, publication: Publication, version: Loaded) -> Stored:
    metadata, metadata_location, data = publication.after, version.metadata_location, version.data
    if len(data) <= SMALL_BYTES and not metadata_location.endswith(".gz.metadata.json"):
        # A table may be committed to many times a second: write-behind stores the copy when commits pause.
        is_rewritten = publication.before is not None and isinstance(metadata, TableMetadata)
        content = None if is_rewritten and catalog.write_behind is not None else compress_metadata(data)
        await catalog.objects.write_new(metadata_location, data)
    else:
        content = await catalog.objects.write_metadata(metadata_location, data, compress_metadata)
    return stored_with_content(metadata_location, metadata, content)


async def _delete_files(catalog: Catalog, changed: Sequence[Publication], written: Sequence[Stored]) -> None:
    """Delete the files of a refused change: no pointer leads to them. Registered files are not ours and stay."""
    kept = {each.registered.metadata_location for each in changed if each.registered is not None}
    ours = [each.metadata_location for each in written if each.metadata_location not in kept]
    # A failed deletion must not replace the refusal that the client gets; the file is deleted later.
    outcomes = await asyncio.gather(*map(catalog.objects.delete, ours), return_exceptions=True)
    failed = {location for location, outcome in zip(ours, outcomes, strict=True) if outcome is not None}
    for each in changed if failed else ():
        for stored in written:
            if stored.metadata_location in failed and stored.table_uuid == metadata_uuid(each.after):
                _note_file(catalog, each, stored.metadata_location, REFUSED_MS)


def _note_files(catalog: Catalog, changed: Sequence[Publication], versions: Sequence[Loaded], delay_ms: int) -> None:
    """Notes the new files, to be deleted after a while if no pointer leads to them."""
    for each, version in zip(changed, versions, strict=True):
        if each.registered is None:
            _note_file(catalog, each, version.metadata_location, delay_ms)


def _note_file(catalog: Catalog, publication: Publication, metadata_location: str, delay_ms: int) -> None:
    table_uuid, due_ms = metadata_uuid(publication.after), catalog.now_ms() + delay_ms
    catalog.unpublished.add(UnpublishedFile(publication.key.catalog, metadata_location, table_uuid, due_ms))


# Pointers


def _changes(
    catalog: Catalog, caller: Caller, publication: Publication, stored: Stored, commit_id: str, size_bytes: int
) -> list[Change]:
    """Returns the change that sets or moves the pointer, with the changes that belong to its transaction.

    `size_bytes` is the size of the metadata.
    """
    key, before, base, after = publication.key, publication.before, publication.base, publication.after
    kind: Kind = "TABLE" if isinstance(after, TableMetadata) else "VIEW"
    printed, is_registered = str(publication.identifier), publication.registered is not None
    line = entry(
        catalog,
        caller,
        publication.operation,
        commit_id,
        snapshot_id=publication.snapshot_id,
        summary=publication.summary,
        metadata_bytes=size_bytes,
    )
    if before is None or base is None:
        parent = print_namespace(publication.identifier.namespace)
        owned = ownership.grant_ownership(catalog, caller, ownership.securable_of(key))
        if not is_registered:
            stored = with_references(stored, after)
        new = InsertPointer(key, kind, stored, line, printed, parent, registered=is_registered)
        return [*publication.changes_before, new, *owned, *publication.changes_after]
    # Collecting references reads all snapshots, so it is done only if the places may have changed.
    has_moved = after.location != base.location
    has_other_places = publication.references_outside or (
        (has_moved or after.properties is not base.properties) and stored.places != places_outside(base)
    )
    if has_other_places and not is_registered:
        stored = with_references(stored, after)
    moved = MovePointer(
        key,
        kind,
        before.metadata_location,
        stored,
        line,
        printed,
        check_overlap=is_registered or has_moved,
        places_changed=is_registered or has_other_places,
    )
    return [*publication.changes_before, moved, *publication.changes_after]
