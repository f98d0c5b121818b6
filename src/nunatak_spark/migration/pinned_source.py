"""What a source held at one pointer, while writers go on there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nunatak_spark.migration.metadata_comparison import normal
from nunatak_spark.migration.model import Found
from nunatak_spark.migration.sources.source_catalog import Levels, Origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Json = dict[str, Any]


@dataclass(frozen=True)
class Pinned:
    """The metadata document of one pointer (None if it is not Iceberg's), and the rows.

    The rows are those of the pointer if `is_fixed`, and else those that are there when they are read.
    """

    document: Json | None
    is_fixed: bool
    rows: "Callable[[], DataFrame]"


def pin(origin: Origin, found: Found, name: Levels, pointer: str) -> Pinned:
    known = origin.document_at(found, name, pointer)
    if known is None or not has_rows_of_its_own(known.content):
        return Pinned(None if known is None else known.content, False, lambda: origin.rows(found, name))
    snapshot_id: int | None = normal(known.content)["current-snapshot-id"]
    return Pinned(known.content, True, lambda: origin.rows_at(found, name, snapshot_id))


def has_rows_of_its_own(document: Json) -> bool:
    """Whether the rows of the document can be read by the id of its snapshot alone.

    A snapshot is read with the schema that was current when it was written. Where columns changed since, that is not
    the schema of the document, and the table has to stand still while it is read.
    """
    known = normal(document)
    snapshot = known["snapshots"].get(str(known["current-snapshot-id"]))
    if snapshot is None or len(known["schemas"]) <= 1:
        return True
    return bool(snapshot.get("schema-id") == known.get("current-schema-id"))
