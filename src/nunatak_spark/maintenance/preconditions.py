"""Checks before every maintenance job, and again after a job that has read data."""

import msgspec

from nunatak_spark.maintenance.java_class_names import refuse_catalog_classes
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.loaded_table import LoadedTable, load_table
from nunatak_spark.maintenance.overlapping_tables import (
    DELETING_JOBS,
    load_overlapping_tables,
    refuse_overlapping_tables,
    refuse_shadow,
)
from nunatak_spark.maintenance.own_locations import refuse_foreign_files

READING_JOBS = frozenset(
    {"row-retention", "data-compaction", "delete-compaction", "statistics"}
)  # these read rows and write files


def check_preconditions(context: JobContext) -> frozenset[int]:
    """Checks that the table belongs to this catalog and references no files of other tables; raises JobRefused.

    Returns the ids of the snapshots that were checked.
    """
    config = context.client.load_config()
    refuse_catalog_classes({**(config.get("defaults") or {}), **(config.get("overrides") or {})})
    table = load_table(context)
    neighbours = load_overlapping_tables(context)
    refuse_shadow(context, neighbours)
    if context.spec.type in DELETING_JOBS:
        refuse_overlapping_tables(context, neighbours)
    refuse_foreign_files(context, neighbours.own_locations(context), table.metadata)
    return frozenset(table.snapshots)


def recheck_preconditions(context: JobContext, known: frozenset[int], outcome: JobOutcome) -> JobOutcome:
    """Returns the outcome; not ok if a commit during the job may have made it read files of another table.

    Iceberg works on the snapshot that is current when it starts, and a client may have committed between the check and
    that moment. Deletions do not depend on this: the owner of each path is checked separately.
    """
    if context.spec.type not in READING_JOBS or not outcome.changed:
        return outcome
    try:
        table = load_table(context)
    except JobRefused:
        return outcome  # dropped or replaced meanwhile
    try:
        refuse_foreign_files(context, load_overlapping_tables(context).own_locations(context), table.metadata)
        _refuse_unseen_parents(table, known, outcome)
    except JobRefused as error:
        problem = f"While the job ran, a commit may have added files that it may not read: {error}"
        return msgspec.structs.replace(outcome, ok=False, detail={**outcome.detail, "problem": problem})
    return outcome


def _refuse_unseen_parents(table: LoadedTable, known: frozenset[int], outcome: JobOutcome) -> None:
    """Raises JobRefused if the job rewrote a snapshot that was added after the first check and expired
    before the second.
    """
    made = [table.snapshots.get(each) for each in outcome.detail.get("snapshots") or ()]
    parents = {each.parent_id for each in made if each is not None and each.parent_id is not None}
    unseen = sorted(parents - known - table.snapshots.keys())
    if unseen:
        raise JobRefused(f"snapshot {unseen[0]}, which the job rewrote, was added and expired while it ran")
