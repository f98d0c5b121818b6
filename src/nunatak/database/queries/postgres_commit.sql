-- commit_pointer + remember_moved + save_moved_pointer + log_moved + add_moved_event
-- Compare and swap: changes nothing if another client moved the pointer first, or if the table is a shadow. One
-- statement, hence one round trip and atomic; it includes the jobs and the idempotency answer of a commit.
-- If the key is taken, its hash becomes NULL, which violates NOT NULL and fails the whole statement.
WITH moved AS (
  UPDATE iceberg_tables SET metadata_location = :new::text, previous_metadata_location = :expected::text
  WHERE catalog_name = :catalog::text AND table_namespace = :namespace::text AND table_name = :name::text
    AND metadata_location = :expected::text
    AND NOT EXISTS (
      SELECT 1 FROM nunatak_shadows s
      WHERE s.catalog_name = :catalog::text AND s.table_uuid = :uuid::text AND s.state = 'shadow')
  RETURNING 1
), saved AS (
  INSERT INTO nunatak_heads
    (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
  SELECT :catalog::text, :namespace::text, :name::text, :new::text, :uuid::text, :location::text, :content::bytea
  FROM moved
  ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
    metadata_location = excluded.metadata_location, table_uuid = excluded.table_uuid,
    location = excluded.location, content = excluded.content
), logged AS (
  INSERT INTO nunatak_commits
    (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
     previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms, origin)
  SELECT :commit_id::text, :operation::text, :catalog::text, :namespace::text, :name::text, :uuid::text, :new::text,
    :expected::text, :snapshot_id::bigint, :request_hash::bytea, :principal::text, :request_id::text,
    :committed_ms::bigint, :origin::text
  FROM moved
), announced AS (
  INSERT INTO nunatak_outbox
    (event_id, type, catalog_name, table_namespace, table_name, object_uuid, metadata_location,
     previous_metadata_location, snapshot_id, principal, request_id, at_ms, detail)
  SELECT :commit_id::text, :operation::text, :catalog::text, :namespace::text, :name::text, :uuid::text, :new::text,
    :expected::text, :snapshot_id::bigint, :principal::text, :request_id::text, :committed_ms::bigint, :detail::text
  FROM moved
), queued AS (
  INSERT INTO nunatak_jobs (kind, payload)
  SELECT job.kind, job.payload FROM moved, unnest(:job_kinds::text[], :job_payloads::bytea[]) AS job (kind, payload)
), answered AS (
  INSERT INTO nunatak_idempotency
    (principal, idempotency_key, request_hash, status, body, metadata_location, expires_ms)
  SELECT :key_principal::text, :key::text, :key_hash::bytea, :key_status::integer, :key_body::bytea,
    :key_location::text, :key_expires_ms::bigint
  FROM moved WHERE :key::text IS NOT NULL
  ON CONFLICT (principal, idempotency_key) DO UPDATE SET
    request_hash = CASE WHEN nunatak_idempotency.expires_ms <= :key_now_ms::bigint THEN excluded.request_hash END,
    status = excluded.status, body = excluded.body,
    metadata_location = excluded.metadata_location, expires_ms = excluded.expires_ms
)
SELECT 1 FROM moved;

-- insert_pointer + mark_namespace + save_pointer + log_commit + add_event
-- Changes nothing if the name is taken, also by a JDBC client, which does not take our locks. Marks the namespace,
-- which may otherwise exist only through a table that is dropped later.
WITH inserted AS (
  INSERT INTO iceberg_tables
    (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
  VALUES (:catalog::text, :namespace::text, :name::text, :new::text, NULL, :type::text)
  ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
    metadata_location = excluded.metadata_location, iceberg_type = excluded.iceberg_type
  WHERE iceberg_tables.metadata_location IS NULL
  RETURNING 1
), marked AS (
  INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
  SELECT :catalog::text, :namespace::text, 'exists', 'true' FROM inserted
  ON CONFLICT (catalog_name, namespace, property_key) DO NOTHING
), saved AS (
  INSERT INTO nunatak_heads
    (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
  SELECT :catalog::text, :namespace::text, :name::text, :new::text, :uuid::text, :location::text, :content::bytea
  FROM inserted
  ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
    metadata_location = excluded.metadata_location, table_uuid = excluded.table_uuid,
    location = excluded.location, content = excluded.content
), logged AS (
  INSERT INTO nunatak_commits
    (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
     snapshot_id, request_hash, principal, request_id, committed_ms, origin)
  SELECT :commit_id::text, :operation::text, :catalog::text, :namespace::text, :name::text, :uuid::text, :new::text,
    :snapshot_id::bigint, :request_hash::bytea, :principal::text, :request_id::text, :committed_ms::bigint,
    :origin::text
  FROM inserted
), announced AS (
  INSERT INTO nunatak_outbox
    (event_id, type, catalog_name, table_namespace, table_name, object_uuid, metadata_location,
     snapshot_id, principal, request_id, at_ms, detail)
  SELECT :commit_id::text, :operation::text, :catalog::text, :namespace::text, :name::text, :uuid::text, :new::text,
    :snapshot_id::bigint, :principal::text, :request_id::text, :committed_ms::bigint, :detail::text
  FROM inserted
)
SELECT 1 FROM inserted;

-- lock_pointers
-- Locks several pointers in one order, so that two commits cannot deadlock.
SELECT 1 FROM iceberg_tables
JOIN unnest(:catalogs::text[], :namespaces::text[], :names::text[]) AS wanted (catalog_name, table_namespace, table_name)
  USING (catalog_name, table_namespace, table_name)
ORDER BY iceberg_tables.catalog_name, iceberg_tables.table_namespace, iceberg_tables.table_name
FOR UPDATE OF iceberg_tables;

-- lock_pointer
-- Reads the current pointer and locks it until this transaction ends.
SELECT metadata_location, iceberg_type FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name FOR UPDATE;

-- this_transaction
SELECT pg_current_xact_id()::text;

-- transaction_outcome
-- Committed, aborted or in progress; an error or NULL if the server does not know the transaction.
SELECT pg_xact_status(:transaction::text::xid8);

-- commits_found
-- The ids of these that are in the commit log; a transaction has all of its rows there, or none.
SELECT commit_id FROM nunatak_commits WHERE commit_id = ANY (:commit_ids::text[]);

-- end_session
-- Returns a row while the session exists. Terminates one that waits for the client, so that a COMMIT in flight cannot
-- arrive later; a session that executes a statement may finish it.
SELECT CASE WHEN state LIKE 'idle%' OR wait_event = 'ClientRead' THEN pg_terminate_backend(pid) END
FROM pg_stat_activity
WHERE pid = :pid AND backend_start = :started;

-- describe_session
SELECT pid, backend_start, current_setting('synchronous_commit') FROM pg_stat_activity WHERE pid = pg_backend_pid();
