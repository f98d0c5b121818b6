-- places_inside
-- Live tables whose writers put files anywhere inside a folder outside the tables' own.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place > :first AND p.place < :behind;

-- unknown_pointers
-- Pointers in order, with the metadata location of those that a JDBC client set or moved: only that file has the
-- location of the table. NULL for all others. Reads at most :limit pointers, so that other requests do not wait.
-- Compares column by column, which every database supports.
SELECT t.catalog_name, t.table_namespace, t.table_name,
  CASE WHEN h.metadata_location IS NULL OR h.metadata_location <> t.metadata_location THEN t.metadata_location END
FROM (
  SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables
  WHERE catalog_name > :catalog OR (catalog_name = :catalog
    AND (table_namespace > :namespace OR (table_namespace = :namespace AND table_name > :name)))
  ORDER BY catalog_name, table_namespace, table_name LIMIT :limit
) t LEFT JOIN nunatak_heads h
  ON h.catalog_name = t.catalog_name AND h.table_namespace = t.table_namespace AND h.table_name = t.table_name
ORDER BY t.catalog_name, t.table_namespace, t.table_name;

-- pointers_overlapping
-- Live tables and views whose folder is this one, lies inside it or is one of its ancestors; in all warehouses, since
-- these may share a folder. The join skips stored rows of tables that a JDBC client dropped.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location {in_list around}
   OR (h.location > :location || '/' AND h.location < :location || '0');

-- tables_writing_to
-- Live tables whose writers put files into exactly one of these places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place {in_list places};

-- owners_at
-- Live tables and views whose location or write place is exactly one of these places, with that place.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location {in_list places}
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place {in_list places};

-- writers_around
-- Live tables whose writers put files into exactly one of these places, or anywhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place {in_list places} OR (p.place > :first AND p.place < :behind);
