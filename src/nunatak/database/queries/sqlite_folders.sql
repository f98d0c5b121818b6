-- pointers_overlapping
-- Live tables and views whose folder is this one, lies inside it or is one of its ancestors; in all warehouses, since
-- these may share a folder. The join skips stored rows of tables that a JDBC client dropped.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_each(:around))
   OR (h.location > :location || '/' AND h.location < :location || '0');

-- tables_writing_to
-- Live tables whose writers put files into exactly one of these places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_each(:places));

-- owners_at
-- Live tables and views whose location or write place is exactly one of these places, with that place.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT value FROM json_each(:places))
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_each(:places));

-- writers_around
-- Live tables whose writers put files into exactly one of these places, or anywhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT value FROM json_each(:places)) OR (p.place > :first AND p.place < :behind);
