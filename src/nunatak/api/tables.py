"""Handlers of the table routes, and the replay of stored responses for an Idempotency-Key."""

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import filtered_lists
from nunatak.api.admission import require, sees_all
from nunatak.api.http import JSON_TYPE, NO_CONTENT, Request, Response, decode_body, mark_sender, raw_json
from nunatak.api.paging import list_of
from nunatak.api.request_events import tell_report
from nunatak.api.required_privileges import Declared, Need, entry_target
from nunatak.api.wire import CreateTableRequest, NamedRequest, RegisterTableRequest, RenameRequest, identifier_of
from nunatak.catalog import commits, tables
from nunatak.catalog.cache import Loaded
from nunatak.catalog.large_work import LARGE_METADATA_BYTES
from nunatak.catalog.pointers import find_pointer, key_of, make_loaded
from nunatak.catalog.shadows import check_source
from nunatak.catalog.tables import NewTable
from nunatak.database.records import Kind, StoredResponse
from nunatak.errors import BadRequest, Forbidden, NoSuchTable, NotFound, OutcomeUnknown
from nunatak.iceberg import commit_request
from nunatak.iceberg.commit_request import CommitTableRequest
from nunatak.iceberg.identifiers import Identifier, check_name, to_jdbc

NOT_MODIFIED = 304


def load_response(loaded: Loaded) -> Response:
    """Returns the response to a load, create or commit; its bytes are built once per metadata file."""
    headers = (JSON_TYPE, (b"etag", loaded.etag.encode("ascii")))
    return Response(200, loaded.answer, headers, loaded.packed)


def unless_matching(request: Request, etag: str, body: bytes, packed: dict[str, bytes] | None) -> Response:
    """Returns the body, or 304 if If-None-Match names its ETag."""
    header = (b"etag", etag.encode("ascii"))
    wanted = request.header(b"if-none-match")
    if wanted is not None and matches(wanted, etag):
        return Response(NOT_MODIFIED, b"", (header,))
    return Response(200, body, (JSON_TYPE, header, (b"cache-control", b"private, no-cache")), packed)


def matches(header: str, etag: str) -> bool:
    if header.strip() == "*":
        raise BadRequest("If-None-Match: * is not supported for a load", hint="Send the ETag of an earlier answer.")
    return any(item.strip().removeprefix("W/") == etag for item in header.split(","))


async def list_tables(request: Request) -> Response:
    return await list_entries(request, "TABLE")


async def list_entries(request: Request, kind: Kind) -> Response:
    namespace = request.namespace()
    resource = list_of(request, kind, request.warehouse.name, to_jdbc(namespace))
    page = request.context.tokens.page(resource, request.query)
    container = securables.namespace(request.warehouse.name, namespace)
    if sees_all(request, container, Privilege.TABLE_LIST):
        listed, last = await tables.list_entries(
            request.catalog, request.warehouse, namespace, kind, page.after, page.limit
        )
    else:
        listed, last = await filtered_lists.list_entries(request, namespace, kind, page.after, page.limit)
    # `listed` is JSON text, built by the store: this hot path does not create an object for each identifier.
    token = f',"next-page-token":"{request.context.tokens.make(resource, last)}"' if last is not None else ""
    return raw_json(f'{{"identifiers":[{listed}]{token}}}'.encode())


async def create_table(request: Request) -> Response:
    namespace = request.namespace()
    mark_sender(request)
    wanted = request.decode(CreateTableRequest)
    table = NewTable(
        Identifier(namespace, check_name(wanted.name, "table")),
        wanted.schema,
        wanted.partition_spec,
        wanted.write_order,
        wanted.location,
        wanted.properties or {},
    )
    if wanted.stage_create:
        return raw_json(await tables.stage_table(request.catalog, request.warehouse, request.caller, table))
    request.touched = [table.identifier]
    return load_response(await tables.create_table(request.catalog, request.warehouse, request.caller, table))


async def load_table(request: Request) -> Response:
    identifier = request.identifier("table")
    mode = request.query.get("snapshots", "all") if request.query_string else "all"
    if mode not in ("all", "refs"):
        raise BadRequest(f"Invalid snapshots: {mode[:50]!r} is neither all nor refs")
    # After a lost commit, competing writers reload one at a time, so that the next commit can succeed.
    if request.catalog.contention.tables and request.caller.address is not None:
        await request.catalog.contention.wait_before_load(key_of(request.warehouse, identifier), request.caller.address)
    loaded = await tables.load_table(request.catalog, request.warehouse, identifier, request.caller.policy)
    if request.catalog.spool is not None:
        request.catalog.spool.count_load(loaded.metadata_location, key_of(request.warehouse, identifier))
    if mode == "refs":
        fresh = loaded.refs_answer is None
        is_large = fresh and len(loaded.answer) > LARGE_METADATA_BYTES
        body = await request.catalog.large_work.run_if(is_large, loaded.with_refs_only)
        if fresh:  # the cache entry has grown by the refs-only response: its weight is counted again
            request.catalog.cache.keep(key_of(request.warehouse, identifier), loaded)
        return unless_matching(request, loaded.refs_etag, body, None)
    return unless_matching(request, loaded.etag, loaded.answer, loaded.packed)


async def table_exists(request: Request) -> Response:
    identifier = request.identifier("table")
    if await request.catalog.store.find_kind(key_of(request.warehouse, identifier)) != "TABLE":
        raise NoSuchTable(f"Table does not exist: {identifier}")
    return NO_CONTENT


