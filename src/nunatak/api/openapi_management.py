"""The management API as an OpenAPI document: what its operations take and give."""

from functools import lru_cache
from typing import Any

from nunatak.access.administration import LONGEST_NAME, LONGEST_NOTE
from nunatak.access.privileges import BUNDLES, EVERYTHING, GRANTABLE, names_of
from nunatak.api.openapi_maintenance import MAINTENANCE_OPERATIONS, MAINTENANCE_PARAMETERS, MAINTENANCE_SCHEMAS
from nunatak.api.openapi_migrations import MIGRATION_OPERATIONS, MIGRATION_PARAMETERS, MIGRATION_SCHEMAS
from nunatak.api.openapi_operations import Operation, whole
from nunatak.api.openapi_schemas import (
    BOOLEAN,
    ERRORS,
    HEADERS,
    LONG,
    NAMES,
    PARAMETERS,
    STRING,
    described,
    list_of,
    nullable,
    parameter,
    record,
    ref,
)
from nunatak.api.route import Route

Json = dict[str, Any]

NAME: Json = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
NOTE = nullable({"type": "string", "maxLength": LONGEST_NOTE})
TIME = described(LONG, "Milliseconds since 1970.")
GRANTEE = described(STRING, "`principal:NAME` or `role:NAME`.")
SECURABLE = described(
    STRING, "`server`, `warehouse:WH`, `namespace:WH/A/B`, `table:WH/A/T` or `view:WH/A/V`; a slash in a name is `%2F`."
)
PRIVILEGE: Json = {"type": "string", "enum": names_of(EVERYTHING)}
WAREHOUSE_NAME: Json = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
KIND: Json = {"type": "string", "enum": ["client", "api-key", "access-key"]}

_CREDENTIAL: Json = {
    "credential_id": STRING,
    "principal": NAME,
    "kind": KIND,
    "roles": nullable(list_of(NAME)),
    "note": NOTE,
    "created_ms": TIME,
    "expires_ms": nullable(TIME),
    "last_used_ms": nullable(TIME),
}
_PRINCIPAL: Json = {"name": NAME, "disabled": BOOLEAN, "note": NOTE, "created_ms": TIME}


def _page_of(member: str, items: Json) -> Json:
    return record(member, optional={member: list_of(items), "next-page-token": ref("PageToken")})


