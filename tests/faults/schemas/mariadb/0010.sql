CREATE TABLE `iceberg_namespace_properties` (
  `catalog_name` varchar(255) NOT NULL,
  `namespace` varchar(255) NOT NULL,
  `property_key` varchar(255) NOT NULL,
  `property_value` varchar(1000) DEFAULT NULL,
  PRIMARY KEY (`catalog_name`,`namespace`,`property_key`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `iceberg_table_properties` (
  `property_id` bigint(20) NOT NULL AUTO_INCREMENT,
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  `property_key` varchar(255) NOT NULL,
  `property_value` varchar(1000) DEFAULT NULL,
  `property_hash` binary(32) GENERATED ALWAYS AS (unhex(sha2(concat_ws('/',hex(`catalog_name`),hex(`table_namespace`),hex(`table_name`),hex(`property_key`)),256))) STORED,
  PRIMARY KEY (`property_id`),
  UNIQUE KEY `iceberg_table_properties_once` (`property_hash`),
  KEY `iceberg_table_properties_by_table` (`catalog_name`,`table_namespace`,`table_name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `iceberg_tables` (
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  `metadata_location` varchar(1000) DEFAULT NULL,
  `previous_metadata_location` varchar(1000) DEFAULT NULL,
  `iceberg_type` varchar(5) DEFAULT NULL,
  PRIMARY KEY (`catalog_name`,`table_namespace`,`table_name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_audit` (
  `sequence` bigint(20) NOT NULL AUTO_INCREMENT,
  `at_ms` bigint(20) NOT NULL,
  `principal` varchar(130) NOT NULL,
  `action` varchar(255) NOT NULL,
  `securable` varchar(600) NOT NULL,
  `outcome` varchar(64) NOT NULL,
  `detail` text DEFAULT NULL,
  `repeats` bigint(20) NOT NULL DEFAULT 1,
  `request_id` varchar(255) DEFAULT NULL,
  `origin` text DEFAULT NULL,
  PRIMARY KEY (`sequence`),
  KEY `nunatak_audit_by_time` (`at_ms`,`sequence`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_commits` (
  `sequence` bigint(20) NOT NULL AUTO_INCREMENT,
  `commit_id` varchar(64) NOT NULL,
  `operation` varchar(64) NOT NULL,
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  `table_uuid` varchar(255) NOT NULL,
  `metadata_location` varchar(1000) DEFAULT NULL,
  `previous_metadata_location` varchar(1000) DEFAULT NULL,
  `snapshot_id` bigint(20) DEFAULT NULL,
  `request_hash` varbinary(255) DEFAULT NULL,
  `principal` text NOT NULL,
  `request_id` text DEFAULT NULL,
  `committed_ms` bigint(20) NOT NULL,
  `origin` text DEFAULT NULL,
  PRIMARY KEY (`sequence`),
  UNIQUE KEY `nunatak_commits_by_id` (`commit_id`),
  KEY `nunatak_commits_by_table` (`table_uuid`,`snapshot_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_credentials` (
  `credential_id` varchar(130) NOT NULL,
  `principal` varchar(130) NOT NULL,
  `kind` varchar(64) NOT NULL,
  `secret` varbinary(4096) NOT NULL,
  `roles` text DEFAULT NULL,
  `note` text DEFAULT NULL,
  `created_ms` bigint(20) NOT NULL,
  `expires_ms` bigint(20) DEFAULT NULL,
  `last_used_ms` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`credential_id`),
  KEY `nunatak_credentials_by_principal` (`principal`,`credential_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_grants` (
  `grantee` varchar(130) NOT NULL,
  `securable` varchar(600) NOT NULL,
  `privileges` bigint(20) NOT NULL,
  `granted_by` text NOT NULL,
  `granted_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`grantee`,`securable`),
  KEY `nunatak_grants_by_securable` (`securable`,`grantee`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_heads` (
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  `metadata_location` varchar(1000) NOT NULL,
  `table_uuid` varchar(255) NOT NULL,
  `location` varchar(1000) NOT NULL,
  `content` longblob DEFAULT NULL,
  PRIMARY KEY (`catalog_name`,`table_namespace`,`table_name`),
  KEY `nunatak_heads_by_location` (`location`(255)),
  KEY `nunatak_heads_by_uuid` (`table_uuid`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_idempotency` (
  `principal` varchar(500) NOT NULL,
  `idempotency_key` varchar(255) NOT NULL,
  `request_hash` varbinary(255) NOT NULL,
  `status` int(11) NOT NULL,
  `body` longblob DEFAULT NULL,
  `metadata_location` varchar(1000) DEFAULT NULL,
  `expires_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`principal`,`idempotency_key`),
  KEY `nunatak_idempotency_by_expiry` (`expires_ms`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_jobs` (
  `job_id` bigint(20) NOT NULL AUTO_INCREMENT,
  `kind` varchar(64) NOT NULL,
  `payload` longblob NOT NULL,
  `location` varchar(1000) DEFAULT NULL,
  `attempts` int(11) NOT NULL DEFAULT 0,
  `not_before_ms` bigint(20) NOT NULL DEFAULT 0,
  `last_error` mediumtext DEFAULT NULL,
  `leased_by` varchar(255) DEFAULT NULL,
  `runs_on` varchar(64) NOT NULL DEFAULT 'server',
  `state` varchar(64) NOT NULL DEFAULT 'waiting',
  `open_key` varchar(130) DEFAULT NULL,
  `securable` varchar(600) DEFAULT NULL,
  `table_uuid` varchar(64) DEFAULT NULL,
  `policy` varchar(600) DEFAULT NULL,
  `created_by` varchar(130) DEFAULT NULL,
  `created_ms` bigint(20) DEFAULT NULL,
  `cancelled` bigint(20) NOT NULL DEFAULT 0,
  `progress` mediumtext DEFAULT NULL,
  `finished_ms` bigint(20) DEFAULT NULL,
  `changed` bigint(20) NOT NULL DEFAULT 0,
  `size_bytes` bigint(20) NOT NULL DEFAULT 0,
  `result` mediumtext DEFAULT NULL,
  PRIMARY KEY (`job_id`),
  UNIQUE KEY `nunatak_jobs_by_open_key` (`open_key`),
  KEY `nunatak_jobs_by_location` (`location`(255)),
  KEY `nunatak_jobs_by_due` (`runs_on`,`state`,`not_before_ms`,`job_id`),
  KEY `nunatak_jobs_by_table` (`table_uuid`,`job_id`),
  KEY `nunatak_jobs_by_securable` (`securable`,`job_id`),
  KEY `nunatak_jobs_by_policy` (`policy`,`kind`,`job_id`),
  KEY `nunatak_jobs_by_finish` (`finished_ms`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_locks` (
  `name` varchar(255) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_maintenance_policies` (
  `securable` varchar(600) NOT NULL,
  `type` varchar(64) NOT NULL,
  `policy` mediumtext NOT NULL,
  `changed_by` varchar(130) NOT NULL,
  `changed_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`securable`,`type`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_migration_documents` (
  `migration` varchar(64) NOT NULL,
  `document` varchar(255) NOT NULL,
  `version` bigint(20) NOT NULL,
  `content` mediumtext NOT NULL,
  `changed_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`migration`,`document`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_migrations` (
  `number` int(11) NOT NULL,
  `name` varchar(255) NOT NULL,
  PRIMARY KEY (`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `nunatak_outbox` (
  `sequence` bigint(20) NOT NULL AUTO_INCREMENT,
  `event_id` varchar(64) NOT NULL,
  `type` varchar(255) NOT NULL,
  `catalog_name` varchar(255) DEFAULT NULL,
  `table_namespace` varchar(255) DEFAULT NULL,
  `table_name` varchar(255) DEFAULT NULL,
  `securable` varchar(600) DEFAULT NULL,
  `object_uuid` varchar(255) DEFAULT NULL,
  `metadata_location` varchar(1000) DEFAULT NULL,
  `previous_metadata_location` varchar(1000) DEFAULT NULL,
  `snapshot_id` bigint(20) DEFAULT NULL,
  `principal` text NOT NULL,
  `request_id` text DEFAULT NULL,
  `at_ms` bigint(20) NOT NULL,
  `detail` mediumtext DEFAULT NULL,
  `position` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`sequence`),
  KEY `nunatak_outbox_by_position` (`position`,`sequence`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_outbox_readers` (
  `reader` varchar(64) NOT NULL,
  `position` bigint(20) NOT NULL,
  `leased_by` varchar(255) DEFAULT NULL,
  `until_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`reader`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_outcomes` (
  `transaction_id` varchar(64) NOT NULL,
  `noted_at` timestamp NOT NULL DEFAULT current_timestamp(),
  PRIMARY KEY (`transaction_id`),
  KEY `nunatak_outcomes_by_time` (`noted_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_places` (
  `place_id` bigint(20) NOT NULL AUTO_INCREMENT,
  `place` varchar(1000) NOT NULL,
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  PRIMARY KEY (`place_id`),
  KEY `nunatak_places_by_place` (`place`(255)),
  KEY `nunatak_places_by_table` (`catalog_name`,`table_namespace`,`table_name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_policy` (
  `only_row` bigint(20) NOT NULL CHECK (`only_row` = 1),
  `version` bigint(20) NOT NULL,
  PRIMARY KEY (`only_row`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_principals` (
  `principal` varchar(130) NOT NULL,
  `disabled` bigint(20) NOT NULL DEFAULT 0,
  `note` text DEFAULT NULL,
  `created_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`principal`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_reports` (
  `report_id` bigint(20) NOT NULL AUTO_INCREMENT,
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  `received_ms` bigint(20) NOT NULL,
  `report` longblob NOT NULL,
  PRIMARY KEY (`report_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_role_members` (
  `role` varchar(130) NOT NULL,
  `principal` varchar(130) NOT NULL,
  PRIMARY KEY (`role`,`principal`),
  KEY `nunatak_role_members_by_principal` (`principal`,`role`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_roles` (
  `role` varchar(130) NOT NULL,
  `note` text DEFAULT NULL,
  `created_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`role`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_seals` (
  `number` bigint(20) NOT NULL AUTO_INCREMENT,
  `day` varchar(64) NOT NULL,
  `commits_to` bigint(20) NOT NULL,
  `audit_to` bigint(20) NOT NULL,
  `records` bigint(20) NOT NULL,
  `hash` varbinary(4096) NOT NULL,
  `sealed_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_secrets` (
  `name` varchar(255) NOT NULL,
  `value` varbinary(255) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_shadows` (
  `catalog_name` varchar(255) NOT NULL,
  `table_uuid` varchar(255) NOT NULL,
  `source` mediumtext NOT NULL,
  `state` varchar(64) NOT NULL,
  `since_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`catalog_name`,`table_uuid`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_temporary_access` (
  `access_id` bigint(20) NOT NULL AUTO_INCREMENT,
  `catalog_name` varchar(255) NOT NULL,
  `table_namespace` varchar(255) NOT NULL,
  `table_name` varchar(255) NOT NULL,
  `principal` varchar(130) NOT NULL,
  `state` varchar(64) NOT NULL,
  `level` varchar(64) NOT NULL,
  `facts` mediumtext NOT NULL,
  `expires_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`access_id`),
  KEY `nunatak_temporary_access_by_table` (`catalog_name`,`table_namespace`,`table_name`),
  KEY `nunatak_temporary_access_by_end` (`expires_ms`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_warehouse_places` (
  `warehouse` varchar(130) NOT NULL,
  `number` bigint(20) NOT NULL,
  `location` varchar(1000) NOT NULL,
  PRIMARY KEY (`warehouse`,`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE `nunatak_warehouses` (
  `warehouse` varchar(130) NOT NULL,
  `location` varchar(1000) NOT NULL,
  `created_ms` bigint(20) NOT NULL,
  `version` bigint(20) NOT NULL DEFAULT 1,
  `profile` mediumtext DEFAULT NULL,
  `options` mediumtext DEFAULT NULL,
  `secret` longblob DEFAULT NULL,
  PRIMARY KEY (`warehouse`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
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
