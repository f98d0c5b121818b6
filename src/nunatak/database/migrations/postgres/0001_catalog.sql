-- The tables of Iceberg's JDBC catalog, schema V1: other clients of the same database read and write them too.
-- COLLATE "C" orders names by their bytes: pages and ranges rest on it, and a name's equality does not change.
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) COLLATE "C" NOT NULL,
  table_namespace VARCHAR(255) COLLATE "C" NOT NULL,
  table_name VARCHAR(255) COLLATE "C" NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
);

CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) COLLATE "C" NOT NULL,
  namespace VARCHAR(255) COLLATE "C" NOT NULL,
  property_key VARCHAR(255) COLLATE "C",
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key)
);

-- Properties a catalog keeps about a table apart from its metadata file; no client of today writes here.
CREATE TABLE IF NOT EXISTS iceberg_table_properties (
  catalog_name VARCHAR(255) COLLATE "C" NOT NULL,
  table_namespace VARCHAR(255) COLLATE "C" NOT NULL,
  table_name VARCHAR(255) COLLATE "C" NOT NULL,
  property_key VARCHAR(255) COLLATE "C" NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, table_namespace, table_name, property_key)
);

-- A database of a JDBC catalog before schema V1 knows no views, and any JDBC catalog orders names as its locale says.
ALTER TABLE iceberg_tables ADD COLUMN IF NOT EXISTS iceberg_type VARCHAR(5);

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

-- Lists read this alone; a commit, which changes neither name nor type, leaves it untouched.
CREATE INDEX IF NOT EXISTS nunatak_tables_by_type
ON iceberg_tables (catalog_name, table_namespace, coalesce(iceberg_type, 'TABLE'), table_name);

-- What stands behind each pointer: the compressed bytes of its metadata file, where the table lies, which table it is.
-- A row whose metadata_location differs from the pointer's was overtaken by another client and is not used.
CREATE TABLE nunatak_heads (
  catalog_name TEXT COLLATE "C" NOT NULL,
  table_namespace TEXT COLLATE "C" NOT NULL,
  table_name TEXT COLLATE "C" NOT NULL,
  metadata_location TEXT NOT NULL,
  table_uuid TEXT NOT NULL,
  location TEXT COLLATE "C" NOT NULL,
  content BYTEA,
  PRIMARY KEY (catalog_name, table_namespace, table_name)
);
-- The bytes are compressed already: trying again costs every commit time.
ALTER TABLE nunatak_heads ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX nunatak_heads_by_location ON nunatak_heads (location);

-- Places outside its folder where a table's writers put files (write.data.path and the like). Several tables may share
-- one, so a purge that meets such a place asks which of them a file belongs to.
CREATE TABLE nunatak_places (
  place TEXT COLLATE "C" NOT NULL,
  catalog_name TEXT COLLATE "C" NOT NULL,
  table_namespace TEXT COLLATE "C" NOT NULL,
  table_name TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (place, catalog_name, table_namespace, table_name)
);
CREATE INDEX nunatak_places_by_table ON nunatak_places (catalog_name, table_namespace, table_name);

-- What happened, in order for each table; never changed afterwards. By its commit_id a server that lost its connection
-- while committing finds out whether it did.
CREATE TABLE nunatak_commits (
  sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  commit_id TEXT COLLATE "C" NOT NULL UNIQUE,
  operation TEXT NOT NULL,
  catalog_name TEXT COLLATE "C" NOT NULL,
  table_namespace TEXT COLLATE "C" NOT NULL,
  table_name TEXT COLLATE "C" NOT NULL,
  table_uuid TEXT COLLATE "C" NOT NULL,
  metadata_location TEXT,
  previous_metadata_location TEXT,
  snapshot_id BIGINT,
  request_hash BYTEA,
  principal TEXT NOT NULL,
  request_id TEXT,
  committed_ms BIGINT NOT NULL
);
CREATE INDEX nunatak_commits_by_table ON nunatak_commits (table_uuid, snapshot_id);

CREATE TABLE nunatak_idempotency (
  principal TEXT COLLATE "C" NOT NULL,
  idempotency_key TEXT COLLATE "C" NOT NULL,
  request_hash BYTEA NOT NULL,
  status INTEGER NOT NULL,
  body BYTEA,
  metadata_location TEXT,
  expires_ms BIGINT NOT NULL,
  PRIMARY KEY (principal, idempotency_key)
);
CREATE INDEX nunatak_idempotency_by_expiry ON nunatak_idempotency (expires_ms);

-- Work that must happen after a change and survives a crash: purges and deletions of files nobody needs any more.
CREATE TABLE nunatak_jobs (
  job_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind TEXT NOT NULL,
  payload BYTEA NOT NULL,
  location TEXT COLLATE "C",
  attempts INTEGER NOT NULL DEFAULT 0,
  not_before_ms BIGINT NOT NULL DEFAULT 0,
  last_error TEXT
);
CREATE INDEX nunatak_jobs_by_location ON nunatak_jobs (location);

CREATE TABLE nunatak_reports (
  report_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  catalog_name TEXT COLLATE "C" NOT NULL,
  table_namespace TEXT COLLATE "C" NOT NULL,
  table_name TEXT COLLATE "C" NOT NULL,
  received_ms BIGINT NOT NULL,
  report BYTEA NOT NULL
);

CREATE TABLE nunatak_secrets (
  name TEXT COLLATE "C" PRIMARY KEY,
  value BYTEA NOT NULL
);
