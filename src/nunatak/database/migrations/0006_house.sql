-- Properties a catalog keeps about a table apart from its metadata file, as the other databases have had since 0001. The
-- four names together are longer than a key may be here, so their hash is what may stand once.
-- only: mariadb
{create_table} iceberg_table_properties (
  property_id {identity},
  catalog_name {name 255} NOT NULL,
  table_namespace {name 255} NOT NULL,
  table_name {name 255} NOT NULL,
  property_key {name 255} NOT NULL,
  property_value VARCHAR(1000),
  property_hash BINARY(32) AS (UNHEX(SHA2(CONCAT_WS('/', HEX(catalog_name), HEX(table_namespace), HEX(table_name),
    HEX(property_key)), 256))) STORED
){options};
CREATE UNIQUE INDEX IF NOT EXISTS iceberg_table_properties_once ON iceberg_table_properties (property_hash);
{create_index} iceberg_table_properties_by_table ON iceberg_table_properties (catalog_name, table_namespace, table_name);
