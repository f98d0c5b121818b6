-- Tables whose files still belong to another catalog, because a migration registered that catalog's own metadata here.
-- By the table's uuid, so that a rename changes nothing; one uuid may stand in several warehouses.
-- state: `shadow` (nothing is written here yet) or `cut-over` (written here, and the source is not retired yet).
{create_table} nunatak_shadows (
  catalog_name {key 255} NOT NULL,
  table_uuid {key 255} NOT NULL,
  source {longtext} NOT NULL,
  state {key 64} NOT NULL,
  since_ms {int} NOT NULL,
  PRIMARY KEY (catalog_name, table_uuid)
){options};

-- Under which names a table stands: asked before its files are deleted.
{create_index} nunatak_heads_by_uuid ON nunatak_heads (table_uuid);

-- What migrations remember when they keep their state here: JSON documents, replaced by compare and swap on `version`.
{create_table} nunatak_migration_documents (
  migration {key 64} NOT NULL,
  document {key 255} NOT NULL,
  version {int} NOT NULL,
  content {longtext} NOT NULL,
  changed_ms {int} NOT NULL,
  PRIMARY KEY (migration, document)
){options};
