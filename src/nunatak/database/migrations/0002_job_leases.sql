-- The server that works on a job; until when is told by not_before_ms, since a job is not due while it is worked on.
ALTER TABLE nunatak_jobs {add_column} leased_by {text 255};
