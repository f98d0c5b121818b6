"""Events: one value for each change of a table, view or namespace, made from the change that goes to the database."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from nunatak.database.records import (
    Change,
    CommitEntry,
    CreateNamespace,
    DeletePointer,
    DropNamespace,
    InsertPointer,
    Key,
    MovePointer,
    RenamePointer,
    UpdateNamespace,
)

OF_NAMESPACES = {
    CreateNamespace: "create-namespace",
    UpdateNamespace: "update-namespace",
    DropNamespace: "drop-namespace",
}


class ChangeEvent(msgspec.Struct, frozen=True):
    """`type` is the operation as named in the commit log and the audit trail; without `name` it concerns a namespace.

    `before` and `after` are metadata locations: a created table has no `before`, a dropped one no `after`. Values that
    the server would have to ask the database for are None.
    """

    type: str
    warehouse: str
    namespace: str  # its levels, joined as in the database
    name: str | None
    object_uuid: str | None
    before: str | None
    after: str | None
    snapshot_id: int | None
    principal: str
    request_id: str | None
    at_ms: int
    renamed_to: Key | None = None
    metadata_bytes: int | None = None


def events_of(
    changes: Sequence[Change],
    principal: str,
    request_id: str | None,
    now_ms: Callable[[], int],
    uuid_of: Callable[[Key], str | None],
    sizes: Mapping[str, int],
) -> list[ChangeEvent]:
    """Returns the events of changes to tables, views and namespaces, in their order; other changes have none.

    `uuid_of` returns the uuid of a name, if known; `sizes` are the bytes of metadata files by location.
    """
    events: list[ChangeEvent] = []
    for change in changes:
        match change:
            case MovePointer():
                events.append(_published(change, change.expected, sizes))
            case InsertPointer():
                events.append(_published(change, None, sizes))
            case DeletePointer():
                events.append(_of_name(change.entry, change.key, uuid_of(change.key), change.expected))
            case RenamePointer():
                events.append(_of_name(change.entry, change.key, uuid_of(change.key), None, change.to))
            case CreateNamespace() | UpdateNamespace() | DropNamespace():
                made = (OF_NAMESPACES[type(change)], change.catalog, change.namespace, None, None, None, None, None)
                events.append(ChangeEvent(*made, principal, request_id, now_ms()))
            case _:
                pass
    return events


def _published(change: InsertPointer | MovePointer, before: str | None, sizes: Mapping[str, int]) -> ChangeEvent:
    key, new, entry = change.key, change.new, change.entry
    return ChangeEvent(
        entry.operation,
        key.catalog,
        key.namespace,
        key.name,
        new.table_uuid,
        before,
        new.metadata_location,
        entry.snapshot_id,
        entry.principal,
        entry.request_id,
        entry.committed_ms,
        metadata_bytes=sizes.get(new.metadata_location),
    )


def _of_name(
    entry: CommitEntry, key: Key, uuid: str | None, before: str | None, renamed_to: Key | None = None
) -> ChangeEvent:
    """Returns the event of a pointer that is removed or renamed; no file is written."""
    named = (entry.operation, key.catalog, key.namespace, key.name, uuid, before, None, None)
    return ChangeEvent(*named, entry.principal, entry.request_id, entry.committed_ms, renamed_to)
