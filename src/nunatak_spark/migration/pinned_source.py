"""What a source held at one pointer, while writers go on there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nunatak_spark.migration.metadata_comparison import normalize_document
from nunatak_spark.migration.model import InventoryTable
from nunatak_spark.migration.sources.source_catalog import Levels, SourceCatalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Json = dict[str, Any]


@dataclass(frozen=True)
class PinnedSource:
    """The metadata document of one pointer (None if it is not Iceberg's), and the rows.

    The rows are those of the pointer if `is_fixed`, and else those that are there when they are read.
    """

    document: Json | None
    is_fixed: bool
    rows: "Callable[[], DataFrame]"


def pin_source(origin: SourceCatalog, found: InventoryTable, name: Levels, pointer: str) -> PinnedSource:
    known = origin.metadata_at(found, name, pointer)
    if known is None or not has_current_schema(known.content):
        return PinnedSource(None if known is None else known.content, False, lambda: origin.rows(found, name))
    snapshot_id: int | None = normalize_document(known.content)["current-snapshot-id"]
    return PinnedSource(known.content, True, lambda: origin.rows_at(found, name, snapshot_id))


def has_current_schema(document: Json) -> bool:
    """Whether the rows of the document can be read by the id of its snapshot alone.

    A snapshot is read with the schema that was current when it was written. Where columns changed since, that is not
    the schema of the document, and the table has to stand still while it is read.
    """
    known = normalize_document(document)
    snapshot = known["snapshots"].get(str(known["current-snapshot-id"]))
    if snapshot is None or len(known["schemas"]) <= 1:
        return True
    return bool(snapshot.get("schema-id") == known.get("current-schema-id"))
