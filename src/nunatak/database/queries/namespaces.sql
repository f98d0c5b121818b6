-- namespace_exists
-- As in Iceberg's JDBC catalog, a namespace also exists if it only holds tables, views or child namespaces.
SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties
               WHERE catalog_name = :catalog AND namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_tables
               WHERE catalog_name = :catalog AND table_namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_namespace_properties
               WHERE catalog_name = :catalog AND namespace > :namespace || '.' AND namespace < :namespace || '/')
    OR EXISTS (SELECT 1 FROM iceberg_tables
               WHERE catalog_name = :catalog AND table_namespace > :namespace || '.' AND table_namespace < :namespace || '/');

-- namespace_properties
SELECT property_key, property_value FROM iceberg_namespace_properties
WHERE catalog_name = :catalog AND namespace = :namespace ORDER BY property_key;

-- save_namespace_property
INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, :key, :value)
{upsert catalog_name, namespace, property_key} property_value = {new property_value};

-- mark_namespace
-- To JDBC clients a namespace exists if it has a property; `exists` is the one that they add for this.
INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, 'exists', 'true') {keep_existing property_value};

-- remove_namespace_property
DELETE FROM iceberg_namespace_properties
WHERE catalog_name = :catalog AND namespace = :namespace AND property_key = :key;

-- drop_namespace
DELETE FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace;

-- first_entry
SELECT coalesce(iceberg_type, 'TABLE'), count(*) FROM iceberg_tables
WHERE catalog_name = :catalog AND table_namespace = :namespace GROUP BY 1 ORDER BY 1 LIMIT 1;

-- namespace_stands
-- Whether the namespace is marked or holds a table itself, rather than existing only through a child.
SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace)
    OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace);
