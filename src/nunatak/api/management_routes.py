"""The route table of the management API: each URL with its handler and the privilege it requires.

Every authenticated caller holds CONFIG_READ: handlers of those routes check the caller's rights themselves.
"""
# ruff: noqa: E501 - one line for each URL, and one for its OpenAPI description

from functools import lru_cache

import msgspec

from nunatak.access.privileges import Privilege, Securable
from nunatak.api import (
    credentials,
    encryption_keys,
    grants,
    health,
    maintenance,
    maintenance_jobs,
    neighbours,
    principals,
    shadows,
    table_properties,
    warehouses,
)
from nunatak.api import migration_documents as documents
from nunatak.api.audit import AUDIT_ROUTES
from nunatak.api.http import Request, Response, raw_json
from nunatak.api.maintenance_jobs import on_table_of_job
from nunatak.api.maintenance_wire import (
    AddJobsRequest,
    FinishJobRequest,
    FoldersRequest,
    HandBackRequest,
    HeartbeatRequest,
    LeaseRequest,
    SetPolicyRequest,
    SetShadowRequest,
)
from nunatak.api.management_wire import (
    AddMemberRequest,
    CreateCredentialRequest,
    CreatePrincipalRequest,
    CreateRoleRequest,
    GrantRequest,
    NewCredential,
    RotateKeysRequest,
    SaveDocumentRequest,
    UpdatePrincipalRequest,
    UpdateTablePropertiesRequest,
)
from nunatak.api.openapi_management import OpenApiDocument, management_document
from nunatak.api.route import ANY_BODY, SMALL_BODY, Operation, Route
from nunatak.api.securable_parameter import in_place, on_place, on_place_in_body
from nunatak.api.warehouse_wire import ChangeWarehouseRequest, CreateWarehouseRequest, RotateSecretRequest

P, S = Privilege, Securable
BASE = "/management/v1"
PRINCIPALS, ROLES, GRANTS, WAREHOUSES = (f"{BASE}/{word}" for word in ("principals", "roles", "grants", "warehouses"))
PRINCIPAL, ROLE, WAREHOUSE = PRINCIPALS + "/{principal}", ROLES + "/{role}", WAREHOUSES + "/{warehouse}"
ENCRYPTION_KEYS = BASE + "/encryption-keys"
MEMBERS, CREDENTIALS = ROLE + "/members", PRINCIPAL + "/credentials"
POLICIES, MAINTENANCE = BASE + "/policies", BASE + "/maintenance"
# A policy makes jobs use these privileges on every table of its securable, so its author must hold them.
CHANGE = P.TABLE_WRITE | P.TABLE_ALTER
JOBS, SHADOWS = MAINTENANCE + "/jobs", BASE + "/shadows"
JOB, TABLE_PROPERTIES = JOBS + "/{job}", BASE + "/table-properties"
DOCUMENTS = BASE + "/migrations/{migration}/documents"
DOCUMENT = DOCUMENTS + "/{document}"
PAGE = ("pageToken", "pageSize")


async def serve_document(request: Request) -> Response:
    """Returns the OpenAPI document of this API; public, it contains no secrets."""
    return raw_json(_document())


@lru_cache(1)
def _document() -> bytes:
    return msgspec.json.encode(management_document(MANAGEMENT_ROUTES))


