-- places_inside
-- Live tables whose writers put files somewhere inside a folder that is not their own.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place > :first AND p.place < :behind;

-- unknown_pointers
-- Pointers that another client set or moved, so that nothing says where the table lies but the file itself. Reads every
-- pointer: asked only before files are deleted. Rows are compared column by column, as every database can.
SELECT t.catalog_name, t.table_namespace, t.table_name, t.metadata_location
FROM iceberg_tables t LEFT JOIN nunatak_heads h
  ON h.catalog_name = t.catalog_name AND h.table_namespace = t.table_namespace AND h.table_name = t.table_name
WHERE t.metadata_location IS NOT NULL
  AND (h.metadata_location IS NULL OR h.metadata_location <> t.metadata_location)
  AND (t.catalog_name > :catalog OR (t.catalog_name = :catalog
    AND (t.table_namespace > :namespace OR (t.table_namespace = :namespace AND t.table_name > :name))))
ORDER BY t.catalog_name, t.table_namespace, t.table_name LIMIT :limit;
