-- add_migration_document
-- Inserts no row if the document exists.
INSERT INTO nunatak_migration_documents (migration, document, version, content, changed_ms)
SELECT :migration, :document, 1, :content, :changed_ms
FROM DUAL WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_migration_documents o WHERE o.migration = :migration AND o.document = :document
);
