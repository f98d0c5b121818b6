-- pointers_overlapping
-- Live tables and views whose folder is this one, lies inside it or is one of those above. Warehouses may share a
-- folder, so all are asked. What another client has dropped is remembered here but has no pointer any more.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_each(:around))
   OR (h.location > :location || '/' AND h.location < :location || '0');

-- tables_writing_to
-- Live tables whose writers put files into one of these very places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_each(:places));

-- owners_at
-- Live tables and views whose location, or place to write to, is one of these very places; with each, which one.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_each(:places))
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_each(:places));

-- writers_around
-- Live tables whose writers put files into one of these very places, or somewhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_each(:places)) OR (p.place > :first AND p.place < :behind);
