"""L0: compares metadata documents, or columns for a table that was created anew. Documents in, findings out; no I/O.

For a registered table every member of the document must be equal. A table that was created anew has its own ids,
snapshots and files, so only its columns are compared; documented differences are reported as accepted.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nunatak_spark.column_types import format_type
from nunatak_spark.migration.model import MigrationFinding

Json = dict[str, Any]

NAMED_AT_MOST = 5  # ids per sentence: a table may have thousands of snapshots
# Types that Iceberg lacks become the next wider one, as Iceberg's documentation says.
WIDENED = {("byte", "integer"), ("short", "integer")}
REPLACED = {("uuid", "string"), ("fixed", "binary")}  # Spark reads these Iceberg types, but cannot write them
DECLARED = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's field metadata for columns declared as char or varchar


def compare_documents(source: Json, target: Json) -> tuple[MigrationFinding, ...]:
    """Returns how the target's metadata document differs from the source's."""
    left, right = normalize_document(source), normalize_document(target)
    findings = list(_schema_drift(current_schema(left), current_schema(right)))
    differing = [member for member in sorted(left.keys() | right.keys()) if left.get(member) != right.get(member)]
    for member in sorted(COMPARED.keys() & differing):
        findings += COMPARED[member](member, left.get(member), right.get(member))
    others = [member for member in differing if member not in COMPARED]
    if others:
        findings.append(
            MigrationFinding("other-metadata", f"the documents also differ in {', '.join(others)}", others[0])
        )
    return tuple(findings)


def document_facts(source: Json, target: Json) -> Json:
    """Returns facts about both documents for the evidence."""
    left, right = normalize_document(source), normalize_document(target)
    return {
        "compared": "metadata documents",
        "table-uuid": right.get("table-uuid"),
        "format-version": right.get("format-version"),
        "current-snapshot-id": right["current-snapshot-id"],
        "snapshots": len(right["snapshots"]),
        "schemas": len(right["schemas"]),
        "refs": {name: ref.get("snapshot-id") for name, ref in sorted(right["refs"].items())},
        "source-metadata-sha256": document_digest(left),
        "target-metadata-sha256": document_digest(right),
    }


def document_digest(document: Json) -> str:
    """Returns a digest that does not depend on formatting."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# A document in one form


def normalize_document(document: Json) -> Json:
    """Returns the document with defaults filled in, and with lists as maps by id."""
    filled = {key: value for key, value in document.items() if value is not None}
    schema, spec = filled.pop("schema", None), filled.pop("partition-spec", None)  # v1 members
    if "schemas" not in filled and schema is not None:
        filled["schemas"] = [{"schema-id": 0, **schema}]
        filled.setdefault("current-schema-id", filled["schemas"][0]["schema-id"])
    if "partition-specs" not in filled and spec is not None:
        filled["partition-specs"] = [{"spec-id": 0, "fields": spec}]
        filled.setdefault("default-spec-id", 0)
    current = filled.get("current-snapshot-id", -1)
    filled["current-snapshot-id"] = current if current != -1 else None  # Spec: -1 means no snapshot in older metadata
    refs = dict(filled.get("refs", {}))
    if filled["current-snapshot-id"] is not None:
        refs.setdefault("main", {"snapshot-id": current, "type": "branch"})
    filled["refs"] = refs
    filled.setdefault("properties", {})
    for member, key in LISTS.items():
        filled[member] = {str(one.get(key)): one for one in filled.get(member, [])}
    for log in ("snapshot-log", "metadata-log"):
        filled.setdefault(log, [])
    return filled


LISTS = {
    "schemas": "schema-id",
    "partition-specs": "spec-id",
    "sort-orders": "order-id",
    "snapshots": "snapshot-id",
    "statistics": "snapshot-id",
    "partition-statistics": "snapshot-id",
    "encryption-keys": "key-id",
}


def current_schema(document: Json) -> Json:
    """Returns the current schema of a normalized document."""
    return dict(document["schemas"].get(str(document.get("current-schema-id", 0))) or {"type": "struct", "fields": []})


def default_spec(document: Json) -> Json:
    return dict(document["partition-specs"].get(str(document.get("default-spec-id", 0))) or {"fields": []})


# One member each


def _one_value(kind: str, what: str) -> Callable[[str, Any, Any], list[MigrationFinding]]:
    def look(member: str, left: Any, right: Any) -> list[MigrationFinding]:
        return [MigrationFinding(kind, f"{what} was {_format_value(left)} and is {_format_value(right)}", member)]

    return look


