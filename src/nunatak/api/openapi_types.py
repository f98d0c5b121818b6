"""Derives the JSON schemas of the OpenAPI documents from the types of request and response bodies."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

Json = dict[str, Any]
Use = TypeVar("Use")  # the key of a use of a type, such as (operation, role)

REFS = "#/components/schemas/"
# Types whose schema has another name than the class; the suffix `Shape` is always removed.
NAMES = {
    "AddSpec": "AddPartitionSpec",
    "AssertTableUuid": "AssertTableUUID",
    "AssertViewUuid": "AssertViewUUID",
    "AssignUuid": "AssignUUID",
    "Line": "AuditRecord",
    "RepresentationShape": "SQLViewRepresentation",
    "SnapshotRefShape": "SnapshotReference",
    "UpdateNamespaceRequest": "UpdateNamespacePropertiesRequest",
    "VersionLogEntryShape": "ViewVersionLogEntry",
    "WireIdentifier": "Identifier",
}
# Types with the same content as another type, whose schema is used for both.
SAME = {"TableIdentifier": "Identifier"}
_KEPT = ("default", "properties")  # their keys are data, and may equal schema keywords
_FORMATS = {2**31 - 1: "int32", 2**63 - 1: "int64"}


def schema_name(kind: Any) -> str:
    """Returns the schema name of a class; empty for types without a name, such as a list."""
    return _schema_name(kind.__name__) if isinstance(kind, type) else ""


def _schema_name(name: str) -> str:
    return SAME.get(name) or NAMES.get(name, name.removesuffix("Shape"))


def schemas_of(
    types: Mapping[Use, Any], inner: Iterable[Any], written: Mapping[str, Json]
) -> tuple[dict[Use, Json], Json]:
    """Returns a schema for each of the types, and by name the schemas that these refer to.

    `inner` are types to which only schemas refer. A schema in `written` replaces the derived one.
    """
    taken = {use: ref(name) for use, kind in types.items() if (name := schema_name(kind)) in written}
    derived = {use: kind for use, kind in types.items() if use not in taken}
    roots, named = msgspec.json.schema_components([*derived.values(), *inner], ref_template=REFS + "{name}")
    schemas = taken | {use: _tidy_schema(schema) for use, schema in zip(derived, roots, strict=False)}
    known = {_schema_name(name): _tidy_schema(schema) for name, schema in named.items() if name not in SAME} | dict(
        written
    )
    return schemas, _reachable(schemas.values(), known)


def without_null(schema: Json) -> Json:
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    others = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if not options:
        return schema
    return options[0] | others if len(options) == 1 else others | {"anyOf": options}


def ref(name: str) -> Json:
    return {"$ref": f"{REFS}{name}"}


def references(value: object) -> Iterator[str]:
    """Yields the names of the schemas to which a schema refers."""
    if isinstance(value, dict):
        if isinstance(target := value.get("$ref"), str):
            yield target.removeprefix(REFS)
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def _reachable(roots: Iterable[Json], known: Mapping[str, Json]) -> Json:
    found: Json = {}
    waiting = [name for root in roots for name in references(root)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = known[name]
            waiting += references(known[name])
    return dict(sorted(found.items()))


def _tidy_schema(schema: Any) -> Any:
    """Returns a schema in the form of our documents: no titles, integer formats, beside a `$ref` only a description."""
    if isinstance(schema, list):
        return [_tidy_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = ref(_schema_name(schema["$ref"].removeprefix(REFS)))
        return named | {key: value for key, value in schema.items() if key == "description"}
    tidied = {key: value if key in _KEPT else _tidy_schema(value) for key, value in schema.items() if key != "title"}
    if {} in schema.get("anyOf", ()):  # any JSON, or null
        del tidied["anyOf"]
    elif "anyOf" in schema:  # null last: the order depends on the version of msgspec
        tidied["anyOf"].sort(key=lambda option: option == {"type": "null"})
    if "properties" in schema:
        tidied["properties"] = {name: _tidy_schema(each) for name, each in schema["properties"].items()}
    if "description" in schema:  # older Pythons keep docstrings indented
        tidied["description"] = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(schema["description"]))
    if "mapping" in schema:
        tidied["mapping"] = {
            tag: ref(_schema_name(to.removeprefix(REFS)))["$ref"] for tag, to in schema["mapping"].items()
        }
    if "required" in schema and not schema["required"]:
        del tidied["required"]
    if schema.get("type") == "integer" and schema.get("maximum") in _FORMATS:
        tidied["format"] = _FORMATS[schema["maximum"]]
    if "enum" in schema and all(isinstance(each, str) for each in schema["enum"]):
        tidied["type"] = "string"
    return tidied
