-- policies_at
SELECT securable, type, policy, changed_by, changed_ms FROM nunatak_maintenance_policies
WHERE securable IN (SELECT jsonb_array_elements_text(:securables::text::jsonb));
