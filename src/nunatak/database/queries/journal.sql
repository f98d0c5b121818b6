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

-- add_job
INSERT INTO nunatak_jobs (kind, payload, location) VALUES (:kind, :payload, :location);

-- add_later_job
INSERT INTO nunatak_jobs (kind, payload, not_before_ms) VALUES (:kind, :payload, :not_before_ms);

-- purge_of
-- A pending purge of a dropped table at this location.
SELECT 1 FROM nunatak_jobs WHERE location = :location AND kind = 'purge' LIMIT 1;

-- next_job_time
SELECT min(not_before_ms) FROM nunatak_jobs;

-- lease_taken_job
-- Nothing to do: take_job has leased the job.

-- extend_lease
UPDATE nunatak_jobs SET not_before_ms = :until_ms WHERE job_id = :job_id AND leased_by = :owner;

-- finish_job
DELETE FROM nunatak_jobs WHERE job_id = :job_id AND leased_by = :owner;

-- postpone_job
UPDATE nunatak_jobs SET not_before_ms = :not_before_ms, leased_by = NULL, last_error = :error
WHERE job_id = :job_id AND leased_by = :owner;

-- add_report
INSERT INTO nunatak_reports (catalog_name, table_namespace, table_name, received_ms, report)
VALUES (:catalog, :namespace, :name, :received_ms, :report);

-- trim_reports
DELETE FROM nunatak_reports WHERE report_id <= (SELECT max(report_id) FROM nunatak_reports) - :keep;

-- find_secret
SELECT value FROM nunatak_secrets WHERE name = :name;

-- save_secret
INSERT INTO nunatak_secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;
