-- migrations_table
SELECT 1 FROM information_schema.tables WHERE table_schema = database() AND table_name = 'nunatak_migrations';

-- applied_migrations
SELECT number FROM nunatak_migrations;

-- note_migration
INSERT INTO nunatak_migrations (number, name) VALUES (:number, :name);

-- take_turn
SELECT GET_LOCK(:lock, :seconds);
