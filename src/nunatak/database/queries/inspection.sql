-- keys_after
-- Every name that has a pointer or stored rows, in order. Each half of the UNION is limited to a page by itself.
SELECT catalog_name, table_namespace, table_name FROM (
  SELECT catalog_name, table_namespace, table_name FROM iceberg_tables
  WHERE (catalog_name, table_namespace, table_name) > (:catalog, :namespace, :name)
  ORDER BY catalog_name, table_namespace, table_name LIMIT :limit) AS pointers
UNION
SELECT catalog_name, table_namespace, table_name FROM (
  SELECT catalog_name, table_namespace, table_name FROM nunatak_heads
  WHERE (catalog_name, table_namespace, table_name) > (:catalog, :namespace, :name)
  ORDER BY catalog_name, table_namespace, table_name LIMIT :limit) AS pointers
ORDER BY catalog_name, table_namespace, table_name LIMIT :limit;

-- inspect_pointer
-- All rows about a name, except the properties of its namespace.
SELECT t.metadata_location, t.previous_metadata_location, t.iceberg_type,
  h.metadata_location, h.table_uuid, h.location, h.content,
  EXISTS (SELECT 1 FROM iceberg_namespace_properties n
          WHERE n.catalog_name = t.catalog_name AND n.namespace = t.table_namespace)
FROM iceberg_tables t LEFT JOIN nunatak_heads h
  ON h.catalog_name = t.catalog_name AND h.table_namespace = t.table_namespace AND h.table_name = t.table_name
WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name;

-- find_stored
-- The row stored for a name, whether it has a pointer or not.
SELECT metadata_location, table_uuid, location, content FROM nunatak_heads
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- commits_of
SELECT sequence, operation, table_namespace, table_name, metadata_location, previous_metadata_location
FROM nunatak_commits WHERE table_uuid = :uuid AND sequence > :after ORDER BY sequence LIMIT :limit;

-- points_at
-- Scans all pointers; used only for the few files that are about to be deleted. By file name, since a location can be
-- spelled in several ways.
SELECT 1 FROM iceberg_tables
WHERE metadata_location LIKE :pattern OR previous_metadata_location LIKE :pattern LIMIT 1;

-- count_pointers
SELECT count(*) FROM iceberg_tables;

-- count_answers
SELECT count(*) FROM nunatak_idempotency WHERE expires_ms <= :before_ms;

-- forget_stale_pointer
-- The row stored for a name that has no pointer any more.
DELETE FROM nunatak_heads
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND NOT EXISTS (
  SELECT 1 FROM iceberg_tables t
  WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name
    AND t.metadata_location IS NOT NULL);
