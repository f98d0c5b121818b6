-- Each statement may be run again: see 0001_catalog.sql.
-- What is to be done to tables: one policy of each type on a warehouse, a namespace or a table, as JSON.
CREATE TABLE IF NOT EXISTS nunatak_maintenance_policies (
  securable VARCHAR(600) NOT NULL,
  type VARCHAR(64) NOT NULL,
  policy MEDIUMTEXT NOT NULL,
  changed_by VARCHAR(130) NOT NULL,
  changed_ms BIGINT NOT NULL,
  PRIMARY KEY (securable, type)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Jobs for the workers, and what became of them. `open_key` is table and type while a job waits or runs: there is at
-- most one such job. One that runs is due again when its lease ends, so one column tells both.
CREATE TABLE IF NOT EXISTS nunatak_maintenance_jobs (
  job_id BIGINT AUTO_INCREMENT PRIMARY KEY,
  type VARCHAR(64) NOT NULL,
  securable VARCHAR(600) NOT NULL,
  table_uuid VARCHAR(64) NOT NULL,
  policy VARCHAR(600),
  spec MEDIUMTEXT NOT NULL,
  state VARCHAR(64) NOT NULL,
  open_key VARCHAR(130) UNIQUE,
  created_by VARCHAR(130) NOT NULL,
  created_ms BIGINT NOT NULL,
  due_ms BIGINT NOT NULL,
  attempts BIGINT NOT NULL DEFAULT 0,
  leased_by VARCHAR(255),
  cancelled BIGINT NOT NULL DEFAULT 0,
  progress MEDIUMTEXT,
  finished_ms BIGINT,
  changed BIGINT NOT NULL DEFAULT 0,
  size_bytes BIGINT NOT NULL DEFAULT 0,
  result MEDIUMTEXT,
  error TEXT
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
CREATE INDEX IF NOT EXISTS nunatak_maintenance_jobs_by_state ON nunatak_maintenance_jobs (state, due_ms, job_id);
CREATE INDEX IF NOT EXISTS nunatak_maintenance_jobs_by_table ON nunatak_maintenance_jobs (table_uuid, type, job_id);
CREATE INDEX IF NOT EXISTS nunatak_maintenance_jobs_by_securable ON nunatak_maintenance_jobs (securable, job_id);
CREATE INDEX IF NOT EXISTS nunatak_maintenance_jobs_by_policy ON nunatak_maintenance_jobs (policy, type, job_id);
CREATE INDEX IF NOT EXISTS nunatak_maintenance_jobs_by_finish ON nunatak_maintenance_jobs (finished_ms);
