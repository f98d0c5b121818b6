-- unnumbered_events
-- Nothing to do: with one writer, `sequence` is the position.

-- number_events
-- Nothing to do: see unnumbered_events.

-- events_after
SELECT sequence, event_id, type, catalog_name, table_namespace, table_name, securable, object_uuid,
  previous_metadata_location, metadata_location, snapshot_id, principal, request_id, at_ms, detail
FROM nunatak_outbox WHERE sequence > :after ORDER BY sequence LIMIT :limit;

-- oldest_events
SELECT sequence, at_ms FROM nunatak_outbox ORDER BY sequence LIMIT :limit;

-- newest_event
SELECT max(sequence) FROM nunatak_outbox;

-- trim_events
-- Keeps the newest row: SQLite would use its number again.
DELETE FROM nunatak_outbox WHERE sequence <= :until AND sequence < (SELECT max(sequence) FROM nunatak_outbox);

-- end_reader_leases
UPDATE nunatak_outbox_readers SET leased_by = NULL, until_ms = 0 WHERE leased_by IS NOT NULL;
