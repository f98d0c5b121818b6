-- set_maintenance_policy
INSERT INTO nunatak_maintenance_policies (securable, type, policy, changed_by, changed_ms)
VALUES (:securable, :type, :policy, :changed_by, :changed_ms)
ON CONFLICT (securable, type) DO UPDATE SET
  policy = excluded.policy, changed_by = excluded.changed_by, changed_ms = excluded.changed_ms;

-- drop_maintenance_policy
DELETE FROM nunatak_maintenance_policies WHERE securable = :securable AND type = :type;

-- forget_policies_on
DELETE FROM nunatak_maintenance_policies WHERE securable = :securable;

-- forget_policies_inside
DELETE FROM nunatak_maintenance_policies WHERE securable >= :securable AND securable < :behind;

-- move_policies
UPDATE nunatak_maintenance_policies SET securable = :to_securable WHERE securable = :securable;

-- policies_inside
-- Includes the securable itself; starts after the given securable and type.
SELECT securable, type, policy, changed_by, changed_ms FROM nunatak_maintenance_policies
WHERE securable >= :securable AND securable < :behind
  AND (securable > :after_securable OR (securable = :after_securable AND type > :after_type))
ORDER BY securable, type LIMIT :limit;

-- add_maintenance_job
-- Inserts no row if a job of this type is waiting or running for the table.
INSERT INTO nunatak_maintenance_jobs
  (type, securable, table_uuid, policy, spec, state, open_key, created_by, created_ms, due_ms, size_bytes)
VALUES (:type, :securable, :table_uuid, :policy, :spec, 'waiting', :open_key, :created_by, :created_ms, :created_ms,
  :size_bytes)
ON CONFLICT (open_key) DO NOTHING;

-- due_maintenance_jobs
-- Includes running jobs whose lease has expired.
SELECT job_id, table_uuid FROM nunatak_maintenance_jobs
WHERE state IN ('waiting', 'running') AND due_ms <= :now_ms AND securable >= :securable AND securable < :behind
ORDER BY due_ms, job_id LIMIT :limit;

-- lock_maintenance_jobs
-- Locks all open jobs of a table before one is leased, so that two workers check them one after the other.
UPDATE nunatak_maintenance_jobs SET open_key = open_key WHERE table_uuid = :table_uuid AND open_key IS NOT NULL;

-- lease_maintenance_job
-- Compare and swap: updates no row if another worker leased the job first, or another job runs on the table.
UPDATE nunatak_maintenance_jobs SET state = 'running', leased_by = :owner, due_ms = :until_ms, attempts = attempts + 1
WHERE job_id = :job_id AND state IN ('waiting', 'running') AND due_ms <= :now_ms AND NOT EXISTS (
  SELECT 1 FROM nunatak_maintenance_jobs o
  WHERE o.table_uuid = :table_uuid AND o.state = 'running' AND o.due_ms > :now_ms AND o.job_id <> :job_id
);

-- extend_maintenance_lease
-- An expired lease is not extended: another job may run on the table by now.
UPDATE nunatak_maintenance_jobs SET due_ms = :until_ms, progress = coalesce(:progress, progress)
WHERE job_id = :job_id AND leased_by = :owner AND state = 'running' AND due_ms > :now_ms;

-- finish_maintenance_job
UPDATE nunatak_maintenance_jobs SET state = :state, open_key = NULL, leased_by = NULL, finished_ms = :finished_ms,
  changed = :changed, size_bytes = :size_bytes, result = :result, error = :error
WHERE job_id = :job_id AND leased_by = :owner AND state = 'running';

-- hand_back_maintenance_job
-- An attempt that ended cleanly does not count.
UPDATE nunatak_maintenance_jobs SET state = 'waiting', leased_by = NULL, due_ms = :due_ms, attempts = attempts - 1
WHERE job_id = :job_id AND leased_by = :owner AND state = 'running';

-- cancel_waiting_job
UPDATE nunatak_maintenance_jobs SET state = 'cancelled', open_key = NULL, cancelled = 1, finished_ms = :now_ms
WHERE job_id = :job_id AND state = 'waiting';

-- cancel_running_job
-- The worker learns of it with its next heartbeat.
UPDATE nunatak_maintenance_jobs SET cancelled = 1 WHERE job_id = :job_id AND state = 'running';

-- find_maintenance_job
SELECT job_id, type, securable, table_uuid, policy, spec, state, created_by, created_ms, due_ms, attempts, leased_by,
  cancelled, progress, finished_ms, changed, size_bytes, result, error
FROM nunatak_maintenance_jobs WHERE job_id = :job_id;

-- list_maintenance_jobs
-- Newest first.
SELECT job_id, type, securable, table_uuid, policy, spec, state, created_by, created_ms, due_ms, attempts, leased_by,
  cancelled, progress, finished_ms, changed, size_bytes, result, error
FROM nunatak_maintenance_jobs
WHERE securable >= :securable AND securable < :behind AND job_id < :before ORDER BY job_id DESC LIMIT :limit;

-- runs_of_table
-- Newest first.
SELECT job_id, type, state, finished_ms, changed FROM nunatak_maintenance_jobs
WHERE table_uuid = :table_uuid ORDER BY job_id DESC LIMIT :limit;

-- load_of_policies
-- For each policy the number of waiting or running jobs, and the bytes of these and of the jobs finished since.
SELECT policy, type, count(CASE WHEN state IN ('waiting', 'running') THEN 1 END),
  sum(CASE WHEN state IN ('waiting', 'running') OR finished_ms >= :since_ms THEN size_bytes ELSE 0 END)
FROM nunatak_maintenance_jobs
WHERE policy IS NOT NULL AND (state IN ('waiting', 'running') OR finished_ms >= :since_ms)
GROUP BY policy, type;

-- forget_maintenance_jobs
DELETE FROM nunatak_maintenance_jobs WHERE finished_ms < :before_ms;

-- open_maintenance_job
SELECT job_id FROM nunatak_maintenance_jobs WHERE open_key = :open_key;
