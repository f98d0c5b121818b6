-- Each statement may be run again: see 0001_catalog.sql.
-- Grows whenever somebody may have lost a right, so that every server notices with the read it does anyway.
CREATE TABLE IF NOT EXISTS nunatak_policy (
  only_row BIGINT PRIMARY KEY CHECK (only_row = 1),
  version BIGINT NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
INSERT IGNORE INTO nunatak_policy (only_row, version) VALUES (1, 1);

CREATE TABLE IF NOT EXISTS nunatak_principals (
  principal VARCHAR(130) PRIMARY KEY,
  disabled BIGINT NOT NULL DEFAULT 0,
  note TEXT,
  created_ms BIGINT NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS nunatak_roles (
  role VARCHAR(130) PRIMARY KEY,
  note TEXT,
  created_ms BIGINT NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS nunatak_role_members (
  role VARCHAR(130) NOT NULL,
  principal VARCHAR(130) NOT NULL,
  PRIMARY KEY (role, principal)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
CREATE INDEX IF NOT EXISTS nunatak_role_members_by_principal ON nunatak_role_members (principal, role);

-- What a grantee (p:principal or r:role) holds on a securable, and with it on everything whose text begins with it.
CREATE TABLE IF NOT EXISTS nunatak_grants (
  grantee VARCHAR(130) NOT NULL,
  securable VARCHAR(600) NOT NULL,
  privileges BIGINT NOT NULL,
  granted_by TEXT NOT NULL,
  granted_ms BIGINT NOT NULL,
  PRIMARY KEY (grantee, securable)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
CREATE INDEX IF NOT EXISTS nunatak_grants_by_securable ON nunatak_grants (securable, grantee);

-- Client secrets, API keys and access keys; the secret is hashed, or encrypted where it must be read again.
CREATE TABLE IF NOT EXISTS nunatak_credentials (
  credential_id VARCHAR(130) PRIMARY KEY,
  principal VARCHAR(130) NOT NULL,
  kind VARCHAR(64) NOT NULL,
  secret VARBINARY(4096) NOT NULL,
  roles TEXT,
  note TEXT,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT,
  last_used_ms BIGINT
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
CREATE INDEX IF NOT EXISTS nunatak_credentials_by_principal ON nunatak_credentials (principal, credential_id);

-- Warehouses made while the server runs; those of the settings are not here.
CREATE TABLE IF NOT EXISTS nunatak_warehouses (
  warehouse VARCHAR(130) PRIMARY KEY,
  location VARCHAR(1000) NOT NULL,
  created_ms BIGINT NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- What happened besides the commits, which are their own record: changes of namespaces and rights, denials, reads.
CREATE TABLE IF NOT EXISTS nunatak_audit (
  sequence BIGINT AUTO_INCREMENT PRIMARY KEY,
  at_ms BIGINT NOT NULL,
  principal VARCHAR(130) NOT NULL,
  action VARCHAR(255) NOT NULL,
  securable VARCHAR(600) NOT NULL,
  outcome VARCHAR(64) NOT NULL,
  detail TEXT,
  repeats BIGINT NOT NULL DEFAULT 1,
  request_id VARCHAR(255),
  origin TEXT
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
CREATE INDEX IF NOT EXISTS nunatak_audit_by_time ON nunatak_audit (at_ms, sequence);
-- Where a request came from: its address, roles and client, as JSON.
ALTER TABLE nunatak_commits ADD COLUMN IF NOT EXISTS origin TEXT;

-- Each seal covers what was recorded since the one before, and that one's hash: nothing sealed can change unnoticed.
CREATE TABLE IF NOT EXISTS nunatak_seals (
  number BIGINT AUTO_INCREMENT PRIMARY KEY,
  day VARCHAR(64) NOT NULL,
  commits_to BIGINT NOT NULL,
  audit_to BIGINT NOT NULL,
  records BIGINT NOT NULL,
  hash VARBINARY(4096) NOT NULL,
  sealed_ms BIGINT NOT NULL
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;
