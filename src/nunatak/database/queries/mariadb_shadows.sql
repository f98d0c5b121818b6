-- set_shadow
-- Since when it is one stays as it was.
INSERT INTO nunatak_shadows (catalog_name, table_uuid, source, state, since_ms)
VALUES (:catalog, :uuid, :source, :state, :since_ms)
ON DUPLICATE KEY UPDATE source = VALUES(source), state = VALUES(state);
