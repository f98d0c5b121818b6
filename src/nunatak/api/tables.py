"""Handlers of the table routes, and the replay of stored responses for an Idempotency-Key."""

import msgspec

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api import filtered_lists
from nunatak.api.admission import require, sees_all
from nunatak.api.encoded import Encoded, LoadResult, load_result
from nunatak.api.http import Request, Response, decode_body, mark_sender, raw_json
from nunatak.api.paging import list_of
from nunatak.api.request_events import spool_report
from nunatak.api.required_privileges import Declared, Need, entry_target
from nunatak.api.route import handler
from nunatak.api.storage_access import join_access, join_staged_access
from nunatak.api.wire import (
    CommitTableResponse,
    CreateTableRequest,
    ListIdentifiersResponse,
    LoadTableResponse,
    NamedRequest,
    RegisterTableRequest,
    RenameRequest,
    UnregisterTableResponse,
    identifier_of,
)
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


@handler
async def list_tables(request: Request) -> Encoded[ListIdentifiersResponse]:
    return await list_entries(request, "TABLE")


async def list_entries(request: Request, kind: Kind) -> Encoded[ListIdentifiersResponse]:
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
    return Encoded(f'{{"identifiers":[{listed}]{token}}}'.encode())


@handler
async def create_table(request: Request) -> LoadResult[LoadTableResponse]:
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
        staged = await tables.stage_table(request.catalog, request.warehouse, request.caller, table)
        return await join_staged_access(request, table.identifier, LoadResult(staged))
    loaded = await tables.create_table(request.catalog, request.warehouse, request.caller, table)
    return await join_access(request, table.identifier, loaded, load_result(loaded))


@handler
async def load_table(request: Request) -> LoadResult[LoadTableResponse]:
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
        return await join_access(request, identifier, loaded, LoadResult(body, loaded.refs_etag))
    return await join_access(request, identifier, loaded, load_result(loaded))


@handler
async def table_exists(request: Request) -> None:
    identifier = request.identifier("table")
    if await request.catalog.store.find_kind(key_of(request.warehouse, identifier)) != "TABLE":
        raise NoSuchTable(f"Table does not exist: {identifier}")


@handler
async def commit_table(request: Request) -> LoadResult[CommitTableResponse]:
    identifier = request.identifier("table")
    commit = await decode_body(request, commit_request.decode_commit)
    named = commit.identifier
    if named is not None and (named.name != identifier.name or tuple(named.namespace) != identifier.namespace):
        other = identifier_of(named, "table")
        raise BadRequest(f"Invalid commit: the body names {other}, the path names {identifier}")
    wanted = [commits.table_commit(identifier, [commit], len(request.body))]
    loaded = await commits.commit_tables(request.catalog, request.warehouse, request.caller, wanted)
    if request.caller.progress.repeated:  # an earlier request made this change: the response shows the current table
        await _require_read(request, identifier)
    return load_result(loaded[0])


async def _require_read(request: Request, identifier: Identifier) -> None:
    try:
        await require(request, [Need(Privilege.TABLE_READ_META, entry_target(request, identifier, "TABLE"))])
    except (Forbidden, NotFound) as denial:
        raise OutcomeUnknown("The commit was applied, but the caller may no longer read its result") from denial


@handler
async def commit_transaction(request: Request) -> None:
    transaction = await decode_body(request, commit_request.decode_transaction)
    if not transaction.table_changes:
        raise BadRequest("Invalid transaction: table-changes is empty")
    by_table: dict[Identifier, list[CommitTableRequest]] = {}
    for change in transaction.table_changes:
        by_table.setdefault(identifier_of(change.identifier, "table"), []).append(change)
    commits.check_tables(len(by_table))
    wanted = [commits.table_commit(identifier, parts, len(request.body)) for identifier, parts in by_table.items()]
    await commits.commit_transaction(request.catalog, request.warehouse, request.caller, wanted)


@handler
async def drop_table(request: Request) -> None:
    identifier = request.identifier("table")
    purge = request.flag("purgeRequested")
    await tables.drop_entry(request.catalog, request.warehouse, request.caller, identifier, "TABLE", purge=purge)


