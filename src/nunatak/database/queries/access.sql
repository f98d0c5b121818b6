-- policy_version
SELECT version FROM nunatak_policy;

-- bump_policy
UPDATE nunatak_policy SET version = version + 1;

-- bump_if_granted
-- Run before the grants on a securable are dropped or moved: invalidates cached decisions.
UPDATE nunatak_policy SET version = version + 1
WHERE EXISTS (SELECT 1 FROM nunatak_grants WHERE securable = :securable);

-- bump_if_granted_inside
UPDATE nunatak_policy SET version = version + 1
WHERE EXISTS (SELECT 1 FROM nunatak_grants WHERE securable >= :securable AND securable < :behind);

-- find_principal
-- The policy version, and the principal with one row per role; columns of a principal that is not stored are null.
SELECT v.version, p.principal, p.disabled, m.role FROM nunatak_policy v
LEFT JOIN nunatak_principals p ON p.principal = :principal
LEFT JOIN nunatak_role_members m ON m.principal = :principal
ORDER BY m.role;

-- find_credential
-- Like find_principal, for the principal of a credential; no row if there is no such credential.
SELECT v.version, c.principal, p.disabled, m.role, c.kind, c.secret, c.roles, c.expires_ms, c.last_used_ms
FROM nunatak_policy v
JOIN nunatak_credentials c ON c.credential_id = :credential_id
LEFT JOIN nunatak_principals p ON p.principal = c.principal
LEFT JOIN nunatak_role_members m ON m.principal = c.principal
ORDER BY m.role;

-- list_principals
SELECT principal, disabled, note, created_ms FROM nunatak_principals
WHERE principal > :after ORDER BY principal LIMIT :limit;

-- disabled_principals
SELECT principal FROM nunatak_principals WHERE disabled <> 0;

-- add_principal
INSERT INTO nunatak_principals (principal, disabled, note, created_ms) VALUES (:principal, 0, :note, :created_ms);

-- load_principal
-- One row per role, or one with a null role; no row if there is no such principal.
SELECT p.principal, p.disabled, p.note, p.created_ms, m.role FROM nunatak_principals p
LEFT JOIN nunatak_role_members m ON m.principal = p.principal
WHERE p.principal = :principal ORDER BY m.role;

-- set_principal
-- A null parameter leaves its column unchanged.
UPDATE nunatak_principals SET disabled = COALESCE(:disabled, disabled), note = COALESCE(:note, note)
WHERE principal = :principal;

-- touch_principal
-- Changes nothing, but locks the row against a concurrent drop; so do touch_role and touch_warehouse.
UPDATE nunatak_principals SET disabled = disabled WHERE principal = :principal;

-- touch_role
UPDATE nunatak_roles SET note = note WHERE role = :role;

-- find_administrator
-- Whether any stored principal that is not disabled holds SERVER_ADMIN, the lowest bit, on the server.
SELECT 1 FROM nunatak_grants g
WHERE g.securable = '' AND (g.privileges & 1) = 1 AND (
  EXISTS (SELECT 1 FROM nunatak_principals p WHERE p.disabled = 0 AND g.grantee = 'p:' || p.principal)
  OR EXISTS (SELECT 1 FROM nunatak_role_members m JOIN nunatak_principals p ON p.principal = m.principal
             WHERE p.disabled = 0 AND g.grantee = 'r:' || m.role)
) LIMIT 1;

-- require_administrator
-- Matches the policy row only if find_administrator returns a row.
UPDATE nunatak_policy SET version = version WHERE EXISTS ({statement find_administrator});

-- find_administrators_credential
-- Whether a credential valid beyond :until_ms gives a principal that is not disabled SERVER_ADMIN, the lowest bit; one
-- limited to roles counts if one of these roles has it.
SELECT 1 FROM nunatak_credentials c
JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms) AND (
  (c.roles IS NULL AND g.grantee = 'p:' || c.principal)
  OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = 'r:' || m.role
             AND (c.roles IS NULL OR {role_is_listed}))
) LIMIT 1;

-- require_administrators_credential
-- Matches the policy row only if find_administrators_credential returns a row.
UPDATE nunatak_policy SET version = version WHERE EXISTS ({statement find_administrators_credential});

-- drop_principal
DELETE FROM nunatak_principals WHERE principal = :principal;

-- drop_memberships
DELETE FROM nunatak_role_members WHERE principal = :principal;

-- drop_credentials_of
DELETE FROM nunatak_credentials WHERE principal = :principal;

-- list_roles
SELECT role, note, created_ms FROM nunatak_roles WHERE role > :after ORDER BY role LIMIT :limit;

-- find_role
SELECT role, note, created_ms FROM nunatak_roles WHERE role = :role;

-- add_role
INSERT INTO nunatak_roles (role, note, created_ms) VALUES (:role, :note, :created_ms);

-- drop_role
DELETE FROM nunatak_roles WHERE role = :role;

