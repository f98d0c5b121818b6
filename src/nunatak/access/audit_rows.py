"""Audit rows of changes, written in the transaction of the change.

A change of a table or view needs none: its row of the commit log is its audit row. Denials and reads are buffered in
`events/audit_buffer.py`.
"""

from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec

from nunatak.database.records import Write

ALLOWED, DENIED = "allowed", "denied"

MAX_REQUEST_ID_LENGTH = 200  # the length that is sent back
MAX_CLIENT_LENGTH = 200


def audit_row(
    *,
    at_ms: int,
    principal: str,
    action: str,
    securable: str,
    outcome: str = ALLOWED,
    detail: Mapping[str, object] | None = None,
    request_id: str | None = None,
    origin: str | None = None,
    namespace: tuple[str, str] | None = None,
    event_detail: str | None = None,
) -> Write:
    """Returns one row; `securable` as in securables.py, `detail` without secrets, `origin` from `origin_text`.

    The row is also an event of the outbox: `namespace` is the changed namespace, if any, as catalog and joined name.
    """
    catalog_name, joined = namespace or (None, None)
    detail_text = None if detail is None else msgspec.json.encode(detail).decode()
    return Write(
        "add_audit",
        {
            "at_ms": at_ms,
            "principal": principal,
            "action": action,
            "securable": securable,
            "outcome": outcome,
            "detail": detail_text,
            "repeats": 1,
            "request_id": None if request_id is None else request_id[:MAX_REQUEST_ID_LENGTH],
            "origin": origin,
            "event_id": str(uuid4()),
            "catalog": catalog_name,
            "namespace": joined,
            "event_detail": event_detail if namespace is not None else _event_detail(detail_text, origin),
        },
    )


def _event_detail(detail: str | None, origin: str | None) -> str | None:
    """Returns the detail of the event: that of the audit row, and its origin."""
    said = {"audit": detail, "origin": origin}
    found = {name: msgspec.Raw(text.encode()) for name, text in said.items() if text is not None}
    return msgspec.json.encode(found).decode() if found else None


def origin_text(address: str | None, roles: Sequence[str], client: str | None) -> str:
    """Returns the origin of a request as JSON: its address, its roles, and its User-Agent."""
    said = {"address": address, "roles": list(roles) or None, "client": client[:MAX_CLIENT_LENGTH] if client else None}
    return msgspec.json.encode({name: value for name, value in said.items() if value is not None}).decode()
