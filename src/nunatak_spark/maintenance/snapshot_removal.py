"""Removes snapshots from a table's metadata, as Iceberg's expire_snapshots does, and deletes no file.

The procedure of Iceberg deletes whatever the expired snapshots name, wherever it lies, and reads the manifests again to
find it: a client may write into them the paths of another table. So it is not called. The files are deleted afterwards
by the deletion journal, from a list that was written down before.
"""

from collections.abc import Callable

from nunatak.client import Json
from nunatak.errors import CommitFailed
from nunatak_spark.maintenance.job_context import Work
from nunatak_spark.maintenance.loaded_table import Table, load

MAIN = "main"
FOREVER_MS = 2**63 - 1
TRIES = 5


def remove_snapshots(work: Work, choose: Callable[[Table], set[int]]) -> int:
    """Remove the chosen snapshots in one commit; return how many times a writer was quicker.

    With them go branches and tags whose age is over, and the schemas and partition specs that nothing needs any more.
    """
    for conflicts in range(TRIES):
        work.check()
        table = load(work)
        ids = choose(table)
        if not ids:
            return conflicts
        try:
            requirements, updates = removal(table, ids, _specs_in_use(work, table, ids), work.now_ms())
            work.client.commit_table((*work.spec.namespace, work.spec.table), requirements, updates)
            return conflicts
        except CommitFailed:
            if conflicts == TRIES - 1:
                raise
    raise AssertionError("the loop returns or raises")


def removal(table: Table, ids: set[int], specs_in_use: set[int] | None, now_ms: int) -> tuple[list[Json], list[Json]]:
    """The commit's requirements and updates. No branch or tag may have moved; None keeps every partition spec."""
    metadata = table.metadata
    requirements: list[Json] = [{"type": "assert-table-uuid", "uuid": table.uuid}]
    for name, ref in sorted(table.refs.items()):
        requirements.append({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": ref["snapshot-id"]})
    updates: list[Json] = [
        {"action": "remove-snapshot-ref", "ref-name": name} for name in sorted(ended_refs(table, now_ms))
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


def ended_refs(table: Table, now_ms: int) -> set[str]:
    """Branches and tags that Iceberg no longer keeps: too old, or of a snapshot that is not there."""
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
        return []  # written by an old client: which schema it needs is not known
    kept = {metadata["current-schema-id"], *(each["schema-id"] for each in left)}
    return sorted(each["schema-id"] for each in metadata["schemas"] if each["schema-id"] not in kept)


def _specs_in_use(work: Work, table: Table, removed: set[int]) -> set[int] | None:
    """The partition specs of the manifests of all other snapshots; not asked for if there is but one spec."""
    if len(table.metadata["partition-specs"]) < 2:
        return None
    rows = work.spark.sql(
        f"SELECT DISTINCT partition_spec_id, reference_snapshot_id FROM {table.metadata_table('all_manifests')}"
    ).collect()  # as many rows as there are snapshots and specs
    return {int(row["partition_spec_id"]) for row in rows if row["reference_snapshot_id"] not in removed}
