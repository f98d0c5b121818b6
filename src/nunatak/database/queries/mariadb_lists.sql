-- list_pointers
SELECT table_name FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name > :after
  AND coalesce(iceberg_type, 'TABLE') = :type
ORDER BY table_name LIMIT :limit;

-- search_names
-- Looks at the :piece names behind a position, in the order of the primary key, however many of them match. The last one
-- looked at comes along: the next piece starts there.
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
-- The first namespaces after :after, from what is marked and from what merely holds tables; the caller cuts them to
-- the level it lists. Grouped by what the primary keys begin with, so that the index is skipped through.
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
-- Whether it is marked or holds a table itself, rather than existing through a child.
SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace);

-- pointers_overlapping
-- Live tables and views whose folder is this one, lies inside it or is one of those above. Warehouses may share a
-- folder, so all are asked. What another client has dropped is remembered here but has no pointer any more.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_table(:around, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked)
UNION
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location > :location || '/' AND h.location < :location || '0';

-- tables_writing_to
-- Live tables whose writers put files into one of these very places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked);

-- keys_after
-- Every name that has a pointer or that something is stored for, in order. Each half stops at a page by itself. Rows are
-- compared column by column: as a whole they would be looked for in every row.
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
  ORDER BY catalog_name, table_namespace, table_name LIMIT :limit) AS heads
ORDER BY catalog_name, table_namespace, table_name LIMIT :limit;

-- owners_at
-- Live tables and views whose location, or place to write to, is one of these very places; with each, which one.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked)
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked);

-- writers_around
-- Live tables whose writers put files into one of these very places, or somewhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_table(:places, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS asked) OR (p.place > :first AND p.place < :behind);
