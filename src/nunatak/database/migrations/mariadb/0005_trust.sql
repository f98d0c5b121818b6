-- Each statement may be run again: see 0001_catalog.sql.
-- Tables whose files still belong to another catalog, because a migration registered that catalog's own metadata here.
-- By the table's uuid, so that a rename changes nothing; one uuid may stand in several warehouses.
-- state: `shadow` (nothing is written here yet) or `cut-over` (written here, and the source is not retired yet).
CREATE TABLE IF NOT EXISTS nunatak_shadows (
  catalog_name VARCHAR(255) NOT NULL,
  table_uuid VARCHAR(255) NOT NULL,
  source MEDIUMTEXT NOT NULL,
  state VARCHAR(64) NOT NULL,
  since_ms BIGINT NOT NULL,
  PRIMARY KEY (catalog_name, table_uuid)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Under which names a table stands: asked before its files are deleted.
CREATE INDEX IF NOT EXISTS nunatak_heads_by_uuid ON nunatak_heads (table_uuid);

-- What migrations remember when they keep their state here: JSON documents, replaced by compare and swap on `version`.
CREATE TABLE IF NOT EXISTS nunatak_migration_documents (
  migration VARCHAR(64) NOT NULL,
  document VARCHAR(255) NOT NULL,
  version BIGINT NOT NULL,
  content MEDIUMTEXT NOT NULL,
  changed_ms BIGINT NOT NULL,
  PRIMARY KEY (migration, document)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
