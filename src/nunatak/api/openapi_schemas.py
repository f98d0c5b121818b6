"""The bodies, parameters and headers of our REST API as OpenAPI components; openapi.py says which operation uses them.

Answers are described by what every client may rely on. Objects are open: a field that is not listed here is kept and
given back, so a newer client loses nothing.
"""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def record(required: str, /, *, about: str = "", optional: Json | None = None, **fields: Json) -> Json:
    """An object whose fields are spelled with underscores here and hyphens on the wire; `required` names some."""
    properties = {name.replace("_", "-"): schema for name, schema in (fields | (optional or {})).items()}
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return described(schema, about)


def described(schema: Json, about: str) -> Json:
    return {**schema, "description": about} if about else schema


def list_of(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def map_of(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


def any_of(names: Iterable[str]) -> Json:
    return {"anyOf": [ref(name) for name in names]}


def nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


STRING: Json = {"type": "string"}
BOOLEAN: Json = {"type": "boolean"}
INT: Json = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}
LONG: Json = {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}
UUID: Json = {"type": "string", "format": "uuid"}
PROPERTIES: Json = map_of(STRING)
# Names are refused only if no client could address them again.
NAME: Json = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^(?!\.{1,2}$)[^\x00-\x1f\x7f]+$"}
LAST_ADDED_ID: Json = described(INT, "An id, or -1 for the one added last in the same request.")


def _constant(value: str) -> Json:
    return {"type": "string", "const": value}


def _update(action: str, required: str = "", *, about: str, **fields: Json) -> Json:
    return record(f"action {required}".strip(), about=about, action=_constant(action), optional=fields)


def _requirement(type: str, required: str = "", *, about: str, **fields: Json) -> Json:
    return record(f"type {required}".strip(), about=about, type=_constant(type), optional=fields)


ERRORS: Json = {
    "ErrorModel": record(
        "message type code",
        about="What went wrong. Clients choose their reaction by code and type.",
        message=described(STRING, "A sentence for people: what, which, and what now."),
        type=described(STRING, "The exception an Iceberg client raises, e.g. `NoSuchTableException`."),
        code={"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status again."},
        hint=described(STRING, "What to do next, where there is something to do."),
    ),
    "ErrorResponse": record("error", error=ref("ErrorModel")),
}

NAMES: Json = {
    "Namespace": list_of(NAME, minItems=1, maxItems=16, description="The levels of a namespace, outermost first."),
    "Identifier": record(
        "namespace name", about="A table or view by its full name.", namespace=ref("Namespace"), name=NAME
    ),
    "PageToken": nullable(
        described(STRING, "Where the next page starts. Opaque; absent or null after the last page, never empty.")
    ),
}

TYPES: Json = {
    "Type": {
        "anyOf": [ref("PrimitiveType"), ref("StructType"), ref("ListType"), ref("MapType")],
        "description": "The type of a column or of a part of one.",
    },
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
        doc=nullable(STRING),
        initial_default={"description": "The value of rows written before the column existed; format version 3."},
        write_default={"description": "The value of rows that do not give one; format version 3."},
    ),
    "Schema": record(
        "type fields",
        about="A struct with an id. Field ids of a table are assigned by the server; those of a view are kept.",
        type=_constant("struct"),
        fields=list_of(ref("StructField")),
        schema_id=INT,
        identifier_field_ids=list_of(INT, description="The fields that together tell rows apart."),
    ),
}

