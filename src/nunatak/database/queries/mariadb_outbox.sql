-- unnumbered_events
SELECT sequence FROM nunatak_outbox WHERE position IS NULL ORDER BY sequence LIMIT :limit;

-- number_events
-- Assigns the positions after `last`, in the order of the list. The index is forced, so that rows are found by their key:
-- a scan would wait for the rows of open transactions.
UPDATE nunatak_outbox FORCE INDEX (PRIMARY) SET position = :last + FIND_IN_SET(sequence, :listed)
WHERE sequence IN :sequences AND position IS NULL;

-- add_reader
INSERT IGNORE INTO nunatak_outbox_readers (reader, position, until_ms) VALUES (:reader, 0, 0);

-- events_after
SELECT position, event_id, type, catalog_name, table_namespace, table_name, securable, object_uuid,
  previous_metadata_location, metadata_location, snapshot_id, principal, request_id, at_ms, detail
FROM nunatak_outbox WHERE position > :after ORDER BY position LIMIT :limit;

-- oldest_events
SELECT position, at_ms FROM nunatak_outbox WHERE position IS NOT NULL ORDER BY position LIMIT :limit;

-- newest_event
SELECT max(position) FROM nunatak_outbox;

-- trim_events
DELETE FROM nunatak_outbox WHERE position <= :until;
