"""Partition specs: read from JSON, bound to a schema, compared. Specs stay JSON dicts with canonical transforms."""

from collections.abc import Iterable

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg.schema import Schema, print_type
from nunatak.iceberg.shapes import Json, PartitionSpecShape, check
from nunatak.iceberg.transforms import can_transform, canonical_transform

FIRST_FIELD_ID = 1000  # spec: partition field ids start here, to stay apart from column ids
UNPARTITIONED_LAST_FIELD_ID = FIRST_FIELD_ID - 1
# What the reference says when it cannot apply a transform to a column of that type.
_UNFIT = {
    "bucket": "Cannot bucket by type: ",
    "truncate": "Cannot truncate type: ",
    "year": "Unsupported type: ",
    "month": "Unsupported type: ",
    "day": "Unsupported type: ",
    "hour": "Unsupported type: ",
    "identity": "Unsupported type for identity: ",
}


def read_spec(spec: object) -> Json:
    """A copy with canonical transforms; field ids are all there, or all missing."""
    shape = check(spec, PartitionSpecShape, "partition spec")
    assert isinstance(spec, dict)
    missing = sum(field.field_id is None for field in shape.fields)
    if missing not in (0, len(shape.fields)):
        raise IllegalArgument(
            f"Cannot parse spec with missing field IDs: {missing} missing of {len(shape.fields)} fields."
        )
    fields = [field | {"transform": canonical_transform(field["transform"])} for field in spec["fields"]]
    return spec | {"spec-id": shape.spec_id or 0, "fields": fields}


def with_field_ids(spec: Json, existing: Iterable[Json], last_partition_id: int, format_version: int) -> Json:
    """Give ids to fields that came without. From v2 on a known field keeps its id and a new one gets a fresh id, so
    that no id ever means two things; v1 counts every spec from 1000, as its readers expect."""
    if not spec["fields"] or spec["fields"][0].get("field-id") is not None:
        return spec
    known: dict[tuple[int, str], int] = {}
    next_id = FIRST_FIELD_ID
    if format_version > 1:
        next_id = max(last_partition_id, UNPARTITIONED_LAST_FIELD_ID) + 1
        for other in existing:
            for field in other["fields"]:
                if field.get("field-id") is not None:
                    known[field["source-id"], field["transform"]] = field["field-id"]
    fields = []
    for field in spec["fields"]:
        field_id = known.pop((field["source-id"], field["transform"]), None)
        if field_id is None:
            field_id, next_id = next_id, next_id + 1
        fields.append(field | {"field-id": field_id})
    return spec | {"fields": fields}


def check_names(spec: Json, schema: Schema) -> None:
    """A partition may share its name with a column only if it is made from that column."""
    names: set[str] = set()
    for field in spec["fields"]:
        name = field["name"]
        column = schema.find_field(name)
        if column is not None and field["source-id"] in schema.fields and column.id != field["source-id"]:
            raise IllegalArgument(f"Cannot create identity partition sourced from different field in schema: {name}")
        if not name:
            raise IllegalArgument("Cannot use empty partition name: ")
        if name in names:
            raise IllegalArgument(f"Cannot use partition name more than once: {name}")
        names.add(name)


def check_transforms(fields: Iterable[Json], schema: Schema) -> None:
    """Refuse a transform of a column that is there, but has a type it cannot be applied to."""
    for field in fields:
        transform = canonical_transform(field["transform"])
        name = transform.partition("[")[0]
        source = schema.fields.get(field["source-id"])
        if source is None or name not in _UNFIT:
            continue
        fits = can_transform(transform, source.type) if isinstance(source.type, str) else name == "identity"
        if not fits:
            raise IllegalArgument(_UNFIT[name] + print_type(source.type))


def check_compatibility(spec: Json, schema: Schema) -> None:
    """Refuse a spec that `schema` cannot be partitioned by."""
    for field in spec["fields"]:
        transform = canonical_transform(field["transform"])
        if transform == "void":  # what v1 leaves behind when a partition column is dropped
            continue
        source = schema.fields.get(field["source-id"])
        if source is None:
            raise InvalidMetadata(f"Cannot find source column for partition field: {print_field(field)}")
        if not source.is_primitive or not isinstance(source.type, str):
            raise InvalidMetadata(f"Cannot partition by non-primitive source field: {print_type(source.type)}")
        if not can_transform(transform, source.type):
            raise InvalidMetadata(f"Invalid source type {source.type} for transform: {transform}")
        parent_id = source.parent_id
        while parent_id is not None:
            parent = schema.fields[parent_id]
            if not parent.is_struct:
                raise InvalidMetadata(f"Invalid partition field parent: {print_type(parent.type)}")
            parent_id = parent.parent_id


def check_sequential_ids(spec: Json) -> None:
    ids = [field["field-id"] for field in spec["fields"]]
    if ids != list(range(FIRST_FIELD_ID, FIRST_FIELD_ID + len(ids))):
        raise InvalidMetadata(f"Spec does not use sequential IDs that are required in v1: {print_spec(spec)}")


def is_compatible(one: Json, other: Json) -> bool:
    """Whether both partition the same way: same sources, transforms and names, whatever the field ids."""
    return [_meaning(field) for field in one["fields"]] == [_meaning(field) for field in other["fields"]]


def last_field_id(spec: Json) -> int:
    return max((field["field-id"] for field in spec["fields"]), default=UNPARTITIONED_LAST_FIELD_ID)


def print_spec(spec: Json) -> str:
    return "[" + "".join(f"\n  {print_field(field)}" for field in spec["fields"]) + ("\n]" if spec["fields"] else "]")


def _meaning(field: Json) -> tuple[int, str, str]:
    return field["source-id"], canonical_transform(field["transform"]), field["name"]


def print_field(field: Json) -> str:
    return f"{field.get('field-id', FIRST_FIELD_ID)}: {field['name']}: {field['transform']}({field['source-id']})"
