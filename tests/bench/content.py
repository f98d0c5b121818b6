"""What every server is given: the same tables, the same appends, the same large table. No I/O, no clock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

COLUMNS = 10
PROPERTIES = 10
MINUTE_MS = 60_000
NO_SNAPSHOT = -1  # how older writers say that a table has no current snapshot
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": n, "name": f"column_{n}", "type": "long", "required": False} for n in range(1, COLUMNS + 1)],
}
TABLE_PROPERTIES = {f"bench.property-{n}": f"value {n}" for n in range(PROPERTIES)}


@dataclass(frozen=True)
class Head:
    """What a writer must know of a table to append to it."""

    table: str
    table_uuid: str
    location: str
    snapshot_id: int | None = None
    sequence_number: int = 0


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def create_table(name: str) -> bytes:
    return encode({"name": name, "schema": SCHEMA, "properties": TABLE_PROPERTIES})


def head_of(table: str, metadata: Mapping[str, Any]) -> Head:
    current = metadata.get("current-snapshot-id")
    return Head(
        table,
        metadata["table-uuid"],
        metadata["location"],
        None if current == NO_SNAPSHOT else current,
        metadata["last-sequence-number"],
    )


def append_to(head: Head, namespace: str, snapshot_id: int, timestamp_ms: int) -> tuple[bytes, Head]:
    """The commit that adds a snapshot on top of `head`, and the head that it leaves behind."""
    moved = replace(head, snapshot_id=snapshot_id, sequence_number=head.sequence_number + 1)
    body = {
        "identifier": {"namespace": [namespace], "name": head.table},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": head.table_uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head.snapshot_id},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": _snapshot(moved, head.snapshot_id, timestamp_ms)},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    }
    return encode(body), moved


def metadata_with_snapshots(location: str, table_uuid: str, count: int, now_ms: int) -> bytes:
    """The metadata of a table that was appended to `count` times, once a minute until now."""
    snapshots: list[dict[str, Any]] = []
    head = Head("", table_uuid, location)
    for n in range(1, count + 1):
        moved = replace(head, snapshot_id=10**12 + n, sequence_number=n)
        snapshots.append(_snapshot(moved, head.snapshot_id, now_ms - (count - n) * MINUTE_MS))
        head = moved
    return encode(
        {
            "format-version": 2,
            "table-uuid": table_uuid,
            "location": location,
            "last-sequence-number": head.sequence_number,
            "last-updated-ms": now_ms,
            "last-column-id": COLUMNS,
            "current-schema-id": 0,
            "schemas": [SCHEMA],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": TABLE_PROPERTIES,
            "current-snapshot-id": head.snapshot_id,
            "refs": {"main": {"snapshot-id": head.snapshot_id, "type": "branch"}},
            "snapshots": snapshots,
            "snapshot-log": [
                {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in snapshots
            ],
            "metadata-log": [],
            "statistics": [],
            "partition-statistics": [],
        }
    )


def snapshots_of_main(metadata: Mapping[str, Any]) -> set[int]:
    """The snapshots found by walking from the head of main to its first ancestor."""
    parents = {one["snapshot-id"]: one.get("parent-snapshot-id") for one in metadata.get("snapshots", ())}
    main = metadata.get("refs", {}).get("main", {})
    reached: set[int] = set()
    at = main.get("snapshot-id")
    while at in parents and at not in reached:
        reached.add(at)
        at = parents[at]
    return reached


def _snapshot(head: Head, parent: int | None, timestamp_ms: int) -> dict[str, Any]:
    """With the summary that engines write, because its size is part of the cost."""
    total = head.sequence_number
    snapshot = {
        "snapshot-id": head.snapshot_id,
        "sequence-number": total,
        "timestamp-ms": timestamp_ms,
        "manifest-list": f"{head.location}/metadata/snap-{head.snapshot_id}-1-{head.table_uuid}.avro",
        "schema-id": 0,
        "summary": {
            "operation": "append",
            "engine-name": "bench",
            "added-data-files": "2",
            "added-records": "5000",
            "added-files-size": "262144",
            "changed-partition-count": "1",
            "total-data-files": str(2 * total),
            "total-records": str(5000 * total),
            "total-files-size": str(262144 * total),
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
        },
    }
    return snapshot if parent is None else {**snapshot, "parent-snapshot-id": parent}
