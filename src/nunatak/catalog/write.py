"""Applies audited database changes: the change, its audit row and the stored response in one transaction.

The audit row of a table or view is its line in the commit log, which is part of the change itself.
"""

from collections.abc import Iterable, Mapping, Sequence

from nunatak.access import securables
from nunatak.access.audit_rows import audit_row
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.commit_contract import Moment
from nunatak.database.records import (
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
from nunatak.events.change_events import OF_NAMESPACES, events_of
from nunatak.iceberg.identifiers import from_jdbc

GRACE_SECONDS = 300  # an idempotency key is stored longer than advertised: clocks differ, retries are late
NO_SIZES: Mapping[str, int] = {}
MAX_NAMES = 50  # property names in an audit row; values are left out, since they may be anything
MAX_NAME_LENGTH = 100


async def write(
    catalog: Catalog,
    caller: Caller,
    changes: Sequence[Change],
    answer: StoredResponse,
    sizes: Mapping[str, int] = NO_SIZES,
) -> None:
    """Apply all changes or none; raises the refusal of the database, or OutcomeUnknown.

    The transaction completes even if the client disconnects. The events of the changes are stored in the caller's
    progress; `sizes` are the bytes of new metadata by location.
    """
    caller.progress.events = events_of(
        changes, caller.principal, caller.request_id, catalog.now_ms, catalog.cache.known_uuid, sizes
    )
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


def _audit_row(catalog: Catalog, caller: Caller, change: CreateNamespace | UpdateNamespace | DropNamespace) -> Write:
    """Returns the audit row of a change that has no line in the commit log."""
    told: dict[str, list[str]] = {}
    if isinstance(change, CreateNamespace):
        told = {"set": _property_names(change.properties)}
    elif isinstance(change, UpdateNamespace):
        told = {"set": _property_names(change.updates), "removed": _property_names(change.removals)}
    return audit_row(
        at_ms=catalog.now_ms(),
        principal=caller.principal,
        action=OF_NAMESPACES[type(change)],
        securable=securables.namespace(change.catalog, from_jdbc(change.namespace)),
        detail={name: names for name, names in told.items() if names} or None,
        request_id=caller.request_id,
        origin=caller.origin,
    )


def _property_names(properties: Iterable[str]) -> list[str]:
    """Returns the sorted names, limited in number and length for an audit row."""
    return [name[:MAX_NAME_LENGTH] for name in sorted(properties)[:MAX_NAMES]]


def save_answer(catalog: Catalog, caller: Caller, answer: StoredResponse) -> SaveAnswer:
    assert caller.key is not None
    now_ms = catalog.now_ms()
    expires_ms = now_ms + (catalog.idempotency_seconds + GRACE_SECONDS) * 1000
    return SaveAnswer(caller.principal, caller.key, caller.request_hash, answer, now_ms, expires_ms)


def entry(
    catalog: Catalog, caller: Caller, operation: str, commit_id: str | None = None, *, snapshot_id: int | None = None
) -> CommitEntry:
    """Returns a line for the commit log."""
    return CommitEntry(
        commit_id=commit_id or catalog.new_uuid(),
        operation=operation,
        principal=caller.principal,
        committed_ms=catalog.now_ms(),
        request_id=caller.request_id,
        snapshot_id=snapshot_id,
        request_hash=caller.request_hash if snapshot_id is not None else None,
        origin=caller.origin,
    )
