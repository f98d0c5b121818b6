"""Applies audited database changes: the change, its audit row, its event and the stored response in one transaction.

The audit row of a table or view is its line in the commit log, which is part of the change itself. The event is stored
beside the line or the audit row (database/changes.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nunatak.access import securables
from nunatak.access.audit_rows import audit_row
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.commit_contract import Moment
from nunatak.database.records import (
    AddEvent,
    Change,
    CommitEntry,
    CreateNamespace,
    DropNamespace,
    SaveAnswer,
    StoredResponse,
    UpdateNamespace,
    Write,
)
from nunatak.errors import CatalogError, OutcomeUnknown
from nunatak.events.change_events import event_detail, unaudited_detail
from nunatak.iceberg.identifiers import Identifier, from_jdbc, to_jdbc

GRACE_SECONDS = 300  # an idempotency key is stored longer than advertised: clocks differ, retries are late
MAX_NAMES = 50  # property names in an audit row; values are left out, since they may be anything
MAX_NAME_LENGTH = 100
OF_NAMESPACES = {
    CreateNamespace: "create-namespace",
    UpdateNamespace: "update-namespace",
    DropNamespace: "drop-namespace",
}


async def write(catalog: Catalog, caller: Caller, changes: Sequence[Change], answer: StoredResponse) -> None:
    """Apply all changes or none; raises the refusal of the database, or OutcomeUnknown.

    The transaction completes even if the client disconnects.
    """
    wanted = changes
    changes = [
        *changes,
        *[
            _audit_row(catalog, caller, each)
            for each in changes
            if isinstance(each, CreateNamespace | UpdateNamespace | DropNamespace)
        ],
    ]
    if caller.key is not None:
        changes.append(save_answer(catalog, caller, answer))
    # SENT before the call: if it ends in an unexpected exception, the response must not claim a refusal.
    progress, before = caller.progress, caller.progress.moment
    progress.moment = Moment.SENT
    try:
        await catalog.store.apply(changes)
    except OutcomeUnknown:
        raise
    except CatalogError:
        # A request may write several times: a later refusal does not undo an earlier write.
        progress.moment = Moment.APPLIED if before is Moment.APPLIED else Moment.REFUSED
        raise
    progress.moment = Moment.APPLIED
    progress.changed = progress.changed or bool(wanted)


def _audit_row(catalog: Catalog, caller: Caller, change: CreateNamespace | UpdateNamespace | DropNamespace) -> Write:
    """Returns the audit row of a change that has no line in the commit log."""
    detail: dict[str, list[str]] = {}
    if isinstance(change, CreateNamespace):
        detail = {"set": _property_names(change.properties)}
    elif isinstance(change, UpdateNamespace):
        detail = {"set": _property_names(change.updates), "removed": _property_names(change.removals)}
    return audit_row(
        at_ms=catalog.now_ms(),
        principal=caller.principal,
        action=OF_NAMESPACES[type(change)],
        securable=securables.namespace(change.catalog, from_jdbc(change.namespace)),
        detail={name: names for name, names in detail.items() if names} or None,
        request_id=caller.request_id,
        origin=caller.origin,
        namespace=(change.catalog, change.namespace),
        event_detail=event_detail(caller.client, caller.progress.tries, caller.progress.started),
    )


def _property_names(properties: Iterable[str]) -> list[str]:
    """Returns the sorted names, limited in number and length for an audit row."""
    return [name[:MAX_NAME_LENGTH] for name in sorted(properties)[:MAX_NAMES]]


def save_answer(catalog: Catalog, caller: Caller, answer: StoredResponse) -> SaveAnswer:
    assert caller.key is not None
    now_ms = catalog.now_ms()
    expires_ms = now_ms + (catalog.idempotency_seconds + GRACE_SECONDS) * 1000
    return SaveAnswer(caller.principal, caller.key, caller.request_hash, answer, now_ms, expires_ms)


def unaudited_event(
    catalog: Catalog, caller: Caller, operation: str, securable: str, facts: Mapping[str, Any]
) -> AddEvent:
    """Returns the event of a change that has no audit row; belongs into the transaction of the change."""
    detail = unaudited_detail(facts, caller.client)
    event_id, now_ms = catalog.new_uuid(), catalog.now_ms()
    return AddEvent(event_id, operation, securable, caller.principal, caller.request_id, now_ms, detail)


def entry(
    catalog: Catalog,
    caller: Caller,
    operation: str,
    commit_id: str | None = None,
    *,
    snapshot_id: int | None = None,
    summary: Mapping[str, Any] | None = None,
    metadata_bytes: int | None = None,
    renamed_to: Identifier | None = None,
) -> CommitEntry:
    """Returns a line for the commit log; `summary` (of the added snapshot) and what follows are only in the event."""
    progress = caller.progress
    new_name = None if renamed_to is None else to_jdbc((*renamed_to.namespace, renamed_to.name))
    return CommitEntry(
        commit_id=commit_id or catalog.new_uuid(),
        operation=operation,
        principal=caller.principal,
        committed_ms=catalog.now_ms(),
        request_id=caller.request_id,
        snapshot_id=snapshot_id,
        request_hash=caller.request_hash if snapshot_id is not None else None,
        origin=caller.origin,
        detail=event_detail(caller.client, progress.tries, progress.started, metadata_bytes, summary, new_name),
    )
