-- take_job
-- A leased job is not due before its lease ends, so one column holds both times. Concurrent servers skip the jobs that
-- others have locked.
UPDATE nunatak_jobs SET leased_by = :owner, not_before_ms = :until_ms, attempts = attempts + 1
WHERE job_id = (
  SELECT job_id FROM nunatak_jobs WHERE not_before_ms <= :now_ms ORDER BY job_id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING job_id, kind, payload, attempts;
