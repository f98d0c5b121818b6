-- add_audits
-- Many rows at once, each a JSON list of its columns.
INSERT INTO nunatak_audit (at_ms, principal, action, securable, outcome, repeats, request_id, origin)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(:rows) ORDER BY key;
