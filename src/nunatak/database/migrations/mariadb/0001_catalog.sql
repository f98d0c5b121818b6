-- A definition cannot be undone here: each statement commits by itself. So each may be run again, and a migration that
-- was interrupted is carried on by the next start. On MySQL the collation is utf8mb4_0900_bin, which means the same.
--
-- The tables of Iceberg's JDBC catalog, schema V1: other clients of the same database read and write them too.
-- The collation orders names by their bytes: pages and ranges rest on it.
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL,
  namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255),
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- A database of a JDBC catalog before schema V1 knows no views.
SET @missing = (
  SELECT count(*) = 0 FROM information_schema.columns
  WHERE table_schema = database() AND table_name = 'iceberg_tables' AND column_name = 'iceberg_type');
SET @addition = IF(@missing, 'ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)', 'DO 0');
PREPARE addition FROM @addition;
EXECUTE addition;
DEALLOCATE PREPARE addition;

-- Any JDBC catalog takes the server's default for names, which mostly finds A and a to be the same. Pointers are
-- compared, too. This changes nothing where the tables were made above.
ALTER TABLE iceberg_tables
  MODIFY catalog_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  MODIFY table_namespace VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  MODIFY table_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  MODIFY metadata_location VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  MODIFY previous_metadata_location VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  MODIFY iceberg_type VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;
ALTER TABLE iceberg_namespace_properties
  MODIFY catalog_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  MODIFY namespace VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  MODIFY property_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  MODIFY property_value VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- The table iceberg_table_properties of the other databases is missing: its key of four names would be longer than the
-- 3,072 bytes that InnoDB allows, and no client of today writes there.

-- What stands behind each pointer: the compressed bytes of its metadata file, where the table lies, which table it is.
-- A row whose metadata_location differs from the pointer's was overtaken by another client and is not used.
CREATE TABLE IF NOT EXISTS nunatak_heads (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000) NOT NULL,
  table_uuid VARCHAR(255) NOT NULL,
  location VARCHAR(1000) NOT NULL,
  content LONGBLOB,
  PRIMARY KEY (catalog_name, table_namespace, table_name),
  KEY nunatak_heads_by_location (location(255))
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Places outside its folder where a table's writers put files (write.data.path and the like). Several tables may share
-- one, so a purge that meets such a place asks which of them a file belongs to.
CREATE TABLE IF NOT EXISTS nunatak_places (
  place_id BIGINT AUTO_INCREMENT PRIMARY KEY,
  place VARCHAR(1000) NOT NULL,
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  KEY nunatak_places_by_place (place(255)),
  KEY nunatak_places_by_table (catalog_name, table_namespace, table_name)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- What happened, in order for each table; never changed afterwards. By its commit_id a server that lost its connection
-- while committing finds out whether it did.
CREATE TABLE IF NOT EXISTS nunatak_commits (
  sequence BIGINT AUTO_INCREMENT PRIMARY KEY,
  commit_id VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  table_uuid VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  snapshot_id BIGINT,
  request_hash VARBINARY(255),
  principal TEXT NOT NULL,
  request_id TEXT,
  committed_ms BIGINT NOT NULL,
  UNIQUE KEY nunatak_commits_by_id (commit_id),
  KEY nunatak_commits_by_table (table_uuid, snapshot_id)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS nunatak_idempotency (
  principal VARCHAR(500) NOT NULL,
  idempotency_key VARCHAR(255) NOT NULL,
  request_hash VARBINARY(255) NOT NULL,
  status INTEGER NOT NULL,
  body LONGBLOB,
  metadata_location VARCHAR(1000),
  expires_ms BIGINT NOT NULL,
  PRIMARY KEY (principal, idempotency_key),
  KEY nunatak_idempotency_by_expiry (expires_ms)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Work that must happen after a change and survives a crash: purges and deletions of files nobody needs any more.
CREATE TABLE IF NOT EXISTS nunatak_jobs (
  job_id BIGINT AUTO_INCREMENT PRIMARY KEY,
  kind VARCHAR(64) NOT NULL,
  payload LONGBLOB NOT NULL,
  location VARCHAR(1000),
  attempts INTEGER NOT NULL DEFAULT 0,
  not_before_ms BIGINT NOT NULL DEFAULT 0,
  last_error MEDIUMTEXT,
  KEY nunatak_jobs_by_location (location(255))
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS nunatak_reports (
  report_id BIGINT AUTO_INCREMENT PRIMARY KEY,
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  received_ms BIGINT NOT NULL,
  report LONGBLOB NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS nunatak_secrets (
  name VARCHAR(255) PRIMARY KEY,
  value VARBINARY(255) NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Rows to lock, for what no constraint can check. A lock of the server would outlast its transaction.
CREATE TABLE IF NOT EXISTS nunatak_locks (
  name VARCHAR(255) PRIMARY KEY
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Which transactions were committed, of those that leave no line in nunatak_commits; forgotten after an hour.
CREATE TABLE IF NOT EXISTS nunatak_outcomes (
  transaction_id VARCHAR(64) PRIMARY KEY,
  noted_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  KEY nunatak_outcomes_by_time (noted_at)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
