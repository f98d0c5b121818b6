"""The first metadata of a new table: fresh ids, and the properties that apply only to new tables."""

from collections.abc import Mapping

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg import partition_spec as specs
from nunatak.iceberg import sort_order as orders
from nunatak.iceberg.properties import (
    FORMAT_VERSION,
    PARQUET_COMPRESSION,
    check_new_table_properties,
    int_property,
    without_reserved,
)
from nunatak.iceberg.schema import Schema, assign_fresh_ids, check_compatibility, parse_schema
from nunatak.iceberg.shapes import Json
from nunatak.iceberg.table_metadata import (
    DEFAULT_FORMAT_VERSION,
    SUPPORTED_FORMAT_VERSION,
    TableMetadata,
    strip_trailing_slash,
)


def new_table(
    *,
    schema: Json,
    partition_spec: Json | None,
    sort_order: Json | None,
    location: str,
    properties: Mapping[str, str],
    table_uuid: str,
    now_ms: int,
    default_format_version: int = DEFAULT_FORMAT_VERSION,
) -> TableMetadata:
    """Return the first metadata of a table. The client's ids only identify columns; new ids are assigned here."""
    format_version = int_property(properties, FORMAT_VERSION, default_format_version)
    if not 1 <= format_version <= SUPPORTED_FORMAT_VERSION:
        raise IllegalArgument(f"Unsupported format version: v{format_version} (supported: v{SUPPORTED_FORMAT_VERSION})")
    sent_schema = parse_schema(schema)
    fresh_schema, fresh_ids = assign_fresh_ids(sent_schema)  # as valid as the one sent: only ids differ
    spec = _fresh_spec(partition_spec, sent_schema, fresh_ids)
    order = _fresh_order(sort_order, sent_schema, fresh_ids)
    stored_properties = {PARQUET_COMPRESSION: "zstd"} | without_reserved(properties)
    check_new_table_properties(stored_properties, sent_schema, format_version)
    check_compatibility(sent_schema, format_version, fresh_ids)
    return TableMetadata(
        format_version=format_version,
        table_uuid=table_uuid,
        location=strip_trailing_slash(location),
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=len(fresh_ids),
        schemas=(fresh_schema,),
        current_schema_id=0,
        partition_specs=(spec,),
        default_spec_id=0,
        last_partition_id=specs.last_field_id(spec),
        sort_orders=(order,),
        default_sort_order_id=order["order-id"],
        properties=stored_properties,
    )


def _fresh_spec(spec: Json | None, schema: Schema, fresh_ids: Mapping[int, int]) -> Json:
    """Check a spec with the schema and ids of the client, then renumber it."""
    if spec is None:
        return {"spec-id": 0, "fields": []}
    read = specs.read_spec(spec)
    fields = [field | {"field-id": field_id} for field_id, field in enumerate(read["fields"], specs.FIRST_FIELD_ID)]
    for field in fields:
        if field["source-id"] not in fresh_ids:
            raise InvalidMetadata(f"Cannot find source column for partition field: {specs.print_field(field)}")
    specs.check_names(read, schema)
    specs.check_compatibility(read, schema)
    return read | {"spec-id": 0, "fields": [_with_fresh_source(field, fresh_ids) for field in fields]}


def _fresh_order(order: Json | None, schema: Schema, fresh_ids: Mapping[int, int]) -> Json:
    read = orders.UNSORTED if order is None else orders.read_order(order)
    orders.check_compatibility(read, schema)
    if not read["fields"]:
        return orders.UNSORTED
    fields = [_with_fresh_source(field, fresh_ids) for field in read["fields"]]
    return read | {"order-id": orders.FIRST_ORDER_ID, "fields": fields}


def _with_fresh_source(field: Json, fresh_ids: Mapping[int, int]) -> Json:
    return field | {"source-id": fresh_ids[field["source-id"]]}
