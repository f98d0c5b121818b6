-- find_rights
-- The policy's version, and what these grantees were granted on these securables; a row of nulls if nothing.
SELECT v.version, g.grantee, g.securable, g.privileges FROM nunatak_policy v
LEFT JOIN nunatak_grants g
  ON g.grantee IN (SELECT value FROM json_each(:grantees)) AND g.securable IN (SELECT value FROM json_each(:securables));

-- granted_inside
SELECT 1 FROM nunatak_grants
WHERE grantee IN (SELECT value FROM json_each(:grantees)) AND securable > :container AND securable < :behind LIMIT 1;
