-- The server that works on a job; until when is told by not_before_ms, since a job is not due while it is worked on.
-- Only if it is missing: a migration that was interrupted is run again.
SET @missing = (
  SELECT count(*) = 0 FROM information_schema.columns
  WHERE table_schema = database() AND table_name = 'nunatak_jobs' AND column_name = 'leased_by');
SET @addition = IF(@missing, 'ALTER TABLE nunatak_jobs ADD COLUMN leased_by VARCHAR(255)', 'DO 0');
PREPARE addition FROM @addition;
EXECUTE addition;
DEALLOCATE PREPARE addition;
