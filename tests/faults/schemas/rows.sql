-- What the first version wrote: a table whose bytes it kept, one whose bytes it did not, a namespace with a property.
INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES ('default', 'faults', 'exists', 'true'), ('default', 'faults', 'owner', 'ann');
INSERT INTO iceberg_tables
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
VALUES ('default', 'faults', 'kept', '{location}/kept/metadata/1.metadata.json', NULL, 'TABLE'),
  ('default', 'faults', 'filed', '{location}/filed/metadata/1.metadata.json', NULL, NULL);
INSERT INTO nunatak_heads
  (catalog_name, table_namespace, table_name, metadata_location, table_uuid, location, content)
VALUES ('default', 'faults', 'kept', '{location}/kept/metadata/1.metadata.json',
  '81a66874-f008-4315-ba69-a4bc0b8051a2', '{location}/kept', {content});
INSERT INTO nunatak_commits
  (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid, metadata_location,
   previous_metadata_location, snapshot_id, request_hash, principal, request_id, committed_ms)
VALUES ('37718878-9341-4275-b2e9-163f5a853116', 'create-table', 'default', 'faults', 'kept',
  '81a66874-f008-4315-ba69-a4bc0b8051a2', '{location}/kept/metadata/1.metadata.json', NULL, NULL, NULL, 'anonymous', NULL,
  1794802897190);
INSERT INTO nunatak_idempotency
  (principal, idempotency_key, request_hash, status, body, metadata_location, expires_ms)
VALUES ('anonymous', '0192f9f5-3b0c-7e57-8d2c-2a4c6a1f7e11', {content}, 204, NULL, NULL, 4102444800000);
