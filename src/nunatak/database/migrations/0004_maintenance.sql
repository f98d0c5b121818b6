-- What is to be done to tables: one policy of each type on a warehouse, a namespace or a table, as JSON.
{create_table} nunatak_maintenance_policies (
  securable {key 600} NOT NULL,
  type {key 64} NOT NULL,
  policy {longtext} NOT NULL,
  changed_by {text 130} NOT NULL,
  changed_ms {int} NOT NULL,
  PRIMARY KEY (securable, type)
){options};

-- Jobs for the workers, and what became of them. `open_key` is table and type while a job waits or runs: there is at
-- most one such job. One that runs is due again when its lease ends, so one column tells both.
{create_table} nunatak_maintenance_jobs (
  job_id {identity},
  type {key 64} NOT NULL,
  securable {key 600} NOT NULL,
  table_uuid {key 64} NOT NULL,
  policy {key 600},
  spec {longtext} NOT NULL,
  state {key 64} NOT NULL,
  open_key {key 130} UNIQUE,
  created_by {text 130} NOT NULL,
  created_ms {int} NOT NULL,
  due_ms {int} NOT NULL,
  attempts {int} NOT NULL DEFAULT 0,
  leased_by {text 255},
  cancelled {int} NOT NULL DEFAULT 0,
  progress {longtext},
  finished_ms {int},
  changed {int} NOT NULL DEFAULT 0,
  size_bytes {int} NOT NULL DEFAULT 0,
  result {longtext},
  error TEXT
){options};
{create_index} nunatak_maintenance_jobs_by_state ON nunatak_maintenance_jobs (state, due_ms, job_id);
{create_index} nunatak_maintenance_jobs_by_table ON nunatak_maintenance_jobs (table_uuid, type, job_id);
{create_index} nunatak_maintenance_jobs_by_securable ON nunatak_maintenance_jobs (securable, job_id);
{create_index} nunatak_maintenance_jobs_by_policy ON nunatak_maintenance_jobs (policy, type, job_id);
{create_index} nunatak_maintenance_jobs_by_finish ON nunatak_maintenance_jobs (finished_ms);
