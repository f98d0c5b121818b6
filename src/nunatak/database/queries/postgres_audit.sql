-- add_audits
-- Many rows at once, each a JSON list of its columns.
INSERT INTO nunatak_audit (at_ms, principal, action, securable, outcome, repeats, request_id, origin)
SELECT (line ->> 0)::bigint, line ->> 1, line ->> 2, line ->> 3, line ->> 4, (line ->> 5)::bigint, line ->> 6, line ->> 7
FROM jsonb_array_elements(:rows::text::jsonb) WITH ORDINALITY AS given (line, place) ORDER BY place;
