-- add_principal
INSERT IGNORE INTO nunatak_principals (principal, disabled, note, created_ms) VALUES (:principal, 0, :note, :created_ms);

-- add_role
INSERT IGNORE INTO nunatak_roles (role, note, created_ms) VALUES (:role, :note, :created_ms);

-- add_member
INSERT IGNORE INTO nunatak_role_members (role, principal) VALUES (:role, :principal);

-- grant_privileges
INSERT INTO nunatak_grants (grantee, securable, privileges, granted_by, granted_ms)
VALUES (:grantee, :securable, :privileges, :granted_by, :granted_ms)
ON DUPLICATE KEY UPDATE
  privileges = privileges | VALUES(privileges), granted_by = VALUES(granted_by), granted_ms = VALUES(granted_ms);

-- add_credential
INSERT IGNORE INTO nunatak_credentials
  (credential_id, principal, kind, secret, roles, note, created_ms, expires_ms)
VALUES (:credential_id, :principal, :kind, :secret, :roles, :note, :created_ms, :expires_ms);

-- add_warehouse
INSERT IGNORE INTO nunatak_warehouses (warehouse, location, created_ms) VALUES (:warehouse, :location, :created_ms);

-- find_rights
-- The policy's version, and what these grantees were granted on these securables; a row of nulls if nothing.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g
  ON g.grantee IN (SELECT value FROM json_table(:grantees, '$[*]' COLUMNS (value VARCHAR(130) PATH '$')) AS asked)
  AND g.securable IN (SELECT value FROM json_table(:securables, '$[*]' COLUMNS (value VARCHAR(600) PATH '$')) AS held);

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee IN (SELECT value FROM json_table(:grantees, '$[*]' COLUMNS (value VARCHAR(130) PATH '$')) AS asked)
  AND securable > :container AND securable < :behind LIMIT 1;