def _by_key(kind: str, one: str, many: str) -> Callable[[str, Any, Any], list[MigrationFinding]]:
    """Returns a comparison of maps: missing keys, new keys, and keys with different values."""

    def look(member: str, left: Any, right: Any) -> list[MigrationFinding]:
        left, right = left or {}, right or {}
        sentences = (
            ([key for key in left if key not in right], "is missing", "are missing"),
            ([key for key in right if key not in left], "is not at the source", "are not at the source"),
            ([key for key in left if key in right and left[key] != right[key]], "differs", "differ"),
        )
        return [
            MigrationFinding(
                kind,
                f"{one if len(keys) == 1 else many} {_join_keys(keys)} {single if len(keys) == 1 else plural}",
                member,
            )
            for keys, single, plural in sentences
            if keys
        ]

    return look


def _properties(member: str, left: Any, right: Any) -> list[MigrationFinding]:
    return [
        MigrationFinding(
            "other-property",
            f"property {key} was {_format_value(left.get(key))} and is {_format_value(right.get(key))}",
            key,
        )
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def _refs(member: str, left: Any, right: Any) -> list[MigrationFinding]:
    return [
        MigrationFinding(
            "other-ref", f"{_ref(left.get(name))} at the source, {_ref(right.get(name))} at the target", name
        )
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    ]


def _ref(ref: Json | None) -> str:
    if ref is None:
        return "nothing"
    kept = ", ".join(f"{key} {value}" for key, value in sorted(ref.items()) if key not in {"type", "snapshot-id"})
    return f"a {ref.get('type')} on snapshot {ref.get('snapshot-id')}" + (f" with {kept}" if kept else "")


COMPARED: Mapping[str, Callable[[str, Any, Any], list[MigrationFinding]]] = {
    "table-uuid": _one_value("other-uuid", "the table's uuid"),
    "format-version": _one_value("other-format-version", "the format version"),
    "location": _one_value("other-location", "the location"),
    "current-snapshot-id": _one_value("other-snapshot", "the current snapshot"),
    "current-schema-id": _one_value("other-schema-id", "the current schema's id"),
    "default-spec-id": _one_value("other-spec", "the default partition spec"),
    "default-sort-order-id": _one_value("other-sort-order", "the default sort order"),
    "snapshots": _by_key("other-snapshots", "snapshot", "snapshots"),
    "schemas": _by_key("other-schemas", "schema", "schemas"),
    "partition-specs": _by_key("other-spec", "partition spec", "partition specs"),
    "sort-orders": _by_key("other-sort-order", "sort order", "sort orders"),
    "statistics": _by_key("other-statistics", "the statistics file of snapshot", "the statistics files of snapshots"),
    "partition-statistics": _by_key(
        "other-statistics", "the partition statistics file of snapshot", "the partition statistics files of snapshots"
    ),
    "properties": _properties,
    "refs": _refs,
}


# Columns of two Iceberg schemas


@dataclass(frozen=True)
class _Field:
    path: str
    position: int
    said: Json  # all but the fields inside


def _schema_drift(left: Json, right: Json) -> Iterator[MigrationFinding]:
    """Compares two Iceberg schemas. Columns are matched by field id, so that renames are reported as such."""
    before, after = dict(_fields(left)), dict(_fields(right))
    for key, field_ in before.items():
        if key not in after:
            yield MigrationFinding("schema-drift", f"column {field_.path} is missing", field_.path)
            continue
        other = after[key]
        if other.path != field_.path:
            yield MigrationFinding("schema-drift", f"column {field_.path} is called {other.path}", field_.path)
        if other.position != field_.position:
            yield MigrationFinding("schema-drift", f"column {field_.path} has another position", field_.path)
        for what in sorted(field_.said.keys() | other.said.keys()):
            old, new = field_.said.get(what), other.said.get(what)
            if old != new:
                yield MigrationFinding(
                    "schema-drift",
                    f"{what} of column {field_.path} was {_format_value(old)} and is {_format_value(new)}",
                    field_.path,
                )
    for key, field_ in after.items():
        if key not in before:
            yield MigrationFinding("schema-drift", f"column {field_.path} is not at the source", field_.path)
    if sorted(left.get("identifier-field-ids", [])) != sorted(right.get("identifier-field-ids", [])):
        yield MigrationFinding("schema-drift", "other columns identify a row", "identifier-field-ids")


def _fields(kind: Any, path: str = "") -> Iterator[tuple[int, _Field]]:
    """Yields every field of a type with its id, at any depth."""
    if not isinstance(kind, dict):
        return
    for position, (key, name, inner, said) in enumerate(_parts(kind)):
        here = f"{path}.{name}" if path else name
        yield key, _Field(here, position, {"type": _outer_type(inner), **said})
        yield from _fields(inner, here)


def _parts(kind: Json) -> Iterator[tuple[int, str, Any, Json]]:
    match kind.get("type"):
        case "struct":
            for one in kind["fields"]:
                said = {"required": bool(one.get("required")), "doc": one.get("doc")}
                said |= {name: one.get(name) for name in ("initial-default", "write-default")}
                yield one["id"], str(one["name"]), one["type"], said
        case "list":
            yield kind["element-id"], "element", kind["element"], {"required": bool(kind.get("element-required"))}
        case "map":
            yield kind["key-id"], "key", kind["key"], {}
            yield kind["value-id"], "value", kind["value"], {"required": bool(kind.get("value-required"))}


def _outer_type(kind: Any) -> str:
    """Returns a type without its inner fields, which are compared separately; spaces in `decimal(9, 2)` do
    not count.
    """
    return str(kind["type"]) if isinstance(kind, dict) else str(kind).replace(" ", "")


# Columns of a table that was created anew


@dataclass
class ColumnComparison:
    """The comparison of copied columns: problems, and documented differences."""

    findings: list[MigrationFinding] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)


