"""Partition specs: read from JSON, bound to a schema, compared. Specs stay JSON dicts with canonical transforms."""

from collections.abc import Iterable
from itertools import islice

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg.definitions import digest
from nunatak.iceberg.schema import Field, Schema, print_type
from nunatak.iceberg.shapes import Json, PartitionSpecShape, check
from nunatak.iceberg.transforms import can_transform, canonical_transform

FIRST_FIELD_ID = 1000  # spec: partition field ids start here, to stay apart from column ids
UNPARTITIONED_LAST_FIELD_ID = FIRST_FIELD_ID - 1
# The error texts of the reference for a transform that cannot be applied to a column of that type.
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
    """Return a copy with canonical transforms; raise IllegalArgument if malformed or if only some fields have ids."""
    shape = check(spec, PartitionSpecShape, "partition spec")
    assert isinstance(spec, dict)
    missing = sum(field.field_id is None for field in shape.fields)
    if missing not in (0, len(shape.fields)):
        raise IllegalArgument(
            f"Cannot parse spec with missing field IDs: {missing} missing of {len(shape.fields)} fields."
        )
    fields = [field | {"transform": canonical_transform(field["transform"])} for field in spec["fields"]]
    return spec | {"spec-id": shape.spec_id or 0, "fields": fields}


FieldContent = tuple[int, str, str]  # source id, transform and name


def lacks_field_ids(spec: Json) -> bool:
    """Return whether the fields have no ids; a spec has ids for all fields or for none."""
    return bool(spec["fields"]) and spec["fields"][0].get("field-id") is None


class PartitionFields:
    """The fields of all specs of a table while a commit changes them: their ids, and whether they fit a schema."""

    def __init__(self, specs: Iterable[Json]) -> None:
        self._ids: dict[tuple[int, str], dict[int, int]] = {}  # by source and transform: the field id by spec id
        self._contents: dict[FieldContent, None] = {}
        self._verified: dict[int, int] = {}  # by schema id: how many of the contents are known to fit
        self._sources: dict[str, dict[int, None]] = {}  # source ids of the contents, by name
        self._transforms: dict[int, dict[str, None]] = {}  # transforms of the contents, by source id
        self._applicable: dict[tuple[int, str], int] = {}  # by source id and type: how many transforms fit
        self._all_named = True
        for spec in specs:
            self.add(spec)

    def find_id(self, source_id: int, transform: str) -> int | None:
        """Return the field id that the latest spec assigns to this transform of this column, or None."""
        found = self._ids.get((source_id, transform))
        return next(reversed(found.values())) if found else None

    def add(self, spec: Json) -> None:
        names: set[str] = set()
        for field in spec["fields"]:
            if field.get("field-id") is not None:
                ids = self._ids.setdefault((field["source-id"], field["transform"]), {})
                ids[spec["spec-id"]] = field["field-id"]
            source_id, transform, name = content = _content_of(field)
            self._contents[content] = None
            self._sources.setdefault(name, {})[source_id] = None
            self._transforms.setdefault(source_id, {})[transform] = None
            names.add(name)
        if len(names) < len(spec["fields"]) or "" in names:
            self._all_named = False

    def remove(self, spec: Json) -> None:
        """Remove the ids of a spec. `fit` still checks its fields: if all fit, the remaining ones do, too."""
        for field in spec["fields"]:
            self._ids.get((field["source-id"], field["transform"]), {}).pop(spec["spec-id"], None)

    def forget_schema(self, schema_id: int) -> None:
        """Drop the results for a removed schema: another schema may get its id."""
        self._verified.pop(schema_id, None)

    def fit(self, schema_id: int, schema: Schema) -> bool:
        """Return whether `check_names` and `check_transforms` would pass for all specs; checks no field twice."""
        verified = self._verified.get(schema_id, 0)
        unverified = len(self._contents) - verified
        if unverified <= len(schema.ids_by_name):
            fit = all(_fits(content, schema) for content in islice(self._contents, verified, None))
        else:
            fit = self._fit_columns(schema)
        if fit:
            self._verified[schema_id] = len(self._contents)
        return fit and self._all_named

    def _fit_columns(self, schema: Schema) -> bool:
        """Check once per column of the schema, however many partition fields there are."""
        for name, column_id in schema.ids_by_name.items():
            sources = self._sources.get(name)
            if sources is not None and any(other != column_id and other in schema.fields for other in sources):
                return False
        for column_id in self._transforms.keys() & schema.fields.keys():
            column, transforms = schema.fields[column_id], self._transforms[column_id]
            seen = (column_id, column.type) if isinstance(column.type, str) else (column_id, "")
            start = self._applicable.get(seen, 0)
            if not all(_is_applicable(transform, column) for transform in islice(transforms, start, None)):
                return False
            self._applicable[seen] = len(transforms)
        return True


