"""Events: one for each change, stored in the outbox by the transaction of the change. No I/O.

The columns come from the change itself (database/changes.py). `event_detail` makes the JSON of the column `detail`:
what else is known when the change is sent to the database.
"""

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from nunatak.events.spool import Fields, Kind

APPLIED = 200  # the status of every event from the outbox: the change was made, whatever its client was answered
MAX_COUNTERS = 100  # of a snapshot's summary; engines send about 25
MAX_TEXT_LENGTH = 255  # of a name or an operation that a client chose


class EventDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The column `detail`; what is unknown is left out.

    `duration_ms` ends when the change is sent to the database: the duration of its transaction cannot be stored in it.
    `audit` and `origin` are the columns of the audit row whose event this is.
    """

    client: str | None = None
    tries: int = 1
    duration_ms: float | None = None
    metadata_bytes: int | None = None
    snapshot_operation: str | None = None
    counters: Mapping[str, int] | None = None
    renamed_to: str | None = None  # namespace and name, joined as levels of a namespace
    facts: Mapping[str, Any] | None = None  # about a change that has no audit row
    audit: Any = None
    origin: Any = None


class ChangeEvent(msgspec.Struct, frozen=True):
    """A row of the outbox, with the columns of `events_after`.

    `type` is the operation as named in the commit log and the audit trail. `namespace` is joined as in the database;
    without it the event is about a securable. `before` and `after` are metadata locations: a created table has no
    `before`, a dropped one no `after`, and a renamed one keeps its own.
    """

    position: int
    event_id: str
    type: str
    warehouse: str | None
    namespace: str | None
    name: str | None
    securable: str | None
    object_uuid: str | None
    before: str | None
    after: str | None
    snapshot_id: int | None
    principal: str
    request_id: str | None
    at_ms: int
    detail: EventDetail


_encode_detail = msgspec.json.Encoder().encode
_decode_detail = msgspec.json.Decoder(EventDetail).decode
_NO_DETAIL = EventDetail()


def event_detail(
    client: str | None,
    tries: int,
    started: float | None,
    metadata_bytes: int | None = None,
    summary: Mapping[str, Any] | None = None,
    renamed_to: str | None = None,
) -> str:
    """Returns the detail of a change of a table, view or namespace; `started` is by time.perf_counter.

    `summary` is that of the snapshot which the change adds.
    """
    duration_ms = None if started is None else round((time.perf_counter() - started) * 1000, 3)
    operation, counters = (None, None) if summary is None else read_summary(summary)
    detail = EventDetail(client, tries, duration_ms, metadata_bytes, operation, counters, renamed_to)
    return _encode_detail(detail).decode()


def unaudited_detail(facts: Mapping[str, Any], client: str | None) -> str:
    """Returns the detail of the event of a change that has no audit row."""
    return _encode_detail(EventDetail(client, facts=facts)).decode()


def read_summary(summary: Mapping[str, Any]) -> tuple[str | None, dict[str, int]]:
    """Returns the operation and the counters of a snapshot's summary, which may hold any JSON."""
    said = summary.get("operation")
    counters = {name: int(text) for name, text in summary.items() if is_count(text) and len(name) <= MAX_TEXT_LENGTH}
    if len(counters) > MAX_COUNTERS:
        counters = dict(list(counters.items())[:MAX_COUNTERS])
    return said[:MAX_TEXT_LENGTH] if isinstance(said, str) else None, counters


def is_count(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18  # fits in 64 bits


def read_event(row: Sequence[Any]) -> ChangeEvent:
    """Makes the event of a row; a detail that cannot be read, such as one written by hand, is left out."""
    columns, text = row[:-1], row[-1]
    try:
        detail = _NO_DETAIL if text is None else _decode_detail(text)
    except msgspec.MsgspecError:
        detail = _NO_DETAIL
    return ChangeEvent(*(*columns, detail))


def spool_record(event: ChangeEvent) -> tuple[Kind, Fields]:
    """Returns the event as telemetry: `events` for tables, views and namespaces, `audit` for everything else."""
    detail = event.detail
    sender = {"principal": event.principal, "request_id": event.request_id}
    if event.namespace is None:
        facts = None if detail.facts is None else msgspec.json.encode(detail.facts).decode()
        shared = {"action": event.type, "securable": event.securable or "", "outcome": "allowed", "repeats": 1}
        origin = None if detail.origin is None else msgspec.json.encode(detail.origin).decode()
        return "audit", {
            **shared,
            "detail": facts,
            "origin": origin,
            **sender,
            "client": detail.client or _client_of(origin),
        }
    return "events", {
        "operation": event.type,
        "warehouse": event.warehouse,
        "namespace": event.namespace,
        "table_name": event.name,
        "table_uuid": event.object_uuid,
        "renamed_to": detail.renamed_to,
        "status": APPLIED,
        "error": None,
        "tries": detail.tries,
        "duration_ms": detail.duration_ms,
        "snapshot_id": event.snapshot_id,
        "snapshot_operation": detail.snapshot_operation,
        "counters": detail.counters,
        "metadata_bytes": detail.metadata_bytes,
        **sender,
        "client": detail.client,
    }


class _Origin(msgspec.Struct, frozen=True):
    client: str | None = None


@lru_cache(maxsize=256)  # a client sends the same origin with each request
def _client_of(origin: str | None) -> str | None:
    try:
        return None if origin is None else msgspec.json.decode(origin, type=_Origin).client
    except msgspec.MsgspecError:
        return None
