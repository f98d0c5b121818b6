-- empty_log
-- Moves all pages of the WAL into the database and truncates it.
PRAGMA wal_checkpoint(TRUNCATE);
