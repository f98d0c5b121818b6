"""What happened in the catalog, as Iceberg tables of its own: ingested from the server's spool, viewed, reported."""
