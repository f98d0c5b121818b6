"""Telemetry of the catalog as Iceberg tables: ingested from the server's spool, with views and a report."""
