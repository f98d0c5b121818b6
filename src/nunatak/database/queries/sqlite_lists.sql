-- list_pointers
-- Builds the JSON of the identifiers in SQL: fetching a thousand rows one by one costs ten times as much.
SELECT group_concat(:prefix || json_quote(table_name) || '}', ','), count(*), max(table_name) FROM (
  SELECT table_name FROM iceberg_tables
  WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
    AND coalesce(iceberg_type, 'TABLE') = :type
  ORDER BY table_name LIMIT :limit);

-- data_version
PRAGMA data_version;

-- has_pointer_after
SELECT 1 FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
  AND coalesce(iceberg_type, 'TABLE') = :type LIMIT 1;

-- search_names
-- Scans :piece names after a position, in primary key order, however many match. Also returns the last name scanned,
-- where the next scan starts.
SELECT type, table_namespace, table_name, found, number FROM (
  SELECT looked.*, row_number() OVER (ORDER BY table_namespace, table_name) AS number FROM (
    SELECT coalesce(iceberg_type, 'TABLE') AS type, table_namespace, table_name,
      (instr(lower(table_name), lower(:query)) > 0 OR instr(lower(table_namespace), lower(:query)) > 0)
      AND (:type IS NULL OR coalesce(iceberg_type, 'TABLE') = :type) AS found
    FROM iceberg_tables
    WHERE catalog_name = :catalog AND (table_namespace, table_name) > (:after_namespace, :after_name)
    ORDER BY table_namespace, table_name LIMIT :piece) AS looked) AS counted
WHERE found OR number = :piece ORDER BY number;

-- next_namespace
-- The first namespace after :after, marked or only holding tables; the caller truncates it to the level it lists.
SELECT min(name) FROM (
  SELECT min(namespace) AS name FROM iceberg_namespace_properties
  WHERE catalog_name = :catalog AND namespace > :after AND namespace < :before
  UNION ALL
  SELECT min(table_namespace) FROM iceberg_tables
  WHERE catalog_name = :catalog AND table_namespace > :after AND table_namespace < :before) AS names;

-- namespace_stands
-- Whether the namespace is marked or holds a table itself, rather than existing only through a child.
SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace);
