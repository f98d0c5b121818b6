-- find_rights
-- The policy version, and the grants of these grantees on these securables; a row of nulls if there are none.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g
  ON g.grantee IN (SELECT value FROM json_each(:grantees)) AND g.securable IN (SELECT value FROM json_each(:securables));

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee IN (SELECT value FROM json_each(:grantees)) AND securable > :container AND securable < :behind LIMIT 1;

-- empty_log
-- Moves all pages of the WAL into the database and truncates it.
PRAGMA wal_checkpoint(TRUNCATE);

-- granted_names
-- Tables of a namespace that have grants; `prefix` is the common prefix of their securables.
SELECT DISTINCT t.table_name FROM nunatak_grants g
JOIN iceberg_tables t ON t.catalog_name = :catalog AND t.table_namespace = :namespace
  AND t.table_name = substr(g.securable, length(:prefix) + 1)
WHERE g.grantee IN (SELECT value FROM json_each(:grantees))
  AND g.securable > :prefix || :after AND g.securable < :behind AND coalesce(t.iceberg_type, 'TABLE') = :type
ORDER BY t.table_name LIMIT :limit;

-- next_granted
SELECT min(securable) FROM nunatak_grants
WHERE grantee IN (SELECT value FROM json_each(:grantees)) AND securable > :after AND securable < :behind;

-- find_administrators_credential
-- Whether a credential valid beyond :until_ms gives a principal that is not disabled SERVER_ADMIN, the lowest bit; one
-- limited to roles counts if one of these roles has it.
SELECT 1 FROM nunatak_credentials c
JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms) AND (
  (c.roles IS NULL AND g.grantee = 'p:' || c.principal)
  OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = 'r:' || m.role
             AND (c.roles IS NULL OR m.role IN (SELECT value FROM json_each(c.roles))))
) LIMIT 1;

-- require_administrators_credential
-- Matches the policy row only if find_administrators_credential returns a row.
UPDATE nunatak_policy SET version = version WHERE EXISTS (
  SELECT 1 FROM nunatak_credentials c
  JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
  JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
  WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms) AND (
    (c.roles IS NULL AND g.grantee = 'p:' || c.principal)
    OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = 'r:' || m.role
               AND (c.roles IS NULL OR m.role IN (SELECT value FROM json_each(c.roles))))
  )
);
