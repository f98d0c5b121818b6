"""Every URL of the management API on one screen: what answers it, and which privilege it needs.

CONFIG_READ is held by everybody who is known: there the handler looks at the caller's rights itself.
"""
# ruff: noqa: E501 - one line for one URL

from nunatak.access.privileges import Privilege, Securable
from nunatak.api import encryption_keys, health, maintenance, maintenance_jobs, management, neighbours, shadows
from nunatak.api import migration_documents as documents
from nunatak.api.audit import AUDIT_ROUTES
from nunatak.api.maintenance_jobs import in_place_of_body, on_table_of_job
from nunatak.api.management_wire import FoldersRequest, SetShadowRequest
from nunatak.api.places import in_place, on_place, on_place_in_body, on_place_of_policy
from nunatak.api.route import ANY_BODY, Route

P, S = Privilege, Securable
BASE = "/management/v1"
PRINCIPALS, ROLES, GRANTS, WAREHOUSES = (f"{BASE}/{word}" for word in ("principals", "roles", "grants", "warehouses"))
PRINCIPAL, ROLE, WAREHOUSE = PRINCIPALS + "/{principal}", ROLES + "/{role}", WAREHOUSES + "/{warehouse}"
ENCRYPTION_KEYS = BASE + "/encryption-keys"
MEMBERS, CREDENTIALS = ROLE + "/members", PRINCIPAL + "/credentials"
POLICIES, MAINTENANCE = BASE + "/policies", BASE + "/maintenance"
# Whoever sets a policy has done by it what these allow, to every table of the place.
CHANGE = P.TABLE_WRITE | P.TABLE_ALTER
JOBS, SHADOWS = MAINTENANCE + "/jobs", BASE + "/shadows"
JOB = JOBS + "/{job}"
DOCUMENTS = BASE + "/migrations/{migration}/documents"
DOCUMENT = DOCUMENTS + "/{document}"

