"""What must agree inside one version of a table's metadata, beyond what reading it demands; no I/O."""

from nunatak.iceberg.partition_spec import UNPARTITIONED_LAST_FIELD_ID, last_field_id
from nunatak.iceberg.schema import parse_schema
from nunatak.iceberg.table_metadata import TableMetadata


def contradictions(metadata: TableMetadata) -> list[str]:
    """A sentence for each statement of the metadata that another one denies."""
    return [*_of_ids(metadata), *_of_snapshots(metadata)]


def _of_ids(metadata: TableMetadata) -> list[str]:
    found = []
    highest = max(parse_schema(schema).highest_field_id for schema in metadata.schemas)
    if highest > metadata.last_column_id:
        found.append(f"last-column-id is {metadata.last_column_id}, but a column has the id {highest}")
    highest = max(last_field_id(spec) for spec in metadata.partition_specs)
    if highest > max(metadata.last_partition_id, UNPARTITIONED_LAST_FIELD_ID):
        found.append(f"last-partition-id is {metadata.last_partition_id}, but a partition field has the id {highest}")
    return found


def _of_snapshots(metadata: TableMetadata) -> list[str]:
    found = []
    for snapshot in metadata.snapshots:
        number = snapshot.get("sequence-number", 0)
        if metadata.format_version > 1 and number > metadata.last_sequence_number:
            found.append(
                f"snapshot {snapshot['snapshot-id']} has the sequence number {number}, "
                f"but last-sequence-number is {metadata.last_sequence_number}"
            )
    if metadata.current_snapshot_id is not None and metadata.snapshot_log:
        logged = metadata.snapshot_log[-1]["snapshot-id"]
        if logged != metadata.current_snapshot_id:
            found.append(f"the snapshot log ends with {logged}, but {metadata.current_snapshot_id} is current")
    return found
