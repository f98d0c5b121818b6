-- tables_without_bytes
-- A running server stores the bytes of a commit later (write-behind); metadata that is too large is never stored.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.metadata_location, h.table_uuid
FROM nunatak_heads h JOIN iceberg_tables t
  ON t.catalog_name = h.catalog_name AND t.table_namespace = h.table_namespace AND t.table_name = h.table_name
    AND t.metadata_location = h.metadata_location AND coalesce(t.iceberg_type, 'TABLE') = 'TABLE'
WHERE h.content IS NULL;

-- count_catalog
-- The counts in the manifest of a backup; a NULL type means a table.
SELECT
  (SELECT max(number) FROM nunatak_migrations),
  count(*) FILTER (WHERE coalesce(iceberg_type, 'TABLE') = 'TABLE'),
  count(*) FILTER (WHERE iceberg_type = 'VIEW'),
  (SELECT count(*) FROM nunatak_commits)
FROM iceberg_tables;
