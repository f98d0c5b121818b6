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
