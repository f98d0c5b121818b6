-- take_job
-- A leased job is not due before its lease ends, so one column holds both times.
UPDATE nunatak_jobs SET leased_by = :owner, not_before_ms = :until_ms, attempts = attempts + 1
WHERE job_id = (SELECT job_id FROM nunatak_jobs WHERE not_before_ms <= :now_ms ORDER BY job_id LIMIT 1)
RETURNING job_id, kind, payload, attempts;

-- end_leases
-- One server at a time uses the file: when it starts, no other can still hold a lease.
UPDATE nunatak_jobs SET leased_by = NULL, not_before_ms = 0 WHERE leased_by IS NOT NULL;
