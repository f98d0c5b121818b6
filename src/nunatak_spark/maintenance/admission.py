"""What every maintenance job asks before it begins and, if it has read data, once more when it has ended."""

import msgspec

from nunatak_spark.maintenance.class_names import refuse_catalog_classes
from nunatak_spark.maintenance.neighbours import (
    DELETING,
    Neighbours,
    load_neighbours,
    refuse_neighbours,
    refuse_shadow,
)
from nunatak_spark.maintenance.places import refuse_foreign
from nunatak_spark.maintenance.table import load
from nunatak_spark.maintenance.work import Outcome, Refused, Work

READING = frozenset({"row-retention", "data-compaction", "delete-compaction", "statistics"})  # read rows, write files


def admit(work: Work) -> Neighbours:
    """Refused if the table is not this catalog's own, or if it leads to files of another one."""
    config = work.client.load_config()
    refuse_catalog_classes({**(config.get("defaults") or {}), **(config.get("overrides") or {})})
    table = load(work)
    neighbours = load_neighbours(work)
    refuse_shadow(work, neighbours)
    if work.spec.type in DELETING:
        refuse_neighbours(work, neighbours)
    refuse_foreign(work, neighbours.own_places(work), table.metadata)
    return neighbours


def admit_again(work: Work, outcome: Outcome) -> Outcome:
    """The outcome; not ok if a commit that came while the job ran leads to files of another table.

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
    except Refused as error:
        problem = f"While the job ran, a commit led it to files that it may not read: {error}"
        return msgspec.structs.replace(outcome, ok=False, detail={**outcome.detail, "problem": problem})
    return outcome
