-- add_temporary_access
INSERT INTO nunatak_temporary_access
  (catalog_name, table_namespace, table_name, principal, state, level, facts, expires_ms)
VALUES (:catalog, :namespace, :name, :principal, :state, :level, :facts, :expires_ms);

-- forget_ended_access
DELETE FROM nunatak_temporary_access WHERE expires_ms <= :now_ms;

-- find_temporary_access
-- The newest, if a table was staged or dropped several times.
SELECT state, level, facts FROM nunatak_temporary_access
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND principal = :principal
  AND expires_ms > :now_ms
ORDER BY access_id DESC LIMIT 1;
