"""Names and numbers that the server and the Spark jobs share; each stands only here. Imports nothing."""

PIN_PREFIX = "nunatak-pin-"  # begins the name of a tag by which a job keeps a snapshot; the server refuses to remove it
TARGET_FILE_BYTES = 512 << 20  # Iceberg's default for write.target-file-size-bytes
# Compressed metadata beyond this is not copied into the database, and every commit writes all of it: tables whose
# metadata grows so large are reported as unhealthy.
LARGE_METADATA_FILE_BYTES = 8 << 20