MANAGEMENT_ROUTES: tuple[Route, ...] = (
    Route("managementDocument", "GET", BASE + "/openapi.json", management.openapi, P.PUBLIC, S.SERVER, "This API as an OpenAPI document", False),
    Route("whoAmI", "GET", BASE + "/me", management.me, P.CONFIG_READ, S.SERVER, "Who asks, and in which roles", False),
    Route("listPrincipals", "GET", PRINCIPALS, management.list_principals, P.SERVER_ADMIN, S.SERVER, "List principals", False),
    Route("createPrincipal", "POST", PRINCIPALS, management.create_principal, P.SERVER_ADMIN, S.SERVER, "Create a principal", False),
    Route("loadPrincipal", "GET", PRINCIPAL, management.load_principal, P.CONFIG_READ, S.SERVER, "Load a principal and its roles", False),
    Route("updatePrincipal", "PATCH", PRINCIPAL, management.update_principal, P.SERVER_ADMIN, S.SERVER, "Disable, enable or describe a principal", False),
    Route("dropPrincipal", "DELETE", PRINCIPAL, management.drop_principal, P.SERVER_ADMIN, S.SERVER, "Drop a principal and all that is its own", False),
    Route("listCredentials", "GET", CREDENTIALS, management.list_credentials, P.CONFIG_READ, S.SERVER, "List a principal's credentials", False),
    Route("createCredential", "POST", CREDENTIALS, management.create_credential, P.CONFIG_READ, S.SERVER, "Create a credential; its secret is shown once", False),
    Route("dropCredential", "DELETE", CREDENTIALS + "/{credential}", management.drop_credential, P.CONFIG_READ, S.SERVER, "Drop a credential", False),
    Route("listRoles", "GET", ROLES, management.list_roles, P.SERVER_ADMIN, S.SERVER, "List roles", False),
    Route("createRole", "POST", ROLES, management.create_role, P.SERVER_ADMIN, S.SERVER, "Create a role", False),
    Route("loadRole", "GET", ROLE, management.load_role, P.CONFIG_READ, S.SERVER, "Load a role", False),
    Route("dropRole", "DELETE", ROLE, management.drop_role, P.SERVER_ADMIN, S.SERVER, "Drop a role and its grants", False),
    Route("listMembers", "GET", MEMBERS, management.list_members, P.SERVER_ADMIN, S.SERVER, "List the members of a role", False),
    Route("addMember", "POST", MEMBERS, management.add_member, P.SERVER_ADMIN, S.SERVER, "Add a principal to a role", False),
    Route("removeMember", "DELETE", MEMBERS + "/{principal}", management.remove_member, P.SERVER_ADMIN, S.SERVER, "Remove a principal from a role", False),
    Route("listGrants", "GET", GRANTS, management.list_grants, P.CONFIG_READ, S.SERVER, "List grants", False),
    Route("grantPrivileges", "POST", GRANTS, management.grant, P.CONFIG_READ, S.SERVER, "Grant privileges on a securable", False),
    Route("revokePrivileges", "DELETE", GRANTS, management.revoke, P.CONFIG_READ, S.SERVER, "Revoke privileges on a securable", False),
    Route("explainAccess", "GET", BASE + "/access/explain", management.explain_access, P.CONFIG_READ, S.SERVER, "Which grant decides", False),
    Route("accessMatrix", "GET", BASE + "/access/matrix", management.access_matrix, P.CONFIG_READ, S.SERVER, "Who may do what", False),
    Route("listWarehouses", "GET", WAREHOUSES, management.list_warehouses, P.CONFIG_READ, S.SERVER, "List warehouses", False),
    Route("createWarehouse", "POST", WAREHOUSES, management.create_warehouse, P.SERVER_ADMIN, S.SERVER, "Create a warehouse", False),
    Route("loadWarehouse", "GET", WAREHOUSE, management.load_warehouse, P.CONFIG_READ, S.SERVER, "Load a warehouse", False),
    Route("dropWarehouse", "DELETE", WAREHOUSE, management.drop_warehouse, P.SERVER_ADMIN, S.SERVER, "Drop an empty warehouse", False),
    Route("rotateKeys", "POST", BASE + "/keys/rotate", management.rotate_keys, P.SERVER_ADMIN, S.SERVER, "Sign tokens with a new key", False),
    Route("listEncryptionKeys", "GET", ENCRYPTION_KEYS, encryption_keys.list_encryption_keys, P.SERVER_ADMIN, S.SERVER, "List the keys that encrypt secrets", False),
    Route("rotateEncryptionKeys", "POST", ENCRYPTION_KEYS + "/rotate", encryption_keys.rotate_encryption_keys, P.SERVER_ADMIN, S.SERVER, "Encrypt all secrets with a new key", False),
    Route("retireEncryptionKeys", "POST", ENCRYPTION_KEYS + "/retire", encryption_keys.retire_encryption_keys, P.SERVER_ADMIN, S.SERVER, "Remove keys that encrypt nothing any more", False),
    Route("loadHealth", "GET", BASE + "/health", health.load_health, P.TABLE_READ_META, S.TABLE, "How well tables are kept, and what would help", False, in_place),
    Route("listPolicies", "GET", POLICIES, maintenance.list_policies, P.TABLE_READ_META, S.TABLE, "List the policies set on a place and inside it", False, on_place),
    Route("effectivePolicies", "GET", POLICIES + "/effective", maintenance.effective_policies, P.TABLE_READ_META, S.TABLE, "Which policies count for a place", False, on_place),
    Route("setPolicy", "POST", POLICIES, maintenance.set_policy, CHANGE, S.TABLE, "Set a policy on a warehouse, a namespace or a table", False, on_place_of_policy),
    Route("dropPolicy", "DELETE", POLICIES, maintenance.drop_policy, CHANGE, S.TABLE, "Drop a policy from a place", False, on_place),
    Route("planMaintenance", "GET", MAINTENANCE + "/plan", maintenance.plan_maintenance, P.TABLE_READ_META, S.TABLE, "Which jobs tables need now, and why", False, in_place),
    Route("listNeighbours", "GET", MAINTENANCE + "/neighbours", neighbours.list_neighbours, CHANGE, S.TABLE, "Which other tables keep files in a table's folder", False, on_place),
    Route("sortFolders", "POST", MAINTENANCE + "/folders", neighbours.sort_folders, CHANGE, S.TABLE, "Which folders are another table's, and which are nobody's", False, on_place_in_body(FoldersRequest), body_bytes=ANY_BODY),
    Route("listShadows", "GET", SHADOWS, shadows.get_shadows, P.TABLE_READ_META, S.TABLE, "List the tables that still belong to another catalog", False, on_place),
    Route("setShadow", "PUT", SHADOWS, shadows.put_shadow, CHANGE, S.TABLE, "Say that a table belongs to another catalog, or that it was cut over", False, on_place_in_body(SetShadowRequest)),
    Route("dropShadow", "DELETE", SHADOWS, shadows.delete_shadow, CHANGE, S.TABLE, "Say that a table is this catalog's own", False, on_place),
    Route("listMaintenanceJobs", "GET", JOBS, maintenance_jobs.list_jobs, P.TABLE_READ_META, S.TABLE, "List jobs, newest first", False, on_place),
    Route("addMaintenanceJobs", "POST", JOBS, maintenance_jobs.add_jobs, CHANGE, S.TABLE, "Add the jobs that are due, or one that is asked for", False, in_place_of_body),
    Route("loadMaintenanceJob", "GET", JOB, maintenance_jobs.load_job, P.TABLE_READ_META, S.TABLE, "Load a job: its state, progress and result", False, on_table_of_job),
    Route("cancelMaintenanceJob", "POST", JOB + "/cancel", maintenance_jobs.cancel_job, CHANGE, S.TABLE, "Cancel a job", False, on_table_of_job),
    Route("leaseMaintenanceJob", "POST", MAINTENANCE + "/lease", maintenance_jobs.lease_job, CHANGE, S.TABLE, "Give a worker the next job", False, in_place_of_body),
    Route("extendMaintenanceLease", "POST", JOB + "/heartbeat", maintenance_jobs.heartbeat, CHANGE, S.TABLE, "A worker's sign of life", False, on_table_of_job),
    Route("handBackMaintenanceJob", "POST", JOB + "/hand-back", maintenance_jobs.hand_back_job, CHANGE, S.TABLE, "Leave a job to another worker", False, on_table_of_job),
    Route("finishMaintenanceJob", "POST", JOB + "/finish", maintenance_jobs.finish_job, CHANGE, S.TABLE, "What became of a job", False, on_table_of_job),
    Route("listMigrationDocuments", "GET", DOCUMENTS, documents.get_documents, P.WAREHOUSE_ADMIN, S.SERVER, "List what a migration remembers", False),
    Route("loadMigrationDocument", "GET", DOCUMENT, documents.get_document, P.WAREHOUSE_ADMIN, S.SERVER, "Load a document of a migration", False),
    Route("saveMigrationDocument", "PUT", DOCUMENT, documents.put_document, P.WAREHOUSE_ADMIN, S.SERVER, "Add or replace a document of a migration", False, body_bytes=ANY_BODY),
    Route("dropMigrationDocument", "DELETE", DOCUMENT, documents.delete_document, P.WAREHOUSE_ADMIN, S.SERVER, "Drop a document of a migration", False),
    *AUDIT_ROUTES,
)  # fmt: skip
