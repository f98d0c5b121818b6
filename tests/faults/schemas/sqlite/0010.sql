CREATE TABLE nunatak_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL,
  namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key)
);
CREATE TABLE iceberg_table_properties (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, table_namespace, table_name, property_key)
);
CREATE INDEX nunatak_tables_by_type
ON iceberg_tables (catalog_name, table_namespace, coalesce(iceberg_type, 'TABLE'), table_name);
CREATE TABLE nunatak_heads (
  catalog_name TEXT NOT NULL,
  table_namespace TEXT NOT NULL,
  table_name TEXT NOT NULL,
  metadata_location TEXT NOT NULL,
  table_uuid TEXT NOT NULL,
  location TEXT NOT NULL,
  content BLOB,
  PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE INDEX nunatak_heads_by_location ON nunatak_heads (location);
CREATE TABLE nunatak_places (
  place TEXT NOT NULL,
  catalog_name TEXT NOT NULL,
  table_namespace TEXT NOT NULL,
  table_name TEXT NOT NULL,
  PRIMARY KEY (place, catalog_name, table_namespace, table_name)
);
CREATE INDEX nunatak_places_by_table ON nunatak_places (catalog_name, table_namespace, table_name);
CREATE TABLE nunatak_commits (
  sequence INTEGER PRIMARY KEY,
  commit_id TEXT NOT NULL,
  operation TEXT NOT NULL,
  catalog_name TEXT NOT NULL,
  table_namespace TEXT NOT NULL,
  table_name TEXT NOT NULL,
  table_uuid TEXT NOT NULL,
  metadata_location TEXT,
  previous_metadata_location TEXT,
  snapshot_id INTEGER,
  request_hash BLOB,
  principal TEXT NOT NULL,
  request_id TEXT,
  committed_ms INTEGER NOT NULL
, origin TEXT);
CREATE INDEX nunatak_commits_by_table ON nunatak_commits (table_uuid, snapshot_id);
CREATE TABLE nunatak_idempotency (
  principal TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  request_hash BLOB NOT NULL,
  status INTEGER NOT NULL,
  body BLOB,
  metadata_location TEXT,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (principal, idempotency_key)
);
CREATE INDEX nunatak_idempotency_by_expiry ON nunatak_idempotency (expires_ms);
CREATE TABLE nunatak_jobs (
  job_id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  payload BLOB NOT NULL,
  location TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  not_before_ms INTEGER NOT NULL DEFAULT 0,
  last_error TEXT
, leased_by TEXT, runs_on TEXT NOT NULL DEFAULT 'server', state TEXT NOT NULL DEFAULT 'waiting', open_key TEXT, securable TEXT, table_uuid TEXT, policy TEXT, created_by TEXT, created_ms INTEGER, cancelled INTEGER NOT NULL DEFAULT 0, progress TEXT, finished_ms INTEGER, changed INTEGER NOT NULL DEFAULT 0, size_bytes INTEGER NOT NULL DEFAULT 0, result TEXT);
CREATE INDEX nunatak_jobs_by_location ON nunatak_jobs (location);
CREATE TABLE nunatak_reports (
  report_id INTEGER PRIMARY KEY,
  catalog_name TEXT NOT NULL,
  table_namespace TEXT NOT NULL,
  table_name TEXT NOT NULL,
  received_ms INTEGER NOT NULL,
  report BLOB NOT NULL
);
CREATE TABLE nunatak_secrets (
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
);
CREATE TABLE nunatak_policy (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  version INTEGER NOT NULL
);
CREATE TABLE nunatak_principals (
  principal TEXT PRIMARY KEY,
  disabled INTEGER NOT NULL DEFAULT 0,
  note TEXT,
  created_ms INTEGER NOT NULL
);
CREATE TABLE nunatak_roles (
  role TEXT PRIMARY KEY,
  note TEXT,
  created_ms INTEGER NOT NULL
);
CREATE TABLE nunatak_role_members (
  role TEXT NOT NULL,
  principal TEXT NOT NULL,
  PRIMARY KEY (role, principal)
);
CREATE INDEX nunatak_role_members_by_principal ON nunatak_role_members (principal, role);
CREATE TABLE nunatak_grants (
  grantee TEXT NOT NULL,
  securable TEXT NOT NULL,
  privileges INTEGER NOT NULL,
  granted_by TEXT NOT NULL,
  granted_ms INTEGER NOT NULL,
  PRIMARY KEY (grantee, securable)
);
CREATE INDEX nunatak_grants_by_securable ON nunatak_grants (securable, grantee);
CREATE TABLE nunatak_credentials (
  credential_id TEXT PRIMARY KEY,
  principal TEXT NOT NULL,
  kind TEXT NOT NULL,
  secret BLOB NOT NULL,
  roles TEXT,
  note TEXT,
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  last_used_ms INTEGER
);
CREATE INDEX nunatak_credentials_by_principal ON nunatak_credentials (principal, credential_id);
CREATE TABLE nunatak_warehouses (
  warehouse TEXT PRIMARY KEY,
  location TEXT NOT NULL,
  created_ms INTEGER NOT NULL
, version INTEGER NOT NULL DEFAULT 1, profile TEXT, options TEXT, secret BLOB);
CREATE TABLE nunatak_audit (
  sequence INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  principal TEXT NOT NULL,
  action TEXT NOT NULL,
  securable TEXT NOT NULL,
  outcome TEXT NOT NULL,
  detail TEXT,
  repeats INTEGER NOT NULL DEFAULT 1,
  request_id TEXT,
  origin TEXT
);
CREATE INDEX nunatak_audit_by_time ON nunatak_audit (at_ms, sequence);
CREATE TABLE nunatak_seals (
  number INTEGER PRIMARY KEY,
  day TEXT NOT NULL,
  commits_to INTEGER NOT NULL,
  audit_to INTEGER NOT NULL,
  records INTEGER NOT NULL,
  hash BLOB NOT NULL,
  sealed_ms INTEGER NOT NULL
);
CREATE TABLE nunatak_maintenance_policies (
  securable TEXT NOT NULL,
  type TEXT NOT NULL,
  policy TEXT NOT NULL,
  changed_by TEXT NOT NULL,
  changed_ms INTEGER NOT NULL,
  PRIMARY KEY (securable, type)
);
CREATE TABLE nunatak_shadows (
  catalog_name TEXT NOT NULL,
  table_uuid TEXT NOT NULL,
  source TEXT NOT NULL,
  state TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  PRIMARY KEY (catalog_name, table_uuid)
);
CREATE INDEX nunatak_heads_by_uuid ON nunatak_heads (table_uuid);
CREATE TABLE nunatak_migration_documents (
  migration TEXT NOT NULL,
  document TEXT NOT NULL,
  version INTEGER NOT NULL,
  content TEXT NOT NULL,
  changed_ms INTEGER NOT NULL,
  PRIMARY KEY (migration, document)
);
CREATE TABLE nunatak_outbox (
  sequence INTEGER PRIMARY KEY,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  catalog_name TEXT,
  table_namespace TEXT,
  table_name TEXT,
  securable TEXT,
  object_uuid TEXT,
  metadata_location TEXT,
  previous_metadata_location TEXT,
  snapshot_id INTEGER,
  principal TEXT NOT NULL,
  request_id TEXT,
  at_ms INTEGER NOT NULL,
  detail TEXT
);
CREATE TABLE nunatak_outbox_readers (
  reader TEXT PRIMARY KEY,
  position INTEGER NOT NULL,
  leased_by TEXT,
  until_ms INTEGER NOT NULL
);
CREATE INDEX nunatak_jobs_by_due ON nunatak_jobs (runs_on, state, not_before_ms, job_id);
CREATE UNIQUE INDEX nunatak_jobs_by_open_key ON nunatak_jobs (open_key) WHERE open_key IS NOT NULL;
CREATE INDEX nunatak_jobs_by_table ON nunatak_jobs (table_uuid, job_id) WHERE table_uuid IS NOT NULL;
CREATE INDEX nunatak_jobs_by_securable ON nunatak_jobs (securable, job_id) WHERE securable IS NOT NULL;
CREATE INDEX nunatak_jobs_by_policy ON nunatak_jobs (policy, kind, job_id) WHERE policy IS NOT NULL;
CREATE INDEX nunatak_jobs_by_finish ON nunatak_jobs (finished_ms) WHERE finished_ms IS NOT NULL;
CREATE TABLE nunatak_warehouse_places (
  warehouse TEXT NOT NULL,
  number INTEGER NOT NULL,
  location TEXT NOT NULL,
  PRIMARY KEY (warehouse, number)
);
CREATE TABLE nunatak_temporary_access (
  access_id INTEGER PRIMARY KEY,
  catalog_name TEXT NOT NULL,
  table_namespace TEXT NOT NULL,
  table_name TEXT NOT NULL,
  principal TEXT NOT NULL,
  state TEXT NOT NULL,
  level TEXT NOT NULL,
  facts TEXT NOT NULL,
  expires_ms INTEGER NOT NULL
);
CREATE INDEX nunatak_temporary_access_by_table ON nunatak_temporary_access (catalog_name, table_namespace, table_name);
CREATE INDEX nunatak_temporary_access_by_end ON nunatak_temporary_access (expires_ms);
INSERT INTO nunatak_migrations VALUES (1, '0001_catalog');
INSERT INTO nunatak_migrations VALUES (2, '0002_job_leases');
INSERT INTO nunatak_migrations VALUES (3, '0003_access');
INSERT INTO nunatak_migrations VALUES (4, '0004_maintenance');
INSERT INTO nunatak_migrations VALUES (5, '0005_trust');
INSERT INTO nunatak_migrations VALUES (6, '0006_house');
INSERT INTO nunatak_migrations VALUES (7, '0007_outbox');
INSERT INTO nunatak_migrations VALUES (8, '0008_one_job_queue');
INSERT INTO nunatak_migrations VALUES (9, '0009_warehouses');
INSERT INTO nunatak_migrations VALUES (10, '0010_temporary_access');
