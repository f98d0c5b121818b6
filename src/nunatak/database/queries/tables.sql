-- find_head
-- The pointer and, unless the caller already holds the bytes for it, the stored bytes: one round trip for a load.
SELECT t.metadata_location, t.iceberg_type,
  CASE WHEN t.metadata_location = :known THEN NULL ELSE (
    SELECT h.content FROM nunatak_heads h
    WHERE h.catalog_name = :catalog AND h.table_namespace = :namespace AND h.table_name = :name
      AND h.metadata_location = t.metadata_location) END
FROM iceberg_tables t
WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name;

-- find_type
-- A row without a pointer, which other clients could leave behind, is no table.
SELECT iceberg_type FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND metadata_location IS NOT NULL;

-- find_twin
-- A name that differs only in case, for the hint of a 404.
SELECT table_namespace, table_name FROM iceberg_tables
WHERE catalog_name = :catalog AND lower(table_namespace) = lower(:namespace) AND lower(table_name) = lower(:name)
LIMIT 1;

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

-- insert_head
INSERT INTO iceberg_tables
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
VALUES (:catalog, :namespace, :name, :new, NULL, :type)
ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
  metadata_location = excluded.metadata_location, iceberg_type = excluded.iceberg_type
WHERE iceberg_tables.metadata_location IS NULL;

-- save_head
INSERT INTO nunatak_heads
  (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
VALUES (:catalog, :namespace, :name, :new, :uuid, :location, :content)
ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
  metadata_location = excluded.metadata_location, table_uuid = excluded.table_uuid,
  location = excluded.location, content = excluded.content;

-- delete_head
DELETE FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
  AND coalesce(iceberg_type, 'TABLE') = :type
RETURNING metadata_location;

-- forget_head
DELETE FROM nunatak_heads
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
RETURNING table_uuid, location, metadata_location;

-- rename_head
UPDATE iceberg_tables SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
  AND coalesce(iceberg_type, 'TABLE') = :type
RETURNING metadata_location;

-- rename_saved_head
UPDATE nunatak_heads SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
RETURNING table_uuid;

-- rename_table_properties
UPDATE iceberg_table_properties SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- forget_table_properties
DELETE FROM iceberg_table_properties
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- heads_inside
-- Live tables and views whose folder is this one or lies inside it. Warehouses share no folder, so all are asked.
-- What another client has dropped is remembered here but has no pointer any more.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location = :location OR (h.location > :location || '/' AND h.location < :location || '0');

-- tables_writing_to
-- Live tables whose writers put files into this very place.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place = :place;

-- save_place
INSERT INTO nunatak_places (place, catalog_name, table_namespace, table_name)
VALUES (:place, :catalog, :namespace, :name) ON CONFLICT DO NOTHING;

-- forget_places
DELETE FROM nunatak_places
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- rename_places
UPDATE nunatak_places SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- head_at
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location = :location;
