"""Schemas as values: parsed and indexed from JSON, compared, checked for a format version, and given fresh ids."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg.default_values import canonical_default
from nunatak.iceberg.definitions import digest
from nunatak.iceberg.shapes import Json, check_depth, print_json
from nunatak.iceberg.types import canonical_type, min_format_version

MAX_TYPE_DEPTH = 100  # parsing is recursive; no real schema nests types this deeply
MAX_FIELDS = 50_000  # of one schema, nested fields included
MAX_NAMES_LENGTH = 16 * 1024 * 1024  # characters of all full names: a name is repeated for each field inside it
DEFAULT_VALUES_MIN_FORMAT_VERSION = 3
_MIN_INT, _MAX_INT = -(2**31), 2**31 - 1


class Field(msgspec.Struct, frozen=True, gc=False):
    """One field, at any level of nesting. `type` is canonical JSON: a string, or a dict for a nested type."""

    id: int
    name: str
    full_name: str
    required: bool
    type: str | Json
    parent_id: int | None
    initial_default: object = None

    @property
    def is_primitive(self) -> bool:
        return isinstance(self.type, str) and self.type != "variant"

    @property
    def is_struct(self) -> bool:
        return isinstance(self.type, dict) and self.type["type"] == "struct"


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema with a valid structure: every id and every full name occurs once."""

    json: Json
    schema_id: int
    identifier_field_ids: frozenset[int]
    fields: dict[int, Field]
    ids_by_name: dict[str, int]

    @property
    def highest_field_id(self) -> int:
        return max(self.fields, default=0)

    def find_field(self, name: str) -> Field | None:
        """Find a field by full name, or by the short name that omits `element` and `value` before a struct's fields."""
        field_id = self.ids_by_name.get(name)
        return None if field_id is None else self.fields[field_id]


def parse_schema(schema: object) -> Schema:
    """Check and index a schema; `json` of the result is a copy in canonical spelling that keeps unknown fields.

    Raises IllegalArgument or InvalidMetadata.
    """
    if schema is None:
        raise IllegalArgument("Invalid schema: null")
    if not isinstance(schema, dict):
        raise IllegalArgument(f"Cannot parse type from json: {print_json(schema)}")
    if schema.get("type") != "struct":
        raise IllegalArgument(f"Cannot create schema, not a struct type: {print_json(schema.get('type'))}")
    check_depth({key: value for key, value in schema.items() if key != "fields"}, "schema")
    reader = _Reader()
    json = reader.struct(schema, _Place())
    schema_id = 0 if schema.get("schema-id") is None else _int(schema, "schema-id")
    identifiers = _identifier_field_ids(schema)
    result = Schema(
        # In the order in which the reference writes them; unknown fields of the client follow.
        json={"type": "struct", "schema-id": schema_id}
        | ({"identifier-field-ids": identifiers} if identifiers else {})
        | {"fields": json.pop("fields")}
        | {key: value for key, value in json.items() if key not in _SCHEMA_KEYS},
        schema_id=schema_id,
        identifier_field_ids=frozenset(identifiers),
        fields=reader.fields,
        ids_by_name=reader.short_names | reader.names,
    )
    for field_id in identifiers:
        _check_identifier_field(field_id, result)
    return result


def check_size(schema: Schema) -> None:
    """Raise IllegalArgument if a new schema has too many fields; a table that has a larger one keeps working."""
    if len(schema.fields) > MAX_FIELDS:
        raise IllegalArgument(
            f"Cannot add a schema of {len(schema.fields)} fields: at most {MAX_FIELDS} are allowed",
            hint="Use a map or a list for what has no fixed set of columns.",
        )


def check_compatibility(schema: Schema, format_version: int, fresh_ids: Mapping[int, int] | None = None) -> None:
    """Raise if the schema is too large, or names what the format version lacks; by id, or by the ids to be assigned."""
    check_size(schema)
    fields = schema.fields.values()
    types = {field.type for field in fields if isinstance(field.type, str)}
    if all(min_format_version(each) <= format_version for each in types) and (
        format_version >= DEFAULT_VALUES_MIN_FORMAT_VERSION or all(field.initial_default is None for field in fields)
    ):
        return  # Most schemas: their few types are looked at, not each of their fields.
    problems: list[str] = []
    for field_id in sorted(schema.fields, key=fresh_ids.__getitem__ if fresh_ids is not None else None):
        field = schema.fields[field_id]
        if field.initial_default is not None and format_version < DEFAULT_VALUES_MIN_FORMAT_VERSION:
            problems.append(
                f"Invalid initial default for {field.full_name}: non-null default "
                f"({_print_default(field.initial_default)}) is not supported until v{DEFAULT_VALUES_MIN_FORMAT_VERSION}"
            )
        elif isinstance(field.type, str) and format_version < (needed := min_format_version(field.type)):
            problems.append(f"Invalid type for {field.full_name}: {field.type} is not supported until v{needed}")
    if problems:
        raise InvalidMetadata(f"Invalid schema for v{format_version}:\n- " + "\n- ".join(problems))


