"""Tables, schemas and commits for the tests of the metadata engine: say what matters, the rest is filled in."""

import json
from collections.abc import Iterator
from typing import Any

from nunatak.errors import BadRequest, Conflict
from nunatak.iceberg import commit_request, requirements, updates
from nunatak.iceberg.create import new_table
from nunatak.iceberg.schema import check_compatibility, parse_schema
from nunatak.iceberg.table_metadata import TableMetadata

Json = dict[str, Any]

NOW_MS = 1_700_000_000_000
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def a_field(field_id: int, name: str, type_: str | Json = "long", *, required: bool = False, **more: Any) -> Json:
    return {"id": field_id, "name": name, "required": required, "type": type_, **_wire(more)}


def check_schema(schema: Json, format_version: int) -> None:
    """As an update that adds it does."""
    check_compatibility(parse_schema(schema), format_version)


def default_order(table: TableMetadata) -> Json:
    (order,) = [each for each in table.sort_orders if each["order-id"] == table.default_sort_order_id]
    return order


def a_struct(*fields: Json) -> Json:
    return {"type": "struct", "fields": list(fields)}


def a_list(element_id: int, element: str | Json, *, required: bool = True) -> Json:
    return {"type": "list", "element-id": element_id, "element": element, "element-required": required}


def a_map(key_id: int, key: str | Json, value_id: int, value: str | Json, *, required: bool = False) -> Json:
    return {
        "type": "map",
        "key-id": key_id,
        "key": key,
        "value-id": value_id,
        "value": value,
        "value-required": required,
    }


def a_schema(*fields: Json, **more: Any) -> Json:
    chosen = fields or (a_field(1, "id", required=True), a_field(2, "data", "string"), a_field(3, "ts", "timestamptz"))
    return {"type": "struct", "schema-id": 0, "fields": list(chosen), **_wire(more)}


def a_spec(*fields: tuple[str, str, int], spec_id: int = 0, first_field_id: int | None = 1000) -> Json:
    """Fields are (name, transform, source id)."""
    return {
        "spec-id": spec_id,
        "fields": [
            {"name": name, "transform": transform, "source-id": source_id}
            | ({} if first_field_id is None else {"field-id": first_field_id + position})
            for position, (name, transform, source_id) in enumerate(fields)
        ],
    }


def an_order(*fields: tuple[str, int], order_id: int | None = None) -> Json:
    """Fields are (transform, source id)."""
    return {
        "order-id": (1 if fields else 0) if order_id is None else order_id,
        "fields": [
            {"transform": transform, "source-id": source_id, "direction": "asc", "null-order": "nulls-first"}
            for transform, source_id in fields
        ],
    }


def a_table(
    format_version: int = 2,
    *,
    schema: Json | None = None,
    spec: Json | None = None,
    order: Json | None = None,
    snapshots: int = 0,
    **properties: str,
) -> TableMetadata:
    """With `snapshots` appends on main, numbered from 1."""
    table = new_table(
        schema=schema or a_schema(),
        partition_spec=spec,
        sort_order=order,
        location="s3://bucket/table",
        properties={"format-version": str(format_version), **properties},
        table_uuid=UUID,
        now_ms=NOW_MS,
    )
    for number in range(1, snapshots + 1):
        table = commit(table, append(table, number))
    return table


def a_snapshot(snapshot_id: int, parent: int | None = None, **more: Any) -> Json:
    return {
        "snapshot-id": snapshot_id,
        "timestamp-ms": NOW_MS + snapshot_id,
        "summary": {"operation": "append"},
        "manifest-list": f"s3://bucket/table/metadata/snap-{snapshot_id}.avro",
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        **_wire(more),
    }


def add_snapshot(snapshot_id: int, parent: int | None = None, **more: Any) -> Json:
    return {"action": "add-snapshot", "snapshot": a_snapshot(snapshot_id, parent, **more)}


def set_ref(snapshot_id: int, name: str = "main", type_: str = "branch", **more: Any) -> Json:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": type_, **_wire(more)}


def append(table: TableMetadata, snapshot_id: int, branch: str = "main") -> list[Json]:
    """What a writer sends for an append: the next sequence number, and in v3 the next rows."""
    ref = table.refs.get(branch)
    more: Json = {}
    if table.format_version >= 2:
        more["sequence_number"] = table.last_sequence_number + 1
    if table.format_version >= 3:
        more |= {"first_row_id": table.next_row_id, "added_rows": 10}
    parent = None if ref is None else ref["snapshot-id"]
    return [add_snapshot(snapshot_id, parent, **more), set_ref(snapshot_id, branch)]


def update(action: str, **fields: Any) -> Json:
    return {"action": action, **_wire(fields)}


def requirement(type_: str, **fields: Any) -> Json:
    return {"type": type_, **_wire(fields)}


def commit(
    base: TableMetadata | None,
    changes: list[Json],
    *required: Json,
    location: str | None = "s3://bucket/table/metadata/base.metadata.json",
    now_ms: int = NOW_MS,
) -> TableMetadata:
    """The whole way of a commit, as the server goes it: from the bytes on the wire to the new metadata."""
    data = json.dumps({"requirements": required, "updates": changes}).encode()
    request = commit_request.decode_commit(data)
    requirements.check_all(request.requirements, base)
    return updates.apply_all(request.updates, base, base_location=location, now_ms=now_ms)


def versions_of(table: TableMetadata, history: list[list[Json]]) -> Iterator[TableMetadata]:
    """The table after each commit that was accepted."""
    for number, changes in enumerate(history):
        try:
            table = commit(table, changes, location=f"s3://bucket/{number}", now_ms=NOW_MS + number % 3)
        except (BadRequest, Conflict):
            continue
        yield table


def a_creation(format_version: int = 2, schema: Json | None = None) -> list[Json]:
    """What the Java client sends to create a table by commit."""
    return [
        update("assign-uuid", uuid=UUID),
        update("upgrade-format-version", format_version=format_version),
        update("add-schema", schema=schema or a_schema(), last_column_id=3),
        update("set-current-schema", schema_id=-1),
        update("add-spec", spec=a_spec()),
        update("set-default-spec", spec_id=-1),
        update("add-sort-order", sort_order=an_order()),
        update("set-default-sort-order", sort_order_id=-1),
        update("set-location", location="s3://bucket/table"),
        update("set-properties", updates={"created-by": "a client"}),
    ]


def _wire(fields: Json) -> Json:
    return {name.rstrip("_").replace("_", "-"): value for name, value in fields.items()}