-- drop_members
DELETE FROM nunatak_role_members WHERE role = :role;

-- list_members
SELECT principal FROM nunatak_role_members WHERE role = :role AND principal > :after ORDER BY principal LIMIT :limit;

-- all_members
SELECT role, principal FROM nunatak_role_members ORDER BY role, principal LIMIT :limit;

-- add_member
INSERT INTO nunatak_role_members (role, principal) VALUES (:role, :principal);

-- drop_member
DELETE FROM nunatak_role_members WHERE role = :role AND principal = :principal;

-- grant_privileges
INSERT INTO nunatak_grants (grantee, securable, privileges, granted_by, granted_ms)
VALUES (:grantee, :securable, :privileges, :granted_by, :granted_ms)
{upsert grantee, securable} privileges = nunatak_grants.privileges | {new privileges},
  granted_by = {new granted_by}, granted_ms = {new granted_ms};

-- revoke_privileges
-- `kept` has every bit but the revoked ones; matches no row if none of these was granted.
UPDATE nunatak_grants SET privileges = privileges & :kept
WHERE grantee = :grantee AND securable = :securable AND (privileges & :taken) <> 0;

-- forget_empty_grants
DELETE FROM nunatak_grants WHERE grantee = :grantee AND privileges = 0;

-- forget_grants_of
DELETE FROM nunatak_grants WHERE grantee = :grantee;

-- forget_grants_on
DELETE FROM nunatak_grants WHERE securable = :securable;

-- forget_grants_inside
DELETE FROM nunatak_grants WHERE securable >= :securable AND securable < :behind;

-- move_grants
UPDATE nunatak_grants SET securable = :to_securable WHERE securable = :securable;

-- grants_of
SELECT grantee, securable, privileges, granted_by, granted_ms FROM nunatak_grants
WHERE grantee = :grantee AND securable >= :first ORDER BY securable LIMIT :limit;

-- grants_on
SELECT grantee, securable, privileges, granted_by, granted_ms FROM nunatak_grants
WHERE securable = :securable AND grantee > :after ORDER BY grantee LIMIT :limit;

-- grants_inside
-- Includes the grants on the securable itself.
SELECT grantee, securable, privileges, granted_by, granted_ms FROM nunatak_grants
WHERE securable >= :securable AND securable < :behind ORDER BY securable, grantee LIMIT :limit;

-- all_grants
SELECT grantee, securable, privileges, granted_by, granted_ms FROM nunatak_grants
WHERE grantee > :after_grantee OR (grantee = :after_grantee AND securable > :after_securable)
ORDER BY grantee, securable LIMIT :limit;

-- find_rights
-- The policy version, and the grants of these grantees on these securables; a row of nulls if there are none.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g ON g.grantee {in_list grantees} AND g.securable {in_list securables};

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee {in_list grantees} AND securable > :container AND securable < :behind LIMIT 1;

-- granted_names
-- Tables of a namespace that have grants; `prefix` is the common prefix of their securables.
SELECT DISTINCT t.table_name FROM nunatak_grants g
JOIN iceberg_tables t ON t.catalog_name = :catalog AND t.table_namespace = :namespace
  AND t.table_name = substr(g.securable, {char_length}(:prefix) + 1)
WHERE g.grantee {in_list grantees}
  AND g.securable > :prefix || :after AND g.securable < :behind AND coalesce(t.iceberg_type, 'TABLE') = :type
ORDER BY t.table_name LIMIT :limit;

-- next_granted
SELECT min(securable) FROM nunatak_grants
WHERE grantee {in_list grantees} AND securable > :after AND securable < :behind;

-- add_credential
INSERT INTO nunatak_credentials
  (credential_id, principal, kind, secret, roles, note, created_ms, expires_ms)
VALUES (:credential_id, :principal, :kind, :secret, :roles, :note, :created_ms, :expires_ms);

-- set_credential_secret
UPDATE nunatak_credentials SET secret = :secret WHERE credential_id = :credential_id;

-- drop_credential
DELETE FROM nunatak_credentials WHERE credential_id = :credential_id AND principal = :principal;

-- touch_credential
UPDATE nunatak_credentials SET last_used_ms = :last_used_ms WHERE credential_id = :credential_id;

-- list_credentials
SELECT credential_id, principal, kind, roles, note, created_ms, expires_ms, last_used_ms FROM nunatak_credentials
WHERE principal = :principal ORDER BY credential_id;

-- sealed_credentials
-- Access keys are encrypted; other credentials are hashed.
SELECT credential_id, secret FROM nunatak_credentials
WHERE kind = 'access-key' AND credential_id > :after ORDER BY credential_id LIMIT :limit;

-- reseal_credential
-- Compare and swap: updates no row if the secret was replaced or the credential dropped meanwhile.
UPDATE nunatak_credentials SET secret = :secret WHERE credential_id = :credential_id AND secret = :expected;

