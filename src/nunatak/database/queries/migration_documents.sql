-- add_migration_document
INSERT INTO nunatak_migration_documents (migration, document, version, content, changed_ms)
VALUES (:migration, :document, 1, :content, :changed_ms);

-- replace_migration_document
-- Compare and swap: updates no row if the document was replaced meanwhile.
UPDATE nunatak_migration_documents SET content = :content, version = version + 1, changed_ms = :changed_ms
WHERE migration = :migration AND document = :document AND version = :version;

-- drop_migration_document
DELETE FROM nunatak_migration_documents
WHERE migration = :migration AND document = :document AND version = :version;

-- find_migration_document
SELECT document, version, content, changed_ms FROM nunatak_migration_documents
WHERE migration = :migration AND document = :document;

-- list_migration_documents
SELECT document, version, content, changed_ms FROM nunatak_migration_documents
WHERE migration = :migration AND document >= :first AND document < :behind AND document > :after
ORDER BY document LIMIT :limit;
