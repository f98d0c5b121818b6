"""The parameters of named statements, and the records made of their rows. No SQL, no I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nunatak.database.records import (
    AddEvent,
    AddJob,
    Change,
    CommitEntry,
    Found,
    InsertPointer,
    InspectedPointer,
    Key,
    Kind,
    MovePointer,
    SaveAnswer,
    Stored,
)

KEPT_REPORTS = 10_000  # only the newest metrics reports of clients are kept
KEPT_REPORT_BYTES = 64 * 1024 * 1024

MAX_STUCK_JOBS = 100  # bounds a report; enough to see what is wrong

# Sorts after every name: 64 times the highest character is 256 bytes, and the longest name has 255.
BEHIND_ALL = "\U0010ffff" * 64


def search_values(catalog: str, text: str, kind: Kind | None, after: tuple[str, str], piece: int) -> dict[str, object]:
    """Returns the parameters of `search_names`."""
    values = {"catalog": catalog, "query": text, "type": kind}
    return {**values, "after_namespace": after[0], "after_name": after[1], "piece": piece}


def matches_of(rows: Sequence[Sequence[Any]], piece: int) -> tuple[list[Found], tuple[str, str] | None]:
    """Returns the matches in the rows of `search_names`, and the last name scanned, or None at the end."""
    matches = [Found(row[0], row[1], row[2]) for row in rows if row[3]]
    return matches, (rows[-1][1], rows[-1][2]) if rows and rows[-1][4] == piece else None


def key_values(key: Key) -> dict[str, object]:
    return {"catalog": key.catalog, "namespace": key.namespace, "name": key.name}


def namespace_of(key: Key) -> dict[str, object]:
    return {"catalog": key.catalog, "namespace": key.namespace}


def stored_values(new: Stored) -> dict[str, object]:
    return {"new": new.metadata_location, "uuid": new.table_uuid, "location": new.location, "content": new.content}


def log_values(entry: CommitEntry) -> dict[str, object]:
    return {
        "commit_id": entry.commit_id,
        "operation": entry.operation,
        "snapshot_id": entry.snapshot_id,
        "request_hash": entry.request_hash,
        "principal": entry.principal,
        "request_id": entry.request_id,
        "committed_ms": entry.committed_ms,
        "origin": entry.origin,
        "detail": entry.detail,
    }


# Columns of an event that is not about a table or view.
_NO_POINTER: Mapping[str, object] = dict.fromkeys(
    ("catalog", "namespace", "name", "uuid", "new", "previous", "snapshot_id")
)


def event_values(change: AddEvent) -> dict[str, object]:
    """Returns the parameters of `add_event`, which has the names of `log_commit`."""
    return {
        **_NO_POINTER,
        "commit_id": change.event_id,
        "operation": change.type,
        "securable": change.securable,
        "principal": change.principal,
        "request_id": change.request_id,
        "committed_ms": change.at_ms,
        "detail": change.detail,
    }


def audit_event_values(row: Mapping[str, object]) -> dict[str, object]:
    """Returns the parameters of `add_event` for an audit row (access/audit_rows.py)."""
    return {
        **_NO_POINTER,
        "commit_id": row["event_id"],
        "operation": row["action"],
        "catalog": row["catalog"],
        "namespace": row["namespace"],
        "securable": row["securable"],
        "principal": row["principal"],
        "request_id": row["request_id"],
        "committed_ms": row["at_ms"],
        "detail": row["event_detail"],
    }


def answer_values(change: SaveAnswer) -> Mapping[str, object]:
    return {
        "principal": change.principal,
        "key": change.key,
        "request_hash": change.request_hash,
        "status": change.answer.status,
        "body": change.answer.body,
        "metadata_location": change.answer.metadata_location,
        "now_ms": change.now_ms,
        "expires_ms": change.expires_ms,
    }


_NO_ANSWER: Mapping[str, object] = dict.fromkeys(
    ("key_principal", "key", "key_hash", "key_status", "key_body", "key_location", "key_now_ms", "key_expires_ms")
)


def commit_values(changes: Sequence[Change]) -> dict[str, object]:
    """Returns the parameters of `commit_pointer`: one moved pointer, and the jobs and answer committed with it."""
    jobs = [change for change in changes if isinstance(change, AddJob)]
    values: dict[str, object] = {
        **_NO_ANSWER,
        "job_kinds": [job.kind for job in jobs],
        "job_payloads": [job.payload for job in jobs],
    }
    for change in changes:
        if isinstance(change, MovePointer):
            values |= key_values(change.key) | stored_values(change.new) | log_values(change.entry)
            values["expected"] = change.expected
        elif isinstance(change, SaveAnswer):
            answer = change.answer
            values |= {"key_principal": change.principal, "key": change.key, "key_hash": change.request_hash}
            values |= {"key_status": answer.status, "key_body": answer.body, "key_location": answer.metadata_location}
            values |= {"key_now_ms": change.now_ms, "key_expires_ms": change.expires_ms}
    return values


_SERVER_JOB: Mapping[str, object] = {
    "runs_on": "server",
    "not_before_ms": 0,
    "size_bytes": 0,
    **dict.fromkeys(("location", "open_key", "securable", "table_uuid", "policy", "created_by", "created_ms")),
}


def job_values(kind: str, payload: bytes, **more: object) -> dict[str, object]:
    """Returns the parameters of `add_job`; without `more`, of a job of the server that is due at once."""
    return {**_SERVER_JOB, "kind": kind, "payload": payload, **more}


def ancestors_of(location: str) -> list[str]:
    """Returns every folder above `location`, from the root of its store on."""
    scheme, _, path = location.partition("://")
    parts = path.split("/")
    return [f"{scheme}://{'/'.join(parts[:end])}" for end in range(1, len(parts))]


def children_between(parent: str, after: str) -> tuple[str, str, str]:
    """Returns the prefix of the children of `parent`, and the range of names to scan for those after `after`."""
    prefix = f"{parent}." if parent else ""
    # "/" is the character after ".", so `parent/` sorts after everything below `parent.`.
    return prefix, max(after, prefix), f"{parent}/" if parent else BEHIND_ALL


def purge_payload(
    key: Key, metadata_location: str, location: str | None, uuid: str | None, shadow_of: str | None
) -> bytes:
    """Returns the payload of a purge job: all it needs, as the table is no longer in the catalog when it runs."""
    return msgspec.json.encode(
        {
            "catalog": key.catalog,
            "namespace": key.namespace,
            "name": key.name,
            "metadata-location": metadata_location,
            "location": location,
            "table-uuid": uuid,
            "shadow-of": shadow_of,
        }
    )


def in_catalog(key: Key, uuid: str | None) -> dict[str, object]:
    """Returns the parameters that identify a table by its uuid, for the statements about shadows."""
    return {"catalog": key.catalog, "uuid": uuid or ""}


def pointer_of(row: Sequence[Any] | None, stored: Sequence[Any] | None) -> InspectedPointer | None:
    """Makes the record from the row of `inspect_pointer` or, if there is none, of `find_stored`."""
    if row is None:
        return None if stored is None else InspectedPointer(None, None, "TABLE", Stored(*stored), namespace_marked=True)
    location, previous, kind, stored_location, uuid, folder, content, marked = row
    kept_beside = None if stored_location is None else Stored(stored_location, uuid, folder, content)
    return InspectedPointer(location, previous, "VIEW" if kind == "VIEW" else "TABLE", kept_beside, bool(marked))


def count_kept_reports(newest: bytes) -> int:
    """Returns how many reports to keep: fewer if the newest is large, which bounds their bytes, too."""
    return min(KEPT_REPORTS, max(1, KEPT_REPORT_BYTES // max(1, len(newest))))


def twin(change: InsertPointer) -> str | None:
    """Returns the uuid of the table that may share the folder: the same table, registered under a second name."""
    return change.new.table_uuid if change.registered else None
