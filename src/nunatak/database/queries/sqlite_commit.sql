-- commit_door_view
-- A commit moves the pointer, stores the bytes and writes the log and the event. This view makes it one statement: four
-- calls from Python into SQLite cost more than the work, and a single statement is atomic.
CREATE TEMP VIEW commit_door (catalog, namespace, name, expected, new, uuid, location, content, commit_id, operation,
                              snapshot_id, request_hash, principal, request_id, committed_ms, origin, detail)
AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;

-- commit_door_trigger
-- The trigger also checks for a shadow: a check before it would be one more statement per commit, and the flag could be
-- set after the check.
-- SQLite rewrites the index of every column that an UPDATE names, changed or not: uuid and location are named only when
-- they change, which saves each commit two pages.
CREATE TEMP TRIGGER commit_door_opens INSTEAD OF INSERT ON commit_door BEGIN
  UPDATE iceberg_tables SET metadata_location = NEW.new, previous_metadata_location = NEW.expected
  WHERE catalog_name = NEW.catalog AND table_namespace = NEW.namespace AND table_name = NEW.name
    AND metadata_location = NEW.expected
    AND NOT EXISTS (
      SELECT 1 FROM nunatak_shadows s
      WHERE s.catalog_name = NEW.catalog AND s.table_uuid = NEW.uuid AND s.state = 'shadow');
  SELECT RAISE(ABORT, 'the pointer moved') WHERE changes() <> 1;
  INSERT INTO nunatak_heads
    (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
  VALUES (NEW.catalog, NEW.namespace, NEW.name, NEW.new, NEW.uuid, NEW.location, NEW.content)
  ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
    metadata_location = excluded.metadata_location, content = excluded.content;
  UPDATE nunatak_heads SET table_uuid = NEW.uuid, location = NEW.location
  WHERE catalog_name = NEW.catalog AND table_namespace = NEW.namespace AND table_name = NEW.name
    AND (table_uuid <> NEW.uuid OR location <> NEW.location);
  INSERT INTO nunatak_commits
    (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
     previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms, origin)
  VALUES (NEW.commit_id, NEW.operation, NEW.catalog, NEW.namespace, NEW.name, NEW.uuid, NEW.new, NEW.expected,
          NEW.snapshot_id, NEW.request_hash, NEW.principal, NEW.request_id, NEW.committed_ms,
          NEW.origin);
  INSERT INTO nunatak_outbox
    (event_id, type, catalog_name, table_namespace, table_name, object_uuid, metadata_location,
     previous_metadata_location, snapshot_id, principal, request_id, at_ms, detail)
  VALUES (NEW.commit_id, NEW.operation, NEW.catalog, NEW.namespace, NEW.name, NEW.uuid, NEW.new, NEW.expected,
          NEW.snapshot_id, NEW.principal, NEW.request_id, NEW.committed_ms, NEW.detail);
END;

-- commit_pointer + remember_moved + save_moved_pointer + log_moved + add_moved_event
-- Compare and swap: the trigger raises if another client moved the pointer first, or if the table is a shadow.
INSERT INTO commit_door
VALUES (:catalog, :namespace, :name, :expected, :new, :uuid, :location, :content, :commit_id, :operation, :snapshot_id,
        :request_hash, :principal, :request_id, :committed_ms, :origin, :detail);

-- insert_pointer
INSERT INTO iceberg_tables
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
VALUES (:catalog, :namespace, :name, :new, NULL, :type)
ON CONFLICT (catalog_name, table_namespace, table_name) DO UPDATE SET
  metadata_location = excluded.metadata_location, iceberg_type = excluded.iceberg_type
WHERE iceberg_tables.metadata_location IS NULL;

-- lock_pointer
-- Needs no lock: only one connection writes.
SELECT metadata_location FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name;
