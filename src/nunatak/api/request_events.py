"""Adds what is no change to the telemetry spool: refused requests, requests that changed nothing, and metrics reports.

A change has its event in the outbox, stored by its own transaction (database/changes.py). A refusal changes nothing, so
no transaction could store it; it is described here from the request, and may be lost by a crash.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from nunatak.api.http import Request
from nunatak.api.route import Route
from nunatak.api.wire import (
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
    RenameRequest,
    identifier_of,
)
from nunatak.catalog.catalog import Caller
from nunatak.catalog.commits import MAX_TABLES
from nunatak.database.records import Key
from nunatak.database.store import KeyTaken
from nunatak.errors import CatalogError
from nunatak.events.change_events import read_summary
from nunatak.events.reports import flat_report
from nunatak.events.spool import Fields
from nunatak.iceberg import requirements
from nunatak.iceberg.commit_request import AddSnapshot, CommitTableRequest, CommitTransactionRequest, Update
from nunatak.iceberg.identifiers import Identifier, Namespace, to_jdbc

# Operations that change tables, views and namespaces, with their names in the commit log and the audit trail.
EVENTS = {
    "createNamespace": "create-namespace",
    "updateProperties": "update-namespace",
    "dropNamespace": "drop-namespace",
    "createTable": "create-table",
    "registerTable": "register-table",
    "updateTable": "commit-table",
    "commitTransaction": "commit-table",
    "renameTable": "rename-table",
    "unregisterTable": "unregister-table",
    "dropTable": "drop-table",
    "createView": "create-view",
    "registerView": "register-view",
    "replaceView": "commit-view",
    "renameView": "rename-view",
    "dropView": "drop-view",
}
NAMED_IN_BODY = frozenset(
    {
        "createNamespace",
        "createTable",
        "registerTable",
        "commitTransaction",
        "renameTable",
        "createView",
        "registerView",
        "renameView",
    }
)


class _Named(msgspec.Struct, frozen=True):
    """A table, view or namespace that a request names, and what was to be done to it."""

    namespace: Namespace
    name: str | None = None
    to: Identifier | None = None  # the new name
    creates: bool = False
    updates: Sequence[Update] = ()


def spool_unchanged(route: Route, request: Request, status: int, error: CatalogError | None = None) -> None:
    """Adds a request that changed nothing, as far as the server knows, to the spool: refused, or without effect."""
    spool, progress = request.catalog.spool, request.caller.progress
    operation = EVENTS.get(route.operation)
    # A repeated Idempotency-Key (KeyTaken): the first request with it is recorded where it ran.
    if spool is None or operation is None or progress.changed or isinstance(error, KeyTaken):
        return
    shared = {
        "warehouse": request.warehouse.name,
        "status": status,
        "error": None if error is None else error.iceberg_type,
        "tries": progress.tries,
        "duration_ms": None if progress.started is None else round((time.perf_counter() - progress.started) * 1000, 3),
        **_sender(request.caller),
    }
    try:
        named = list(_named_objects(route, request))
    except CatalogError:  # a name that is not valid: nothing that exists is concerned
        return
    for each in named:
        spool.add("events", {"operation": operation, **shared, **_object_fields(request, each)})


def spool_report(request: Request, identifier: Identifier) -> None:
    """Adds the metrics report of an engine to the spool."""
    spool = request.catalog.spool
    if spool is None:
        return
    named = {"namespace": to_jdbc(identifier.namespace), "table_name": identifier.name}
    about = {**named, "warehouse": request.warehouse.name, **_sender(request.caller)}
    spool.add("scan_reports", partial(flat_report, request.body, about), len(request.body))


def _sender(caller: Caller) -> Fields:
    return {"principal": caller.principal, "request_id": caller.request_id, "client": caller.client}


def _named_objects(route: Route, request: Request) -> Iterator[_Named]:
    """Yields what the request names, in its body or in its path; nothing if that body could not be read."""
    decoded = None if request.decoded is None else request.decoded[1]
    match decoded:
        case CreateNamespaceRequest():
            yield _Named(tuple(decoded.namespace))
        case CreateTableRequest(stage_create=True):
            return
        case CreateTableRequest() | RegisterTableRequest() | CreateViewRequest() | RegisterViewRequest():
            yield _Named(request.namespace(), decoded.name)
        case RenameRequest():
            source, to = identifier_of(decoded.source, "table"), identifier_of(decoded.destination, "table")
            yield _Named(source.namespace, source.name, to)
        case CommitTransactionRequest():
            by_table = {identifier_of(each.identifier, "table"): each for each in decoded.table_changes}
            if len(by_table) <= MAX_TABLES:
                yield from (_commit(identifier, each) for identifier, each in by_table.items())
        case CommitTableRequest():
            yield _commit(request.identifier("table"), decoded)
        case None if route.operation in NAMED_IN_BODY:
            return
        case _ if len(request.path_names) > 1:
            identifier = request.identifier("table")
            yield _Named(identifier.namespace, identifier.name)
        case _:
            yield _Named(request.namespace())


def _commit(identifier: Identifier, commit: CommitTableRequest) -> _Named:
    creates = requirements.is_create(commit.requirements)
    return _Named(identifier.namespace, identifier.name, creates=creates, updates=commit.updates)


def _object_fields(request: Request, named: _Named) -> dict[str, Any]:
    namespace = to_jdbc(named.namespace)
    if named.name is None:
        return {"namespace": namespace}
    uuid = request.catalog.cache.known_uuid(Key(request.warehouse.name, namespace, named.name))
    fields: dict[str, Any] = {"namespace": namespace, "table_name": named.name, "table_uuid": uuid}
    if named.to is not None:
        fields["renamed_to"] = to_jdbc((*named.to.namespace, named.to.name))
    if named.creates:
        fields["operation"] = "create-table"
    for update in reversed(named.updates):
        if isinstance(update, AddSnapshot):
            return {**fields, **_snapshot_fields(update)}
    return fields


def _snapshot_fields(update: AddSnapshot) -> Fields:
    """Returns id, operation and counters of a snapshot, as the client gave them."""
    summary = update.snapshot.get("summary")
    operation, counters = read_summary(summary if isinstance(summary, dict) else {})
    snapshot_id = update.snapshot.get("snapshot-id")
    return {"snapshot_id": snapshot_id, "snapshot_operation": operation, "counters": counters}
