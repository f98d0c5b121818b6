"""Views and versions for tests: a builder names what matters and fills in the rest."""

from typing import Any

from nunatak.iceberg.view_commit import new_view
from nunatak.iceberg.view_metadata import ViewMetadata

Json = dict[str, Any]

VIEW_UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
LOCATION = "file:/warehouse/ns/view"
CREATED_MS = 1_700_000_000_000
NOW_MS = 1_800_000_000_000


def a_field(id: int, name: str) -> Json:
    return {"id": id, "name": name, "required": False, "type": "string"}


def a_schema(*names: str, id: int = 5, first_field_id: int = 3) -> Json:
    fields = [a_field(number, name) for number, name in enumerate(names or ("id", "data"), first_field_id)]
    return {"type": "struct", "schema-id": id, "fields": fields}


def a_query(sql: str = "SELECT 1", dialect: str = "spark") -> Json:
    return {"type": "sql", "sql": sql, "dialect": dialect}


def a_version(*queries: Json, id: int = 1, schema_id: int = 0, timestamp_ms: int = CREATED_MS, **more: Any) -> Json:
    return {
        "version-id": id,
        "schema-id": schema_id,
        "timestamp-ms": timestamp_ms,
        "summary": {"engine-name": "spark"},
        "representations": list(queries or (a_query(),)),
        "default-namespace": ["ns"],
        **more,
    }


def a_view(
    *,
    schema: Json | None = None,
    version: Json | None = None,
    properties: dict[str, str] | None = None,
) -> ViewMetadata:
    return new_view(
        schema=schema or a_schema(),
        view_version=version or a_version(),
        location=LOCATION,
        properties=properties or {},
        view_uuid=VIEW_UUID,
        now_ms=NOW_MS,
    )


def a_document(**changes: Any) -> Json:
    """A metadata file's content; a change of None takes the field away."""
    document = {
        "view-uuid": VIEW_UUID,
        "format-version": 1,
        "location": LOCATION,
        "properties": {"comment": "daily counts"},
        "schemas": [a_schema(id=0)],
        "current-version-id": 1,
        "versions": [a_version()],
        "version-log": [{"timestamp-ms": CREATED_MS, "version-id": 1}],
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return {name: value for name, value in document.items() if value is not None}