def content_digest(schema: Schema) -> bytes:
    """Return a digest of the fields and identifier fields; the schema id and unknown fields do not count."""
    return digest([sorted(schema.identifier_field_ids), _comparable_type(schema.json)])


def schema_digest(schema: Json) -> bytes:
    return content_digest(parse_schema(schema))


def with_schema_id(schema: Schema, schema_id: int) -> Json:
    return schema.json if schema.schema_id == schema_id else schema.json | {"schema-id": schema_id}


def assign_fresh_ids(schema: Schema) -> tuple[Json, dict[int, int]]:
    """Return the schema with field ids from 1 and schema id 0, and the new field ids by old id.

    All fields of a struct are numbered before the fields nested in them, as in the reference.
    """
    fresh: dict[int, int] = {}
    json = _renumber(schema.json, fresh) | {"schema-id": 0}
    if schema.identifier_field_ids:
        json["identifier-field-ids"] = [fresh[old] for old in schema.json["identifier-field-ids"]]
    return json, fresh


def print_type(type_json: str | Json) -> str:
    """Return a type as the reference prints it in messages: `list<int>`, `struct<1: a: optional int>`."""
    if isinstance(type_json, str):
        return type_json
    if type_json["type"] == "list":
        return f"list<{print_type(type_json['element'])}>"
    if type_json["type"] == "map":
        return f"map<{print_type(type_json['key'])}, {print_type(type_json['value'])}>"
    return f"struct<{', '.join(_print_field(field) for field in type_json['fields'])}>"


def _print_field(field: Json) -> str:
    required = "required" if field["required"] else "optional"
    doc = f" ({field['doc']})" if field.get("doc") is not None else ""
    return f"{field['id']}: {field['name']}: {required} {print_type(field['type'])}{doc}"


def _print_default(value: object) -> str:
    return value if isinstance(value, str) else print_json(value)


_SCHEMA_KEYS = frozenset({"type", "schema-id", "identifier-field-ids", "fields"})


class _Place(msgspec.Struct, frozen=True, gc=False):
    """The position of a type in a schema: nesting depth, prefixes of its full and short names, enclosing field."""

    depth: int = 0
    path: str = ""
    short_path: str = ""
    parent_id: int | None = None


