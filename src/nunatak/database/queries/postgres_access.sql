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
