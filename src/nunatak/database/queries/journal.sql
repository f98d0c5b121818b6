-- log_commit
INSERT INTO nunatak_commits
  (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
   previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms, origin)
VALUES (:commit_id, :operation, :catalog, :namespace, :name, :uuid, :new, :previous, :snapshot_id, :request_hash,
        :principal, :request_id, :committed_ms, :origin);

-- log_rename
-- Like log_commit, for a table that already has its new name.
INSERT INTO nunatak_commits
  (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
   previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms, origin)
VALUES (:commit_id, :operation, :catalog, :namespace, :name,
  coalesce((SELECT h.table_uuid FROM nunatak_heads h
            WHERE h.catalog_name = :catalog AND h.table_namespace = :namespace AND h.table_name = :name), ''),
  (SELECT t.metadata_location FROM iceberg_tables t
   WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name),
  (SELECT t.metadata_location FROM iceberg_tables t
   WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name),
  :snapshot_id, :request_hash, :principal, :request_id, :committed_ms, :origin);

-- find_commit
-- The same snapshot added by the same request: a retry of a commit that was applied.
SELECT 1 FROM nunatak_commits
WHERE table_uuid = :uuid AND snapshot_id = :snapshot_id AND request_hash = :request_hash LIMIT 1;

-- find_answer
SELECT request_hash, status, body, metadata_location FROM nunatak_idempotency
WHERE principal = :principal AND idempotency_key = :key AND expires_ms > :now_ms;

-- save_answer
-- Inserts or updates no row if the key is taken: a stored answer that has not expired.
INSERT INTO nunatak_idempotency
  (principal, idempotency_key, request_hash, status, body, metadata_location, expires_ms)
VALUES (:principal, :key, :request_hash, :status, :body, :metadata_location, :expires_ms)
ON CONFLICT (principal, idempotency_key) DO UPDATE SET
  request_hash = excluded.request_hash, status = excluded.status, body = excluded.body,
  metadata_location = excluded.metadata_location, expires_ms = excluded.expires_ms
WHERE nunatak_idempotency.expires_ms <= :now_ms;

-- forget_answers
DELETE FROM nunatak_idempotency WHERE expires_ms <= :now_ms;

-- forget_outcomes
-- Nothing to do: only MariaDB stores the outcomes of transactions.

-- add_report
INSERT INTO nunatak_reports (catalog_name, table_namespace, table_name, received_ms, report)
VALUES (:catalog, :namespace, :name, :received_ms, :report);

-- trim_reports
-- MySQL reads the table that it changes only in a derived table.
DELETE FROM nunatak_reports
WHERE report_id <= (SELECT newest FROM (SELECT max(report_id) AS newest FROM nunatak_reports) AS reports) - :keep;

-- find_secret
SELECT value FROM nunatak_secrets WHERE name = :name;

-- save_secret
INSERT INTO nunatak_secrets (name, value) VALUES (:name, :value) {keep_existing name};