TABLE_METADATA: Json = {
    "PartitionField": record(
        "source-id transform name",
        source_id=INT,
        field_id=INT,
        name=STRING,
        transform=ref("Transform"),
    ),
    "Transform": {
        "type": "string",
        "description": "How a partition or sort value is made from a column.",
        "examples": ["identity", "bucket[16]", "truncate[8]", "year", "month", "day", "hour", "void"],
    },
    "PartitionSpec": record("fields", spec_id=INT, fields=list_of(ref("PartitionField"))),
    "SortField": record(
        "source-id transform direction null-order",
        source_id=INT,
        transform=ref("Transform"),
        direction={"type": "string", "enum": ["asc", "desc"]},
        null_order={"type": "string", "enum": ["nulls-first", "nulls-last"]},
    ),
    "SortOrder": record("fields", order_id=INT, fields=list_of(ref("SortField"))),
    "Snapshot": record(
        "snapshot-id timestamp-ms",
        about="The state of a table at one time.",
        snapshot_id=LONG,
        parent_snapshot_id=nullable(LONG),
        sequence_number=LONG,
        timestamp_ms=LONG,
        manifest_list=described(STRING, "The file that lists the snapshot's manifests."),
        summary=described(PROPERTIES, "What the snapshot did; `operation` is append, replace, overwrite or delete."),
        schema_id=nullable(INT),
        first_row_id=nullable(LONG),
        added_rows=nullable(LONG),
        key_id=nullable(STRING),
    ),
    "SnapshotReference": record(
        "snapshot-id type",
        about="A branch or a tag.",
        snapshot_id=LONG,
        type={"type": "string", "enum": ["branch", "tag"]},
        min_snapshots_to_keep=nullable(INT),
        max_snapshot_age_ms=nullable(LONG),
        max_ref_age_ms=nullable(LONG),
    ),
    "SnapshotLogEntry": record("snapshot-id timestamp-ms", snapshot_id=LONG, timestamp_ms=LONG),
    "MetadataLogEntry": record("metadata-file timestamp-ms", metadata_file=STRING, timestamp_ms=LONG),
    "BlobMetadata": record(
        "type snapshot-id sequence-number fields",
        type=STRING,
        snapshot_id=LONG,
        sequence_number=LONG,
        fields=list_of(INT),
        properties=PROPERTIES,
    ),
    "StatisticsFile": record(
        "snapshot-id statistics-path file-size-in-bytes file-footer-size-in-bytes blob-metadata",
        snapshot_id=LONG,
        statistics_path=STRING,
        file_size_in_bytes=LONG,
        file_footer_size_in_bytes=LONG,
        blob_metadata=list_of(ref("BlobMetadata")),
    ),
    "PartitionStatisticsFile": record(
        "snapshot-id statistics-path file-size-in-bytes",
        snapshot_id=LONG,
        statistics_path=STRING,
        file_size_in_bytes=LONG,
    ),
    "EncryptedKey": record(
        "key-id encrypted-key-metadata",
        key_id=STRING,
        encrypted_key_metadata={"type": "string", "contentEncoding": "base64"},
        encrypted_by_id=nullable(STRING),
        properties=PROPERTIES,
    ),
    "TableMetadata": record(
        "format-version table-uuid location last-updated-ms",
        about="The content of a table's metadata file, exactly as it is stored.",
        format_version={"type": "integer", "minimum": 1, "maximum": 3},
        table_uuid=STRING,
        location=STRING,
        last_sequence_number=LONG,
        last_updated_ms=LONG,
        last_column_id=INT,
        schemas=list_of(ref("Schema")),
        current_schema_id=INT,
        partition_specs=list_of(ref("PartitionSpec")),
        default_spec_id=INT,
        last_partition_id=INT,
        sort_orders=list_of(ref("SortOrder")),
        default_sort_order_id=INT,
        properties=PROPERTIES,
        current_snapshot_id=nullable(LONG),
        snapshots=list_of(ref("Snapshot")),
        refs=map_of(ref("SnapshotReference")),
        snapshot_log=list_of(ref("SnapshotLogEntry")),
        metadata_log=list_of(ref("MetadataLogEntry")),
        statistics=list_of(ref("StatisticsFile")),
        partition_statistics=list_of(ref("PartitionStatisticsFile")),
        encryption_keys=list_of(ref("EncryptedKey")),
        next_row_id=LONG,
    ),
}

VIEW_METADATA: Json = {
    "SQLViewRepresentation": record(
        "type sql dialect",
        about="One query text; a version has at most one for each dialect, whatever its case.",
        type=_constant("sql"),
        sql=STRING,
        dialect=STRING,
    ),
    "ViewVersion": record(
        "version-id schema-id timestamp-ms summary representations default-namespace",
        version_id=INT,
        schema_id=LAST_ADDED_ID,
        timestamp_ms=LONG,
        summary=PROPERTIES,
        representations=list_of(ref("SQLViewRepresentation")),
        default_catalog=nullable(STRING),
        default_namespace=list_of(STRING),
    ),
    "ViewVersionLogEntry": record("version-id timestamp-ms", version_id=INT, timestamp_ms=LONG),
    "ViewMetadata": record(
        "view-uuid format-version location schemas current-version-id versions version-log",
        about="The content of a view's metadata file, exactly as it is stored.",
        view_uuid=STRING,
        format_version={"type": "integer", "minimum": 1, "maximum": 1},
        location=STRING,
        schemas=list_of(ref("Schema")),
        current_version_id=INT,
        versions=list_of(ref("ViewVersion")),
        version_log=list_of(ref("ViewVersionLogEntry")),
        properties=PROPERTIES,
    ),
}

