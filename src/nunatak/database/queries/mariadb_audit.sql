-- add_audits
-- Many rows at once, each a JSON list of its columns. Truncated: a requested name may be longer than any stored one.
INSERT INTO nunatak_audit (at_ms, principal, action, securable, outcome, repeats, request_id, origin)
SELECT at_ms, left(principal, 130), action, left(securable, 600), outcome, repeats, request_id, origin
FROM json_table(:rows, '$[*]' COLUMNS (
  place FOR ORDINALITY, at_ms BIGINT PATH '$[0]', principal TEXT PATH '$[1]', action TEXT PATH '$[2]',
  securable TEXT PATH '$[3]', outcome TEXT PATH '$[4]', repeats BIGINT PATH '$[5]', request_id TEXT PATH '$[6]',
  origin TEXT PATH '$[7]')) AS given
ORDER BY place;