-- list_warehouses
-- One row for each further location of a warehouse, or one with a null.
SELECT w.warehouse, w.location, w.created_ms, w.version, w.profile, w.options, w.secret, p.location
FROM nunatak_warehouses w LEFT JOIN nunatak_warehouse_places p ON p.warehouse = w.warehouse
ORDER BY w.warehouse, p.number;

-- add_warehouse
-- Inserts no row if the location overlaps that of another warehouse; `slashed` is the location with a trailing slash.
INSERT INTO nunatak_warehouses (warehouse, location, created_ms)
SELECT CAST(:warehouse AS TEXT), CAST(:location AS TEXT), CAST(:created_ms AS BIGINT)
WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_warehouses w
  WHERE substr(w.location || '/', 1, length(CAST(:slashed AS TEXT))) = CAST(:slashed AS TEXT)
    OR substr(CAST(:slashed AS TEXT), 1, length(w.location) + 1) = w.location || '/'
) AND NOT EXISTS (
  SELECT 1 FROM nunatak_warehouse_places p
  WHERE substr(p.location || '/', 1, length(CAST(:slashed AS TEXT))) = CAST(:slashed AS TEXT)
    OR substr(CAST(:slashed AS TEXT), 1, length(p.location) + 1) = p.location || '/'
)
ON CONFLICT (warehouse) DO NOTHING;

-- add_warehouse_place
-- Like add_warehouse, for a further location: it may not overlap any location of another warehouse.
INSERT INTO nunatak_warehouse_places (warehouse, number, location)
SELECT CAST(:warehouse AS TEXT), CAST(:number AS BIGINT), CAST(:location AS TEXT)
WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_warehouses w
  WHERE w.warehouse <> CAST(:warehouse AS TEXT) AND (
    substr(w.location || '/', 1, length(CAST(:slashed AS TEXT))) = CAST(:slashed AS TEXT)
    OR substr(CAST(:slashed AS TEXT), 1, length(w.location) + 1) = w.location || '/')
) AND NOT EXISTS (
  SELECT 1 FROM nunatak_warehouse_places p
  WHERE p.warehouse <> CAST(:warehouse AS TEXT) AND (
    substr(p.location || '/', 1, length(CAST(:slashed AS TEXT))) = CAST(:slashed AS TEXT)
    OR substr(CAST(:slashed AS TEXT), 1, length(p.location) + 1) = p.location || '/')
);

-- forget_warehouse_places
DELETE FROM nunatak_warehouse_places WHERE warehouse = :warehouse;

-- change_warehouse
-- Compare and swap: updates no row if the warehouse was changed or dropped meanwhile.
UPDATE nunatak_warehouses SET profile = :profile, options = :options, version = version + 1
WHERE warehouse = :warehouse AND version = :expected;

-- describe_warehouse
-- Sets what add_warehouse leaves out, in the same transaction.
UPDATE nunatak_warehouses SET profile = :profile, options = :options WHERE warehouse = :warehouse;

-- set_warehouse_secret
-- In a transaction that creates or changes the warehouse.
UPDATE nunatak_warehouses SET secret = :secret WHERE warehouse = :warehouse;

-- sealed_warehouses
SELECT warehouse, secret FROM nunatak_warehouses
WHERE secret IS NOT NULL AND warehouse > :after ORDER BY warehouse LIMIT :limit;

-- reseal_warehouse
-- Compare and swap: updates no row if the secret was replaced or the warehouse dropped meanwhile.
UPDATE nunatak_warehouses SET secret = :secret WHERE warehouse = :warehouse AND secret = :expected;

-- touch_warehouse
UPDATE nunatak_warehouses SET location = location WHERE warehouse = :warehouse;

-- drop_warehouse
-- Deletes no row if the warehouse holds a namespace, a table or a view.
DELETE FROM nunatak_warehouses WHERE warehouse = :warehouse
  AND NOT EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = :warehouse)
  AND NOT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :warehouse);

-- list_secrets
SELECT name, value FROM nunatak_secrets WHERE name >= :first AND name < :behind ORDER BY name;

-- all_secrets
SELECT name, value FROM nunatak_secrets WHERE name > :after ORDER BY name LIMIT :limit;

-- replace_secret
-- Compare and swap: updates no row if another server replaced the secret first.
UPDATE nunatak_secrets SET value = :value WHERE name = :name AND value = :expected;

-- drop_secret
DELETE FROM nunatak_secrets WHERE name = :name;

-- add_audit
INSERT INTO nunatak_audit
  (at_ms, principal, action, securable, outcome, detail, repeats, request_id, origin)
VALUES (:at_ms, :principal, :action, :securable, :outcome, :detail, :repeats, :request_id, :origin);

-- names_after
SELECT table_name FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
  AND coalesce(iceberg_type, 'TABLE') = :type
ORDER BY table_name LIMIT :limit;
