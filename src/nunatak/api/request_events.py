"""Adds mutating requests to the telemetry spool: events for tables, views and namespaces, else audit records.

Called when the response is known; events include refused requests. Work of more than a microsecond is left to the
spool's thread.
"""

import time
from functools import partial
from typing import Any

import msgspec

from nunatak.access.audit_rows import ALLOWED
from nunatak.api.http import Request
from nunatak.api.route import Route
from nunatak.catalog.catalog import Caller
from nunatak.catalog.commits import TableCommit
from nunatak.database.records import Key
from nunatak.database.store import KeyTaken
from nunatak.errors import CatalogError
from nunatak.events.reports import flat_report
from nunatak.events.spool import Fields, Kind
from nunatak.iceberg import requirements
from nunatak.iceberg.commit_request import AddSnapshot
from nunatak.iceberg.identifiers import Identifier, to_jdbc

# Operations that are events, with their names in the commit log and the audit trail.
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
# Operations without an audit record: they change nothing in the catalog, or are too frequent.
QUIET = frozenset({"reportMetrics", "getToken", "leaseMaintenanceJob", "extendMaintenanceLease"})
SMALL_BODY = 16 * 1024
MAX_TEXT_LENGTH = 255


def spool_request(
    route: Route, request: Request, status: int, started: float, error: CatalogError | None = None
) -> None:
    """Adds the outcome of a request to the spool; `started` is its start time by time.perf_counter."""
    spool = request.catalog.spool
    if spool is None or isinstance(error, KeyTaken):  # the first request with this key is recorded where it ran
        return
    operation = EVENTS.get(route.operation)
    if operation is None:
        if status < 400 and route.operation not in QUIET:
            sender = _sender(request.caller, request.headers.get(b"user-agent"))
            spool.add(
                "audit", partial(_administration_event, route.operation, request.securable, request.touched, sender)
            )
        return
    answered = (operation, request.warehouse.name, status, None if error is None else error.iceberg_type)
    caller, agent = request.caller, request.headers.get(b"user-agent")
    seconds = time.perf_counter() - started
    events = {(event.namespace, event.name): event for event in caller.progress.events} if status < 400 else {}
    for touched in request.touched:
        namespace, name = _key_of(touched)
        event = events.get((namespace, name))
        if event is not None:
            uuid, size = event.object_uuid, event.metadata_bytes
        else:  # refused, or nothing was changed
            known = request.catalog.cache.known_uuid(Key(request.warehouse.name, namespace, name)) if name else None
            uuid, size = known, None
        record = partial(_event, answered, caller, agent, seconds, touched, uuid, size)
        if len(request.body) > SMALL_BODY:  # built now: waiting records must not keep large bodies in memory
            spool.add(*record())
        else:
            # The records share the decoded request: each counts for its part of the bytes kept in memory.
            spool.add("events", record, len(request.body) // len(request.touched))


def spool_report(request: Request, identifier: Identifier) -> None:
    """Adds the metrics report of an engine to the spool."""
    spool = request.catalog.spool
    if spool is None:
        return
    sender = _sender(request.caller, request.headers.get(b"user-agent"))
    about = {**_name_fields(identifier), "warehouse": request.warehouse.name, **sender}
    spool.add("scan_reports", partial(flat_report, request.body, about), len(request.body))


def _sender(caller: Caller, agent: bytes | None) -> Fields:
    return {
        "principal": caller.principal,
        "request_id": caller.request_id,
        "client": None if agent is None else agent.decode("latin-1")[:MAX_TEXT_LENGTH],
    }


def _administration_event(operation: str, securable: str, touched: list[Any], sender: Fields) -> tuple[Kind, Fields]:
    """Builds the audit record of a management request; `touched` may hold its securable and a detail, no secret."""
    if touched:
        ((securable, detail),) = touched
        told = msgspec.json.encode(detail).decode()
    else:
        told = None
    fields = {"action": operation, "securable": securable, "outcome": ALLOWED, "repeats": 1, "detail": told}
    return "audit", {**fields, **sender}


def _event(
    answered: tuple[str, str, int, str | None],
    caller: Caller,
    agent: bytes | None,
    seconds: float,
    touched: Any,
    table_uuid: str | None,
    metadata_bytes: int | None,
) -> tuple[Kind, Fields]:
    """Builds an event; runs later, so its arguments hold no reference to the metadata, which would stay in memory."""
    operation, warehouse, status, error = answered
    fields: dict[str, Any] = {
        "operation": operation,
        "warehouse": warehouse,
        "status": status,
        "error": error,
        "tries": caller.progress.tries,
        "duration_ms": round(seconds * 1000, 3),
        "table_uuid": table_uuid,
        "metadata_bytes": metadata_bytes,
        **_sender(caller, agent),
    }
    match touched:
        case TableCommit():
            if requirements.is_create(touched.parts[0][0]):
                fields["operation"] = "create-table"
            fields.update(_name_fields(touched.identifier), **_snapshot(touched))
        case (Identifier() as source, Identifier() as to):
            fields.update(_name_fields(source), renamed_to=to_jdbc((*to.namespace, to.name)))
        case Identifier():
            fields.update(_name_fields(touched))
        case _:
            fields["namespace"] = to_jdbc(touched)
    return "events", fields


def _key_of(touched: Any) -> tuple[str, str | None]:
    """Returns the namespace and name of what a request changes, as its event names it."""
    match touched:
        case TableCommit():
            return to_jdbc(touched.identifier.namespace), touched.identifier.name
        case (Identifier() as source, Identifier()):
            return to_jdbc(source.namespace), source.name
        case Identifier():
            return to_jdbc(touched.namespace), touched.name
        case _:
            return to_jdbc(touched), None


def _name_fields(identifier: Identifier) -> Fields:
    return {"namespace": to_jdbc(identifier.namespace), "table_name": identifier.name}


def _snapshot(commit: TableCommit) -> Fields:
    """Returns id, operation and counters of the last snapshot that the commit adds, as the client gave them."""
    for update in reversed(commit.updates):
        if isinstance(update, AddSnapshot):
            summary = update.snapshot.get("summary")
            said = summary if isinstance(summary, dict) else {}
            return {
                "snapshot_id": update.snapshot.get("snapshot-id"),
                "snapshot_operation": said.get("operation"),
                "counters": {name: int(text) for name, text in said.items() if _is_count(text)},
            }
    return {}


def _is_count(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18  # fits in 64 bits