def with_field_ids(spec: Json, known: PartitionFields, last_partition_id: int, format_version: int) -> Json:
    """Assign ids to fields without ids. From v2 on a known field keeps its id and a new one gets a fresh id, so that no
    id ever has two meanings; in v1 the ids of every spec start at 1000, as its readers expect."""
    if not lacks_field_ids(spec):
        return spec
    next_id = FIRST_FIELD_ID if format_version == 1 else max(last_partition_id, UNPARTITIONED_LAST_FIELD_ID) + 1
    used: set[tuple[int, str]] = set()
    fields = []
    for field in spec["fields"]:
        source = field["source-id"], field["transform"]
        field_id = None if format_version == 1 or source in used else known.find_id(*source)
        used.add(source)
        if field_id is None:
            field_id, next_id = next_id, next_id + 1
        fields.append(field | {"field-id": field_id})
    return spec | {"fields": fields}


def check_names(spec: Json, schema: Schema) -> None:
    """Raise IllegalArgument if a name is empty, repeated, or that of a column which is not the source of the field."""
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
    """Raise IllegalArgument if a transform cannot be applied to the type of its column; ignores missing columns."""
    for field in fields:
        transform = canonical_transform(field["transform"])
        source = schema.fields.get(field["source-id"])
        if source is not None and not _is_applicable(transform, source):
            raise IllegalArgument(_UNFIT[transform.partition("[")[0]] + print_type(source.type))


def _fits(content: FieldContent, schema: Schema) -> bool:
    source_id, transform, name = content
    source = schema.fields.get(source_id)
    if source is None:
        return True
    return schema.ids_by_name.get(name, source_id) == source_id and _is_applicable(transform, source)


def _is_applicable(transform: str, source: Field) -> bool:
    name = transform.partition("[")[0]
    # `void` and unknown transforms can be applied to every type.
    if name not in _UNFIT:
        return True
    return can_transform(transform, source.type) if isinstance(source.type, str) else name == "identity"


def check_compatibility(spec: Json, schema: Schema) -> None:
    """Raise InvalidMetadata if `schema` cannot be partitioned by the spec."""
    for field in spec["fields"]:
        transform = canonical_transform(field["transform"])
        if transform == "void":  # remains in v1 when a partition column is dropped
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


def content_digest(spec: Json) -> bytes:
    """Return a digest of how a spec partitions: sources, transforms and names; field ids do not count."""
    return digest([_content_of(field) for field in spec["fields"]])


def last_field_id(spec: Json) -> int:
    return max((field["field-id"] for field in spec["fields"]), default=UNPARTITIONED_LAST_FIELD_ID)


def print_spec(spec: Json) -> str:
    return "[" + "".join(f"\n  {print_field(field)}" for field in spec["fields"]) + ("\n]" if spec["fields"] else "]")


def _content_of(field: Json) -> FieldContent:
    return field["source-id"], canonical_transform(field["transform"]), field["name"]


def print_field(field: Json) -> str:
    return f"{field.get('field-id', FIRST_FIELD_ID)}: {field['name']}: {field['transform']}({field['source-id']})"