def compare_columns(source: Json, target: Json) -> ColumnComparison:
    """Compares the columns of a table with ids of its own; schemas are in Spark's JSON form, order does not matter."""
    found = ColumnComparison()
    _compare_fields(source["fields"], target["fields"], "", found)
    return found


def replaced_types(source: Json, target: Json) -> list[str]:
    """Returns the Iceberg types that a copy by Spark replaced; both arguments are metadata documents."""
    before, after = (
        {one.path: one.said["type"] for _, one in _fields(current_schema(normalize_document(document)))}
        for document in (source, target)
    )
    return [
        f"type of column {path} was {kind} and is {after[path]}"
        for path, kind in before.items()
        if (re.sub(r"\[.*", "", kind), after.get(path)) in REPLACED
    ]


def _compare_fields(left: Collection[Json], right: Collection[Json], path: str, found: ColumnComparison) -> None:
    # Hive stores names in lower case; Spark resolves columns case-insensitively.
    before, after = ({str(one["name"]).lower(): one for one in side} for side in (left, right))
    for key, one in before.items():
        here = f"{path}{one['name']}"
        if key not in after:
            found.findings.append(MigrationFinding("schema-drift", f"column {here} is missing", here))
            continue
        other = after[key]
        if other["name"] != one["name"]:
            found.accepted.append(f"{here} is written {other['name']}")
        if one.get("nullable", True) and not other.get("nullable", True):
            found.findings.append(MigrationFinding("schema-drift", f"column {here} may not be null any more", here))
        elif not one.get("nullable", True) and other.get("nullable", True):
            found.accepted.append(f"{here} may be null, which it might not at the source")
        declared = one.get("metadata", {}).get(DECLARED)
        _compare_types(declared or one["type"], other["type"], here, found)
    for key, one in after.items():
        if key not in before:
            here = f"{path}{one['name']}"
            found.findings.append(MigrationFinding("schema-drift", f"column {here} is not at the source", here))


def _compare_types(left: Any, right: Any, path: str, found: ColumnComparison) -> None:
    if isinstance(left, dict) and isinstance(right, dict) and left["type"] == right["type"]:
        match left["type"]:
            case "struct":
                _compare_fields(left["fields"], right["fields"], f"{path}.", found)
                return
            case "array":
                _compare_types(left["elementType"], right["elementType"], f"{path}.element", found)
                return
            case "map":
                _compare_types(left["keyType"], right["keyType"], f"{path}.key", found)
                _compare_types(left["valueType"], right["valueType"], f"{path}.value", found)
                return
    if left == right:
        return
    said = f"type of column {path} was {format_type(left)} and is {format_type(right)}"
    text = isinstance(left, str) and left.startswith(("char(", "varchar(")) and right == "string"
    if text or (left, right) in WIDENED:
        found.accepted.append(said)
    else:
        found.findings.append(MigrationFinding("schema-drift", said, path))


# Sentences


def _join_keys(keys: list[str]) -> str:
    shown = ", ".join(keys[:NAMED_AT_MOST])
    return shown if len(keys) <= NAMED_AT_MOST else f"{shown} and {len(keys) - NAMED_AT_MOST} more"


def _format_value(value: Any) -> str:
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= 200 else text[:200] + "…"
