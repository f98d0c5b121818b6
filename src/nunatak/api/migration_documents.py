"""Handlers of migration state: documents that `nunatak migrate --state catalog` reads and replaces."""

import msgspec

from nunatak.access.securables import SERVER
from nunatak.api.http import Request, decode_segment
from nunatak.api.management_wire import ListMigrationDocumentsResponse, MigrationDocument, SaveDocumentRequest
from nunatak.api.route import handler
from nunatak.catalog.migration_documents import (
    Document,
    check_content,
    check_document,
    check_migration,
    drop_document,
    list_documents,
    load_document,
    save_document,
)
from nunatak.catalog.write import unaudited_event, write
from nunatak.database.records import AddEvent, StoredResponse
from nunatak.errors import BadRequest

MAX_PAGE_SIZE = 100  # documents in one response; each has up to 1 MiB


@handler
async def get_documents(request: Request) -> ListMigrationDocumentsResponse:
    """Lists the documents whose names start with `prefix`, by page."""
    migration = _migration(request)
    prefix = request.query.get("prefix", "")
    if prefix:
        check_document(prefix)
    resource = f"management/migrations/{migration}/{prefix}"
    page = request.context.tokens.page(resource, request.query)
    limit = min(page.limit, MAX_PAGE_SIZE)
    found = await list_documents(request.catalog.store, migration, prefix, page.after or "", limit + 1)
    token = request.context.tokens.after(resource, found[limit - 1].name if len(found) > limit else None)
    return ListMigrationDocumentsResponse([_answer(request, each) for each in found[:limit]], next_page_token=token)


@handler
async def get_document(request: Request) -> MigrationDocument:
    found = await load_document(request.catalog.store, _migration(request), _document(request))
    return _answer(request, found)


@handler
async def put_document(request: Request) -> None:
    """Creates a document (version 0), or replaces the given version; raises Conflict if the version has changed."""
    wanted = request.decode(SaveDocumentRequest)
    content = check_content(bytes(wanted.content))
    if wanted.version < 0:
        raise BadRequest("A version is 0 for a new document, or the version that was read")
    now_ms = request.catalog.now_ms()
    change = save_document(_migration(request), _document(request), content, wanted.version, now_ms)
    await write(
        request.catalog, request.caller, [change, _event(request, "saveMigrationDocument")], StoredResponse(204)
    )


@handler
async def delete_document(request: Request) -> None:
    change = drop_document(_migration(request), _document(request), _version(request))
    await write(
        request.catalog, request.caller, [change, _event(request, "dropMigrationDocument")], StoredResponse(204)
    )


def _event(request: Request, operation: str) -> AddEvent:
    facts = {"migration": _migration(request), "document": _document(request)}
    return unaudited_event(request.catalog, request.caller, operation, SERVER, facts)


def _version(request: Request) -> int:
    text = request.query.get("version", "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):  # fits in a 64-bit column
        raise BadRequest("Name the version to drop", hint="Add ?version=N, as it was read.")
    return int(text)


def _migration(request: Request) -> str:
    return check_migration(decode_segment(request.path_names[0]))


def _document(request: Request) -> str:
    return check_document(decode_segment(request.path_names[1]))


def _answer(request: Request, found: Document) -> MigrationDocument:
    """Returns the document with the current time of the same clock, so that a reader can compute its age."""
    content = msgspec.Raw(found.content)
    return MigrationDocument(found.name, found.version, content, found.changed_ms, request.catalog.now_ms())
