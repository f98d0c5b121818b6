-- What is to be done to tables: one policy of each type on a warehouse, a namespace or a table, as JSON.
CREATE TABLE nunatak_maintenance_policies (
  securable TEXT NOT NULL,
  type TEXT NOT NULL,
  policy TEXT NOT NULL,
  changed_by TEXT NOT NULL,
  changed_ms INTEGER NOT NULL,
  PRIMARY KEY (securable, type)
);

-- Jobs for the workers, and what became of them. `open_key` is table and type while a job waits or runs: there is at
-- most one such job. One that runs is due again when its lease ends, so one column tells both.
CREATE TABLE nunatak_maintenance_jobs (
  job_id INTEGER PRIMARY KEY,
  type TEXT NOT NULL,
  securable TEXT NOT NULL,
  table_uuid TEXT NOT NULL,
  policy TEXT,
  spec TEXT NOT NULL,
  state TEXT NOT NULL,
  open_key TEXT UNIQUE,
  created_by TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  due_ms INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  leased_by TEXT,
  cancelled INTEGER NOT NULL DEFAULT 0,
  progress TEXT,
  finished_ms INTEGER,
  changed INTEGER NOT NULL DEFAULT 0,
  size_bytes INTEGER NOT NULL DEFAULT 0,
  result TEXT,
  error TEXT
);
CREATE INDEX nunatak_maintenance_jobs_by_state ON nunatak_maintenance_jobs (state, due_ms, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_table ON nunatak_maintenance_jobs (table_uuid, type, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_securable ON nunatak_maintenance_jobs (securable, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_policy ON nunatak_maintenance_jobs (policy, type, job_id);
CREATE INDEX nunatak_maintenance_jobs_by_finish ON nunatak_maintenance_jobs (finished_ms);
