-- The tables of Iceberg's JDBC catalog, schema V1: other clients of the same database read and write them too.
-- Names are ordered and compared by their bytes: pages and ranges rest on it.
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name {name 255} NOT NULL,
  table_namespace {name 255} NOT NULL,
  table_name {name 255} NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
){options};

CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name {name 255} NOT NULL,
  namespace {name 255} NOT NULL,
  property_key {name 255} NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key)
){options};

-- Properties a catalog keeps about a table apart from its metadata file; no client of today writes here.
-- only: sqlite postgres
CREATE TABLE IF NOT EXISTS iceberg_table_properties (
  catalog_name {name 255} NOT NULL,
  table_namespace {name 255} NOT NULL,
  table_name {name 255} NOT NULL,
  property_key {name 255} NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, table_namespace, table_name, property_key)
){options};

-- A database of a JDBC catalog before schema V1 knows no views. SQLite cannot ask for the column: its driver does.
-- only: postgres mariadb
ALTER TABLE iceberg_tables ADD COLUMN IF NOT EXISTS iceberg_type VARCHAR(5);

-- Any JDBC catalog orders names as the locale of its database says.
-- only: postgres
DO $$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT attrelid::regclass AS holder, attname AS name, format_type(atttypid, atttypmod) AS type
    FROM pg_attribute
    WHERE attrelid IN ('iceberg_tables'::regclass, 'iceberg_namespace_properties'::regclass)
      AND attname IN ('catalog_name', 'table_namespace', 'table_name', 'namespace', 'property_key')
      AND attcollation <> 'pg_catalog."C"'::regcollation
  LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE %s COLLATE "C"', found.holder, found.name, found.type);
  END LOOP;
END $$;

-- Any JDBC catalog takes the server's default for names, which mostly finds A and a to be the same. Pointers are
-- compared, too. This changes nothing where the tables were made above.
-- only: mariadb
ALTER TABLE iceberg_tables
  MODIFY catalog_name VARCHAR(255) {byte_order} NOT NULL,
  MODIFY table_namespace VARCHAR(255) {byte_order} NOT NULL,
  MODIFY table_name VARCHAR(255) {byte_order} NOT NULL,
  MODIFY metadata_location VARCHAR(1000) {byte_order},
  MODIFY previous_metadata_location VARCHAR(1000) {byte_order},
  MODIFY iceberg_type VARCHAR(5) {byte_order},
  ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;
ALTER TABLE iceberg_namespace_properties
  MODIFY catalog_name VARCHAR(255) {byte_order} NOT NULL,
  MODIFY namespace VARCHAR(255) {byte_order} NOT NULL,
  MODIFY property_key VARCHAR(255) {byte_order} NOT NULL,
  MODIFY property_value VARCHAR(1000) {byte_order},
  ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- Lists read this alone; a commit, which changes neither name nor type, leaves it untouched.
-- only: sqlite postgres
CREATE INDEX IF NOT EXISTS nunatak_tables_by_type
ON iceberg_tables (catalog_name, table_namespace, coalesce(iceberg_type, 'TABLE'), table_name);

-- What stands behind each pointer: the compressed bytes of its metadata file, where the table lies, which table it is.
-- A row whose metadata_location differs from the pointer's was overtaken by another client and is not used.
{create_table} nunatak_heads (
  catalog_name {key 255} NOT NULL,
  table_namespace {key 255} NOT NULL,
  table_name {key 255} NOT NULL,
  metadata_location {text 1000} NOT NULL,
  table_uuid {text 255} NOT NULL,
  location {key 1000} NOT NULL,
  content {longbytes},
  PRIMARY KEY (catalog_name, table_namespace, table_name)
){options};
{create_index} nunatak_heads_by_location ON nunatak_heads (location{prefix});

-- The bytes are compressed already: trying again costs every commit time.
-- only: postgres
ALTER TABLE nunatak_heads ALTER COLUMN content SET STORAGE EXTERNAL;