SHARED_UPDATES: Json = {
    "AssignUUID": _update("assign-uuid", "uuid", about="Name a new table or view for ever.", uuid=STRING),
    "UpgradeFormatVersion": _update(
        "upgrade-format-version",
        "format-version",
        about="Raise the format version; it never goes back.",
        format_version=INT,
    ),
    "AddSchema": _update(
        "add-schema", "schema", about="Add a schema, or find the equal one that is there.", schema=ref("Schema")
    ),
    "SetLocation": _update("set-location", "location", about="Write new files elsewhere.", location=STRING),
    "SetProperties": _update("set-properties", "updates", about="Set some properties.", updates=PROPERTIES),
    "RemoveProperties": _update(
        "remove-properties", "removals", about="Remove properties that may be there.", removals=list_of(STRING)
    ),
}

TABLE_UPDATES: Json = {
    "SetCurrentSchema": _update(
        "set-current-schema", "schema-id", about="Choose the current schema.", schema_id=LAST_ADDED_ID
    ),
    "AddPartitionSpec": _update(
        "add-spec", "spec", about="Add a partition spec, or find the equal one.", spec=ref("PartitionSpec")
    ),
    "SetDefaultSpec": _update(
        "set-default-spec", "spec-id", about="Choose how new data is partitioned.", spec_id=LAST_ADDED_ID
    ),
    "AddSortOrder": _update(
        "add-sort-order", "sort-order", about="Add a sort order, or find the equal one.", sort_order=ref("SortOrder")
    ),
    "SetDefaultSortOrder": _update(
        "set-default-sort-order", "sort-order-id", about="Choose how new data is sorted.", sort_order_id=LAST_ADDED_ID
    ),
    "AddSnapshot": _update("add-snapshot", "snapshot", about="Add a snapshot.", snapshot=ref("Snapshot")),
    "SetSnapshotRef": _update(
        "set-snapshot-ref",
        "ref-name snapshot-id type",
        about="Create or move a branch or tag; `main` is the table's current state.",
        ref_name=STRING,
        **TABLE_METADATA["SnapshotReference"]["properties"],
    ),
    "SetCurrentSnapshot": _update(
        "set-current-snapshot", "snapshot-id", about="Move `main`; a short form of set-snapshot-ref.", snapshot_id=LONG
    ),
    "RemoveSnapshots": _update(
        "remove-snapshots", "snapshot-ids", about="Forget snapshots.", snapshot_ids=list_of(LONG)
    ),
    "RemoveSnapshotRef": _update("remove-snapshot-ref", "ref-name", about="Forget a branch or tag.", ref_name=STRING),
    "SetStatistics": _update(
        "set-statistics", "statistics", about="Attach statistics to a snapshot.", statistics=ref("StatisticsFile")
    ),
    "RemoveStatistics": _update(
        "remove-statistics", "snapshot-id", about="Detach a snapshot's statistics.", snapshot_id=LONG
    ),
    "SetPartitionStatistics": _update(
        "set-partition-statistics",
        "partition-statistics",
        about="Attach partition statistics to a snapshot.",
        partition_statistics=ref("PartitionStatisticsFile"),
    ),
    "RemovePartitionStatistics": _update(
        "remove-partition-statistics",
        "snapshot-id",
        about="Detach a snapshot's partition statistics.",
        snapshot_id=LONG,
    ),
    "RemovePartitionSpecs": _update(
        "remove-partition-specs", "spec-ids", about="Forget specs that are not the default.", spec_ids=list_of(INT)
    ),
    "RemoveSchemas": _update(
        "remove-schemas", "schema-ids", about="Forget schemas that are not current.", schema_ids=list_of(INT)
    ),
    "AddEncryptionKey": _update(
        "add-encryption-key", "encryption-key", about="Add an encrypted key.", encryption_key=ref("EncryptedKey")
    ),
    "RemoveEncryptionKey": _update("remove-encryption-key", "key-id", about="Forget an encrypted key.", key_id=STRING),
}

