-- Tables whose files still belong to another catalog, because a migration registered that catalog's own metadata here.
-- By the table's uuid, so that a rename changes nothing; one uuid may stand in several warehouses.
-- state: `shadow` (nothing is written here yet) or `cut-over` (written here, and the source is not retired yet).
CREATE TABLE nunatak_shadows (
  catalog_name TEXT COLLATE "C" NOT NULL,
  table_uuid TEXT COLLATE "C" NOT NULL,
  source TEXT NOT NULL,
  state TEXT COLLATE "C" NOT NULL,
  since_ms BIGINT NOT NULL,
  PRIMARY KEY (catalog_name, table_uuid)
);

-- Under which names a table stands: asked before its files are deleted.
CREATE INDEX nunatak_heads_by_uuid ON nunatak_heads (table_uuid);

-- What migrations remember when they keep their state here: JSON documents, replaced by compare and swap on `version`.
CREATE TABLE nunatak_migration_documents (
  migration TEXT COLLATE "C" NOT NULL,
  document TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  content TEXT NOT NULL,
  changed_ms BIGINT NOT NULL,
  PRIMARY KEY (migration, document)
);
