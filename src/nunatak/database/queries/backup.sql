-- count_catalog
-- What the manifest of a backup says about its content; a NULL type is a table's.
SELECT
  (SELECT max(number) FROM nunatak_migrations),
  count(*) FILTER (WHERE coalesce(iceberg_type, 'TABLE') = 'TABLE'),
  count(*) FILTER (WHERE iceberg_type = 'VIEW'),
  (SELECT count(*) FROM nunatak_commits)
FROM iceberg_tables;
