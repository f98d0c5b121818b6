"""Iceberg's remove_orphan_files procedure: finds orphan files, and deletes chosen files that the table does
not reference.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nunatak_spark.maintenance.job_context import JobContext, JobRefused
from nunatak_spark.maintenance.overlapping_tables import (
    load_overlapping_tables,
    refuse_overlapping_tables,
    refuse_shadow,
)
from nunatak_spark.maintenance.own_locations import OwnershipSplit, split_by_ownership
from nunatak_spark.maintenance.reachable_files import display_name, load_metadata, refresh, sql_name
from nunatak_spark.sql_text import literal, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The procedure reads file ages from the given list; the caller has checked the age already, so an old one is passed.
LONG_AGO, LESS_LONG_AGO_MS = "TIMESTAMP '1970-01-01 00:00:00'", 24 * 3_600_000
MISMATCH = "Conflicting authorities/schemes:"


def delete_files(context: JobContext, paths: "DataFrame") -> OwnershipSplit:
    """Deletes those of the files that lie in the table's own locations and that the table does not reference.

    Returns the paths split by ownership. A file that is gone already is no error, nor one that the store refuses to
    delete: the caller has to check. Every deletion of every job goes through here. The owners of the folders are asked
    now, because another table may have been created there since the job began; raises JobRefused if so.
    """
    load_metadata(context)  # raises if another table has the name now
    neighbours = load_overlapping_tables(context)
    refuse_shadow(context, neighbours)
    refuse_overlapping_tables(context, neighbours)
    chosen = split_by_ownership(context, neighbours.own_locations(context), paths)
    view = "nunatak_delete_" + re.sub(r"\W", "_", context.job)
    chosen.own.selectExpr("path AS file_path", f"{LONG_AGO} AS last_modified").createOrReplaceTempView(view)
    try:
        # An empty location: otherwise only paths with the exact prefix of the table's location count, and file:/ is not
        # file:///.
        call_orphan_procedure(context, LESS_LONG_AGO_MS, file_list_view=literal(view), location="''")
    finally:
        context.spark.catalog.dropTempView(view)
    return chosen


def call_orphan_procedure(context: JobContext, older_than_ms: int, **arguments: str) -> list[str]:
    """Calls the procedure with SQL arguments; returns at most 20,000 paths.

    Raises JobRefused on mismatching schemes.
    """
    # Spark caches tables. A cached copy does not know files that others have committed since.
    refresh(context)
    given = {
        "table": literal(sql_name(context)),
        "older_than": f"timestamp_millis({older_than_ms})",
        "stream_results": "true",
        **_equal_location_arguments(context.spec.options),
        **arguments,
    }
    listed = ", ".join(f"{name} => {value}" for name, value in given.items())
    try:
        rows = context.spark.sql(
            f"CALL {quote_identifier(context.catalog)}.system.remove_orphan_files({listed})"
        ).collect()
    except Exception as error:
        if MISMATCH in str(error):
            raise JobRefused(_mismatch_text(context, str(error))) from error
        raise
    return [str(row[0]) for row in rows]


def _equal_location_arguments(options: Mapping[str, object]) -> dict[str, str]:
    """Returns the arguments for schemes and authorities that the policy declares equal; s3a and s3n equal
    s3 by default.
    """
    found = {}
    for argument, option in (("equal_schemes", "equal-schemes"), ("equal_authorities", "equal-authorities")):
        pairs = options.get(option)
        if isinstance(pairs, Mapping) and pairs:
            flat = ", ".join(literal(str(each)) for pair in sorted(pairs.items()) for each in pair)
            found[argument] = f"map({flat})"
    return found


def _mismatch_text(context: JobContext, text: str) -> str:
    _, _, pairs = text.partition(MISMATCH)
    named = pairs.strip().splitlines()[0].rstrip(".") if pairs.strip() else "unknown"
    return (
        f"The metadata of {display_name(context)} spells the location of its files differently from the store: "
        f"{named}. They may be the same files, so nothing was deleted. If they are the same location, declare it in "
        "the policy with equal-schemes or equal-authorities."
    )