SCHEMAS: Json = {
    **ERRORS,
    "PageToken": NAMES["PageToken"],
    "Me": record(
        "principal roles privileges-on-server",
        principal=NAME,
        roles=list_of(NAME),
        authenticated_by=nullable(STRING),
        privileges_on_server=list_of(PRIVILEGE),
    ),
    "Principal": record("name disabled created-ms", **_PRINCIPAL),
    "LoadedPrincipal": record("name disabled created-ms roles", **_PRINCIPAL, roles=list_of(NAME)),
    "CreatePrincipalRequest": record("name", name=NAME, note=NOTE),
    "UpdatePrincipalRequest": record("", about="What is absent stays as it is.", disabled=BOOLEAN, note=NOTE),
    "ListPrincipalsResponse": _page_of("principals", ref("Principal")),
    "Role": record("name created-ms", name=NAME, note=NOTE, created_ms=TIME),
    "CreateRoleRequest": record("name", name=NAME, note=NOTE),
    "ListRolesResponse": _page_of("roles", ref("Role")),
    "AddMemberRequest": record("principal", principal=NAME),
    "ListMembersResponse": _page_of("members", NAME),
    "GrantRequest": record(
        "grantee securable privileges",
        about="Nobody grants what they do not hold themselves; granting needs GRANT.",
        grantee=GRANTEE,
        securable=SECURABLE,
        privileges=list_of({"type": "string", "enum": [*BUNDLES, *names_of(GRANTABLE)]}, minItems=1),
    ),
    "Grant": record(
        "grantee securable privileges granted-by granted-ms",
        grantee=GRANTEE,
        securable=SECURABLE,
        privileges=list_of(PRIVILEGE),
        granted_by=STRING,
        granted_ms=TIME,
    ),
    "FoundGrant": record(
        "grantee securable privileges", grantee=GRANTEE, securable=SECURABLE, privileges=list_of(PRIVILEGE)
    ),
    "ListGrantsResponse": _page_of("grants", ref("Grant")),
    "Credential": record("credential-id principal kind created-ms", **_CREDENTIAL),
    "CreateCredentialRequest": record(
        "",
        kind=described(KIND, "An API key unless said otherwise."),
        roles=nullable(described(list_of(NAME), "The only roles it may be used for.")),
        note=NOTE,
        expires_in_seconds=nullable({"type": "integer", "minimum": 1, "maximum": 316_224_000}),
    ),
    "NewCredential": record(
        "credential-id principal kind created-ms secret",
        **_CREDENTIAL,
        secret=described(STRING, "Shown in this answer and never again."),
    ),
    "ListCredentialsResponse": record("credentials", credentials=list_of(ref("Credential"))),
    "Explanation": record(
        "principal privilege securable allowed reason roles chain grants decided-by",
        principal=NAME,
        privilege=PRIVILEGE,
        securable=SECURABLE,
        allowed=BOOLEAN,
        reason=STRING,
        roles=list_of(NAME),
        chain=described(list_of(SECURABLE), "The securable and what it lies in, outermost first."),
        grants=described(list_of(ref("FoundGrant")), "All that bear on it."),
        deciding_grant=nullable(ref("FoundGrant")),
        decided_by=described(STRING, "`grants`, `opa`, `cedar`, or `nobody` where everybody may do everything."),
    ),
    "Holding": record(
        "securable holder privileges through",
        securable=SECURABLE,
        holder=described(STRING, "A principal, or a role that has no members here."),
        privileges=list_of(PRIVILEGE),
        through=list_of(ref("FoundGrant")),
    ),
    "AccessMatrix": record("holdings", holdings=list_of(ref("Holding"))),
    "Warehouse": record(
        "name location allowed-locations configured default",
        name=WAREHOUSE_NAME,
        location=STRING,
        allowed_locations=described(list_of(STRING), "Where tables may lie: its own location first."),
        configured=described(BOOLEAN, "Whether the settings name it; it cannot be dropped then."),
        default=BOOLEAN,
    ),
    "CreateWarehouseRequest": record(
        "name", name=WAREHOUSE_NAME, location=nullable(described(STRING, "Inside one of `warehouse_roots`."))
    ),
    "ListWarehousesResponse": _page_of("warehouses", ref("Warehouse")),
    "RotateKeysRequest": record(
        "", forget_older=described(BOOLEAN, "Make every token that was issued until now worthless.")
    ),
    "RotateKeysResponse": record("key-id", key_id=STRING),
    "EncryptionKey": record(
        "key-id encrypts values in-key-file",
        key_id=STRING,
        encrypts=described(BOOLEAN, "Whether new secrets are encrypted with it."),
        values=described(LONG, "How many secrets need it."),
        in_key_file=described(BOOLEAN, "False for a key that is missing."),
    ),
    "ListEncryptionKeysResponse": record("encryption-keys", encryption_keys=list_of(ref("EncryptionKey"))),
    "RotateEncryptionKeysResponse": record(
        "key-id new encrypted-anew",
        key_id=STRING,
        new=described(BOOLEAN, "False if an earlier rotation was finished instead."),
        encrypted_anew=LONG,
    ),
    "RetireEncryptionKeysResponse": record("retired", retired=list_of(STRING)),
    "AuditRecord": {
        "type": "object",
        "properties": {
            "time": STRING,
            "record": {"type": "string", "enum": ["commits", "audit"]},
            "sequence": LONG,
            "principal": STRING,
            "action": STRING,
            "securable": SECURABLE,
            "outcome": {"type": "string", "enum": ["allowed", "denied"]},
            "repeats": described(LONG, "How often it happened, where several are summed up."),
            "request_id": STRING,
            "roles": list_of(STRING),
            "address": STRING,
            "agent": STRING,
            "detail": {},
        },
        "required": ["time", "record", "sequence", "principal", "action", "securable", "outcome", "repeats"],
    },
    "ListAuditResponse": _page_of("records", ref("AuditRecord")),
    "OpenApiDocument": {"type": "object"},
    **MAINTENANCE_SCHEMAS,
    **MIGRATION_SCHEMAS,
}

_OWN_PARAMETERS: Json = {
    "principal": parameter("path", "principal", NAME, "The principal's name."),
    "role": parameter("path", "role", NAME, "The role's name."),
    "credential": parameter("path", "credential", STRING, "The credential's id."),
    "warehouse": parameter("path", "warehouse", WAREHOUSE_NAME, "The warehouse's name."),
    "grantee": parameter("query", "grantee", STRING, "`principal:NAME` or `role:NAME`."),
    "securable": parameter("query", "securable", STRING, "As `server`, `warehouse:WH` or `namespace:WH/A/B`."),
    "privileges": parameter("query", "privileges", STRING, "Privileges and bundles, separated by commas."),
    "privilege": parameter("query", "privilege", PRIVILEGE, "The one to explain."),
    "about": parameter("query", "principal", STRING, "Whose access to explain; the caller's own if absent."),
    "actor": parameter("query", "principal", STRING, "Only what this principal did."),
    "action": parameter("query", "action", STRING, "Only this, as `create-table` or `loadTable`."),
    "outcome": parameter("query", "outcome", {"type": "string", "enum": ["allowed", "denied"]}, "Only these."),
    "request-id": parameter("query", "request-id", STRING, "Only the request of this X-Request-Id."),
    "since": parameter("query", "since", STRING, "Only from this time on, in ISO 8601."),
    "until": parameter("query", "until", STRING, "Only before this time."),
    "order": parameter("query", "order", {"type": "string", "enum": ["newest", "oldest"]}, "What comes first."),
    "roles": parameter("query", "roles", STRING, "Roles that a token or a proxy would add, separated by commas."),
}
_SHARED_PARAMETERS = ("pageToken", "pageSize", "Idempotency-Key", "X-Request-Id")
_SHARED_HEADERS = ("X-Request-Id", "Retry-After")

