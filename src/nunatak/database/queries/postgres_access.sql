-- find_rights
-- The policy version, and the grants of these grantees on these securables; a row of nulls if there are none.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g
  ON g.grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
  AND g.securable IN (SELECT jsonb_array_elements_text(:securables::text::jsonb));

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
  AND securable > :container AND securable < :behind LIMIT 1;

-- granted_names
-- Tables of a namespace that have grants; `prefix` is the common prefix of their securables.
SELECT DISTINCT t.table_name FROM nunatak_grants g
JOIN iceberg_tables t ON t.catalog_name = :catalog::text AND t.table_namespace = :namespace::text
  AND t.table_name = substr(g.securable, length(:prefix::text) + 1)
WHERE g.grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
  AND g.securable > :prefix::text || :after::text AND g.securable < :behind::text
  AND coalesce(t.iceberg_type, 'TABLE') = :type::text
ORDER BY t.table_name LIMIT :limit::bigint;

-- next_granted
SELECT min(securable) FROM nunatak_grants
WHERE grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
  AND securable > :after::text AND securable < :behind::text;

-- find_administrators_credential
-- Whether a credential valid beyond :until_ms gives a principal that is not disabled SERVER_ADMIN, the lowest bit; one
-- limited to roles counts if one of these roles has it.
SELECT 1 FROM nunatak_credentials c
JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms::bigint) AND (
  (c.roles IS NULL AND g.grantee = 'p:' || c.principal)
  OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = 'r:' || m.role
             AND (c.roles IS NULL OR m.role IN (SELECT jsonb_array_elements_text(c.roles::jsonb))))
) LIMIT 1;

-- require_administrators_credential
-- Matches the policy row only if find_administrators_credential returns a row.
UPDATE nunatak_policy SET version = version WHERE EXISTS (
  SELECT 1 FROM nunatak_credentials c
  JOIN nunatak_principals p ON p.principal = c.principal AND p.disabled = 0
  JOIN nunatak_grants g ON g.securable = '' AND (g.privileges & 1) = 1
  WHERE (c.expires_ms IS NULL OR c.expires_ms > :until_ms::bigint) AND (
    (c.roles IS NULL AND g.grantee = 'p:' || c.principal)
    OR EXISTS (SELECT 1 FROM nunatak_role_members m WHERE m.principal = c.principal AND g.grantee = 'r:' || m.role
               AND (c.roles IS NULL OR m.role IN (SELECT jsonb_array_elements_text(c.roles::jsonb))))
  )
);
