"""What every maintenance job asks before it begins and, if it has read data, once more when it has ended."""

import msgspec

from nunatak_spark.maintenance.java_class_names import refuse_catalog_classes
from nunatak_spark.maintenance.job_context import Outcome, Refused, Work
from nunatak_spark.maintenance.loaded_table import Table, load
from nunatak_spark.maintenance.overlapping_tables import DELETING, load_neighbours, refuse_neighbours, refuse_shadow
from nunatak_spark.maintenance.own_locations import refuse_foreign

READING = frozenset({"row-retention", "data-compaction", "delete-compaction", "statistics"})  # read rows, write files


def admit(work: Work) -> frozenset[int]:
    """The snapshots that were looked at. Refused if the table is not this catalog's own, or leads to others' files."""
    config = work.client.load_config()
    refuse_catalog_classes({**(config.get("defaults") or {}), **(config.get("overrides") or {})})
    table = load(work)
    neighbours = load_neighbours(work)
    refuse_shadow(work, neighbours)
    if work.spec.type in DELETING:
        refuse_neighbours(work, neighbours)
    refuse_foreign(work, neighbours.own_places(work), table.metadata)
    return frozenset(table.snapshots)


def admit_again(work: Work, known: frozenset[int], outcome: Outcome) -> Outcome:
    """The outcome; not ok if a commit that came while the job ran may have led it to files of another table.

    Iceberg works on what is current when it begins, and a client may have committed between the first look and that.
    What is deleted does not depend on this: each path is looked at by itself.
    """
    if work.spec.type not in READING or not outcome.changed:
        return outcome
    try:
        table = load(work)
    except Refused:
        return outcome  # dropped or replaced by now
    try:
        refuse_foreign(work, load_neighbours(work).own_places(work), table.metadata)
        _refuse_unseen_parents(table, known, outcome)
    except Refused as error:
        problem = f"While the job ran, a commit may have led it to files that it may not read: {error}"
        return msgspec.structs.replace(outcome, ok=False, detail={**outcome.detail, "problem": problem})
    return outcome


def _refuse_unseen_parents(table: Table, known: frozenset[int], outcome: Outcome) -> None:
    """Refused if the job built on a snapshot that came after the first look and went before the second."""
    made = [table.snapshots.get(each) for each in outcome.detail.get("snapshots") or ()]
    parents = {each.parent_id for each in made if each is not None and each.parent_id is not None}
    unseen = sorted(parents - known - table.snapshots.keys())
    if unseen:
        raise Refused(f"snapshot {unseen[0]}, which the job rewrote, came and went while it ran")
