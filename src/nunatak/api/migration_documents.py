"""The state of migrations over HTTP: documents that `nunatak migrate --state catalog` reads and replaces."""

from typing import Any

import msgspec

from nunatak.api.http import NO_CONTENT, Request, Response, decode_segment, json_response
from nunatak.api.management_wire import SaveDocumentRequest
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
from nunatak.catalog.write import write
from nunatak.database.records import Answer
from nunatak.errors import BadRequest

LARGEST_PAGE = 100  # documents in one answer; each has up to 1 MiB


async def get_documents(request: Request) -> Response:
    """A page of the documents whose names begin with `prefix`."""
    migration = _migration(request)
    prefix = request.query.get("prefix", "")
    if prefix:
        check_document(prefix)
    resource = f"management/migrations/{migration}/{prefix}"
    page = request.context.tokens.page(resource, request.query)
    limit = min(page.limit, LARGEST_PAGE)
    found = await list_documents(request.catalog.store, migration, prefix, page.after or "", limit + 1)
    body: dict[str, Any] = {"documents": [_answer(request, each) for each in found[:limit]]}
    if len(found) > limit:
        body["next-page-token"] = request.context.tokens.make(resource, found[limit - 1].name)
    return json_response(body)


async def get_document(request: Request) -> Response:
    found = await load_document(request.catalog.store, _migration(request), _document(request))
    return json_response(_answer(request, found))


async def put_document(request: Request) -> Response:
    """Adds a document with version 0, or replaces the version that is named; 409 if it is another one by now."""
    wanted = request.decode(SaveDocumentRequest)
    content = check_content(bytes(wanted.content))
    if wanted.version < 0:
        raise BadRequest("A version is 0 for a new document, or what was read")
    now_ms = request.catalog.now_ms()
    change = save_document(_migration(request), _document(request), content, wanted.version, now_ms)
    await write(request.catalog, request.caller, [change], Answer(204))
    return NO_CONTENT


async def delete_document(request: Request) -> Response:
    try:
        version = int(request.query.get("version", ""))
    except ValueError as error:
        raise BadRequest("Name the version to drop", hint="Add ?version=N, as it was read.") from error
    change = drop_document(_migration(request), _document(request), version)
    await write(request.catalog, request.caller, [change], Answer(204))
    return NO_CONTENT


def _migration(request: Request) -> str:
    return check_migration(decode_segment(request.path_names[0]))


def _document(request: Request) -> str:
    return check_document(decode_segment(request.path_names[1]))


def _answer(request: Request, found: Document) -> dict[str, Any]:
    """With the time of now by the same clock, so that a reader can tell how old it is."""
    return {
        "document": found.name,
        "version": found.version,
        "content": msgspec.Raw(found.content),
        "changed-ms": found.changed_ms,
        "now-ms": request.catalog.now_ms(),
    }
