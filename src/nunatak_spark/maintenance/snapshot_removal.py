"""Removes snapshots from a table's metadata, as Iceberg's expire_snapshots does, but deletes no file.

Iceberg's procedure deletes every file that the expired snapshots name, wherever it lies, and clients may have written
paths of other tables into manifests. So it is not called. The deletion journal deletes the files afterwards, from a
plan that was written before.
"""

from collections.abc import Callable

from nunatak.client import Json
from nunatak.errors import CommitFailed
from nunatak_spark.maintenance.job_context import JobContext
from nunatak_spark.maintenance.loaded_table import LoadedTable, load_table

MAIN = "main"
FOREVER_MS = 2**63 - 1
TRIES = 5


def remove_snapshots(context: JobContext, choose: Callable[[LoadedTable], set[int]]) -> int:
    """Removes the chosen snapshots in one commit; returns the number of conflicts.

    Also removes expired branches and tags, and unused schemas and partition specs.
    """
    for conflicts in range(TRIES):
        context.check()
        table = load_table(context)
        ids = choose(table)
        if not ids:
            return conflicts
        try:
            requirements, updates = removal_commit(table, ids, _specs_in_use(context, table, ids), context.now_ms())
            context.client.commit_table((*context.spec.namespace, context.spec.table), requirements, updates)
            return conflicts
        except CommitFailed:
            if conflicts == TRIES - 1:
                raise
    raise AssertionError("the loop returns or raises")


def removal_commit(
    table: LoadedTable, ids: set[int], specs_in_use: set[int] | None, now_ms: int
) -> tuple[list[Json], list[Json]]:
    """Returns the commit's requirements and updates. All refs must be unchanged; None keeps every partition spec."""
    metadata = table.metadata
    requirements: list[Json] = [{"type": "assert-table-uuid", "uuid": table.uuid}]
    for name, ref in sorted(table.refs.items()):
        requirements.append({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": ref["snapshot-id"]})
    updates: list[Json] = [
        {"action": "remove-snapshot-ref", "ref-name": name} for name in sorted(expired_refs(table, now_ms))
    ]
    updates.append({"action": "remove-snapshots", "snapshot-ids": sorted(ids)})
    unused_specs = [] if specs_in_use is None else _unused_specs(metadata, specs_in_use)
    if unused_specs:
        requirements.append({"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]})
        updates.append({"action": "remove-partition-specs", "spec-ids": unused_specs})
    unused_schemas = _unused_schemas(metadata, ids)
    if unused_schemas:
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": metadata["current-schema-id"]})
        updates.append({"action": "remove-schemas", "schema-ids": unused_schemas})
    return requirements, updates


def expired_refs(table: LoadedTable, now_ms: int) -> set[str]:
    """Returns branches and tags that Iceberg no longer retains: too old, or of a missing snapshot."""
    usual_age_ms = int(table.properties.get("history.expire.max-ref-age-ms") or FOREVER_MS)
    ended = set()
    for name, ref in table.refs.items():
        head = table.snapshots.get(ref["snapshot-id"])
        if name != MAIN and (head is None or now_ms - head.timestamp_ms > ref.get("max-ref-age-ms", usual_age_ms)):
            ended.add(name)
    return ended


def _unused_specs(metadata: Json, in_use: set[int]) -> list[int]:
    kept = {*in_use, metadata["default-spec-id"]}
    return sorted(each["spec-id"] for each in metadata["partition-specs"] if each["spec-id"] not in kept)


def _unused_schemas(metadata: Json, removed: set[int]) -> list[int]:
    left = [each for each in metadata.get("snapshots") or () if each["snapshot-id"] not in removed]
    if any(each.get("schema-id") is None for each in left):
        return []  # written by an old client: its schema is unknown
    kept = {metadata["current-schema-id"], *(each["schema-id"] for each in left)}
    return sorted(each["schema-id"] for each in metadata["schemas"] if each["schema-id"] not in kept)


def _specs_in_use(context: JobContext, table: LoadedTable, removed: set[int]) -> set[int] | None:
    """Returns the partition specs of the manifests of all kept snapshots; None, without a query, if there
    is only one spec.
    """
    if len(table.metadata["partition-specs"]) < 2:
        return None
    rows = context.spark.sql(
        f"SELECT DISTINCT partition_spec_id, reference_snapshot_id FROM {table.metadata_table('all_manifests')}"
    ).collect()  # one row per snapshot and spec
    return {int(row["partition_spec_id"]) for row in rows if row["reference_snapshot_id"] not in removed}
