-- add_event
-- An event, in the transaction of its change; `commit_id` is its id.
INSERT INTO nunatak_outbox
  (event_id, type, catalog_name, table_namespace, table_name, securable, object_uuid, metadata_location,
   previous_metadata_location, snapshot_id, principal, request_id, at_ms, detail)
VALUES (:commit_id, :operation, :catalog, :namespace, :name, :securable, :uuid, :new, :previous, :snapshot_id, :principal,
        :request_id, :committed_ms, :detail);

-- add_rename_event
-- Like add_event, for a table that already has its new name; the event is about the old one.
INSERT INTO nunatak_outbox
  (event_id, type, catalog_name, table_namespace, table_name, object_uuid, metadata_location,
   previous_metadata_location, snapshot_id, principal, request_id, at_ms, detail)
VALUES (:commit_id, :operation, :catalog, :from_namespace, :from_name,
  (SELECT h.table_uuid FROM nunatak_heads h
   WHERE h.catalog_name = :catalog AND h.table_namespace = :namespace AND h.table_name = :name),
  (SELECT t.metadata_location FROM iceberg_tables t
   WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name),
  (SELECT t.metadata_location FROM iceberg_tables t
   WHERE t.catalog_name = :catalog AND t.table_namespace = :namespace AND t.table_name = :name),
  :snapshot_id, :principal, :request_id, :committed_ms, :detail);

-- find_reader
SELECT position, leased_by, until_ms FROM nunatak_outbox_readers WHERE reader = :reader;

-- add_reader
INSERT INTO nunatak_outbox_readers (reader, position, until_ms) VALUES (:reader, 0, 0) ON CONFLICT (reader) DO NOTHING;

-- lease_reader
-- Changes no row while another server holds the lease.
UPDATE nunatak_outbox_readers SET leased_by = :owner, until_ms = :until_ms
WHERE reader = :reader AND (leased_by = :owner OR until_ms <= :now_ms);

-- release_reader
UPDATE nunatak_outbox_readers SET leased_by = NULL, until_ms = 0 WHERE reader = :reader AND leased_by = :owner;

-- move_leased_reader
-- Changes no row if the lease was lost.
UPDATE nunatak_outbox_readers SET position = :position
WHERE reader = :reader AND leased_by = :owner AND position = :expected;

-- move_reader
-- Compare and swap: changes no row if another server moved the reader first.
UPDATE nunatak_outbox_readers SET position = :position WHERE reader = :reader AND position = :expected;