VIEW_UPDATES: Json = {
    "AddViewVersion": _update(
        "add-view-version",
        "view-version",
        about="Add a version, or find the equal one that is there.",
        view_version=ref("ViewVersion"),
    ),
    "SetCurrentViewVersion": _update(
        "set-current-view-version",
        "view-version-id",
        about="Choose the version that queries see.",
        view_version_id=LAST_ADDED_ID,
    ),
}

TABLE_REQUIREMENTS: Json = {
    "AssertCreate": _requirement("assert-create", about="There is no such table yet; stands alone."),
    "AssertTableUUID": _requirement("assert-table-uuid", "uuid", about="It is still the same table.", uuid=STRING),
    "AssertRefSnapshotId": _requirement(
        "assert-ref-snapshot-id",
        "ref snapshot-id",
        about="A branch or tag still points there; null means that it does not exist.",
        ref=STRING,
        snapshot_id=nullable(LONG),
    ),
    "AssertCurrentSnapshotId": _requirement(
        "assert-current-snapshot-id",
        "snapshot-id",
        about="`main` still points there; a short form of assert-ref-snapshot-id.",
        snapshot_id=nullable(LONG),
    ),
    "AssertLastAssignedFieldId": _requirement(
        "assert-last-assigned-field-id",
        "last-assigned-field-id",
        about="Nobody added a column meanwhile.",
        last_assigned_field_id=INT,
    ),
    "AssertCurrentSchemaId": _requirement(
        "assert-current-schema-id", "current-schema-id", about="The schema is still this one.", current_schema_id=INT
    ),
    "AssertLastAssignedPartitionId": _requirement(
        "assert-last-assigned-partition-id",
        "last-assigned-partition-id",
        about="Nobody added a partition field meanwhile.",
        last_assigned_partition_id=INT,
    ),
    "AssertDefaultSpecId": _requirement(
        "assert-default-spec-id", "default-spec-id", about="The default spec is still this one.", default_spec_id=INT
    ),
    "AssertDefaultSortOrderId": _requirement(
        "assert-default-sort-order-id",
        "default-sort-order-id",
        about="The default sort order is still this one.",
        default_sort_order_id=INT,
    ),
}

VIEW_REQUIREMENTS: Json = {
    "AssertViewUUID": _requirement("assert-view-uuid", "uuid", about="It is still the same view.", uuid=STRING)
}

COMMITS: Json = {
    "TableUpdate": any_of([*SHARED_UPDATES, *TABLE_UPDATES]),
    "TableRequirement": any_of(TABLE_REQUIREMENTS),
    "ViewUpdate": any_of([*SHARED_UPDATES, *VIEW_UPDATES]),
    "ViewRequirement": any_of(VIEW_REQUIREMENTS),
    "CommitTableRequest": record(
        "requirements updates",
        about="Updates that are applied together, in order, if every requirement holds.",
        identifier=ref("Identifier"),
        requirements=list_of(ref("TableRequirement")),
        updates=list_of(ref("TableUpdate")),
    ),
    "TableChange": record(
        "identifier requirements updates",
        about="A commit to one table among several.",
        identifier=ref("Identifier"),
        requirements=list_of(ref("TableRequirement")),
        updates=list_of(ref("TableUpdate")),
    ),
    "CommitTableResponse": record(
        "metadata-location metadata", metadata_location=STRING, metadata=ref("TableMetadata"), config=PROPERTIES
    ),
    "CommitTransactionRequest": record(
        "table-changes",
        about="Commits to several tables: all of them happen, or none.",
        table_changes=list_of(ref("TableChange"), minItems=1),
    ),
    "CommitViewRequest": record(
        "updates",
        about="Updates that are applied together, in order, if every requirement holds.",
        identifier=ref("Identifier"),
        requirements=list_of(ref("ViewRequirement")),
        updates=list_of(ref("ViewUpdate")),
    ),
}

