-- set_shadow
-- Does not change `since_ms` of an existing row.
INSERT INTO nunatak_shadows (catalog_name, table_uuid, source, state, since_ms)
VALUES (:catalog, :uuid, :source, :state, :since_ms)
ON DUPLICATE KEY UPDATE source = VALUES(source), state = VALUES(state);
