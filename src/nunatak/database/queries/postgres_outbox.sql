-- unnumbered_events
SELECT sequence FROM nunatak_outbox WHERE position IS NULL ORDER BY sequence LIMIT :limit;

-- number_events
-- Assigns the positions after `last`, in the order of the list.
UPDATE nunatak_outbox o SET position = :last::bigint + given.place
FROM unnest(:sequences::bigint[]) WITH ORDINALITY AS given (sequence, place)
WHERE o.sequence = given.sequence AND o.position IS NULL;

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