REQUESTS: Json = {
    "CreateNamespaceRequest": record("namespace", namespace=ref("Namespace"), properties=PROPERTIES),
    "UpdateNamespacePropertiesRequest": record(
        "",
        about="A key may be set or removed, not both.",
        updates=PROPERTIES,
        removals=list_of(STRING, uniqueItems=True),
    ),
    "CreateTableRequest": record(
        "name schema",
        name=NAME,
        schema=ref("Schema"),
        location=nullable(described(STRING, "Where the table is to lie, inside what the warehouse allows.")),
        partition_spec=nullable(ref("PartitionSpec")),
        write_order=nullable(ref("SortOrder")),
        stage_create=described(BOOLEAN, "Answer with the metadata and create nothing yet."),
        properties=described(PROPERTIES, "`format-version` chooses 1, 2 (the default) or 3 and is not stored."),
    ),
    "RegisterTableRequest": record(
        "name metadata-location",
        name=NAME,
        metadata_location=STRING,
        overwrite=described(BOOLEAN, "Replace a table of that name."),
        shadow_of=nullable(
            described(STRING, "The table of another catalog whose file it is; it takes no commits here.")
        ),
    ),
    "CreateViewRequest": record(
        "name schema view-version",
        name=NAME,
        location=nullable(STRING),
        schema=ref("Schema"),
        view_version=ref("ViewVersion"),
        properties=PROPERTIES,
    ),
    "RegisterViewRequest": record("name metadata-location", name=NAME, metadata_location=STRING),
    "RenameRequest": record("source destination", source=ref("Identifier"), destination=ref("Identifier")),
    "MetricsReport": record(
        "table-name metrics",
        about="What an engine measured while it planned a scan or made a commit. It is stored; nothing in it is "
        "checked beyond its shape.",
        report_type={"type": "string", "examples": ["scan-report", "commit-report"]},
        table_name=STRING,
        snapshot_id=LONG,
        sequence_number=LONG,
        operation=STRING,
        schema_id=INT,
        filter={},
        projected_field_ids=list_of(INT),
        projected_field_names=list_of(STRING),
        metrics={"type": "object"},
        metadata=PROPERTIES,
    ),
}

RESPONSES: Json = {
    "CatalogConfig": record(
        "defaults overrides",
        defaults=described(PROPERTIES, "Used where the client sets nothing."),
        overrides=described(PROPERTIES, "Used whatever the client sets; `prefix` goes into every path."),
        endpoints=list_of(STRING, description="Every operation that is served, as `METHOD /v1/{prefix}/…`."),
        idempotency_key_lifetime={
            "type": "string",
            "format": "duration",
            "description": "How long a request may be sent again with its Idempotency-Key.",
        },
    ),
    "ListNamespacesResponse": record(
        "namespaces", optional={"next-page-token": ref("PageToken")}, namespaces=list_of(ref("Namespace"))
    ),
    "NamespaceResponse": record("namespace properties", namespace=ref("Namespace"), properties=PROPERTIES),
    "UpdateNamespacePropertiesResponse": record(
        "updated removed",
        updated=list_of(STRING),
        removed=list_of(STRING),
        missing=nullable(list_of(STRING, description="Keys to remove that were not there.")),
    ),
    "ListIdentifiersResponse": record(
        "identifiers", optional={"next-page-token": ref("PageToken")}, identifiers=list_of(ref("Identifier"))
    ),
    "StorageCredential": record("prefix config", prefix=STRING, config=PROPERTIES),
    "LoadTableResponse": record(
        "metadata",
        metadata_location=nullable(described(STRING, "Absent while a table is only staged.")),
        metadata=ref("TableMetadata"),
        config=PROPERTIES,
        storage_credentials=list_of(ref("StorageCredential")),
    ),
    "UnregisterTableResponse": record(
        "metadata-location metadata", metadata_location=STRING, metadata=ref("TableMetadata")
    ),
    "LoadViewResponse": record(
        "metadata-location metadata", metadata_location=STRING, metadata=ref("ViewMetadata"), config=PROPERTIES
    ),
    "SearchResponse": record(
        "results",
        optional={"next-page-token": ref("PageToken")},
        results=list_of(
            record("type identifier", type={"type": "string", "enum": ["table", "view"]}, identifier=ref("Identifier"))
        ),
    ),
    "WelcomeResponse": record("name version config health", name=STRING, version=STRING, config=STRING, health=STRING),
    "HealthResponse": record("status", status=STRING),
}

