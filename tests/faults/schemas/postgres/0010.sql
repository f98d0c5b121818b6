CREATE TABLE public.iceberg_namespace_properties (
    catalog_name character varying(255) NOT NULL COLLATE pg_catalog."C",
    namespace character varying(255) NOT NULL COLLATE pg_catalog."C",
    property_key character varying(255) NOT NULL COLLATE pg_catalog."C",
    property_value character varying(1000)
);
CREATE TABLE public.iceberg_table_properties (
    catalog_name character varying(255) NOT NULL COLLATE pg_catalog."C",
    table_namespace character varying(255) NOT NULL COLLATE pg_catalog."C",
    table_name character varying(255) NOT NULL COLLATE pg_catalog."C",
    property_key character varying(255) NOT NULL COLLATE pg_catalog."C",
    property_value character varying(1000)
);
CREATE TABLE public.iceberg_tables (
    catalog_name character varying(255) NOT NULL COLLATE pg_catalog."C",
    table_namespace character varying(255) NOT NULL COLLATE pg_catalog."C",
    table_name character varying(255) NOT NULL COLLATE pg_catalog."C",
    metadata_location character varying(1000),
    previous_metadata_location character varying(1000),
    iceberg_type character varying(5)
);
CREATE TABLE public.nunatak_audit (
    sequence bigint NOT NULL,
    at_ms bigint NOT NULL,
    principal text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL,
    securable text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    detail text,
    repeats bigint DEFAULT 1 NOT NULL,
    request_id text,
    origin text
);
ALTER TABLE public.nunatak_audit ALTER COLUMN sequence ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_audit_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_commits (
    sequence bigint NOT NULL,
    commit_id text NOT NULL COLLATE pg_catalog."C",
    operation text NOT NULL,
    catalog_name text NOT NULL COLLATE pg_catalog."C",
    table_namespace text NOT NULL COLLATE pg_catalog."C",
    table_name text NOT NULL COLLATE pg_catalog."C",
    table_uuid text NOT NULL COLLATE pg_catalog."C",
    metadata_location text,
    previous_metadata_location text,
    snapshot_id bigint,
    request_hash bytea,
    principal text NOT NULL,
    request_id text,
    committed_ms bigint NOT NULL,
    origin text
);
ALTER TABLE public.nunatak_commits ALTER COLUMN sequence ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_commits_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_credentials (
    credential_id text NOT NULL COLLATE pg_catalog."C",
    principal text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    secret bytea NOT NULL,
    roles text,
    note text,
    created_ms bigint NOT NULL,
    expires_ms bigint,
    last_used_ms bigint
);
CREATE TABLE public.nunatak_grants (
    grantee text NOT NULL COLLATE pg_catalog."C",
    securable text NOT NULL COLLATE pg_catalog."C",
    privileges bigint NOT NULL,
    granted_by text NOT NULL,
    granted_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_heads (
    catalog_name text NOT NULL COLLATE pg_catalog."C",
    table_namespace text NOT NULL COLLATE pg_catalog."C",
    table_name text NOT NULL COLLATE pg_catalog."C",
    metadata_location text NOT NULL,
    table_uuid text NOT NULL,
    location text NOT NULL COLLATE pg_catalog."C",
    content bytea
);
ALTER TABLE ONLY public.nunatak_heads ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE public.nunatak_idempotency (
    principal text NOT NULL COLLATE pg_catalog."C",
    idempotency_key text NOT NULL COLLATE pg_catalog."C",
    request_hash bytea NOT NULL,
    status integer NOT NULL,
    body bytea,
    metadata_location text,
    expires_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_jobs (
    job_id bigint NOT NULL,
    kind text NOT NULL,
    payload bytea NOT NULL,
    location text COLLATE pg_catalog."C",
    attempts integer DEFAULT 0 NOT NULL,
    not_before_ms bigint DEFAULT 0 NOT NULL,
    last_error text,
    leased_by text,
    runs_on text DEFAULT 'server'::text NOT NULL COLLATE pg_catalog."C",
    state text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    open_key text COLLATE pg_catalog."C",
    securable text COLLATE pg_catalog."C",
    table_uuid text COLLATE pg_catalog."C",
    policy text COLLATE pg_catalog."C",
    created_by text,
    created_ms bigint,
    cancelled bigint DEFAULT 0 NOT NULL,
    progress text,
    finished_ms bigint,
    changed bigint DEFAULT 0 NOT NULL,
    size_bytes bigint DEFAULT 0 NOT NULL,
    result text
);
ALTER TABLE public.nunatak_jobs ALTER COLUMN job_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_jobs_job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_maintenance_policies (
    securable text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    policy text NOT NULL,
    changed_by text NOT NULL,
    changed_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_migration_documents (
    migration text NOT NULL COLLATE pg_catalog."C",
    document text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    content text NOT NULL,
    changed_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_migrations (
    number integer NOT NULL,
    name text NOT NULL
);
CREATE TABLE public.nunatak_outbox (
    sequence bigint NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    catalog_name text,
    table_namespace text,
    table_name text,
    securable text,
    object_uuid text,
    metadata_location text,
    previous_metadata_location text,
    snapshot_id bigint,
    principal text NOT NULL,
    request_id text,
    at_ms bigint NOT NULL,
    detail text,
    "position" bigint
);
CREATE TABLE public.nunatak_outbox_readers (
    reader text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    leased_by text,
    until_ms bigint NOT NULL
);
ALTER TABLE public.nunatak_outbox ALTER COLUMN sequence ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_outbox_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_places (
    place text NOT NULL COLLATE pg_catalog."C",
    catalog_name text NOT NULL COLLATE pg_catalog."C",
    table_namespace text NOT NULL COLLATE pg_catalog."C",
    table_name text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.nunatak_policy (
    only_row smallint NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT nunatak_policy_only_row_check CHECK ((only_row = 1))
);
CREATE TABLE public.nunatak_principals (
    principal text NOT NULL COLLATE pg_catalog."C",
    disabled bigint DEFAULT 0 NOT NULL,
    note text,
    created_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_reports (
    report_id bigint NOT NULL,
    catalog_name text NOT NULL COLLATE pg_catalog."C",
    table_namespace text NOT NULL COLLATE pg_catalog."C",
    table_name text NOT NULL COLLATE pg_catalog."C",
    received_ms bigint NOT NULL,
    report bytea NOT NULL
);
ALTER TABLE public.nunatak_reports ALTER COLUMN report_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_reports_report_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_role_members (
    role text NOT NULL COLLATE pg_catalog."C",
    principal text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.nunatak_roles (
    role text NOT NULL COLLATE pg_catalog."C",
    note text,
    created_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_seals (
    number bigint NOT NULL,
    day text NOT NULL,
    commits_to bigint NOT NULL,
    audit_to bigint NOT NULL,
    records bigint NOT NULL,
    hash bytea NOT NULL,
    sealed_ms bigint NOT NULL
);
ALTER TABLE public.nunatak_seals ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_seals_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_secrets (
    name text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL
);
CREATE TABLE public.nunatak_shadows (
    catalog_name text NOT NULL COLLATE pg_catalog."C",
    table_uuid text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    since_ms bigint NOT NULL
);
CREATE TABLE public.nunatak_temporary_access (
    access_id bigint NOT NULL,
    catalog_name text NOT NULL COLLATE pg_catalog."C",
    table_namespace text NOT NULL COLLATE pg_catalog."C",
    table_name text NOT NULL COLLATE pg_catalog."C",
    principal text NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    level text NOT NULL COLLATE pg_catalog."C",
    facts text NOT NULL,
    expires_ms bigint NOT NULL
);
ALTER TABLE public.nunatak_temporary_access ALTER COLUMN access_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.nunatak_temporary_access_access_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.nunatak_warehouse_places (
    warehouse text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    location text NOT NULL
);
CREATE TABLE public.nunatak_warehouses (
    warehouse text NOT NULL COLLATE pg_catalog."C",
    location text NOT NULL,
    created_ms bigint NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    profile text,
    options text,
    secret bytea
);
ALTER TABLE ONLY public.iceberg_namespace_properties
    ADD CONSTRAINT iceberg_namespace_properties_pkey PRIMARY KEY (catalog_name, namespace, property_key);
ALTER TABLE ONLY public.iceberg_table_properties
    ADD CONSTRAINT iceberg_table_properties_pkey PRIMARY KEY (catalog_name, table_namespace, table_name, property_key);
ALTER TABLE ONLY public.iceberg_tables
    ADD CONSTRAINT iceberg_tables_pkey PRIMARY KEY (catalog_name, table_namespace, table_name);
ALTER TABLE ONLY public.nunatak_audit
    ADD CONSTRAINT nunatak_audit_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.nunatak_commits
    ADD CONSTRAINT nunatak_commits_commit_id_key UNIQUE (commit_id);
ALTER TABLE ONLY public.nunatak_commits
    ADD CONSTRAINT nunatak_commits_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.nunatak_credentials
    ADD CONSTRAINT nunatak_credentials_pkey PRIMARY KEY (credential_id);
ALTER TABLE ONLY public.nunatak_grants
    ADD CONSTRAINT nunatak_grants_pkey PRIMARY KEY (grantee, securable);
ALTER TABLE ONLY public.nunatak_heads
    ADD CONSTRAINT nunatak_heads_pkey PRIMARY KEY (catalog_name, table_namespace, table_name);
ALTER TABLE ONLY public.nunatak_idempotency
    ADD CONSTRAINT nunatak_idempotency_pkey PRIMARY KEY (principal, idempotency_key);
ALTER TABLE ONLY public.nunatak_jobs
    ADD CONSTRAINT nunatak_jobs_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.nunatak_maintenance_policies
    ADD CONSTRAINT nunatak_maintenance_policies_pkey PRIMARY KEY (securable, type);
ALTER TABLE ONLY public.nunatak_migration_documents
    ADD CONSTRAINT nunatak_migration_documents_pkey PRIMARY KEY (migration, document);
ALTER TABLE ONLY public.nunatak_migrations
    ADD CONSTRAINT nunatak_migrations_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.nunatak_outbox
    ADD CONSTRAINT nunatak_outbox_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.nunatak_outbox_readers
    ADD CONSTRAINT nunatak_outbox_readers_pkey PRIMARY KEY (reader);
ALTER TABLE ONLY public.nunatak_places
    ADD CONSTRAINT nunatak_places_pkey PRIMARY KEY (place, catalog_name, table_namespace, table_name);
ALTER TABLE ONLY public.nunatak_policy
    ADD CONSTRAINT nunatak_policy_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.nunatak_principals
    ADD CONSTRAINT nunatak_principals_pkey PRIMARY KEY (principal);
ALTER TABLE ONLY public.nunatak_reports
    ADD CONSTRAINT nunatak_reports_pkey PRIMARY KEY (report_id);
ALTER TABLE ONLY public.nunatak_role_members
    ADD CONSTRAINT nunatak_role_members_pkey PRIMARY KEY (role, principal);
ALTER TABLE ONLY public.nunatak_roles
    ADD CONSTRAINT nunatak_roles_pkey PRIMARY KEY (role);
ALTER TABLE ONLY public.nunatak_seals
    ADD CONSTRAINT nunatak_seals_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.nunatak_secrets
    ADD CONSTRAINT nunatak_secrets_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.nunatak_shadows
    ADD CONSTRAINT nunatak_shadows_pkey PRIMARY KEY (catalog_name, table_uuid);
ALTER TABLE ONLY public.nunatak_temporary_access
    ADD CONSTRAINT nunatak_temporary_access_pkey PRIMARY KEY (access_id);
ALTER TABLE ONLY public.nunatak_warehouse_places
    ADD CONSTRAINT nunatak_warehouse_places_pkey PRIMARY KEY (warehouse, number);
ALTER TABLE ONLY public.nunatak_warehouses
    ADD CONSTRAINT nunatak_warehouses_pkey PRIMARY KEY (warehouse);
CREATE INDEX nunatak_audit_by_time ON public.nunatak_audit USING btree (at_ms, sequence);
CREATE INDEX nunatak_commits_by_table ON public.nunatak_commits USING btree (table_uuid, snapshot_id);
CREATE INDEX nunatak_credentials_by_principal ON public.nunatak_credentials USING btree (principal, credential_id);
CREATE INDEX nunatak_grants_by_securable ON public.nunatak_grants USING btree (securable, grantee);
CREATE INDEX nunatak_heads_by_location ON public.nunatak_heads USING btree (location);
CREATE INDEX nunatak_heads_by_uuid ON public.nunatak_heads USING btree (table_uuid);
CREATE INDEX nunatak_idempotency_by_expiry ON public.nunatak_idempotency USING btree (expires_ms);
CREATE INDEX nunatak_jobs_by_due ON public.nunatak_jobs USING btree (runs_on, state, not_before_ms, job_id);
CREATE INDEX nunatak_jobs_by_finish ON public.nunatak_jobs USING btree (finished_ms) WHERE (finished_ms IS NOT NULL);
CREATE INDEX nunatak_jobs_by_location ON public.nunatak_jobs USING btree (location);
CREATE UNIQUE INDEX nunatak_jobs_by_open_key ON public.nunatak_jobs USING btree (open_key) WHERE (open_key IS NOT NULL);
CREATE INDEX nunatak_jobs_by_policy ON public.nunatak_jobs USING btree (policy, kind, job_id) WHERE (policy IS NOT NULL);
CREATE INDEX nunatak_jobs_by_securable ON public.nunatak_jobs USING btree (securable, job_id) WHERE (securable IS NOT NULL);
CREATE INDEX nunatak_jobs_by_table ON public.nunatak_jobs USING btree (table_uuid, job_id) WHERE (table_uuid IS NOT NULL);
CREATE INDEX nunatak_outbox_by_position ON public.nunatak_outbox USING btree ("position", sequence);
CREATE INDEX nunatak_places_by_table ON public.nunatak_places USING btree (catalog_name, table_namespace, table_name);
CREATE INDEX nunatak_role_members_by_principal ON public.nunatak_role_members USING btree (principal, role);
CREATE INDEX nunatak_tables_by_type ON public.iceberg_tables USING btree (catalog_name, table_namespace, COALESCE(iceberg_type, 'TABLE'::character varying), table_name);
CREATE INDEX nunatak_temporary_access_by_end ON public.nunatak_temporary_access USING btree (expires_ms);
CREATE INDEX nunatak_temporary_access_by_table ON public.nunatak_temporary_access USING btree (catalog_name, table_namespace, table_name);
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
