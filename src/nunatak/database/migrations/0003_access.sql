-- Grows whenever somebody may have lost a right, so that every server notices with the read it does anyway.
{create_table} nunatak_policy (
  only_row {small} PRIMARY KEY CHECK (only_row = 1),
  version {int} NOT NULL
){options};
{insert_if_missing} nunatak_policy (only_row, version) VALUES (1, 1);

{create_table} nunatak_principals (
  principal {key 130} PRIMARY KEY,
  disabled {int} NOT NULL DEFAULT 0,
  note TEXT,
  created_ms {int} NOT NULL
){options};

{create_table} nunatak_roles (
  role {key 130} PRIMARY KEY,
  note TEXT,
  created_ms {int} NOT NULL
){options};

{create_table} nunatak_role_members (
  role {key 130} NOT NULL,
  principal {key 130} NOT NULL,
  PRIMARY KEY (role, principal)
){options};
{create_index} nunatak_role_members_by_principal ON nunatak_role_members (principal, role);

-- What a grantee (p:principal or r:role) holds on a securable, and with it on everything whose text begins with it.
{create_table} nunatak_grants (
  grantee {key 130} NOT NULL,
  securable {key 600} NOT NULL,
  privileges {int} NOT NULL,
  granted_by TEXT NOT NULL,
  granted_ms {int} NOT NULL,
  PRIMARY KEY (grantee, securable)
){options};
{create_index} nunatak_grants_by_securable ON nunatak_grants (securable, grantee);

-- Client secrets, API keys and access keys; the secret is hashed, or encrypted where it must be read again.
{create_table} nunatak_credentials (
  credential_id {key 130} PRIMARY KEY,
  principal {key 130} NOT NULL,
  kind {text 64} NOT NULL,
  secret {bytes 4096} NOT NULL,
  roles TEXT,
  note TEXT,
  created_ms {int} NOT NULL,
  expires_ms {int},
  last_used_ms {int}
){options};
{create_index} nunatak_credentials_by_principal ON nunatak_credentials (principal, credential_id);

-- Warehouses made while the server runs; those of the settings are not here.
{create_table} nunatak_warehouses (
  warehouse {key 130} PRIMARY KEY,
  location {text 1000} NOT NULL,
  created_ms {int} NOT NULL
){options};

-- What happened besides the commits, which are their own record: changes of namespaces and rights, denials, reads.
{create_table} nunatak_audit (
  sequence {identity},
  at_ms {int} NOT NULL,
  principal {key 130} NOT NULL,
  action {text 255} NOT NULL,
  securable {key 600} NOT NULL,
  outcome {text 64} NOT NULL,
  detail TEXT,
  repeats {int} NOT NULL DEFAULT 1,
  request_id {text 255},
  origin TEXT
){options};
{create_index} nunatak_audit_by_time ON nunatak_audit (at_ms, sequence);
-- Where a request came from: its address, roles and client, as JSON.
ALTER TABLE nunatak_commits {add_column} origin TEXT;

-- Each seal covers what was recorded since the one before, and that one's hash: nothing sealed can change unnoticed.
{create_table} nunatak_seals (
  number {identity},
  day {text 64} NOT NULL,
  commits_to {int} NOT NULL,
  audit_to {int} NOT NULL,
  records {int} NOT NULL,
  hash {bytes 4096} NOT NULL,
  sealed_ms {int} NOT NULL
){options};
