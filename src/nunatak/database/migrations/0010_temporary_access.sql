-- Tables without a pointer whose files one principal may still reach for a while: `staged` ones before their commit, and
-- `dropped` ones whose files the client deletes itself. `facts` is JSON: the uuid, the location and the write locations.
{create_table} nunatak_temporary_access (
  access_id {identity},
  catalog_name {key 255} NOT NULL,
  table_namespace {key 255} NOT NULL,
  table_name {key 255} NOT NULL,
  principal {text 130} NOT NULL,
  state {key 64} NOT NULL,
  level {key 64} NOT NULL,
  facts {longtext} NOT NULL,
  expires_ms {int} NOT NULL
){options};
{create_index} nunatak_temporary_access_by_table ON nunatak_temporary_access (catalog_name, table_namespace, table_name);
{create_index} nunatak_temporary_access_by_end ON nunatak_temporary_access (expires_ms);