class _Reader:
    """Walks a schema once and collects every field by id and by name."""

    __slots__ = ("fields", "names", "names_length", "short_names")

    def __init__(self) -> None:
        self.names_length = 0
        self.fields: dict[int, Field] = {}
        self.names: dict[str, int] = {}
        self.short_names: dict[str, int] = {}

    def struct(self, json: Json, place: _Place) -> Json:
        fields = json.get("fields")
        if not isinstance(fields, list):
            raise IllegalArgument(f"Cannot parse struct fields from non-array: {print_json(fields)}")
        return json | {
            "type": "struct",
            "fields": [field if self.add_plain(field, place) else self.field(field, place) for field in fields],
        }

    def add_plain(self, json: object, place: _Place) -> bool:
        """Add a field that `field` would return unchanged: canonical primitive type, no default, no unknown member.

        Returns False for any other, without a change. Nearly all fields are plain; this takes half the time.
        """
        if type(json) is not dict:
            return False
        field_id, name, required, type_json = json.get("id"), json.get("name"), json.get("required"), json.get("type")
        if not (
            (len(json) == 4 or (len(json) == 5 and type(json.get("doc")) is str))
            and type(field_id) is int
            and _MIN_INT <= field_id <= _MAX_INT
            and type(name) is str
            and type(required) is bool
            and type(type_json) is str
            and canonical_type(type_json) == type_json
        ):
            return False
        full_name = place.path + name
        length = self.names_length + len(full_name)
        # `add` says what is wrong with these.
        if full_name in self.names or field_id in self.fields or type_json == "unknown" or length > MAX_NAMES_LENGTH:
            return False
        self.names_length = length
        self.names[full_name] = field_id
        self.fields[field_id] = Field(field_id, name, full_name, required, type_json, place.parent_id)
        self.short_names.setdefault(place.short_path + name, field_id)
        return True

    def field(self, json: object, place: _Place) -> Json:
        if not isinstance(json, dict):
            raise IllegalArgument(f"Cannot parse struct field from non-object: {print_json(json)}")
        if place.depth == 0:
            check_depth(json, "schema")  # once for a field with everything nested in it
        field_id, name, required = _int(json, "id"), _string(json, "name"), _bool(json, "required")
        doc = json.get("doc")
        if doc is not None and not isinstance(doc, str):
            raise IllegalArgument(f"Cannot parse to a string value: doc: {print_json(doc)}")
        full_name, short_name = place.path + name, place.short_path + name
        inner = _Place(place.depth + 1, f"{full_name}.", f"{short_name}.", field_id)
        type_json = self.type(json, "type", inner)
        for key in ("initial-default", "write-default"):
            if json.get(key) is not None:
                json = json | {key: _default(type_json, json[key])}
        field = Field(field_id, name, full_name, required, type_json, place.parent_id, json.get("initial-default"))
        self.add(field, short_name)
        if type_json is not json["type"]:
            json = json | {"type": type_json}
        # The reference reads a null default as an error, not as a missing one.
        if None in json.values():
            json = {key: value for key, value in json.items() if value is not None}
        return json

    def type(self, json: Json, key: str, place: _Place) -> str | Json:
        value: str | Json | None = json.get(key)
        if value is None:
            raise IllegalArgument(f"Cannot parse missing field: {key}")
        if isinstance(value, str):
            # The same object if it is canonical already: `field` then makes no copy.
            canonical = canonical_type(value)
            return value if canonical == value else canonical
        if place.depth > MAX_TYPE_DEPTH:
            raise IllegalArgument(f"Cannot parse schema: types nested more than {MAX_TYPE_DEPTH} levels deep")
        match value.get("type") if isinstance(value, dict) else None:
            case "struct":
                return self.struct(value, place)
            case "list":
                required = _bool(value, "element-required")
                return value | {"element": self.item(value, "element", place, required=required)}
            case "map":
                required = _bool(value, "value-required")
                return value | {
                    "key": self.item(value, "key", place, required=True),
                    "value": self.item(value, "value", place, required=required),
                }
            case _:
                raise IllegalArgument(f"Cannot parse type from json: {print_json(value)}")

    def item(self, json: Json, key: str, place: _Place, *, required: bool) -> str | Json:
        """Read the element of a list, or the key or value of a map: a field without a name of its own."""
        field_id = _int(json, f"{key}-id")
        inner = json.get(key)
        is_struct = isinstance(inner, dict) and inner.get("type") == "struct"
        short_path = place.short_path if is_struct and key != "key" else f"{place.short_path}{key}."
        type_json = self.type(json, key, _Place(place.depth + 1, f"{place.path}{key}.", short_path, field_id))
        field = Field(field_id, key, place.path + key, required, type_json, place.parent_id)
        self.add(field, place.short_path + key)
        return type_json

    def add(self, field: Field, short_name: str) -> None:
        self.names_length += len(field.full_name)
        if self.names_length > MAX_NAMES_LENGTH:
            raise IllegalArgument(
                f"Cannot parse schema: the full names of its fields have more than {MAX_NAMES_LENGTH} characters",
                hint="Give nested fields, and those around them, shorter names.",
            )
        if field.required and field.type == "unknown":
            raise IllegalArgument(f"Cannot create required field with unknown type: {field.name}")
        known = self.names.setdefault(field.full_name, field.id)
        if known != field.id or (field.id in self.fields and self.fields[field.id].full_name == field.full_name):
            raise InvalidMetadata(f"Invalid schema: multiple fields for name {field.full_name}: {known} and {field.id}")
        if (other := self.fields.get(field.id)) is not None:
            raise IllegalArgument(
                f"Multiple entries with same key: {field.id}={field.full_name} and {field.id}={other.full_name}"
            )
        self.fields[field.id] = field
        # Short names may be ambiguous: the first field wins, and `parse_schema` lets full names win over short ones.
        self.short_names.setdefault(short_name, field.id)


def _default(type_json: str | Json, value: object) -> object:
    if isinstance(type_json, dict):
        raise IllegalArgument(f"Invalid default value for {print_type(type_json)}: {print_json(value)} (must be null)")
    return canonical_default(type_json, value)


