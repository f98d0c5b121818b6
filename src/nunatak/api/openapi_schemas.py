"""Hand-written parts of the OpenAPI documents: schemas that no type describes, parameters and headers.

Responses list what every client may rely on. Objects are open: a field that is not listed is stored and returned, so
a newer client loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from nunatak.api.openapi_types import ref, schema_name, without_null
from nunatak.api.wire import NAME, WireIdentifier
from nunatak.iceberg import view_commit
from nunatak.iceberg.commit_request import AddViewVersion, AssertViewUuid, Requirement, SetCurrentViewVersion, Update
from nunatak.iceberg.shapes import (
    EncryptedKeyShape,
    MetadataLogEntryShape,
    PartitionSpecShape,
    PartitionStatisticsFileShape,
    SnapshotLogEntryShape,
    SnapshotShape,
    SortOrderShape,
    StatisticsFileShape,
)
from nunatak.iceberg.view_metadata import ViewVersionShape

Json = dict[str, Any]

STRING: Json = {"type": "string"}
BOOLEAN: Json = {"type": "boolean"}
INT: Json = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}
LONG: Json = {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}
OF_NAME: Json = {**STRING, **NAME}


def record(required: str, /, *, about: str = "", **fields: Json) -> Json:
    """Returns an object schema; underscores in field names become hyphens, `required` names are separated by spaces."""
    properties = {name.replace("_", "-"): schema for name, schema in fields.items()}
    described = {"description": about} if about else {}
    return {"type": "object", "properties": properties, "required": required.split(), **described}


def list_of(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def any_of(*names: str) -> Json:
    return {"anyOf": [ref(name) for name in names]}


def _constant(value: str) -> Json:
    return {"type": "string", "const": value}


# Types and schema of a table; schema.py parses them, so no msgspec type describes them.
TYPES: Json = {
    "Type": any_of("PrimitiveType", "StructType", "ListType", "MapType")
    | {"description": "The type of a column or of a part of one."},
    "PrimitiveType": {
        "type": "string",
        "description": "A type without parts. Variant, geometry, geography, unknown and nanosecond times need "
        "format version 3.",
        "pattern": r"^(boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns|string"
        r"|uuid|binary|variant|unknown|fixed\[ *[0-9]+ *\]|decimal\( *[0-9]+ *, *[0-9]+ *\)|geometry(\(.*\))?"
        r"|geography(\(.*\))?)$",
        "examples": ["long", "string", "fixed[16]", "decimal(10,2)"],
    },
    "StructType": record("type fields", type=_constant("struct"), fields=list_of(ref("StructField"))),
    "ListType": record(
        "type element-id element element-required",
        type=_constant("list"),
        element_id=INT,
        element=ref("Type"),
        element_required=BOOLEAN,
    ),
    "MapType": record(
        "type key-id key value-id value value-required",
        type=_constant("map"),
        key_id=INT,
        key=ref("Type"),
        value_id=INT,
        value=ref("Type"),
        value_required=BOOLEAN,
    ),
    "StructField": record(
        "id name required type",
        id=INT,
        name=STRING,
        required=BOOLEAN,
        type=ref("Type"),
        doc={"anyOf": [STRING, {"type": "null"}]},
        initial_default={"description": "The value of rows written before the column existed; format version 3."},
        write_default={"description": "The value of rows that do not give one; format version 3."},
    ),
    "Schema": record(
        "type fields",
        about="A struct with an id. Field ids of a table are assigned by the server; those of a view are kept.",
        type=_constant("struct"),
        fields=list_of(ref("StructField")),
        schema_id=INT,
        identifier_field_ids=list_of(INT, description="The fields that together identify a row."),
    ),
    "Transform": {
        "type": "string",
        "description": "How a partition or sort value is computed from a column.",
        "examples": ["identity", "bucket[16]", "truncate[8]", "year", "month", "day", "hour", "void"],
    },
}

_OF_VIEWS = (AddViewVersion, SetCurrentViewVersion, AssertViewUuid)
_TAGGED = {each.__struct_config__.tag: each for each in get_args(Update)}

WRITTEN: Json = {
    **TYPES,
    "Namespace": list_of(OF_NAME, minItems=1, maxItems=16, description="The levels of a namespace, outermost first."),
    "PageToken": {
        "anyOf": [STRING, {"type": "null"}],
        "description": "Where the next page starts. Opaque; absent or null after the last page, never empty.",
    },
    "TableUpdate": any_of(*(schema_name(each) for each in get_args(Update) if each not in _OF_VIEWS)),
    "TableRequirement": any_of(*(schema_name(each) for each in get_args(Requirement) if each not in _OF_VIEWS)),
    # View updates are decoded by hand, into types without a tag: the tagged types of table updates describe them.
    "ViewUpdate": any_of(*(schema_name(_TAGGED[action]) for action in view_commit.ACTIONS)),
    "ViewRequirement": any_of(schema_name(AssertViewUuid)),
    "CommitViewRequest": record(
        "updates",
        about=view_commit.CommitViewRequest.__doc__ or "",
        identifier=ref("Identifier"),
        requirements=list_of(ref("ViewRequirement")),
        updates=list_of(ref("ViewUpdate")),
    ),
    "OpenApiDocument": {"type": "object"},
}

# Types of fields that other types declare as arbitrary JSON.
INNER = (
    EncryptedKeyShape,
    MetadataLogEntryShape,
    PartitionSpecShape,
    PartitionStatisticsFileShape,
    SnapshotLogEntryShape,
    SnapshotShape,
    SortOrderShape,
    StatisticsFileShape,
    ViewVersionShape,
    WireIdentifier,
)


@dataclass(frozen=True)
class Amendment:
    """Constraints that the document adds to a type's schema; decoders are more lenient, for old clients."""

    required: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def amend(self, schema: Json) -> None:
        fields = schema["properties"]
        if self.required:
            schema["required"] = [*schema.get("required", ()), *self.required]
        for name in self.not_null:
            fields[name] = without_null(fields[name])
        for name in self.hidden:
            del fields[name]
        for name, (least, most) in self.limits.items():
            fields[name] |= {"minimum": least, "maximum": most}


