-- list_heads
-- The identifiers as JSON, made where the names are: a thousand rows handed over one by one cost ten times as much.
SELECT group_concat(:head || json_quote(table_name) || '}', ','), count(*), max(table_name) FROM (
  SELECT table_name FROM iceberg_tables
  WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
    AND coalesce(iceberg_type, 'TABLE') = :type
  ORDER BY table_name LIMIT :limit);

-- data_version
PRAGMA data_version;

-- has_head_after
SELECT 1 FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
  AND coalesce(iceberg_type, 'TABLE') = :type LIMIT 1;

-- search_heads
SELECT coalesce(iceberg_type, 'TABLE'), table_namespace, table_name FROM iceberg_tables
WHERE catalog_name = :catalog AND (instr(lower(table_name), lower(:query)) > 0 OR instr(lower(table_namespace), lower(:query)) > 0)
  AND (:type IS NULL OR coalesce(iceberg_type, 'TABLE') = :type)
ORDER BY table_namespace, table_name LIMIT :limit;

-- next_namespace
-- The first namespace after :after, from what is marked and from what merely holds tables; the caller cuts it to the level it lists.
SELECT min(name) FROM (
  SELECT min(namespace) AS name FROM iceberg_namespace_properties
  WHERE catalog_name = :catalog AND namespace > :after AND namespace < :before
  UNION ALL
  SELECT min(table_namespace) FROM iceberg_tables
  WHERE catalog_name = :catalog AND table_namespace > :after AND table_namespace < :before) AS names;

-- namespace_stands
-- Whether it is marked or holds a table itself, rather than existing through a child.
SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace);
