-- add_warehouse
-- Inserts no row if the location overlaps that of another warehouse; `slashed` is the location with a trailing slash.
INSERT IGNORE INTO nunatak_warehouses (warehouse, location, created_ms)
SELECT :warehouse, :location, :created_ms FROM DUAL
WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_warehouses w
  WHERE LEFT(CONCAT(w.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(w.location) + 1) = CONCAT(w.location, '/')
) AND NOT EXISTS (
  SELECT 1 FROM nunatak_warehouse_places p
  WHERE LEFT(CONCAT(p.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(p.location) + 1) = CONCAT(p.location, '/')
);

-- add_warehouse_place
-- Like add_warehouse, for a further location: it may not overlap any location of another warehouse.
INSERT INTO nunatak_warehouse_places (warehouse, number, location)
SELECT :warehouse, :number, :location FROM DUAL
WHERE NOT EXISTS (
  SELECT 1 FROM nunatak_warehouses w
  WHERE w.warehouse <> :warehouse AND (
    LEFT(CONCAT(w.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(w.location) + 1) = CONCAT(w.location, '/'))
) AND NOT EXISTS (
  SELECT 1 FROM nunatak_warehouse_places p
  WHERE p.warehouse <> :warehouse AND (
    LEFT(CONCAT(p.location, '/'), CHAR_LENGTH(:slashed)) = :slashed
    OR LEFT(:slashed, CHAR_LENGTH(p.location) + 1) = CONCAT(p.location, '/'))
);
