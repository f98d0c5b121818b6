-- find_pointer
-- The pointer and, unless the caller already has them, the stored bytes: one round trip for a load. Also the policy
-- version, which tells whether a cached access decision is still valid.
SELECT t.metadata_location, t.iceberg_type,
  CASE WHEN t.metadata_location = :known THEN NULL ELSE (
    SELECT h.content FROM nunatak_heads h
    WHERE h.catalog_name = :catalog AND h.table_namespace = :namespace AND h.table_name = :name
      AND h.metadata_location = t.metadata_location) END,
  (SELECT version FROM nunatak_policy)
FROM iceberg_tables t
WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name;

-- find_type
-- A row without a pointer, which JDBC clients could leave behind, is not a table.
SELECT iceberg_type, (SELECT version FROM nunatak_policy) FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND metadata_location IS NOT NULL;

-- find_twin
-- A name that differs only in case, for the hint of a 404: among the first thousand of its namespace, or of the same
-- namespace in lower or upper case, by the primary key. A scan of all names would cost more than the hint is worth.
-- Without coalesce PostgreSQL cannot infer the type of the parameter.
SELECT table_namespace, table_name FROM (
  SELECT table_namespace, table_name FROM iceberg_tables
  WHERE catalog_name = :catalog AND table_namespace IN (coalesce(:namespace, ''), lower(:namespace), upper(:namespace))
  LIMIT 1000
) AS near
WHERE lower(table_name) = lower(:name)
LIMIT 1;

-- save_pointer
INSERT INTO nunatak_heads
  (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
VALUES (:catalog, :namespace, :name, :new, :uuid, :location, :content)
{upsert catalog_name, table_namespace, table_name} metadata_location = {new metadata_location},
  table_uuid = {new table_uuid}, location = {new location}, content = {new content};

-- store_content
-- Stores the bytes of a commit that stored only its pointer, unless another commit has followed.
UPDATE nunatak_heads SET content = :content
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND metadata_location = :new;

-- save_table_property
INSERT INTO iceberg_table_properties (catalog_name, table_namespace, table_name, property_key, property_value)
VALUES (:catalog, :namespace, :name, :key, :value)
{upsert catalog_name, table_namespace, table_name, property_key} property_value = {new property_value};

-- table_properties
SELECT property_key, property_value FROM iceberg_table_properties
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name ORDER BY property_key;

-- rename_table_properties
UPDATE iceberg_table_properties SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- forget_table_properties
DELETE FROM iceberg_table_properties
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- forget_places
DELETE FROM nunatak_places
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- rename_places
UPDATE nunatak_places SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- lock_pointer
-- Reads the current pointer and locks it until this transaction ends; locks nothing if there is none.
SELECT metadata_location FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name{for_update};

-- take_pointer
-- Deletes a pointer and returns it. MariaDB, which cannot do both in one statement, deletes in delete_taken_pointer.
DELETE FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
  AND coalesce(iceberg_type, 'TABLE') = :type
RETURNING metadata_location;

-- delete_taken_pointer
-- Nothing to do: take_pointer has deleted the row.

-- take_saved_pointer
-- Like take_pointer, for the row stored beside the pointer; with the source, if the table is a shadow.
DELETE FROM nunatak_heads
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
RETURNING table_uuid, location, (
  SELECT s.source FROM nunatak_shadows s
  WHERE s.catalog_name = nunatak_heads.catalog_name AND s.table_uuid = nunatak_heads.table_uuid);

-- forget_taken_pointer
-- Nothing to do: take_saved_pointer has deleted the row.

-- clear_empty_pointer
-- Nothing to do: insert_pointer overwrites a row without a pointer.

-- forget_pointer
DELETE FROM nunatak_heads WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- rename_pointer
UPDATE iceberg_tables SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
  AND coalesce(iceberg_type, 'TABLE') = :type;

-- rename_saved_pointer
UPDATE nunatak_heads SET table_namespace = :to_namespace, table_name = :to_name
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- save_place
INSERT INTO nunatak_places (place, catalog_name, table_namespace, table_name)
VALUES (:place, :catalog, :namespace, :name) {if_missing};

-- forget_table_property
DELETE FROM iceberg_table_properties
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND property_key = :key;
