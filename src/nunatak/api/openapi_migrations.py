"""What migrations keep in the catalog, in the OpenAPI document of the management API."""

from typing import Any

from nunatak.api.openapi_operations import Operation
from nunatak.api.openapi_schemas import LONG, STRING, described, list_of, parameter, record, ref

Json = dict[str, Any]

ANY_JSON: Json = {}
VERSION = described(LONG, "Counts the changes of the document.")

MIGRATION_SCHEMAS: Json = {
    "MigrationDocument": record(
        "document version content changed-ms now-ms",
        document=STRING,
        version=VERSION,
        content=described(ANY_JSON, "Any JSON; the catalog does not look inside."),
        changed_ms=LONG,
        now_ms=described(LONG, "The catalog's time, by which the document's age can be told."),
    ),
    "ListMigrationDocumentsResponse": record(
        "documents",
        documents=list_of(ref("MigrationDocument")),
        next_page_token=described(STRING, "For the next page, if there is one."),
    ),
    "SaveDocumentRequest": record(
        "content",
        content=described(ANY_JSON, "At most 1 MiB of JSON."),
        version=described(LONG, "The version to replace; 0, or left out, for a new document."),
    ),
}

MIGRATION_PARAMETERS: Json = {
    "migration": parameter("path", "migration", STRING, "The migration's name."),
    "document": parameter("path", "document", STRING, "The document's name."),
    "documentPrefix": parameter("query", "prefix", STRING, "Only documents whose names begin so."),
    "documentVersion": parameter("query", "version", LONG, "The version to drop."),
}

MIGRATION_OPERATIONS: dict[str, Operation] = {
    "listMigrationDocuments": Operation(
        tag="Migrations", response="ListMigrationDocumentsResponse", query=("documentPrefix", "pageToken", "pageSize")
    ),
    "loadMigrationDocument": Operation(tag="Migrations", response="MigrationDocument", errors=(404,)),
    "saveMigrationDocument": Operation(tag="Migrations", request="SaveDocumentRequest", errors=(409,)),
    "dropMigrationDocument": Operation(tag="Migrations", query=("documentVersion",), errors=(409,)),
}
