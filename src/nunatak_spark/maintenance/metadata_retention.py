"""Metadata retention: the table is told to list few earlier metadata files; the server deletes what leaves the list."""

from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.job_context import Outcome, Work
from nunatak_spark.maintenance.loaded_table import Table, load
from nunatak_spark.maintenance.rewrite_verification import watched

PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"


def retain_metadata(work: Work) -> Outcome:
    table = load(work)
    changes = wanted_properties(work, table)
    if not changes:
        return Outcome(detail={"text": "the table's properties say so already"})
    if work.dry_run:
        return Outcome(detail={"text": "nothing was changed", "properties": changes})
    return watched(work, table, lambda: _set(work, table, changes))


def wanted_properties(work: Work, table: Table) -> dict[str, str]:
    """Those that differ from what the policy asks for."""
    asked = work.spec.options
    wanted = {
        PREVIOUS_VERSIONS_MAX: str(int(asked.get("previous-versions-max", 20))),
        DELETE_AFTER_COMMIT: "true" if asked.get("delete-after-commit", True) else "false",
    }
    return {name: value for name, value in wanted.items() if table.properties.get(name) != value}


def _set(work: Work, table: Table, changes: dict[str, str]) -> Outcome:
    work.check()
    spec = work.spec
    answer = work.client.commit_table(
        (*spec.namespace, spec.table),
        [{"type": "assert-table-uuid", "uuid": spec.table_uuid}],
        [{"action": "set-properties", "updates": changes}],
    )
    before, after = (len(each.get("metadata-log") or ()) for each in (table.metadata, answer["metadata"]))
    return Outcome(
        changed=True, gains=[Gain(of="metadata files", before=before, after=after)], detail={"properties": changes}
    )