MANAGEMENT_ROUTES: tuple[Route, ...] = (
    Route("managementDocument", "GET", BASE + "/openapi.json", serve_document, P.PUBLIC, S.SERVER, "This API as an OpenAPI document", False,
          described=Operation(tag="Callers", response=OpenApiDocument)),
    Route("whoAmI", "GET", BASE + "/me", principals.me, P.CONFIG_READ, S.SERVER, "The caller's principal and roles", False,
          described=Operation(tag="Callers")),
    Route("listPrincipals", "GET", PRINCIPALS, principals.list_principals, P.SERVER_ADMIN, S.SERVER, "List principals", False,
          described=Operation(tag="Principals", query=PAGE)),
    Route("createPrincipal", "POST", PRINCIPALS, principals.create_principal, P.SERVER_ADMIN, S.SERVER, "Create a principal", False,
          described=Operation(tag="Principals", request=CreatePrincipalRequest, errors=(409,))),
    Route("loadPrincipal", "GET", PRINCIPAL, principals.load_principal, P.CONFIG_READ, S.SERVER, "Load a principal and its roles", False,
          described=Operation(tag="Principals", errors=(404,))),
    Route("updatePrincipal", "PATCH", PRINCIPAL, principals.update_principal, P.SERVER_ADMIN, S.SERVER, "Disable, enable or describe a principal", False,
          described=Operation(tag="Principals", request=UpdatePrincipalRequest, errors=(404, 409))),
    Route("dropPrincipal", "DELETE", PRINCIPAL, principals.drop_principal, P.SERVER_ADMIN, S.SERVER, "Drop a principal with its credentials and grants", False,
          described=Operation(tag="Principals", errors=(404, 409))),
    Route("listCredentials", "GET", CREDENTIALS, credentials.list_credentials, P.CONFIG_READ, S.SERVER, "List a principal's credentials", False,
          described=Operation(tag="Credentials", errors=(404,))),
    Route("createCredential", "POST", CREDENTIALS, credentials.create_credential, P.CONFIG_READ, S.SERVER, "Create a credential; its secret is shown once", False,
          described=Operation(tag="Credentials", request=CreateCredentialRequest, response=NewCredential, errors=(404, 409))),
    Route("dropCredential", "DELETE", CREDENTIALS + "/{credential}", credentials.drop_credential, P.CONFIG_READ, S.SERVER, "Drop a credential", False,
          described=Operation(tag="Credentials", errors=(404, 409))),
    Route("listRoles", "GET", ROLES, principals.list_roles, P.SERVER_ADMIN, S.SERVER, "List roles", False,
          described=Operation(tag="Roles", query=PAGE)),
    Route("createRole", "POST", ROLES, principals.create_role, P.SERVER_ADMIN, S.SERVER, "Create a role", False,
          described=Operation(tag="Roles", request=CreateRoleRequest, errors=(409,))),
    Route("loadRole", "GET", ROLE, principals.load_role, P.CONFIG_READ, S.SERVER, "Load a role", False,
          described=Operation(tag="Roles", errors=(404,))),
    Route("dropRole", "DELETE", ROLE, principals.drop_role, P.SERVER_ADMIN, S.SERVER, "Drop a role and its grants", False,
          described=Operation(tag="Roles", errors=(404, 409))),
    Route("listMembers", "GET", MEMBERS, principals.list_members, P.SERVER_ADMIN, S.SERVER, "List the members of a role", False,
          described=Operation(tag="Roles", query=PAGE, errors=(404,))),
    Route("addMember", "POST", MEMBERS, principals.add_member, P.SERVER_ADMIN, S.SERVER, "Add a principal to a role", False,
          described=Operation(tag="Roles", request=AddMemberRequest, errors=(404, 409))),
    Route("removeMember", "DELETE", MEMBERS + "/{principal}", principals.remove_member, P.SERVER_ADMIN, S.SERVER, "Remove a principal from a role", False,
          described=Operation(tag="Roles", errors=(404, 409))),
    Route("listGrants", "GET", GRANTS, grants.list_grants, P.CONFIG_READ, S.SERVER, "List grants", False,
          described=Operation(tag="Grants", query=("grantee", "securable", *PAGE), errors=(404,))),
    Route("grantPrivileges", "POST", GRANTS, grants.grant, P.CONFIG_READ, S.SERVER, "Grant privileges on a securable", False,
          described=Operation(tag="Grants", request=GrantRequest, errors=(404,))),
    Route("revokePrivileges", "DELETE", GRANTS, grants.revoke, P.CONFIG_READ, S.SERVER, "Revoke privileges on a securable", False,
          described=Operation(tag="Grants", query=("grantee", "securable", "privileges"), errors=(404, 409))),
    Route("explainAccess", "GET", BASE + "/access/explain", grants.explain_access, P.CONFIG_READ, S.SERVER, "Explain which grant decides", False,
          described=Operation(tag="Access", query=("about", "privilege", "securable", "roles"), errors=(404,))),
    Route("accessMatrix", "GET", BASE + "/access/matrix", grants.access_matrix, P.CONFIG_READ, S.SERVER, "Who may do what", False,
          described=Operation(tag="Access", query=("securable",), errors=(404,))),
    Route("listWarehouses", "GET", WAREHOUSES, warehouses.list_warehouses, P.CONFIG_READ, S.SERVER, "List warehouses", False,
          described=Operation(tag="Warehouses", query=PAGE)),
    Route("createWarehouse", "POST", WAREHOUSES, warehouses.create_warehouse, P.SERVER_ADMIN, S.SERVER, "Create a warehouse", False, body_bytes=SMALL_BODY,
          described=Operation(tag="Warehouses", request=CreateWarehouseRequest, errors=(409, 422))),
    Route("loadWarehouse", "GET", WAREHOUSE, warehouses.load_warehouse, P.CONFIG_READ, S.SERVER, "Load a warehouse", False,
          described=Operation(tag="Warehouses", errors=(404,))),
    Route("changeWarehouse", "PATCH", WAREHOUSE, warehouses.change_warehouse, P.SERVER_ADMIN, S.SERVER, "Change a warehouse", False, body_bytes=SMALL_BODY,
          described=Operation(tag="Warehouses", request=ChangeWarehouseRequest, errors=(404, 409, 422))),
    Route("rotateWarehouseSecret", "POST", WAREHOUSE + "/secret", warehouses.rotate_secret, P.SERVER_ADMIN, S.SERVER, "Replace the secret of a warehouse", False, body_bytes=SMALL_BODY,
          described=Operation(tag="Warehouses", request=RotateSecretRequest, errors=(404, 409, 422))),
    Route("checkWarehouse", "POST", WAREHOUSE + "/check", warehouses.check_warehouse, P.SERVER_ADMIN, S.SERVER, "Test the store of a warehouse", False, body_bytes=SMALL_BODY,
          described=Operation(tag="Warehouses", errors=(404,))),
    Route("dropWarehouse", "DELETE", WAREHOUSE, warehouses.drop_warehouse, P.SERVER_ADMIN, S.SERVER, "Drop an empty warehouse", False,
          described=Operation(tag="Warehouses", errors=(404, 409))),
    Route("rotateKeys", "POST", BASE + "/keys/rotate", credentials.rotate_keys, P.SERVER_ADMIN, S.SERVER, "Sign tokens with a new key", False,
          described=Operation(tag="Keys", request=RotateKeysRequest)),
    Route("listEncryptionKeys", "GET", ENCRYPTION_KEYS, encryption_keys.list_encryption_keys, P.SERVER_ADMIN, S.SERVER, "List the keys that encrypt secrets", False,
          described=Operation(tag="Keys", errors=(409,))),
    Route("rotateEncryptionKeys", "POST", ENCRYPTION_KEYS + "/rotate", encryption_keys.rotate_encryption_keys, P.SERVER_ADMIN, S.SERVER, "Encrypt all secrets with a new key", False,
          described=Operation(tag="Keys", errors=(409,))),
    Route("retireEncryptionKeys", "POST", ENCRYPTION_KEYS + "/retire", encryption_keys.retire_encryption_keys, P.SERVER_ADMIN, S.SERVER, "Remove keys that encrypt nothing any more", False,
          described=Operation(tag="Keys", errors=(409,))),
    Route("loadHealth", "GET", BASE + "/health", health.load_health, P.TABLE_READ_META, S.TABLE, "The health of tables, and what would improve it", False, in_place,
          described=Operation(tag="Maintenance", query=("place", "deep", *PAGE), errors=(404,))),
    Route("listPolicies", "GET", POLICIES, maintenance.list_policies, P.TABLE_READ_META, S.TABLE, "List the policies set on a securable and inside it", False, on_place,
          described=Operation(tag="Maintenance", query=("place", *PAGE), errors=(404,))),
    Route("effectivePolicies", "GET", POLICIES + "/effective", maintenance.effective_policies, P.TABLE_READ_META, S.TABLE, "The policies that apply to a securable", False, on_place,
          described=Operation(tag="Maintenance", query=("place",), errors=(404,))),
    Route("setPolicy", "POST", POLICIES, maintenance.set_policy, CHANGE, S.TABLE, "Set a policy on a warehouse, a namespace or a table", False, on_place_in_body(SetPolicyRequest),
          described=Operation(tag="Maintenance", request=SetPolicyRequest, errors=(404,))),
    Route("dropPolicy", "DELETE", POLICIES, maintenance.drop_policy, CHANGE, S.TABLE, "Drop a policy from a securable", False, on_place,
          described=Operation(tag="Maintenance", query=("place", "policyType"), errors=(404,))),
    Route("planMaintenance", "GET", MAINTENANCE + "/plan", maintenance.plan_maintenance, P.TABLE_READ_META, S.TABLE, "Which jobs tables need now, and why", False, in_place,
          described=Operation(tag="Maintenance", query=("place", *PAGE), errors=(404,))),
    Route("listNeighbours", "GET", MAINTENANCE + "/neighbours", neighbours.list_neighbours, CHANGE, S.TABLE, "Which other tables keep files in a table's folder", False, on_place,
          described=Operation(tag="Maintenance", query=("place",), errors=(404,))),
    Route("sortFolders", "POST", MAINTENANCE + "/folders", neighbours.classify_folders, CHANGE, S.TABLE, "Classify folders: another table's, or no table's", False, on_place_in_body(FoldersRequest), body_bytes=ANY_BODY,
          described=Operation(tag="Maintenance", request=FoldersRequest, errors=(404,))),
    Route("listShadows", "GET", SHADOWS, shadows.get_shadows, P.TABLE_READ_META, S.TABLE, "List the shadow tables, which still belong to another catalog", False, on_place,
          described=Operation(tag="Maintenance", query=("place",), errors=(404,))),
    Route("setShadow", "PUT", SHADOWS, shadows.put_shadow, CHANGE, S.TABLE, "Mark a table as a shadow of another catalog's, or as cut over", False, on_place_in_body(SetShadowRequest),
          described=Operation(tag="Maintenance", request=SetShadowRequest, errors=(404,))),
    Route("dropShadow", "DELETE", SHADOWS, shadows.delete_shadow, CHANGE, S.TABLE, "Remove the shadow mark of a table", False, on_place,
          described=Operation(tag="Maintenance", query=("place",), errors=(404,))),
    Route("loadTableProperties", "GET", TABLE_PROPERTIES, table_properties.get_table_properties, P.TABLE_READ_META, S.TABLE, "Load the properties that the catalog keeps about a table", False, on_place,
          described=Operation(tag="Tables", query=("place",), errors=(404,))),
    Route("updateTableProperties", "PATCH", TABLE_PROPERTIES, table_properties.patch_table_properties, P.TABLE_ALTER, S.TABLE, "Set and remove properties that the catalog keeps about a table", False, on_place_in_body(UpdateTablePropertiesRequest),
          described=Operation(tag="Tables", request=UpdateTablePropertiesRequest, errors=(404, 422))),
    Route("dropTableProperties", "DELETE", TABLE_PROPERTIES, table_properties.delete_table_properties, P.TABLE_ALTER, S.TABLE, "Remove all properties that the catalog keeps about a table", False, on_place,
          described=Operation(tag="Tables", query=("place",), errors=(404,))),
    Route("listMaintenanceJobs", "GET", JOBS, maintenance_jobs.list_jobs, P.TABLE_READ_META, S.TABLE, "List jobs, newest first", False, on_place,
          described=Operation(tag="Maintenance", query=("place", *PAGE), errors=(404,))),
    Route("addMaintenanceJobs", "POST", JOBS, maintenance_jobs.add_jobs, CHANGE, S.TABLE, "Add the due jobs, or one requested job", False, on_place_in_body(AddJobsRequest),
          described=Operation(tag="Maintenance", request=AddJobsRequest, errors=(404, 409))),
    Route("loadMaintenanceJob", "GET", JOB, maintenance_jobs.load_job, P.TABLE_READ_META, S.TABLE, "Load a job: its state, progress and result", False, on_table_of_job,
          described=Operation(tag="Maintenance", errors=(404,))),
    Route("cancelMaintenanceJob", "POST", JOB + "/cancel", maintenance_jobs.cancel_job, CHANGE, S.TABLE, "Cancel a job", False, on_table_of_job,
          described=Operation(tag="Maintenance", errors=(404, 409))),
    Route("leaseMaintenanceJob", "POST", MAINTENANCE + "/lease", maintenance_jobs.lease_job, CHANGE, S.TABLE, "Lease the next job to a worker", False, on_place_in_body(LeaseRequest),
          described=Operation(tag="Maintenance", request=LeaseRequest, errors=(404, 409))),
    Route("extendMaintenanceLease", "POST", JOB + "/heartbeat", maintenance_jobs.heartbeat, CHANGE, S.TABLE, "Extend the lease of a job (heartbeat)", False, on_table_of_job,
          described=Operation(tag="Maintenance", request=HeartbeatRequest, errors=(404, 409))),
    Route("handBackMaintenanceJob", "POST", JOB + "/hand-back", maintenance_jobs.hand_back_job, CHANGE, S.TABLE, "Release a job to other workers", False, on_table_of_job,
          described=Operation(tag="Maintenance", request=HandBackRequest, errors=(404, 409))),
    Route("finishMaintenanceJob", "POST", JOB + "/finish", maintenance_jobs.finish_job, CHANGE, S.TABLE, "Finish a job with its result", False, on_table_of_job,
          described=Operation(tag="Maintenance", request=FinishJobRequest, errors=(404, 409))),
    Route("listMigrationDocuments", "GET", DOCUMENTS, documents.get_documents, P.WAREHOUSE_ADMIN, S.SERVER, "List the documents of a migration", False,
          described=Operation(tag="Migrations", query=("documentPrefix", *PAGE))),
    Route("loadMigrationDocument", "GET", DOCUMENT, documents.get_document, P.WAREHOUSE_ADMIN, S.SERVER, "Load a document of a migration", False,
          described=Operation(tag="Migrations", errors=(404,))),
    Route("saveMigrationDocument", "PUT", DOCUMENT, documents.put_document, P.WAREHOUSE_ADMIN, S.SERVER, "Add or replace a document of a migration", False, body_bytes=ANY_BODY,
          described=Operation(tag="Migrations", request=SaveDocumentRequest, errors=(409,))),
    Route("dropMigrationDocument", "DELETE", DOCUMENT, documents.delete_document, P.WAREHOUSE_ADMIN, S.SERVER, "Drop a document of a migration", False,
          described=Operation(tag="Migrations", query=("documentVersion",), errors=(409,))),
    *AUDIT_ROUTES,
)  # fmt: skip