AMENDMENTS: dict[str, Amendment] = {
    "AssertCurrentSnapshotId": Amendment(required=("snapshot-id",)),
    "AssertRefSnapshotId": Amendment(required=("snapshot-id",)),
    "AuditRecord": Amendment(not_null=("request_id", "roles", "address", "agent")),
    "CommitTableRequest": Amendment(required=("requirements",)),
    "RemoveProperties": Amendment(required=("removals",), not_null=("removals",), hidden=("removed",)),
    "SetProperties": Amendment(required=("updates",), not_null=("updates",), hidden=("updated",)),
    "SQLViewRepresentation": Amendment(required=("sql", "dialect"), not_null=("sql", "dialect")),
    "TableChange": Amendment(required=("requirements",)),
    "TableMetadata": Amendment(required=("table-uuid",), not_null=("table-uuid",), limits={"format-version": (1, 3)}),
    "TokenResponse": Amendment(required=("token_type",)),
    "ViewMetadata": Amendment(limits={"format-version": (1, 1)}),
}


def parameter(place: str, name: str, schema: Json, about: str) -> Json:
    return {"name": name, "in": place, "required": place == "path", "description": about, "schema": schema}


PARAMETERS: Json = {
    "prefix": parameter("path", "prefix", OF_NAME, "The warehouse, as `overrides.prefix` of GET /v1/config says."),
    "namespace": parameter(
        "path",
        "namespace",
        OF_NAME | {"maxLength": 4096, "pattern": r"^(?!\.{1,2}$)[^\x00-\x1e\x7f]+$"},
        "The levels of the namespace, joined by the unit separator (`%1F`).",
    ),
    "table": parameter("path", "table", OF_NAME, "The table's name."),
    "view": parameter("path", "view", OF_NAME, "The view's name."),
    "warehouse": parameter("query", "warehouse", STRING, "Which warehouse to use; the default one if absent."),
    "parent": parameter("query", "parent", STRING, "List the namespaces directly inside this one."),
    "pageToken": parameter(
        "query", "pageToken", STRING, "The `next-page-token` of the previous page; empty for the first."
    ),
    "pageSize": parameter("query", "pageSize", {"type": "integer", "minimum": 1}, "The most entries to return."),
    "snapshots": parameter(
        "query",
        "snapshots",
        {"type": "string", "enum": ["all", "refs"]},
        "Every snapshot, or only those that a branch or tag points at.",
    ),
    "planId": parameter("query", "planId", STRING, "Accepted as the specification has it; changes nothing."),
    "referenced-by": parameter(
        "query", "referenced-by", STRING, "The views through which the table is read; accepted, changes nothing."
    ),
    "purgeRequested": parameter("query", "purgeRequested", BOOLEAN, "Delete the table's files too."),
    "query": parameter("query", "query", STRING, "A part of the names to find."),
    "type": parameter("query", "type", {"type": "string", "enum": ["table", "view"]}, "Only tables, or only views."),
    "Idempotency-Key": parameter(
        "header",
        "Idempotency-Key",
        {"type": "string", "format": "uuid"},
        "A request repeated with the same key is not applied again: it gets the stored response.",
    ),
    "If-None-Match": parameter(
        "header", "If-None-Match", STRING, "The ETag of the client's version; 304 if it is current."
    ),
    "X-Request-Id": parameter(
        "header",
        "X-Request-Id",
        {"type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9._-]+$"},
        "The id of this request in logs; generated if absent.",
    ),
    "X-Iceberg-Access-Delegation": parameter(
        "header",
        "X-Iceberg-Access-Delegation",
        STRING,
        "How the client wants to reach the files: `vended-credentials`, `remote-signing` or both.",
    ),
}

HEADERS: Json = {
    "X-Request-Id": {"description": "The id of the request in the server's logs.", "schema": STRING},
    "ETag": {"description": "Changes whenever the body would.", "schema": STRING},
    "Retry-After": {"description": "Seconds to wait before the same request may be sent again.", "schema": STRING},
}
