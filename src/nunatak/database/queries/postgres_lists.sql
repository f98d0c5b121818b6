-- list_pointers
-- The identifiers as JSON, the last name, and whether there are more: one row and one round trip for a page.
SELECT string_agg(:head::text || to_json(table_name)::text || '}', ',' ORDER BY table_name)
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
-- Looks at the :piece names behind a position, in the order of the primary key, however many of them match. The last one
-- looked at comes along: the next piece starts there.
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
-- Direct children by skipping from one to the next, so the cost is that of the page, not of what lies below. Something
-- below a child that stands by itself was listed with it; other descendants are all it is known by.
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
-- Live tables and views whose folder is this one, lies inside it or is one of those above. Warehouses may share a
-- folder, so all are asked. What another client has dropped is remembered here but has no pointer any more.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location, h.table_uuid FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location = ANY (ARRAY(SELECT jsonb_array_elements_text(:around::text::jsonb)))
   OR (h.location > :location::text || '/' AND h.location < :location::text || '0');

-- tables_writing_to
-- Live tables whose writers put files into one of these very places.
SELECT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place = ANY (ARRAY(SELECT jsonb_array_elements_text(:places::text::jsonb)));

-- owners_at
-- Live tables and views whose location, or place to write to, is one of these very places; with each, which one.
SELECT h.catalog_name, h.table_namespace, h.table_name, h.location FROM nunatak_heads h
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE h.location IN (SELECT jsonb_array_elements_text(:places::text::jsonb))
UNION
SELECT p.catalog_name, p.table_namespace, p.table_name, p.place FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT jsonb_array_elements_text(:places::text::jsonb));

-- writers_around
-- Live tables whose writers put files into one of these very places, or somewhere inside a folder.
SELECT DISTINCT p.catalog_name, p.table_namespace, p.table_name FROM nunatak_places p
JOIN iceberg_tables USING (catalog_name, table_namespace, table_name)
WHERE p.place IN (SELECT jsonb_array_elements_text(:places::text::jsonb)) OR (p.place > :first::text AND p.place < :behind::text);
