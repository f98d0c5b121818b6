-- How the files of a warehouse are reached. `version` grows with every change. `profile` and `options` are JSON: without a
-- profile the warehouse is a local folder, as all were before. `secret` is encrypted.
ALTER TABLE nunatak_warehouses {add_column} version {int} NOT NULL DEFAULT 1;
ALTER TABLE nunatak_warehouses {add_column} profile {longtext};
ALTER TABLE nunatak_warehouses {add_column} options {longtext};
ALTER TABLE nunatak_warehouses {add_column} secret {longbytes};

-- Further locations where tables of a warehouse may lie, besides its own.
{create_table} nunatak_warehouse_places (
  warehouse {key 130} NOT NULL,
  number {int} NOT NULL,
  location {text 1000} NOT NULL,
  PRIMARY KEY (warehouse, number)
){options};