async def commit_table(request: Request) -> Response:
    identifier = request.identifier("table")
    commit = await decode_body(request, commit_request.decode_commit)
    named = commit.identifier
    if named is not None and (named.name != identifier.name or tuple(named.namespace) != identifier.namespace):
        other = identifier_of(named, "table")
        raise BadRequest(f"Invalid commit: the body names {other}, the path names {identifier}")
    wanted = request.touched = [commits.table_commit(identifier, [commit], len(request.body))]
    loaded = await commits.commit_tables(request.catalog, request.warehouse, request.caller, wanted)
    if request.caller.progress.repeated:  # an earlier request made this change: the response shows the current table
        await _require_to_tell(request, identifier)
    return load_response(loaded[0])


async def _require_to_tell(request: Request, identifier: Identifier) -> None:
    try:
        await require(request, [Need(Privilege.TABLE_READ_META, entry_target(request, identifier, "TABLE"))])
    except (Forbidden, NotFound) as denial:
        raise OutcomeUnknown("The commit was carried out; you may not see its result any more") from denial


async def commit_transaction(request: Request) -> Response:
    transaction = await decode_body(request, commit_request.decode_transaction)
    if not transaction.table_changes:
        raise BadRequest("Invalid transaction: table-changes is empty")
    by_table: dict[Identifier, list[CommitTableRequest]] = {}
    for change in transaction.table_changes:
        by_table.setdefault(identifier_of(change.identifier, "table"), []).append(change)
    commits.check_tables(len(by_table))
    wanted = request.touched = [
        commits.table_commit(identifier, parts, len(request.body)) for identifier, parts in by_table.items()
    ]
    await commits.commit_transaction(request.catalog, request.warehouse, request.caller, wanted)
    return NO_CONTENT


async def drop_table(request: Request) -> Response:
    identifier = request.identifier("table")
    request.touched = [identifier]
    purge = request.flag("purgeRequested")
    await tables.drop_entry(request.catalog, request.warehouse, request.caller, identifier, "TABLE", purge=purge)
    return NO_CONTENT


async def rename_table(request: Request) -> Response:
    return await rename_entry(request, "TABLE")


async def rename_entry(request: Request, kind: Kind) -> Response:
    wanted = request.decode(RenameRequest)
    source, to = identifier_of(wanted.source, kind.lower()), identifier_of(wanted.destination, kind.lower())
    request.touched = [(source, to)]
    await tables.rename_entry(request.catalog, request.warehouse, request.caller, source, to, kind)
    return NO_CONTENT


async def register_table(request: Request) -> Response:
    namespace = request.namespace()
    mark_sender(request)
    wanted = request.decode(RegisterTableRequest)
    identifier = Identifier(namespace, check_name(wanted.name, "table"))
    request.touched = [identifier]
    loaded = await tables.register_table(
        request.catalog,
        request.warehouse,
        request.caller,
        identifier,
        wanted.metadata_location,
        overwrite=bool(wanted.overwrite),
        may_replace=request.known is None or request.replaces,
        shadow_of=check_source(wanted.shadow_of) if wanted.shadow_of is not None else None,
    )
    return load_response(loaded)


async def unregister_table(request: Request) -> Response:
    identifier = request.identifier("table")
    request.touched = [identifier]
    loaded = await tables.unregister_table(request.catalog, request.warehouse, request.caller, identifier)
    return load_response(loaded)


async def report_metrics(request: Request) -> Response:
    """Stores a metrics report, with or without `report-type`; only checks that the body is a JSON object."""
    identifier = request.identifier("table")
    request.decode(dict[str, msgspec.Raw])
    await tables.save_report(request.catalog, request.warehouse, request.caller, identifier, request.body)
    tell_report(request, identifier)
    return NO_CONTENT


async def replay_response(request: Request, answer: StoredResponse) -> Response:
    """Returns the stored response of an earlier request with the same Idempotency-Key."""
    if answer.metadata_location is None:
        return raw_json(answer.body, answer.status) if answer.body is not None else Response(answer.status)
    try:
        data = await request.catalog.objects.read_metadata(answer.metadata_location)
    except NotFound as error:
        return load_response(await _what_became_of(request, error))
    return load_response(make_loaded(answer.metadata_location, data))


async def require_to_read(route: Declared, request: Request) -> None:
    """Checks that the caller may load the table or view of a stored response; raises Forbidden or NotFound."""
    kind: Kind = "VIEW" if route.operation.endswith("View") else "TABLE"
    if len(request.path_names) == 2:
        identifier = request.identifier(kind.lower())
    else:
        identifier = Identifier(request.namespace(), check_name(request.decode(NamedRequest).name, kind.lower()))
    await require(request, [Need(Privilege.TABLE_READ_META, entry_target(request, identifier, kind))])


async def rights_went_along(route: Declared, request: Request) -> bool:
    """Whether the request itself removed the rights it needed: unregistering a table deletes all grants on it."""
    if route.operation != "unregisterTable":
        return False
    return await request.catalog.store.find_kind(key_of(request.warehouse, request.identifier("table"))) is None


async def _what_became_of(request: Request, cause: NotFound) -> Loaded:
    """Returns the current table or view when the metadata file of a stored response was deleted since.

    Raises OutcomeUnknown if there is none: a 404 would deny that the request was carried out.
    """
    if len(request.path_names) == 2:
        key = key_of(request.warehouse, request.identifier("table"))
        loaded = await find_pointer(request.catalog, key, "TABLE") or await find_pointer(request.catalog, key, "VIEW")
        if loaded is not None:
            return loaded
    raise OutcomeUnknown("The request was carried out, but the metadata it was answered with is gone") from cause
