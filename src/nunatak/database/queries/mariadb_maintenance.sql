-- policies_at
SELECT securable, type, policy, changed_by, changed_ms FROM nunatak_maintenance_policies
WHERE securable IN (SELECT value FROM json_table(:securables, '$[*]' COLUMNS (value VARCHAR(600) PATH '$')) AS asked);

-- set_maintenance_policy
INSERT INTO nunatak_maintenance_policies (securable, type, policy, changed_by, changed_ms)
VALUES (:securable, :type, :policy, :changed_by, :changed_ms)
ON DUPLICATE KEY UPDATE
  policy = VALUES(policy), changed_by = VALUES(changed_by), changed_ms = VALUES(changed_ms);

-- add_maintenance_job
-- Inserts no row if a job of this type is waiting or running for the table.
INSERT INTO nunatak_maintenance_jobs
  (type, securable, table_uuid, policy, spec, state, open_key, created_by, created_ms, due_ms, size_bytes)
SELECT :type, :securable, :table_uuid, :policy, :spec, 'waiting', :open_key, :created_by, :created_ms, :created_ms,
  :size_bytes
FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM nunatak_maintenance_jobs o WHERE o.open_key = :open_key);

-- lease_maintenance_job
-- Compare and swap: updates no row if another worker leased the job first, or another job runs on the table.
UPDATE nunatak_maintenance_jobs SET state = 'running', leased_by = :owner, due_ms = :until_ms, attempts = attempts + 1
WHERE job_id = :job_id AND state IN ('waiting', 'running') AND due_ms <= :now_ms AND NOT EXISTS (
  SELECT 1 FROM (SELECT job_id, table_uuid, state, due_ms FROM nunatak_maintenance_jobs) o
  WHERE o.table_uuid = :table_uuid AND o.state = 'running' AND o.due_ms > :now_ms AND o.job_id <> :job_id
);
