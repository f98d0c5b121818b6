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
-- Inserts no row if the location overlaps that of another warehouse; `slashed` is the location with a trailing slash.
INSERT IGNORE INTO nunatak_warehouses (warehouse, location, created_ms)
SELECT :warehouse, :location, :created_ms FROM DUAL
WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_warehouses w
  WHERE LEFT(CONCAT(w.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(w.location) + 1) = CONCAT(w.location, '/')
) AND NOT EXISTS (
  SELECT 1 FROM nunatak_warehouse_places p
  WHERE LEFT(CONCAT(p.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(p.location) + 1) = CONCAT(p.location, '/')
);

-- add_warehouse_place
-- Like add_warehouse, for a further location: it may not overlap any location of another warehouse.
INSERT INTO nunatak_warehouse_places (warehouse, number, location)
SELECT :warehouse, :number, :location FROM DUAL
WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_warehouses w
  WHERE w.warehouse <> :warehouse AND (
    LEFT(CONCAT(w.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(w.location) + 1) = CONCAT(w.location, '/'))
) AND NOT EXISTS (
  SELECT 1 FROM nunatak_warehouse_places p
  WHERE p.warehouse <> :warehouse AND (
    LEFT(CONCAT(p.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(p.location) + 1) = CONCAT(p.location, '/'))
);

-- find_administrator
-- Whether any stored principal that is not disabled holds SERVER_ADMIN, the lowest bit, on the server.
SELECT 1 FROM nunatak_grants g
WHERE g.securable = '' AND (g.privileges & 1) = 1 AND (
  EXISTS (SELECT 1 FROM nunatak_principals p WHERE p.disabled = 0 AND g.grantee = CONCAT('p:', p.principal))
  OR EXISTS (SELECT 1 FROM nunatak_role_members m JOIN nunatak_principals p ON p.principal = m.principal
             WHERE p.disabled = 0 AND g.grantee = CONCAT('r:', m.role))
) LIMIT 1;

-- require_administrator
-- Matches the policy row only if find_administrator returns a row.
UPDATE nunatak_policy SET version = version WHERE EXISTS (
  SELECT 1 FROM nunatak_grants g
  WHERE g.securable = '' AND (g.privileges & 1) = 1 AND (
    EXISTS (SELECT 1 FROM nunatak_principals p WHERE p.disabled = 0 AND g.grantee = CONCAT('p:', p.principal))
    OR EXISTS (SELECT 1 FROM nunatak_role_members m JOIN nunatak_principals p ON p.principal = m.principal
               WHERE p.disabled = 0 AND g.grantee = CONCAT('r:', m.role))
  )
);

-- find_rights
-- The policy version, and the grants of these grantees on these securables; a row of nulls if there are none.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g
  ON g.grantee IN (SELECT value FROM json_table(:grantees, '$[*]' COLUMNS (value VARCHAR(130) PATH '$')) AS asked)
  AND g.securable IN (SELECT value FROM json_table(:securables, '$[*]' COLUMNS (value VARCHAR(600) PATH '$')) AS held);

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee IN (SELECT value FROM json_table(:grantees, '$[*]' COLUMNS (value VARCHAR(130) PATH '$')) AS asked)
  AND securable > :container AND securable < :behind LIMIT 1;

-- granted_names
-- Tables of a namespace that have grants; `prefix` is the common prefix of their securables.
SELECT DISTINCT t.table_name FROM nunatak_grants g
JOIN iceberg_tables t ON t.catalog_name = :catalog AND t.table_namespace = :namespace
  AND t.table_name = substr(g.securable, char_length(:prefix) + 1)
WHERE g.grantee IN (SELECT value FROM json_table(:grantees, '$[*]' COLUMNS (value VARCHAR(130) PATH '$')) AS asked)
  AND g.securable > concat(:prefix, :after) AND g.securable < :behind AND coalesce(t.iceberg_type, 'TABLE') = :type
ORDER BY t.table_name LIMIT :limit;

-- next_granted
SELECT min(securable) FROM nunatak_grants
WHERE grantee IN (SELECT value FROM json_table(:grantees, '$[*]' COLUMNS (value VARCHAR(130) PATH '$')) AS asked)
  AND securable > :after AND securable < :behind;

-- find_administrators_credential
-- Whether a credential valid beyond :until_ms gives a principal that is not disabled SERVER_ADMIN, the lowest bit; one
-- limited to roles counts if one of these roles has it.
SELECT 1 FROM nunatak_credentials c
JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms) AND (
  (c.roles IS NULL AND g.grantee = CONCAT('p:', c.principal))
  OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = CONCAT('r:', m.role)
             AND (c.roles IS NULL OR JSON_CONTAINS(c.roles, JSON_QUOTE(m.role))))
) LIMIT 1;

-- require_administrators_credential
-- Matches the policy row only if find_administrators_credential returns a row.
UPDATE nunatak_policy SET version = version WHERE EXISTS (
  SELECT 1 FROM nunatak_credentials c
  JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
  JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
  WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms) AND (
    (c.roles IS NULL AND g.grantee = CONCAT('p:', c.principal))
    OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = CONCAT('r:', m.role)
               AND (c.roles IS NULL OR JSON_CONTAINS(c.roles, JSON_QUOTE(m.role))))
  )
);
