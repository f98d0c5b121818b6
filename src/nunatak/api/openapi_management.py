"""The OpenAPI document of the management API: its parameters, and the parts that no type describes."""

from functools import lru_cache
from typing import Annotated, Any

import msgspec

from nunatak.access.administration import MAX_NAME_LENGTH
from nunatak.access.privileges import EVERYTHING, names_of
from nunatak.api.openapi_operations import whole
from nunatak.api.openapi_schemas import BOOLEAN, HEADERS, LONG, PARAMETERS, STRING, WRITTEN, parameter
from nunatak.api.route import Route
from nunatak.iceberg.shapes import described_by
from nunatak.maintenance.policies import TYPES, AnyPolicy

Json = dict[str, Any]

OpenApiDocument = Annotated[Json, described_by("OpenApiDocument")]

_PRIVILEGE: Json = {"type": "string", "enum": names_of(EVERYTHING)}
_NAME: Json = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH}
_WAREHOUSE_NAME: Json = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}

_PARAMETERS: Json = {
    "principal": parameter("path", "principal", _NAME, "The principal's name."),
    "role": parameter("path", "role", _NAME, "The role's name."),
    "credential": parameter("path", "credential", STRING, "The credential's id."),
    "warehouse": parameter("path", "warehouse", _WAREHOUSE_NAME, "The warehouse's name."),
    "grantee": parameter("query", "grantee", STRING, "`principal:NAME` or `role:NAME`."),
    "securable": parameter("query", "securable", STRING, "As `server`, `warehouse:WH` or `namespace:WH/A/B`."),
    "privileges": parameter("query", "privileges", STRING, "Privileges and bundles, separated by commas."),
    "privilege": parameter("query", "privilege", _PRIVILEGE, "The one to explain."),
    "about": parameter("query", "principal", STRING, "Whose access to explain; the caller's own if absent."),
    "actor": parameter("query", "principal", STRING, "Only what this principal did."),
    "action": parameter("query", "action", STRING, "Only this, as `create-table` or `loadTable`."),
    "outcome": parameter("query", "outcome", {"type": "string", "enum": ["allowed", "denied"]}, "Only these."),
    "request-id": parameter("query", "request-id", STRING, "Only the request of this X-Request-Id."),
    "since": parameter("query", "since", STRING, "Only from this time on, in ISO 8601."),
    "until": parameter("query", "until", STRING, "Only before this time."),
    "order": parameter("query", "order", {"type": "string", "enum": ["newest", "oldest"]}, "What comes first."),
    "roles": parameter("query", "roles", STRING, "Roles that a token or a proxy would add, separated by commas."),
    "place": parameter("query", "securable", STRING, "`warehouse:WH`, `namespace:WH/A/B` or `table:WH/A/T`."),
    "deep": parameter("query", "deep", BOOLEAN, "Read the manifests, too: slower, and exact."),
    "job": parameter("path", "job", LONG, "The job's number."),
    "policyType": parameter("query", "type", {"type": "string", "enum": sorted(TYPES)}, "The type of the policy."),
    "migration": parameter("path", "migration", STRING, "The migration's name."),
    "document": parameter("path", "document", STRING, "The document's name."),
    "documentPrefix": parameter("query", "prefix", STRING, "Only documents whose names begin so."),
    "documentVersion": parameter("query", "version", LONG, "The version to drop."),
}


@lru_cache(maxsize=1)
def management_document(routes: tuple[Route, ...]) -> Json:
    info = {
        "title": "Nunatak's management API",
        "description": "Principals, roles, grants, credentials, warehouses and the upkeep of tables. "
        "Errors look as in the catalog's API.",
    }
    (policy,), _ = msgspec.json.schema_components([AnyPolicy], ref_template="#/components/schemas/{name}")
    return whole(
        info,
        routes,
        {"schemas": {**WRITTEN, "Policy": policy}, "parameters": {**PARAMETERS, **_PARAMETERS}, "headers": HEADERS},
    )
