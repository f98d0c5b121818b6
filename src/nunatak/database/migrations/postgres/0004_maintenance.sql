-- What is to be done to tables: one policy of each type on a warehouse, a namespace or a table, as JSON.
CREATE TABLE nunatak_maintenance_policies (
  securable TEXT COLLATE "C" NOT NULL,
  type TEXT COLLATE "C" NOT NULL,
  policy TEXT NOT NULL,
  changed_by TEXT NOT NULL,
  changed_ms BIGINT NOT NULL,
  PRIMARY KEY (securable, type)
);

-- Jobs for the workers, and what became of them. `open_key` is table and type while a job waits or runs: there is at
-- most one such job. One that runs is due again when its lease ends, so one column tells both.
CREATE TABLE nunatak_maintenance_jobs (
  job_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type TEXT COLLATE "C" NOT NULL,
  securable TEXT COLLATE "C" NOT NULL,
  table_uuid TEXT COLLATE "C" NOT NULL,
  policy TEXT COLLATE "C",
  spec TEXT NOT NULL,
  state TEXT COLLATE "C" NOT NULL,
  open_key TEXT COLLATE "C" UNIQUE,
  created_by TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  due_ms BIGINT NOT NULL,
  attempts BIGINT NOT NULL DEFAULT 0,
  leased_by TEXT,
  cancelled BIGINT NOT NULL DEFAULT 0,
  progress TEXT,
  finished_ms BIGINT,
  changed BIGINT NOT NULL DEFAULT 0,
  size_bytes BIGINT NOT NULL DEFAULT 0,
  result TEXT,
  error TEXT
);
CREATE INDEX nunatak_maintenance_jobs_by_state ON nunatak_maintenance_jobs (state, due_ms, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_table ON nunatak_maintenance_jobs (table_uuid, type, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_securable ON nunatak_maintenance_jobs (securable, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_policy ON nunatak_maintenance_jobs (policy, type, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_finish ON nunatak_maintenance_jobs (finished_ms);
