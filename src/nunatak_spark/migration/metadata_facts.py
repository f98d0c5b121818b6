"""Facts about a table from its metadata document, without reading data. Pure: documents in, values out."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nunatak_spark.migration.model import InventoryTable
from nunatak_spark.migration.risks import document_risks
from nunatak_spark.migration.source_files import MetadataDocument, SourceFile
from nunatak_spark.sql_text import quote_identifier

Json = Mapping[str, Any]


def with_document(found: InventoryTable, document: MetadataDocument) -> InventoryTable:
    """Returns the table with the facts of its metadata file."""
    content = document.content
    summary = _summary(content)
    known = msgspec.structs.replace(
        found,
        location=str(content.get("location") or found.location),
        uuid=str(content.get("table-uuid") or ""),
        format_version=content.get("format-version"),
        files=_number(summary, "total-data-files"),
        size_bytes=_number(summary, "total-files-size"),
        rows=_number(summary, "total-records"),
        delete_files=_number(summary, "total-delete-files"),
        snapshots=len(content.get("snapshots") or ()),
        metadata_bytes=document.size_bytes,
        last_write_ms=content.get("last-updated-ms"),
        properties={**found.properties, **content.get("properties", {})},
        owner=found.owner or str(content.get("properties", {}).get("owner", "")),
        partitioned_by=partition_expressions(content),
    )
    return msgspec.structs.replace(known, risks=(*found.risks, *document_risks(known)))


def with_files(found: InventoryTable, files: list[SourceFile], pointer: str) -> InventoryTable:
    """Returns the table, which consists of files only, with the facts of these files."""
    return msgspec.structs.replace(
        found,
        pointer=pointer,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        last_write_ms=max((file.modified_ms for file in files), default=None),
    )


def _summary(content: Json) -> Json:
    current = content.get("current-snapshot-id")
    for snapshot in content.get("snapshots") or ():
        if snapshot.get("snapshot-id") == current:
            summary: Json = snapshot.get("summary") or {}
            return summary
    # Without a snapshot the table is empty.
    return {"total-data-files": 0, "total-files-size": 0, "total-records": 0, "total-delete-files": 0}


def _number(summary: Json, key: str) -> int | None:
    try:
        return int(summary[key])
    except (KeyError, ValueError):
        return None


def partition_expressions(content: Json) -> tuple[str, ...]:
    """Returns the default partition spec as SQL; fields of dropped columns are left out."""
    specs = {spec["spec-id"]: spec["fields"] for spec in content.get("partition-specs") or ()}
    fields: Iterable[Json] = specs.get(content.get("default-spec-id")) or content.get("partition-spec") or ()
    columns = _column_names(content)
    return tuple(
        text
        for field in fields
        if (name := columns.get(field["source-id"])) and (text := _expression(field["transform"], name))
    )


def _column_names(content: Json) -> dict[int, str]:
    schemas = {schema.get("schema-id"): schema for schema in content.get("schemas") or ()}
    schema: Json = schemas.get(content.get("current-schema-id")) or content.get("schema") or {"fields": ()}
    return {field["id"]: field["name"] for field in schema["fields"]}


def _expression(transform: str, column: str) -> str:
    name = quote_identifier(column)
    kind, _, size = transform.rstrip("]").partition("[")
    match kind:
        case "identity":
            return name
        case "year" | "month" | "day" | "hour":
            return f"{kind}s({name})"
        case "bucket" | "truncate":
            return f"{kind}({size}, {name})"
        case _:  # void: a field that was dropped from a v1 spec
            return ""
