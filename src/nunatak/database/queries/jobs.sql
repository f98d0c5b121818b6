-- add_job
-- Violates the unique `open_key` if a job of this kind is waiting or running for the table.
INSERT INTO nunatak_jobs
  (runs_on, kind, payload, location, not_before_ms, open_key, securable, table_uuid, policy, created_by, created_ms,
   size_bytes)
VALUES (:runs_on, :kind, :payload, :location, :not_before_ms, :open_key, :securable, :table_uuid, :policy, :created_by,
  :created_ms, :size_bytes);

-- purge_of
-- A pending purge of a dropped table at this location.
SELECT 1 FROM nunatak_jobs WHERE location = :location AND kind = 'purge' LIMIT 1;

-- next_job_time
SELECT min(not_before_ms) FROM nunatak_jobs WHERE runs_on = 'server';

-- due_jobs
-- Includes running jobs whose lease has expired.
SELECT job_id, table_uuid FROM nunatak_jobs
WHERE runs_on = :runs_on AND state IN ('waiting', 'running') AND not_before_ms <= :now_ms
  AND coalesce(securable, '') >= :securable AND coalesce(securable, '') < :behind
ORDER BY not_before_ms, job_id LIMIT :limit;

-- lock_jobs_of_table
-- Locks all open jobs of a table before one is leased, so that two workers check them one after the other.
UPDATE nunatak_jobs SET open_key = open_key WHERE table_uuid = :table_uuid AND open_key IS NOT NULL;

-- lease_job
-- Compare and swap: updates no row if another owner leased the job first, or another job runs on the table. MySQL reads
-- the table that it updates only in a derived table.
UPDATE nunatak_jobs SET state = 'running', leased_by = :owner, not_before_ms = :until_ms, attempts = attempts + 1
WHERE job_id = :job_id AND state IN ('waiting', 'running') AND not_before_ms <= :now_ms AND NOT EXISTS (
  SELECT 1 FROM (
    SELECT job_id FROM nunatak_jobs
    WHERE table_uuid = :table_uuid AND state = 'running' AND not_before_ms > :now_ms AND job_id <> :job_id) AS others
);

-- extend_lease
-- An expired lease is not extended: another job may run on the table by now.
UPDATE nunatak_jobs SET not_before_ms = :until_ms, progress = coalesce(:progress, progress)
WHERE job_id = :job_id AND leased_by = :owner AND state = 'running' AND not_before_ms > :now_ms;

-- finish_job
-- Never due again, also for a server of the version before, which does not look at the state.
UPDATE nunatak_jobs SET state = :state, open_key = NULL, leased_by = NULL, finished_ms = :finished_ms,
  not_before_ms = 9223372036854775807, changed = :changed, size_bytes = :size_bytes, result = :result,
  last_error = :error
WHERE job_id = :job_id AND leased_by = :owner AND state = 'running';

-- release_job
-- The job waits again; `uncounted` is 1 for an attempt that does not count.
UPDATE nunatak_jobs SET state = 'waiting', leased_by = NULL, not_before_ms = :not_before_ms, last_error = :error,
  attempts = attempts - :uncounted
WHERE job_id = :job_id AND leased_by = :owner AND state = 'running';

-- cancel_waiting_job
UPDATE nunatak_jobs SET state = 'cancelled', open_key = NULL, cancelled = 1, finished_ms = :now_ms,
  not_before_ms = 9223372036854775807
WHERE job_id = :job_id AND state = 'waiting';

-- cancel_running_job
-- The worker learns of it with its next heartbeat.
UPDATE nunatak_jobs SET cancelled = 1 WHERE job_id = :job_id AND state = 'running';

-- forget_jobs
DELETE FROM nunatak_jobs WHERE finished_ms < :before_ms;

-- forget_finished_job
DELETE FROM nunatak_jobs WHERE job_id = :job_id AND finished_ms IS NOT NULL;

-- find_job
SELECT job_id, kind, securable, table_uuid, policy, payload, state, created_by, created_ms, not_before_ms, attempts,
  leased_by, cancelled, progress, finished_ms, changed, size_bytes, result, last_error
FROM nunatak_jobs WHERE job_id = :job_id AND runs_on = :runs_on;

-- list_jobs
-- Newest first.
SELECT job_id, kind, securable, table_uuid, policy, payload, state, created_by, created_ms, not_before_ms, attempts,
  leased_by, cancelled, progress, finished_ms, changed, size_bytes, result, last_error
FROM nunatak_jobs
WHERE securable >= :securable AND securable < :behind AND job_id < :before ORDER BY job_id DESC LIMIT :limit;

-- open_job
SELECT job_id FROM nunatak_jobs WHERE open_key = :open_key;

-- runs_of_table
-- Newest first.
SELECT job_id, kind, state, finished_ms, changed FROM nunatak_jobs
WHERE table_uuid = :table_uuid ORDER BY job_id DESC LIMIT :limit;

-- load_of_policies
-- For each policy the number of waiting or running jobs, and the bytes of these and of the jobs finished since.
SELECT policy, kind, count(CASE WHEN state IN ('waiting', 'running') THEN 1 END),
  sum(CASE WHEN state IN ('waiting', 'running') OR finished_ms >= :since_ms THEN size_bytes ELSE 0 END)
FROM nunatak_jobs
WHERE policy IS NOT NULL AND (state IN ('waiting', 'running') OR finished_ms >= :since_ms)
GROUP BY policy, kind;

-- stuck_jobs
SELECT job_id, kind, attempts, last_error FROM nunatak_jobs
WHERE runs_on = 'server' AND attempts >= :attempts ORDER BY job_id LIMIT :limit;
