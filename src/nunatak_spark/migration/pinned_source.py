"""A source table at one pointer, while writers go on."""

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
    """The metadata document at one pointer (None if it is not an Iceberg table), and the rows.

    If `is_fixed`, the rows are those of the pointer; otherwise those at the time of reading.
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
    """Returns whether the document's rows can be read by snapshot id alone.

    A snapshot is read with the schema that was current when it was written. If columns changed since, that is not the
    document's schema, and the table must not change while it is read.
    """
    known = normalize_document(document)
    snapshot = known["snapshots"].get(str(known["current-snapshot-id"]))
    if snapshot is None or len(known["schemas"]) <= 1:
        return True
    return bool(snapshot.get("schema-id") == known.get("current-schema-id"))
