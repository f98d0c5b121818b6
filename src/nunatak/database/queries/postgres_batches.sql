-- find_pointers
-- Like `find_pointer`, for several names; no row for a missing one.
SELECT wanted.member, t.metadata_location, t.iceberg_type,
  CASE WHEN t.metadata_location = wanted.known THEN NULL ELSE (
    SELECT h.content FROM nunatak_heads h
    WHERE h.catalog_name = wanted.catalog AND h.table_namespace = wanted.namespace AND h.table_name = wanted.name
      AND h.metadata_location = t.metadata_location) END,
  (SELECT version FROM nunatak_policy)
FROM unnest(:catalogs::text[], :namespaces::text[], :names::text[], :known::text[])
  WITH ORDINALITY AS wanted (catalog, namespace, name, known, member)
JOIN iceberg_tables t
  ON t.catalog_name = wanted.catalog AND t.table_namespace = wanted.namespace AND t.table_name = wanted.name;

-- commit_pointers
-- Like `commit_pointer`, for several tables, each of which moves or not independently; returns the members that moved.
-- Skips locked rows, so that one table neither delays the others nor takes part in a deadlock. A key that is taken
-- fails the whole statement.
WITH wanted AS (
  SELECT * FROM unnest(
    :catalog::text[], :namespace::text[], :name::text[], :expected::text[], :new::text[], :uuid::text[],
    :location::text[], :content::bytea[], :commit_id::text[], :operation::text[], :snapshot_id::bigint[],
    :request_hash::bytea[], :principal::text[], :request_id::text[], :committed_ms::bigint[], :origin::text[],
    :detail::text[], :key_principal::text[], :key::text[], :key_hash::bytea[], :key_status::integer[], :key_body::bytea[], :key_location::text[],
    :key_expires_ms::bigint[])
  WITH ORDINALITY AS each (
    catalog, namespace, name, expected, new, uuid, location, content, commit_id, operation, snapshot_id, request_hash,
    principal, request_id, committed_ms, origin, detail, key_principal, key, key_hash, key_status, key_body,
    key_location, key_expires_ms, member)
), held AS (
  SELECT wanted.* FROM wanted CROSS JOIN LATERAL (
    SELECT 1 FROM iceberg_tables t
    WHERE t.catalog_name = wanted.catalog AND t.table_namespace = wanted.namespace AND t.table_name = wanted.name
      AND t.metadata_location = wanted.expected
      AND NOT EXISTS (
        SELECT 1 FROM nunatak_shadows s
        WHERE s.catalog_name = wanted.catalog AND s.table_uuid = wanted.uuid AND s.state = 'shadow')
    FOR NO KEY UPDATE SKIP LOCKED) AS found
), moved AS (
  UPDATE iceberg_tables t SET metadata_location = held.new, previous_metadata_location = held.expected FROM held
  WHERE t.catalog_name = held.catalog AND t.table_namespace = held.namespace AND t.table_name = held.name
    AND t.metadata_location = held.expected
  RETURNING held.*
), saved AS (
  INSERT INTO nunatak_heads
    (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
  SELECT catalog, namespace, name, new, uuid, location, content FROM moved
  ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
    metadata_location = excluded.metadata_location, table_uuid = excluded.table_uuid,
    location = excluded.location, content = excluded.content
), logged AS (
  INSERT INTO nunatak_commits
    (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
     previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms, origin)
  SELECT commit_id, operation, catalog, namespace, name, uuid, new, expected, snapshot_id, request_hash, principal,
    request_id, committed_ms, origin
  FROM moved
), announced AS (
  INSERT INTO nunatak_outbox
    (event_id, type, catalog_name, table_namespace, table_name, object_uuid, metadata_location,
     previous_metadata_location, snapshot_id, principal, request_id, at_ms, detail)
  SELECT commit_id, operation, catalog, namespace, name, uuid, new, expected, snapshot_id, principal, request_id,
    committed_ms, detail
  FROM moved
), queued AS (
  INSERT INTO nunatak_jobs (kind, payload)
  SELECT job.kind, job.payload
  FROM unnest(:job_members::bigint[], :job_kinds::text[], :job_payloads::bytea[]) AS job (member, kind, payload)
  JOIN moved USING (member)
), answered AS (
  INSERT INTO nunatak_idempotency
    (principal, idempotency_key, request_hash, status, body, metadata_location, expires_ms)
  SELECT key_principal, key, key_hash, key_status, key_body, key_location, key_expires_ms FROM moved
  WHERE key IS NOT NULL
  ON CONFLICT (principal, idempotency_key) DO UPDATE SET
    request_hash = CASE WHEN nunatak_idempotency.expires_ms <= :key_now_ms::bigint THEN excluded.request_hash END,
    status = excluded.status, body = excluded.body,
    metadata_location = excluded.metadata_location, expires_ms = excluded.expires_ms
)
SELECT member FROM moved;

-- pointers_of
-- Includes the source, if the table is a shadow.
SELECT wanted.member, t.metadata_location,
  (SELECT s.source FROM nunatak_shadows s
   WHERE s.catalog_name = wanted.catalog AND s.table_uuid = wanted.uuid AND s.state = 'shadow')
FROM unnest(:catalog::text[], :namespace::text[], :name::text[], :uuid::text[])
  WITH ORDINALITY AS wanted (catalog, namespace, name, uuid, member)
JOIN iceberg_tables t
  ON t.catalog_name = wanted.catalog AND t.table_namespace = wanted.namespace AND t.table_name = wanted.name
WHERE t.metadata_location IS NOT NULL;
