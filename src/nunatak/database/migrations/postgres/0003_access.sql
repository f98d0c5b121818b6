-- Grows whenever somebody may have lost a right, so that every server notices with the read it does anyway.
CREATE TABLE nunatak_policy (
  only_row SMALLINT PRIMARY KEY CHECK (only_row = 1),
  version BIGINT NOT NULL
);
INSERT INTO nunatak_policy (only_row, version) VALUES (1, 1);

CREATE TABLE nunatak_principals (
  principal TEXT COLLATE "C" PRIMARY KEY,
  disabled BIGINT NOT NULL DEFAULT 0,
  note TEXT,
  created_ms BIGINT NOT NULL
);

CREATE TABLE nunatak_roles (
  role TEXT COLLATE "C" PRIMARY KEY,
  note TEXT,
  created_ms BIGINT NOT NULL
);

CREATE TABLE nunatak_role_members (
  role TEXT COLLATE "C" NOT NULL,
  principal TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (role, principal)
);
CREATE INDEX nunatak_role_members_by_principal ON nunatak_role_members (principal, role);

-- What a grantee (p:principal or r:role) holds on a securable, and with it on everything whose text begins with it.
CREATE TABLE nunatak_grants (
  grantee TEXT COLLATE "C" NOT NULL,
  securable TEXT COLLATE "C" NOT NULL,
  privileges BIGINT NOT NULL,
  granted_by TEXT NOT NULL,
  granted_ms BIGINT NOT NULL,
  PRIMARY KEY (grantee, securable)
);
CREATE INDEX nunatak_grants_by_securable ON nunatak_grants (securable, grantee);

-- Client secrets, API keys and access keys; the secret is hashed, or encrypted where it must be read again.
CREATE TABLE nunatak_credentials (
  credential_id TEXT COLLATE "C" PRIMARY KEY,
  principal TEXT COLLATE "C" NOT NULL,
  kind TEXT NOT NULL,
  secret BYTEA NOT NULL,
  roles TEXT,
  note TEXT,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT,
  last_used_ms BIGINT
);
CREATE INDEX nunatak_credentials_by_principal ON nunatak_credentials (principal, credential_id);

-- Warehouses made while the server runs; those of the settings are not here.
CREATE TABLE nunatak_warehouses (
  warehouse TEXT COLLATE "C" PRIMARY KEY,
  location TEXT NOT NULL,
  created_ms BIGINT NOT NULL
);

-- What happened besides the commits, which are their own record: changes of namespaces and rights, denials, reads.
CREATE TABLE nunatak_audit (
  sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at_ms BIGINT NOT NULL,
  principal TEXT COLLATE "C" NOT NULL,
  action TEXT NOT NULL,
  securable TEXT COLLATE "C" NOT NULL,
  outcome TEXT NOT NULL,
  detail TEXT,
  repeats BIGINT NOT NULL DEFAULT 1,
  request_id TEXT,
  origin TEXT
);
CREATE INDEX nunatak_audit_by_time ON nunatak_audit (at_ms, sequence);
-- Where a request came from: its address, roles and client, as JSON.
ALTER TABLE nunatak_commits ADD COLUMN origin TEXT;

-- Each seal covers what was recorded since the one before, and that one's hash: nothing sealed can change unnoticed.
CREATE TABLE nunatak_seals (
  number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  day TEXT NOT NULL,
  commits_to BIGINT NOT NULL,
  audit_to BIGINT NOT NULL,
  records BIGINT NOT NULL,
  hash BYTEA NOT NULL,
  sealed_ms BIGINT NOT NULL
);
