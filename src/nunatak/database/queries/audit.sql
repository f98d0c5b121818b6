-- commits_after
-- The commit log for the audit trail, oldest first.
SELECT sequence, committed_ms, principal, operation, catalog_name, table_namespace, table_name, request_id, origin,
  commit_id, table_uuid, metadata_location, previous_metadata_location, snapshot_id, request_hash
FROM nunatak_commits WHERE sequence > :after AND sequence <= :last ORDER BY sequence LIMIT :limit;

-- commits_before
SELECT sequence, committed_ms, principal, operation, catalog_name, table_namespace, table_name, request_id, origin,
  commit_id, table_uuid, metadata_location, previous_metadata_location, snapshot_id, request_hash
FROM nunatak_commits WHERE sequence < :before ORDER BY sequence DESC LIMIT :limit;

-- audit_after
SELECT sequence, at_ms, principal, action, securable, outcome, detail, repeats, request_id, origin
FROM nunatak_audit WHERE sequence > :after AND sequence <= :last ORDER BY sequence LIMIT :limit;

-- audit_before
SELECT sequence, at_ms, principal, action, securable, outcome, detail, repeats, request_id, origin
FROM nunatak_audit WHERE sequence < :before ORDER BY sequence DESC LIMIT :limit;

-- audit_found
-- Whether the audit row of a change exists: then its transaction was committed.
SELECT 1 FROM nunatak_audit
WHERE at_ms = :at_ms AND principal = :principal AND action = :action AND securable = :securable
  AND coalesce(request_id, '') = coalesce(:request_id, '') LIMIT 1;

-- newest_records
SELECT coalesce((SELECT max(sequence) FROM nunatak_commits), 0), coalesce((SELECT max(sequence) FROM nunatak_audit), 0);

-- add_seal
-- Compare and swap: if several servers seal the same records, only the first inserts its seal.
{insert_if_missing} nunatak_seals (number, day, commits_to, audit_to, records, hash, sealed_ms){overriding_identity}
VALUES (:number, :day, :commits_to, :audit_to, :records, :hash, :sealed_ms) {if_missing};

-- newest_seal
SELECT number, day, commits_to, audit_to, records, hash, sealed_ms FROM nunatak_seals
WHERE number = (SELECT max(number) FROM nunatak_seals);

-- seals_after
SELECT number, day, commits_to, audit_to, records, hash, sealed_ms FROM nunatak_seals
WHERE number > :after ORDER BY number LIMIT :limit;

-- audit_of_action
SELECT sequence, at_ms, principal, action, securable, outcome, detail, repeats, request_id, origin
FROM nunatak_audit WHERE action = :action ORDER BY sequence;

-- drop_audit
-- A contiguous range of expired denials and reads; a separate row records what is kept of their seals.
DELETE FROM nunatak_audit WHERE sequence BETWEEN :first AND :last;
