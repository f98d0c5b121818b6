"""Metadata retention: sets how many earlier metadata files the table lists; the server deletes the others."""

from nunatak.iceberg.conventions import DELETE_AFTER_COMMIT, PREVIOUS_VERSIONS_MAX
from nunatak.maintenance.job_spec import Gain
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome
from nunatak_spark.maintenance.loaded_table import LoadedTable, load_table
from nunatak_spark.maintenance.rewrite_verification import run_verified_action


def retain_metadata(context: JobContext) -> JobOutcome:
    table = load_table(context)
    changes = wanted_properties(context, table)
    if not changes:
        return JobOutcome(detail={"text": "the table's properties say so already"})
    if context.dry_run:
        return JobOutcome(detail={"text": "nothing was changed", "properties": changes})
    return run_verified_action(context, table, lambda: _set_properties(context, table, changes))


def wanted_properties(context: JobContext, table: LoadedTable) -> dict[str, str]:
    """Returns the properties that differ from the policy."""
    asked = context.spec.options
    wanted = {
        PREVIOUS_VERSIONS_MAX: str(int(asked.get("previous-versions-max", 20))),
        DELETE_AFTER_COMMIT: "true" if asked.get("delete-after-commit", True) else "false",
    }
    return {name: value for name, value in wanted.items() if table.properties.get(name) != value}


def _set_properties(context: JobContext, table: LoadedTable, changes: dict[str, str]) -> JobOutcome:
    context.check()
    spec = context.spec
    answer = context.client.commit_table(
        (*spec.namespace, spec.table),
        [{"type": "assert-table-uuid", "uuid": spec.table_uuid}],
        [{"action": "set-properties", "updates": changes}],
    )
    before, after = (len(each.get("metadata-log") or ()) for each in (table.metadata, answer["metadata"]))
    return JobOutcome(
        changed=True, gains=[Gain(of="metadata files", before=before, after=after)], detail={"properties": changes}
    )
