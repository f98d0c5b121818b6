-- list_pointers
SELECT table_name FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
  AND coalesce(iceberg_type, 'TABLE') = :type
ORDER BY table_name LIMIT :limit;

-- search_names
-- Scans :piece names after a position, in primary key order, however many match. Also returns the last name scanned,
-- where the next scan starts.
SELECT type, table_namespace, table_name, found, number FROM (
  SELECT looked.*, row_number() OVER (ORDER BY table_namespace, table_name) AS number FROM (
    SELECT coalesce(iceberg_type, 'TABLE') AS type, table_namespace, table_name,
      (locate(lower(:query), lower(table_name)) > 0 OR locate(lower(:query), lower(table_namespace)) > 0)
      AND (:type IS NULL OR coalesce(iceberg_type, 'TABLE') = :type) AS found
    FROM iceberg_tables
    WHERE catalog_name = :catalog
      AND (table_namespace > :after_namespace OR (table_namespace = :after_namespace AND table_name > :after_name))
    ORDER BY table_namespace, table_name LIMIT :piece) AS looked) AS counted
WHERE found OR number = :piece ORDER BY number;

-- next_namespaces
-- The first namespaces after :after, marked or only holding tables; the caller truncates them to the level it lists.
-- Grouped by a prefix of the primary keys, for a skip scan of the index.
SELECT name FROM (
  (SELECT namespace AS name FROM iceberg_namespace_properties
   WHERE catalog_name = :catalog AND namespace > :after AND namespace < :before
   GROUP BY catalog_name, namespace ORDER BY catalog_name, namespace LIMIT :limit)
  UNION
  (SELECT table_namespace FROM iceberg_tables
   WHERE catalog_name = :catalog AND table_namespace > :after AND table_namespace < :before
   GROUP BY catalog_name, table_namespace ORDER BY catalog_name, table_namespace LIMIT :limit)
) AS names ORDER BY name LIMIT :limit;

-- namespace_stands
-- Whether the namespace is marked or holds a table itself, rather than existing only through a child.
SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace);

-- pointers_overlapping
-- Live tables and views whose folder is this one, lies inside it or is one of its ancestors; in all warehouses, since
-- these may share a folder. The join skips stored rows of tables that a JDBC client dropped.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_table(:around, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked)
UNION
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location > :location || '/' AND h.location < :location || '0';

-- tables_writing_to
-- Live tables whose writers put files into exactly one of these places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked);

-- keys_after
-- Every name that has a pointer or stored rows, in order. Each half of the UNION is limited to a page by itself.
-- Compares column by column: for a row comparison MariaDB would scan all rows.
SELECT catalog_name, table_namespace, table_name FROM (
  SELECT catalog_name, table_namespace, table_name FROM iceberg_tables
  WHERE catalog_name > :catalog OR (catalog_name = :catalog
    AND (table_namespace > :namespace OR (table_namespace = :namespace AND table_name > :name)))
  ORDER BY catalog_name, table_namespace, table_name LIMIT :limit) AS pointers
UNION
SELECT catalog_name, table_namespace, table_name FROM (
  SELECT catalog_name, table_namespace, table_name FROM nunatak_heads
  WHERE catalog_name > :catalog OR (catalog_name = :catalog
    AND (table_namespace > :namespace OR (table_namespace = :namespace AND table_name > :name)))
  ORDER BY catalog_name, table_namespace, table_name LIMIT :limit) AS pointers
ORDER BY catalog_name, table_namespace, table_name LIMIT :limit;

-- owners_at
-- Live tables and views whose location or write place is exactly one of these places, with that place.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked)
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked);

-- writers_around
-- Live tables whose writers put files into exactly one of these places, or anywhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked) OR (p.place > :first AND p.place < :behind);
