-- list_pointers
-- The identifiers as JSON, the last name, and whether there are more: a page is one row and one round trip.
SELECT string_agg(:prefix::text || to_json(table_name)::text || '}', ',' ORDER BY table_name)
         FILTER (WHERE number <= :limit::bigint),
       max(table_name) FILTER (WHERE number <= :limit::bigint),
       count(*) > :limit::bigint
FROM (
  SELECT table_name, row_number() OVER (ORDER BY table_name) AS number FROM iceberg_tables
  WHERE catalog_name = :catalog::text AND table_namespace = :namespace::text AND table_name > :after::text
    AND coalesce(iceberg_type, 'TABLE') = :type::text
  ORDER BY table_name LIMIT :limit::bigint + 1
) AS page;

-- search_names
-- Scans :piece names after a position, in primary key order, however many match. Also returns the last name scanned,
-- where the next scan starts.
SELECT type, table_namespace, table_name, found, number FROM (
  SELECT looked.*, row_number() OVER (ORDER BY table_namespace, table_name) AS number FROM (
    SELECT coalesce(iceberg_type, 'TABLE') AS type, table_namespace, table_name,
      (strpos(lower(table_name), lower(:query::text COLLATE "C")) > 0
        OR strpos(lower(table_namespace), lower(:query::text COLLATE "C")) > 0)
      AND (:type::text IS NULL OR coalesce(iceberg_type, 'TABLE') = :type::text) AS found
    FROM iceberg_tables
    WHERE catalog_name = :catalog::text AND (table_namespace, table_name) > (:after_namespace::text, :after_name::text)
    ORDER BY table_namespace, table_name LIMIT :piece::bigint) AS looked) AS counted
WHERE found OR number = :piece::bigint ORDER BY number;

-- list_children
-- Direct children by a skip scan, so the cost depends on the page, not on the size of the subtree. A child that exists
-- by itself is listed by its own row, any other by its first descendant.
WITH RECURSIVE walk (number, listed, is_new, child, position) AS (
  SELECT 0, 0, false, NULL::text COLLATE "C", :after::text COLLATE "C"
  UNION ALL
  SELECT walk.number + 1, walk.listed + seen.is_new::integer, seen.is_new, step.child COLLATE "C",
    CASE WHEN step.child = step.found THEN step.found ELSE step.child || '.' || :behind_all::text END COLLATE "C"
  FROM walk
  CROSS JOIN LATERAL (
    SELECT least(
      (SELECT min(p.namespace) FROM iceberg_namespace_properties p
       WHERE p.catalog_name = :catalog::text AND p.namespace > walk.position AND p.namespace < :before::text),
      (SELECT min(t.table_namespace) FROM iceberg_tables t
       WHERE t.catalog_name = :catalog::text AND t.table_namespace > walk.position
         AND t.table_namespace < :before::text))
  ) AS next (found)
  CROSS JOIN LATERAL (
    SELECT next.found, :prefix::text || split_part(substr(next.found, length(:prefix::text) + 1), '.', 1)
  ) AS step (found, child)
  CROSS JOIN LATERAL (
    SELECT step.child = step.found OR NOT (
      EXISTS (SELECT 1 FROM iceberg_namespace_properties p
              WHERE p.catalog_name = :catalog::text AND p.namespace = step.child)
      OR EXISTS (SELECT 1 FROM iceberg_tables t
                 WHERE t.catalog_name = :catalog::text AND t.table_namespace = step.child))
  ) AS seen (is_new)
  WHERE next.found IS NOT NULL AND walk.listed <= :limit::integer
)
SELECT child, position FROM walk WHERE is_new ORDER BY number;

-- pointers_overlapping
-- Live tables and views whose folder is this one, lies inside it or is one of its ancestors; in all warehouses, since
-- these may share a folder. The join skips stored rows of tables that a JDBC client dropped.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location = ANY (ARRAY(SELECT jsonb_array_elements_text(:around::text::jsonb)))
   OR (h.location > :location::text || '/' AND h.location < :location::text || '0');

-- tables_writing_to
-- Live tables whose writers put files into exactly one of these places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place = ANY (ARRAY(SELECT jsonb_array_elements_text(:places::text::jsonb)));

-- owners_at
-- Live tables and views whose location or write place is exactly one of these places, with that place.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT jsonb_array_elements_text(:places::text::jsonb))
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT jsonb_array_elements_text(:places::text::jsonb));

-- writers_around
-- Live tables whose writers put files into exactly one of these places, or anywhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT jsonb_array_elements_text(:places::text::jsonb)) OR (p.place > :first::text AND p.place < :behind::text);
