-- begin_transaction
START TRANSACTION;

-- commit_transaction
COMMIT;

-- take_lock
-- Locks the row until the transaction ends, whether it existed before or not.
INSERT INTO nunatak_locks (name) VALUES (:lock) ON DUPLICATE KEY UPDATE name = name;

-- commit_pointer
-- Compare and swap: updates no row if another client moved the pointer first, or if the table is a shadow.
UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :expected
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
  AND metadata_location = :expected
  AND NOT EXISTS (
    SELECT 1 FROM nunatak_shadows s
    WHERE s.catalog_name = :catalog AND s.table_uuid = :uuid AND s.state = 'shadow');

-- remember_moved
-- Later statements of the round trip do nothing unless the pointer moved. Counts matched rows (CLIENT_FOUND_ROWS).
SET @moved = ROW_COUNT();

-- save_moved_pointer
INSERT INTO nunatak_heads
  (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
SELECT :catalog, :namespace, :name, :new, :uuid, :location, :content FROM dual WHERE @moved = 1
ON DUPLICATE KEY UPDATE
  metadata_location = VALUES(metadata_location), table_uuid = VALUES(table_uuid),
  location = VALUES(location), content = VALUES(content);

-- log_moved
INSERT INTO nunatak_commits
  (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
   previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms, origin)
SELECT :commit_id, :operation, :catalog, :namespace, :name, :uuid, :new, :expected, :snapshot_id, :request_hash,
       :principal, :request_id, :committed_ms, :origin
FROM dual WHERE @moved = 1;

-- add_moved_event
INSERT INTO nunatak_outbox
  (event_id, type, catalog_name, table_namespace, table_name, object_uuid, metadata_location,
   previous_metadata_location, snapshot_id, principal, request_id, at_ms, detail)
SELECT :commit_id, :operation, :catalog, :namespace, :name, :uuid, :new, :expected, :snapshot_id, :principal, :request_id,
       :committed_ms, :detail
FROM dual WHERE @moved = 1;

-- queue_moved
INSERT INTO nunatak_jobs (kind, payload) SELECT :kind, :payload FROM dual WHERE @moved = 1;

-- answer_moved
-- If the key is taken, its hash becomes NULL, which violates NOT NULL and fails the transaction.
INSERT INTO nunatak_idempotency
  (principal, idempotency_key, request_hash, status, body, metadata_location, expires_ms)
SELECT :principal, :key, :request_hash, :status, :body, :metadata_location, :expires_ms FROM dual WHERE @moved = 1
ON DUPLICATE KEY UPDATE
  request_hash = IF(expires_ms <= :now_ms, VALUES(request_hash), NULL), status = VALUES(status), body = VALUES(body),
  metadata_location = VALUES(metadata_location), expires_ms = VALUES(expires_ms);

-- lock_pointer
-- Reads the current pointer and locks it until this transaction ends; locks nothing if there is none.
SELECT metadata_location, coalesce(iceberg_type, 'TABLE') FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name FOR UPDATE;

-- clear_empty_pointer
-- Deletes a row without a pointer, which JDBC clients could leave behind: it is no table and must not block the name.
DELETE FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND metadata_location IS NULL;

-- insert_pointer
INSERT INTO iceberg_tables
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
VALUES (:catalog, :namespace, :name, :new, NULL, :type);

-- take_pointer
-- Reads and locks until this transaction ends: MySQL has no DELETE … RETURNING.
SELECT metadata_location FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name
  AND coalesce(iceberg_type, 'TABLE') = :type FOR UPDATE;

-- delete_taken_pointer
DELETE FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- take_saved_pointer
SELECT h.table_uuid, h.location, s.source FROM nunatak_heads h
LEFT JOIN nunatak_shadows s ON s.catalog_name = h.catalog_name AND s.table_uuid = h.table_uuid
WHERE h.catalog_name = :catalog AND h.table_namespace = :namespace AND h.table_name = :name;

-- forget_taken_pointer
DELETE FROM nunatak_heads WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;

-- save_pointer
INSERT INTO nunatak_heads
  (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
VALUES (:catalog, :namespace, :name, :new, :uuid, :location, :content)
ON DUPLICATE KEY UPDATE
  metadata_location = VALUES(metadata_location), table_uuid = VALUES(table_uuid),
  location = VALUES(location), content = VALUES(content);

-- save_place
INSERT INTO nunatak_places (place, catalog_name, table_namespace, table_name)
VALUES (:place, :catalog, :namespace, :name);

-- save_namespace_property
INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, :key, :value) ON DUPLICATE KEY UPDATE property_value = VALUES(property_value);

-- mark_namespace
-- To JDBC clients a namespace exists if it has a property; `exists` is the one that they add for this.
INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, 'exists', 'true') ON DUPLICATE KEY UPDATE property_value = property_value;

-- save_answer
-- Fails as in answer_moved if the key is taken: a stored answer that has not expired.
INSERT INTO nunatak_idempotency
  (principal, idempotency_key, request_hash, status, body, metadata_location, expires_ms)
VALUES (:principal, :key, :request_hash, :status, :body, :metadata_location, :expires_ms)
ON DUPLICATE KEY UPDATE
  request_hash = IF(expires_ms <= :now_ms, VALUES(request_hash), NULL), status = VALUES(status), body = VALUES(body),
  metadata_location = VALUES(metadata_location), expires_ms = VALUES(expires_ms);

-- trim_reports
DELETE FROM nunatak_reports
WHERE report_id <= (SELECT newest FROM (SELECT max(report_id) AS newest FROM nunatak_reports) AS reports) - :keep;

-- save_secret
INSERT INTO nunatak_secrets (name, value) VALUES (:name, :value) ON DUPLICATE KEY UPDATE name = name;

-- hold_token
-- Takes a lock that is held as long as the session lives.
SELECT GET_LOCK(:token, 0);

-- server_variables
SHOW VARIABLES WHERE Variable_name IN ('max_allowed_packet', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog',
                                       'binlog_format', 'wsrep_on');

-- session_alive
-- The connection id of the session that holds this lock; NULL once it and its transaction have ended.
SELECT IS_USED_LOCK(:token);

-- end_session
-- Kills the session, so that a COMMIT in flight cannot arrive later; a commit in progress is finished.
KILL CONNECTION :number;

-- commits_found
-- The number of these ids in the commit log; a transaction has all of its rows there, or none.
SELECT count(*) FROM nunatak_commits WHERE commit_id IN :commit_ids;

-- note_outcome
-- For changes without a row in the commit log: the row exists if the transaction was committed.
INSERT INTO nunatak_outcomes (transaction_id) VALUES (:transaction_id);

-- outcome_found
SELECT count(*) FROM nunatak_outcomes WHERE transaction_id = :transaction_id;

-- forget_outcomes
-- Outcomes are looked up within seconds, if at all.
DELETE FROM nunatak_outcomes WHERE noted_at < CURRENT_TIMESTAMP - INTERVAL 1 HOUR;

-- save_table_property
INSERT INTO iceberg_table_properties (catalog_name, table_namespace, table_name, property_key, property_value)
VALUES (:catalog, :namespace, :name, :key, :value) ON DUPLICATE KEY UPDATE property_value = VALUES(property_value);
