"""Iceberg's procedure for orphan files: finding them, and deleting those that were chosen if nothing leads to them."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nunatak_spark.maintenance.job_context import Refused, Work
from nunatak_spark.maintenance.overlapping_tables import load_neighbours, refuse_neighbours, refuse_shadow
from nunatak_spark.maintenance.own_locations import Split, split
from nunatak_spark.maintenance.reachable_files import load_metadata, printed_name, refresh, sql_name
from nunatak_spark.sql_text import literal, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The procedure takes a file's age from the list that it is given: whoever gives one has looked at it.
LONG_AGO, LESS_LONG_AGO_MS = "TIMESTAMP '1970-01-01 00:00:00'", 24 * 3_600_000
MISMATCH = "Conflicting authorities/schemes:"


def delete_files(work: Work, paths: "DataFrame") -> Split:
    """Delete those files in the table's own places that the table does not lead to, and tell the others apart.

    One that is gone already is no error, nor is one that the store refuses to delete: whoever wants to know has to
    look. Every deletion of a job passes here, and whose the folders are is asked now: since the job began somebody may
    have made a table of them. Refused if so.
    """
    load_metadata(work)  # another table may have the name by now
    neighbours = load_neighbours(work)
    refuse_shadow(work, neighbours)
    refuse_neighbours(work, neighbours)
    chosen = split(work, neighbours.own_places(work), paths)
    view = "nunatak_delete_" + re.sub(r"\W", "_", work.job)
    chosen.own.selectExpr("path AS file_path", f"{LONG_AGO} AS last_modified").createOrReplaceTempView(view)
    try:
        # Without a location only paths count that begin as the table's is spelled, and file:/ is not file:///.
        call_orphan_procedure(work, LESS_LONG_AGO_MS, file_list_view=literal(view), location="''")
    finally:
        work.spark.catalog.dropTempView(view)
    return chosen


def call_orphan_procedure(work: Work, older_than_ms: int, **arguments: str) -> list[str]:
    """The paths that it names, at most 20,000; the arguments are SQL. Refused if it cannot tell files apart."""
    # Spark remembers tables for a while. An old copy does not know files that others have committed since.
    refresh(work)
    given = {
        "table": literal(sql_name(work)),
        "older_than": f"timestamp_millis({older_than_ms})",
        "stream_results": "true",
        **_spellings(work.spec.options),
        **arguments,
    }
    listed = ", ".join(f"{name} => {value}" for name, value in given.items())
    try:
        rows = work.spark.sql(f"CALL {quote_identifier(work.catalog)}.system.remove_orphan_files({listed})").collect()
    except Exception as error:
        if MISMATCH in str(error):
            raise Refused(_mismatch(work, str(error))) from error
        raise
    return [str(row[0]) for row in rows]


def _spellings(options: Mapping[str, object]) -> dict[str, str]:
    """Which schemes and authorities are the same place; s3a and s3n are s3 without being told."""
    found = {}
    for argument, option in (("equal_schemes", "equal-schemes"), ("equal_authorities", "equal-authorities")):
        pairs = options.get(option)
        if isinstance(pairs, Mapping) and pairs:
            flat = ", ".join(literal(str(each)) for pair in sorted(pairs.items()) for each in pair)
            found[argument] = f"map({flat})"
    return found


def _mismatch(work: Work, text: str) -> str:
    _, _, pairs = text.partition(MISMATCH)
    named = pairs.strip().splitlines()[0].rstrip(".") if pairs.strip() else "unknown"
    return (
        f"The metadata of {printed_name(work)} spells the place of its files otherwise than the store does: {named}. "
        "Whether they are the same files cannot be told, so nothing was deleted. If they are the same place, say so in "
        "the policy with equal-schemes or equal-authorities."
    )
