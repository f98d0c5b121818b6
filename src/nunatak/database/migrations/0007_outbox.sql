-- Events: one row for each change, written in its transaction. Readers such as the telemetry spool take events from
-- here; old rows are deleted. `detail` is JSON. `event_id` identifies an event in every database: for a table or view it
-- is the commit_id. `securable` is set where no table, view or namespace was changed.
{create_table} nunatak_outbox (
  sequence {identity},
  event_id {text 64} NOT NULL,
  type {text 255} NOT NULL,
  catalog_name {text 255},
  table_namespace {text 255},
  table_name {text 255},
  securable {text 600},
  object_uuid {text 255},
  metadata_location {text 1000},
  previous_metadata_location {text 1000},
  snapshot_id {int},
  principal TEXT NOT NULL,
  request_id TEXT,
  at_ms {int} NOT NULL,
  detail {longtext}
){options};

-- The position of an event in the order in which readers see events. It is assigned after the commit, because a lower
-- `sequence` may be committed later than a higher one. SQLite has one writer, so there `sequence` is the position.
-- only: postgres mariadb
ALTER TABLE nunatak_outbox {add_column} position {int};
{create_index} nunatak_outbox_by_position ON nunatak_outbox (position, sequence);

-- How far each reader came, and which server holds its lease. The reader `numbering` is the last position assigned.
{create_table} nunatak_outbox_readers (
  reader {key 64} PRIMARY KEY,
  position {int} NOT NULL,
  leased_by {text 255},
  until_ms {int} NOT NULL
){options};
