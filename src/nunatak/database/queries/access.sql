-- policy_version
SELECT version FROM nunatak_policy;

-- bump_policy
UPDATE nunatak_policy SET version = version + 1;

-- bump_if_granted
-- Before the grants on something are dropped or moved: whoever remembers them must look again.
UPDATE nunatak_policy SET version = version + 1
WHERE EXISTS (SELECT 1 FROM nunatak_grants WHERE securable = :securable);

-- bump_if_granted_inside
UPDATE nunatak_policy SET version = version + 1
WHERE EXISTS (SELECT 1 FROM nunatak_grants WHERE securable >= :securable AND securable < :behind);

-- find_principal
-- The policy's version, and the principal with one row for each of its roles; a principal that is not kept has nulls.
SELECT v.version, p.principal, p.disabled, m.role FROM nunatak_policy v
LEFT JOIN nunatak_principals p ON p.principal = :principal
LEFT JOIN nunatak_role_members m ON m.principal = :principal
ORDER BY m.role;

-- find_credential
-- As find_principal, for the principal that a credential belongs to; no row if there is no such credential.
SELECT v.version, c.principal, p.disabled, m.role, c.kind, c.secret, c.roles, c.expires_ms, c.last_used_ms
FROM nunatak_policy v
JOIN nunatak_credentials c ON c.credential_id = :credential_id
LEFT JOIN nunatak_principals p ON p.principal = c.principal
LEFT JOIN nunatak_role_members m ON m.principal = c.principal
ORDER BY m.role;

-- list_principals
SELECT principal, disabled, note, created_ms FROM nunatak_principals
WHERE principal > :after ORDER BY principal LIMIT :limit;

-- add_principal
INSERT INTO nunatak_principals (principal, disabled, note, created_ms) VALUES (:principal, 0, :note, :created_ms)
ON CONFLICT (principal) DO NOTHING;

-- set_principal
UPDATE nunatak_principals SET disabled = :disabled, note = :note WHERE principal = :principal;

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
INSERT INTO nunatak_roles (role, note, created_ms) VALUES (:role, :note, :created_ms) ON CONFLICT (role) DO NOTHING;

-- drop_role
DELETE FROM nunatak_roles WHERE role = :role;

-- drop_members
DELETE FROM nunatak_role_members WHERE role = :role;

-- list_members
SELECT principal FROM nunatak_role_members WHERE role = :role ORDER BY principal;

-- add_member
INSERT INTO nunatak_role_members (role, principal) VALUES (:role, :principal) ON CONFLICT (role, principal) DO NOTHING;

-- drop_member
DELETE FROM nunatak_role_members WHERE role = :role AND principal = :principal;

-- grant_privileges
INSERT INTO nunatak_grants (grantee, securable, privileges, granted_by, granted_ms)
VALUES (:grantee, :securable, :privileges, :granted_by, :granted_ms)
ON CONFLICT (grantee, securable) DO UPDATE SET
  privileges = nunatak_grants.privileges | excluded.privileges,
  granted_by = excluded.granted_by, granted_ms = excluded.granted_ms;

-- revoke_privileges
-- `kept` has every bit but those that are taken away.
UPDATE nunatak_grants SET privileges = privileges & :kept WHERE grantee = :grantee AND securable = :securable;

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
WHERE grantee = :grantee ORDER BY securable LIMIT :limit;

-- grants_on
SELECT grantee, securable, privileges, granted_by, granted_ms FROM nunatak_grants
WHERE securable = :securable ORDER BY grantee LIMIT :limit;

-- all_grants
SELECT grantee, securable, privileges, granted_by, granted_ms FROM nunatak_grants
WHERE grantee > :after_grantee OR (grantee = :after_grantee AND securable > :after_securable)
ORDER BY grantee, securable LIMIT :limit;

-- add_credential
INSERT INTO nunatak_credentials
  (credential_id, principal, kind, secret, roles, note, created_ms, expires_ms)
VALUES (:credential_id, :principal, :kind, :secret, :roles, :note, :created_ms, :expires_ms)
ON CONFLICT (credential_id) DO NOTHING;

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
SELECT credential_id, secret FROM nunatak_credentials WHERE kind = 'access-key' ORDER BY credential_id;

-- list_warehouses
SELECT warehouse, location, created_ms FROM nunatak_warehouses ORDER BY warehouse;

-- add_warehouse
INSERT INTO nunatak_warehouses (warehouse, location, created_ms) VALUES (:warehouse, :location, :created_ms)
ON CONFLICT (warehouse) DO NOTHING;

-- drop_warehouse
DELETE FROM nunatak_warehouses WHERE warehouse = :warehouse;

-- warehouse_is_used
SELECT 1 FROM iceberg_tables WHERE catalog_name = :warehouse
UNION ALL SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :warehouse LIMIT 1;

-- list_secrets
SELECT name, value FROM nunatak_secrets WHERE name >= :first AND name < :behind ORDER BY name;

-- replace_secret
UPDATE nunatak_secrets SET value = :value WHERE name = :name AND value = :expected;

-- drop_secret
DELETE FROM nunatak_secrets WHERE name = :name;

-- add_audit
INSERT INTO nunatak_audit
  (at_ms, principal, action, securable, outcome, detail, repeats, request_id, origin)
VALUES (:at_ms, :principal, :action, :securable, :outcome, :detail, :repeats, :request_id, :origin);
