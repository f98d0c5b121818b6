-- find_shadow
SELECT source, state, since_ms FROM nunatak_shadows WHERE catalog_name = :catalog AND table_uuid = :uuid;

-- list_shadows
-- The shadows of one warehouse, with every name of each table there, in order.
SELECT h.table_namespace, h.table_name, s.table_uuid, s.source, s.state, s.since_ms FROM nunatak_shadows s
JOIN nunatak_heads h ON h.table_uuid = s.table_uuid AND h.catalog_name = s.catalog_name
JOIN iceberg_tables t ON t.catalog_name = h.catalog_name AND t.table_namespace = h.table_namespace
  AND t.table_name = h.table_name
WHERE s.catalog_name = :catalog ORDER BY h.table_namespace, h.table_name;

-- set_shadow
-- Does not change `since_ms` of an existing row.
INSERT INTO nunatak_shadows (catalog_name, table_uuid, source, state, since_ms)
VALUES (:catalog, :uuid, :source, :state, :since_ms)
{upsert catalog_name, table_uuid} source = {new source}, state = {new state};

-- suspend_shadow
-- Runs in the transaction that refreshes a shadow, to allow its own pointer move; no other transaction sees this state.
UPDATE nunatak_shadows SET state = 'refreshing' WHERE catalog_name = :catalog AND table_uuid = :uuid AND state = 'shadow';

-- drop_shadow
DELETE FROM nunatak_shadows WHERE catalog_name = :catalog AND table_uuid = :uuid;

-- forget_shadow
-- Deletes the flag of a table once it has no name left.
DELETE FROM nunatak_shadows WHERE catalog_name = :catalog AND table_uuid = :uuid AND NOT EXISTS (
  SELECT 1 FROM nunatak_heads h
  JOIN iceberg_tables t ON t.catalog_name = h.catalog_name AND t.table_namespace = h.table_namespace
    AND t.table_name = h.table_name
  WHERE h.table_uuid = :uuid AND h.catalog_name = :catalog);

-- names_of_uuid
-- Every live name of a table, in any warehouse.
SELECT h.catalog_name, h.table_namespace, h.table_name FROM nunatak_heads h
JOIN iceberg_tables t ON t.catalog_name = h.catalog_name AND t.table_namespace = h.table_namespace
  AND t.table_name = h.table_name
WHERE h.table_uuid = :uuid;
