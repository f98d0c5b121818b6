-- places_inside
-- Live tables whose writers put files somewhere inside a folder that is not their own.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place > :first AND p.place < :behind;

-- unknown_pointers
-- Pointers in order, and of those that another client set or moved the place, which nothing tells but the file itself;
-- NULL for all others. Reads so many pointers and no more, lest other requests wait. Rows are compared column by column,
-- as every database can.
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