-- Places outside its folder where a table's writers put files (write.data.path and the like). Several tables may share
-- one, so a purge that meets such a place asks which of them a file belongs to.
-- only: sqlite postgres
{create_table} nunatak_places (
  place {key 1000} NOT NULL,
  catalog_name {key 255} NOT NULL,
  table_namespace {key 255} NOT NULL,
  table_name {key 255} NOT NULL,
  PRIMARY KEY (place, catalog_name, table_namespace, table_name)
);

-- The four columns together are longer than a key may be here.
-- only: mariadb
{create_table} nunatak_places (
  place_id {identity},
  place {key 1000} NOT NULL,
  catalog_name {key 255} NOT NULL,
  table_namespace {key 255} NOT NULL,
  table_name {key 255} NOT NULL
){options};
{create_index} nunatak_places_by_place ON nunatak_places (place{prefix});

{create_index} nunatak_places_by_table ON nunatak_places (catalog_name, table_namespace, table_name);

-- What happened, in order for each table; never changed afterwards. By its commit_id a server that lost its connection
-- while committing finds out whether it did.
{create_table} nunatak_commits (
  sequence {identity},
  commit_id {key 64} NOT NULL{unique},
  operation {text 64} NOT NULL,
  catalog_name {key 255} NOT NULL,
  table_namespace {key 255} NOT NULL,
  table_name {key 255} NOT NULL,
  table_uuid {key 255} NOT NULL,
  metadata_location {text 1000},
  previous_metadata_location {text 1000},
  snapshot_id {int},
  request_hash {bytes 255},
  principal TEXT NOT NULL,
  request_id TEXT,
  committed_ms {int} NOT NULL
){options};
{create_index} nunatak_commits_by_table ON nunatak_commits (table_uuid, snapshot_id);

-- only: mariadb
CREATE UNIQUE INDEX IF NOT EXISTS nunatak_commits_by_id ON nunatak_commits (commit_id);

{create_table} nunatak_idempotency (
  principal {key 500} NOT NULL,
  idempotency_key {key 255} NOT NULL,
  request_hash {bytes 255} NOT NULL,
  status INTEGER NOT NULL,
  body {longbytes},
  metadata_location {text 1000},
  expires_ms {int} NOT NULL,
  PRIMARY KEY (principal, idempotency_key)
){options};
{create_index} nunatak_idempotency_by_expiry ON nunatak_idempotency (expires_ms);

-- Work that must happen after a change and survives a crash: purges and deletions of files nobody needs any more.
{create_table} nunatak_jobs (
  job_id {identity},
  kind {text 64} NOT NULL,
  payload {longbytes} NOT NULL,
  location {key 1000},
  attempts INTEGER NOT NULL DEFAULT 0,
  not_before_ms {int} NOT NULL DEFAULT 0,
  last_error {longtext}
){options};
{create_index} nunatak_jobs_by_location ON nunatak_jobs (location{prefix});

{create_table} nunatak_reports (
  report_id {identity},
  catalog_name {key 255} NOT NULL,
  table_namespace {key 255} NOT NULL,
  table_name {key 255} NOT NULL,
  received_ms {int} NOT NULL,
  report {longbytes} NOT NULL
){options};

{create_table} nunatak_secrets (
  name {key 255} PRIMARY KEY,
  value {bytes 255} NOT NULL
){options};

-- Rows to lock, for what no constraint can check. A lock of the server would outlast its transaction.
-- only: mariadb
{create_table} nunatak_locks (
  name {key 255} PRIMARY KEY
){options};

-- Which transactions were committed, of those that leave no line in nunatak_commits; forgotten after an hour.
-- only: mariadb
{create_table} nunatak_outcomes (
  transaction_id {key 64} PRIMARY KEY,
  noted_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
){options};
{create_index} nunatak_outcomes_by_time ON nunatak_outcomes (noted_at);