@handler
async def rename_table(request: Request) -> None:
    await rename_entry(request, "TABLE")


async def rename_entry(request: Request, kind: Kind) -> None:
    wanted = request.decode(RenameRequest)
    source, to = identifier_of(wanted.source, kind.lower()), identifier_of(wanted.destination, kind.lower())
    await tables.rename_entry(request.catalog, request.warehouse, request.caller, source, to, kind)


@handler
async def register_table(request: Request) -> LoadResult[LoadTableResponse]:
    namespace = request.namespace()
    mark_sender(request)
    wanted = request.decode(RegisterTableRequest)
    identifier = Identifier(namespace, check_name(wanted.name, "table"))
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
    return await join_access(request, identifier, loaded, load_result(loaded))


@handler
async def unregister_table(request: Request) -> LoadResult[UnregisterTableResponse]:
    identifier = request.identifier("table")
    loaded = await tables.unregister_table(request.catalog, request.warehouse, request.caller, identifier)
    return load_result(loaded)


@handler
async def report_metrics(request: Request) -> None:
    """Stores a metrics report, with or without `report-type`; only checks that the body is a JSON object."""
    identifier = request.identifier("table")
    request.decode(dict[str, msgspec.Raw])
    await tables.save_report(request.catalog, request.warehouse, request.caller, identifier, request.body)
    spool_report(request, identifier)


async def replay_response(route: Declared, request: Request, answer: StoredResponse) -> Response:
    """Returns the stored response of an earlier request with the same Idempotency-Key.

    A credential is never stored: a create or register that is repeated gets one by the caller's current rights.
    """
    named = _named_table(route, request)
    if answer.metadata_location is None:
        if named is not None and answer.status == 200 and answer.body is not None:  # a staged table
            return (await join_staged_access(request, named, LoadResult(answer.body))).respond(request)
        return raw_json(answer.body, answer.status) if answer.body is not None else Response(answer.status)
    try:
        data = await request.catalog.objects.read_metadata(answer.metadata_location)
    except NotFound as error:
        return load_result(await _load_current(request, error)).respond(request)
    loaded = make_loaded(answer.metadata_location, data)
    if named is None:
        return load_result(loaded).respond(request)
    return (await join_access(request, named, loaded, load_result(loaded))).respond(request)


def _named_table(route: Declared, request: Request) -> Identifier | None:
    """Returns the table that the body of a create or register names; None for other requests."""
    if route.operation not in ("createTable", "registerTable"):
        return None
    return Identifier(request.namespace(), check_name(request.decode(NamedRequest).name, "table"))


async def require_to_read(route: Declared, request: Request) -> None:
    """Checks that the caller may load the table or view of a stored response; raises Forbidden or NotFound."""
    kind: Kind = "VIEW" if route.operation.endswith("View") else "TABLE"
    if len(request.path_names) == 2:
        identifier = request.identifier(kind.lower())
    else:
        identifier = Identifier(request.namespace(), check_name(request.decode(NamedRequest).name, kind.lower()))
    await require(request, [Need(Privilege.TABLE_READ_META, entry_target(request, identifier, kind))])


async def revoked_by_itself(route: Declared, request: Request) -> bool:
    """Whether the request itself removed the rights it needed: unregistering a table deletes all grants on it."""
    if route.operation != "unregisterTable":
        return False
    return await request.catalog.store.find_kind(key_of(request.warehouse, request.identifier("table"))) is None


async def _load_current(request: Request, cause: NotFound) -> Loaded:
    """Returns the current table or view when the metadata file of a stored response was deleted since.

    Raises OutcomeUnknown if there is none: a 404 would deny that the request was carried out.
    """
    if len(request.path_names) == 2:
        key = key_of(request.warehouse, request.identifier("table"))
        loaded = await find_pointer(request.catalog, key, "TABLE") or await find_pointer(request.catalog, key, "VIEW")
        if loaded is not None:
            return loaded
    raise OutcomeUnknown("The request was applied, but the metadata of its response no longer exists") from cause