COMPONENTS: Json = {
    "schemas": SCHEMAS,
    "parameters": {
        **_OWN_PARAMETERS,
        **MAINTENANCE_PARAMETERS,
        **MIGRATION_PARAMETERS,
        **{name: PARAMETERS[name] for name in _SHARED_PARAMETERS},
    },
    "headers": {name: HEADERS[name] for name in _SHARED_HEADERS},
}

_PAGE = ("pageToken", "pageSize")

MANAGEMENT_OPERATIONS: dict[str, Operation] = {
    "whoAmI": Operation(tag="Callers", response="Me"),
    "listPrincipals": Operation(tag="Principals", response="ListPrincipalsResponse", query=_PAGE),
    "createPrincipal": Operation(
        tag="Principals", request="CreatePrincipalRequest", response="Principal", errors=(409,)
    ),
    "loadPrincipal": Operation(tag="Principals", response="LoadedPrincipal", errors=(404,)),
    "updatePrincipal": Operation(tag="Principals", request="UpdatePrincipalRequest", errors=(404, 409)),
    "dropPrincipal": Operation(tag="Principals", errors=(404, 409)),
    "listCredentials": Operation(tag="Credentials", response="ListCredentialsResponse", errors=(404,)),
    "createCredential": Operation(
        tag="Credentials", request="CreateCredentialRequest", response="NewCredential", errors=(404, 409)
    ),
    "dropCredential": Operation(tag="Credentials", errors=(404,)),
    "listRoles": Operation(tag="Roles", response="ListRolesResponse", query=_PAGE),
    "createRole": Operation(tag="Roles", request="CreateRoleRequest", response="Role", errors=(409,)),
    "loadRole": Operation(tag="Roles", response="Role", errors=(404,)),
    "dropRole": Operation(tag="Roles", errors=(404, 409)),
    "listMembers": Operation(tag="Roles", response="ListMembersResponse", query=_PAGE, errors=(404,)),
    "addMember": Operation(tag="Roles", request="AddMemberRequest", errors=(404, 409)),
    "removeMember": Operation(tag="Roles", errors=(404, 409)),
    "listGrants": Operation(
        tag="Grants", response="ListGrantsResponse", query=("grantee", "securable", *_PAGE), errors=(404,)
    ),
    "grantPrivileges": Operation(tag="Grants", request="GrantRequest", errors=(404,)),
    "revokePrivileges": Operation(tag="Grants", query=("grantee", "securable", "privileges"), errors=(404, 409)),
    "explainAccess": Operation(
        tag="Access",
        response="Explanation",
        query=("about", "privilege", "securable", "roles"),
        errors=(404,),
    ),
    "accessMatrix": Operation(tag="Access", response="AccessMatrix", query=("securable",), errors=(404,)),
    "listWarehouses": Operation(tag="Warehouses", response="ListWarehousesResponse", query=_PAGE),
    "createWarehouse": Operation(
        tag="Warehouses", request="CreateWarehouseRequest", response="Warehouse", errors=(409,)
    ),
    "loadWarehouse": Operation(tag="Warehouses", response="Warehouse", errors=(404,)),
    "dropWarehouse": Operation(tag="Warehouses", errors=(404, 409)),
    "rotateKeys": Operation(tag="Keys", request="RotateKeysRequest", response="RotateKeysResponse"),
    "listEncryptionKeys": Operation(tag="Keys", response="ListEncryptionKeysResponse", errors=(409,)),
    "rotateEncryptionKeys": Operation(tag="Keys", response="RotateEncryptionKeysResponse", errors=(409,)),
    "retireEncryptionKeys": Operation(tag="Keys", response="RetireEncryptionKeysResponse", errors=(409,)),
    "listAudit": Operation(
        tag="Audit",
        response="ListAuditResponse",
        query=("actor", "action", "securable", "outcome", "request-id", "since", "until", "order", *_PAGE),
    ),
    **MAINTENANCE_OPERATIONS,
    **MIGRATION_OPERATIONS,
    "managementDocument": Operation(tag="Callers", response="OpenApiDocument"),
}


@lru_cache(maxsize=1)
def management_document(routes: tuple[Route, ...]) -> Json:
    """Every route has an entry in MANAGEMENT_OPERATIONS."""
    info = {
        "title": "Nunatak's management API",
        "description": "Principals, roles, grants, credentials, warehouses and the upkeep of tables. "
        "Errors look as in the catalog's API.",
    }
    return whole(info, routes, MANAGEMENT_OPERATIONS, COMPONENTS)
