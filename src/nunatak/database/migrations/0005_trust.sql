-- Tables whose files still belong to another catalog, because a migration registered that catalog's own metadata here.
-- By the table's uuid, so that a rename changes nothing; one uuid may stand in several warehouses.
-- state: `shadow` (nothing is written here yet) or `cut-over` (written here, and the source is not retired yet).
CREATE TABLE nunatak_shadows (
  catalog_name TEXT NOT NULL,
  table_uuid TEXT NOT NULL,
  source TEXT NOT NULL,
  state TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  PRIMARY KEY (catalog_name, table_uuid)
);

-- Under which names a table stands: asked before its files are deleted.
CREATE INDEX nunatak_heads_by_uuid ON nunatak_heads (table_uuid);

-- What migrations remember when they keep their state here: JSON documents, replaced by compare and swap on `version`.
CREATE TABLE nunatak_migration_documents (
  migration TEXT NOT NULL,
  document TEXT NOT NULL,
  version INTEGER NOT NULL,
  content TEXT NOT NULL,
  changed_ms INTEGER NOT NULL,
  PRIMARY KEY (migration, document)
);
