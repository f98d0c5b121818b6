-- find_rights
-- The policy's version, and what these grantees were granted on these securables; a row of nulls if nothing.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g
  ON g.grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
  AND g.securable IN (SELECT jsonb_array_elements_text(:securables::text::jsonb));

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
  AND securable > :container AND securable < :behind LIMIT 1;

-- granted_names
-- Tables of a namespace on which something was granted; `prefix` is how their securables begin.
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

-- search_granted
-- As search_heads, of what a grant shows: one that lists everything in something around it, or any on it alone.
SELECT coalesce(t.iceberg_type, 'TABLE'), t.table_namespace, t.table_name FROM iceberg_tables t
WHERE t.catalog_name = :catalog::text
  AND (strpos(lower(t.table_name), lower(:query::text COLLATE "C")) > 0
    OR strpos(lower(t.table_namespace), lower(:query::text COLLATE "C")) > 0)
  AND (:type::text IS NULL OR coalesce(t.iceberg_type, 'TABLE') = :type::text)
  AND EXISTS (
    SELECT 1 FROM nunatak_grants g WHERE g.grantee IN (SELECT jsonb_array_elements_text(:grantees::text::jsonb))
      AND (g.securable = t.catalog_name || chr(31) || t.table_namespace || '.' || chr(30) || t.table_name
        OR (g.privileges & :listing::bigint) <> 0
          AND starts_with(t.catalog_name || chr(31) || t.table_namespace || '.', g.securable)))
ORDER BY t.table_namespace, t.table_name LIMIT :limit::bigint;
