"""Sort orders: read from JSON, bound to a schema, compared. Orders stay JSON dicts in canonical spelling."""

from typing import Any

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg.definitions import digest
from nunatak.iceberg.schema import Schema, print_type
from nunatak.iceberg.shapes import Json, SortOrderShape, check
from nunatak.iceberg.transforms import can_transform, canonical_transform

UNSORTED: Json = {"order-id": 0, "fields": []}
FIRST_ORDER_ID = 1  # 0 is reserved for the unsorted order


def read_order(order: object) -> Json:
    """Return a copy with canonical transforms, directions and null orders; raise IllegalArgument if malformed."""
    shape = check(order, SortOrderShape, "sort order")
    assert isinstance(order, dict)
    order_id = shape.order_id if shape.order_id is not None else (FIRST_ORDER_ID if shape.fields else 0)
    if not shape.fields and order_id != 0:
        raise IllegalArgument("Unsorted order ID must be 0")
    if shape.fields and order_id == 0:
        raise IllegalArgument("Sort order ID 0 is reserved for unsorted order")
    return order | {"order-id": order_id, "fields": [_read_field(field) for field in order["fields"]]}


def check_compatibility(order: Json, schema: Schema) -> None:
    """Raise InvalidMetadata if `schema` cannot be sorted by the order."""
    for field in order["fields"]:
        source = schema.fields.get(field["source-id"])
        if source is None:
            raise InvalidMetadata(f"Cannot find source column for sort field: {print_field(field)}")
        if not source.is_primitive or not isinstance(source.type, str):
            raise InvalidMetadata(f"Cannot sort by non-primitive source field: {print_type(source.type)}")
        transform = canonical_transform(field["transform"])
        if not can_transform(transform, source.type):
            raise InvalidMetadata(f"Invalid source type {source.type} for transform: {transform}")


def content_digest(order: Json) -> bytes:
    """Return a digest of how an order sorts; its id does not count."""
    return digest([_content_of(field) for field in order["fields"]])


def _read_field(field: Json) -> Json:
    direction, null_order = field["direction"].lower(), field["null-order"].lower()
    if direction not in ("asc", "desc"):
        raise IllegalArgument(f"Invalid sort direction: {field['direction']}")
    if null_order not in ("nulls-first", "nulls-last"):
        raise IllegalArgument(f"Unexpected null order: {field['null-order']}")
    return field | {
        "transform": canonical_transform(field["transform"]),
        "direction": direction,
        "null-order": null_order,
    }


def _content_of(field: Json) -> tuple[Any, ...]:
    return (
        field["source-id"],
        canonical_transform(field["transform"]),
        field["direction"].lower(),
        field["null-order"].lower(),
    )


def print_field(field: Json) -> str:
    null_order = field["null-order"].replace("-", " ").upper()
    return f"{field['transform']}({field['source-id']}) {field['direction'].upper()} {null_order}"
