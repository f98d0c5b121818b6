-- set_maintenance_policy
INSERT INTO nunatak_maintenance_policies (securable, type, policy, changed_by, changed_ms)
VALUES (:securable, :type, :policy, :changed_by, :changed_ms)
{upsert securable, type} policy = {new policy}, changed_by = {new changed_by}, changed_ms = {new changed_ms};

-- policies_at
SELECT securable, type, policy, changed_by, changed_ms FROM nunatak_maintenance_policies
WHERE securable {in_list securables};

-- drop_maintenance_policy
DELETE FROM nunatak_maintenance_policies WHERE securable = :securable AND type = :type;

-- forget_policies_on
DELETE FROM nunatak_maintenance_policies WHERE securable = :securable;

-- forget_policies_inside
DELETE FROM nunatak_maintenance_policies WHERE securable >= :securable AND securable < :behind;

-- move_policies
UPDATE nunatak_maintenance_policies SET securable = :to_securable WHERE securable = :securable;

-- policies_inside
-- Includes the securable itself; starts after the given securable and type.
SELECT securable, type, policy, changed_by, changed_ms FROM nunatak_maintenance_policies
WHERE securable >= :securable AND securable < :behind
  AND (securable > :after_securable OR (securable = :after_securable AND type > :after_type))
ORDER BY securable, type LIMIT :limit;