def _identifier_field_ids(schema: Json) -> list[int]:
    ids = schema.get("identifier-field-ids")
    if ids is None:
        return []
    if not isinstance(ids, list):
        raise IllegalArgument(f"Cannot parse JSON array from non-array value: identifier-field-ids: {print_json(ids)}")
    for field_id in ids:
        if not _is_int(field_id):
            raise IllegalArgument(
                f"Cannot parse integer from non-int value in identifier-field-ids: {print_json(field_id)}"
            )
    return list(dict.fromkeys(ids))


def _check_identifier_field(field_id: int, schema: Schema) -> None:
    field = schema.fields.get(field_id)
    if field is None:
        raise IllegalArgument(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
    prefix = f"Cannot add field {field.name} as an identifier field: "
    if not field.is_primitive:
        raise IllegalArgument(prefix + "not a primitive type field")
    if not field.required:
        raise IllegalArgument(prefix + "not a required field")
    if field.type in ("float", "double"):
        raise IllegalArgument(prefix + "must not be float or double field")
    parents: list[Field] = []
    parent_id = field.parent_id
    while parent_id is not None:
        parents.append(schema.fields[parent_id])
        parent_id = parents[-1].parent_id
    for parent in reversed(parents):
        if not parent.is_struct:
            raise IllegalArgument(f"{prefix}must not be nested in {_print_parent(parent)}")
        if not parent.required:
            raise IllegalArgument(f"{prefix}must not be nested in an optional field {_print_parent(parent)}")


def _print_parent(parent: Field) -> str:
    return f"{parent.id}: {parent.name}: {'required' if parent.required else 'optional'} {print_type(parent.type)}"


_KNOWN_FIELD_KEYS = ("id", "name", "required", "doc", "initial-default", "write-default")


def _comparable_type(type_json: str | Json) -> Any:
    """Return the parts of a type that count in comparisons: everything the format defines, and nothing else."""
    if isinstance(type_json, str):
        return type_json
    if type_json["type"] == "struct":
        return [
            [*(field.get(key) for key in _KNOWN_FIELD_KEYS), _comparable_type(field["type"])]
            for field in type_json["fields"]
        ]
    items = ("element",) if type_json["type"] == "list" else ("key", "value")
    ids_and_flags = [type_json.get(f"{item}-{suffix}") for item in items for suffix in ("id", "required")]
    return [type_json["type"], ids_and_flags, *(_comparable_type(type_json[item]) for item in items)]


def _renumber(type_json: Any, fresh: dict[int, int]) -> Any:
    """Return a type with new ids, which are added to `fresh` by old id."""
    if isinstance(type_json, str):
        return type_json
    match type_json["type"]:
        case "struct":
            fields = type_json["fields"]
            for field in fields:
                fresh[field["id"]] = len(fresh) + 1
            return type_json | {
                "fields": [
                    field | {"id": fresh[field["id"]]}
                    if isinstance(field["type"], str)
                    else field | {"id": fresh[field["id"]], "type": _renumber(field["type"], fresh)}
                    for field in fields
                ]
            }
        case "list":
            element_id = fresh[type_json["element-id"]] = len(fresh) + 1
            return type_json | {"element-id": element_id, "element": _renumber(type_json["element"], fresh)}
        case _:
            key_id = fresh[type_json["key-id"]] = len(fresh) + 1
            value_id = fresh[type_json["value-id"]] = len(fresh) + 1
            return type_json | {
                "key-id": key_id,
                "key": _renumber(type_json["key"], fresh),
                "value-id": value_id,
                "value": _renumber(type_json["value"], fresh),
            }


def _is_int(value: object) -> bool:
    # Not isinstance: JSON true and false are bool, a subclass of int.
    return type(value) is int and _MIN_INT <= value <= _MAX_INT


def _int(json: Json, key: str) -> int:
    if key not in json:
        raise IllegalArgument(f"Cannot parse missing int: {key}")
    value = json[key]
    if not _is_int(value):
        raise IllegalArgument(f"Cannot parse to an integer value: {key}: {print_json(value)}")
    assert isinstance(value, int)
    return value


def _string(json: Json, key: str) -> str:
    if key not in json:
        raise IllegalArgument(f"Cannot parse missing string: {key}")
    value = json[key]
    if not isinstance(value, str):
        raise IllegalArgument(f"Cannot parse to a string value: {key}: {print_json(value)}")
    return value


def _bool(json: Json, key: str) -> bool:
    if key not in json:
        raise IllegalArgument(f"Cannot parse missing boolean: {key}")
    value = json[key]
    if not isinstance(value, bool):
        raise IllegalArgument(f"Cannot parse to a boolean value: {key}: {print_json(value)}")
    return value