TOKENS: Json = {
    "TokenRequest": {
        "type": "object",
        "description": "A client's id and secret may be sent with HTTP Basic instead.",
        "properties": {
            "grant_type": {
                "type": "string",
                "enum": ["client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"],
            },
            "client_id": STRING,
            "client_secret": STRING,
            "scope": described(STRING, "`catalog`, or `PRINCIPAL_ROLE:ROLE` for each role to act in."),
            "subject_token": described(STRING, "The token to exchange."),
            "subject_token_type": STRING,
        },
        "required": ["grant_type"],
    },
    "TokenResponse": {
        "type": "object",
        "properties": {
            "access_token": STRING,
            "token_type": _constant("bearer"),
            "expires_in": described(INT, "Seconds that the token is good for."),
            "issued_token_type": STRING,
            "scope": STRING,
        },
        "required": ["access_token", "token_type", "expires_in", "issued_token_type", "scope"],
    },
    "TokenError": {
        "type": "object",
        "description": "A refusal as OAuth writes it.",
        "properties": {"error": STRING, "error_description": STRING, "message": STRING, "type": STRING, "code": INT},
        "required": ["error", "message", "type", "code"],
    },
    "TokenRefusal": any_of(["TokenError", "ErrorResponse"]),
    "KeySet": record("keys", about="A JWKS document.", keys=list_of({"type": "object"})),
}

SCHEMAS: Json = {
    **ERRORS,
    **NAMES,
    **TYPES,
    **TABLE_METADATA,
    **VIEW_METADATA,
    **SHARED_UPDATES,
    **TABLE_UPDATES,
    **VIEW_UPDATES,
    **TABLE_REQUIREMENTS,
    **VIEW_REQUIREMENTS,
    **COMMITS,
    **REQUESTS,
    **RESPONSES,
    **TOKENS,
}


def parameter(place: str, name: str, schema: Json, about: str) -> Json:
    return {"name": name, "in": place, "required": place == "path", "description": about, "schema": schema}


PARAMETERS: Json = {
    "prefix": parameter("path", "prefix", NAME, "The warehouse, as `overrides.prefix` of GET /v1/config says."),
    "namespace": parameter(
        "path",
        "namespace",
        NAME | {"maxLength": 4096, "pattern": r"^(?!\.{1,2}$)[^\x00-\x1e\x7f]+$"},
        "The levels of the namespace, joined by the unit separator (`%1F`).",
    ),
    "table": parameter("path", "table", NAME, "The table's name."),
    "view": parameter("path", "view", NAME, "The view's name."),
    "warehouse": parameter("query", "warehouse", STRING, "Which warehouse to use; the default one if absent."),
    "parent": parameter("query", "parent", STRING, "List the namespaces directly inside this one."),
    "pageToken": parameter("query", "pageToken", STRING, "The `next-page-token` of the page before; empty at first."),
    "pageSize": parameter(
        "query", "pageSize", {"type": "integer", "minimum": 1}, "How many entries to answer with at most."
    ),
    "snapshots": parameter(
        "query",
        "snapshots",
        {"type": "string", "enum": ["all", "refs"]},
        "Every snapshot, or only those that a branch or tag points at.",
    ),
    "purgeRequested": parameter("query", "purgeRequested", BOOLEAN, "Delete the table's files too."),
    "query": parameter("query", "query", STRING, "A part of the names to find."),
    "type": parameter("query", "type", {"type": "string", "enum": ["table", "view"]}, "Find only these."),
    "Idempotency-Key": parameter(
        "header",
        "Idempotency-Key",
        UUID,
        "A request that is sent again with its key is not done again: it gets the first answer.",
    ),
    "If-None-Match": parameter("header", "If-None-Match", STRING, "The ETag of what the client has; 304 if current."),
    "X-Request-Id": parameter(
        "header",
        "X-Request-Id",
        {"type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9._-]+$"},
        "A name for this request in logs; one is made up if absent.",
    ),
    "X-Iceberg-Access-Delegation": parameter(
        "header",
        "X-Iceberg-Access-Delegation",
        STRING,
        "How the client wants to reach the files: `vended-credentials`, `remote-signing` or both.",
    ),
}

HEADERS: Json = {
    "X-Request-Id": {"description": "The request's name in our logs.", "schema": STRING},
    "ETag": {"description": "Changes whenever the body would.", "schema": STRING},
    "Retry-After": {"description": "Seconds to wait before the same request may be sent again.", "schema": STRING},
}
