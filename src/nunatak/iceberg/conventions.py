"""Names and numbers that the server and the Spark jobs share, each defined only here. Imports nothing."""

PIN_PREFIX = "nunatak-pin-"  # of tags with which jobs pin a snapshot; the server refuses to remove that snapshot
TARGET_FILE_BYTES = 512 << 20  # Iceberg's default for write.target-file-size-bytes
# Larger compressed metadata is not copied into the database, and every commit writes all of it: tables with such
# metadata are reported as unhealthy.
LARGE_METADATA_FILE_BYTES = 8 << 20
METADATA_SUFFIX = ".metadata.json"

# Table properties
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
# Those that set where clients write files; each must stay inside what the warehouse allows.
STEERING_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
