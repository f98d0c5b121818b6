-- policies_at
SELECT securable, type, policy, changed_by, changed_ms FROM nunatak_maintenance_policies
WHERE securable IN (SELECT value FROM json_table(:securables, '$[*]' COLUMNS (value VARCHAR(600) PATH '$')) AS asked);

-- set_maintenance_policy
INSERT INTO nunatak_maintenance_policies (securable, type, policy, changed_by, changed_ms)
VALUES (:securable, :type, :policy, :changed_by, :changed_ms)
ON DUPLICATE KEY UPDATE
  policy = VALUES(policy), changed_by = VALUES(changed_by), changed_ms = VALUES(changed_ms);
