-- end_leases
-- One server at a time uses the file: when it starts, no other server can still hold a lease. Workers may.
UPDATE nunatak_jobs SET state = 'waiting', leased_by = NULL, not_before_ms = 0
WHERE runs_on = 'server' AND leased_by IS NOT NULL;
