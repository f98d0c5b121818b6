"""The privileges that a request requires and their securables, derived from its path, query and body.

The route table names one such function for every route. Nothing is checked here; admission.py does that.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nunatak.access import securables
from nunatak.access.privileges import Privilege, Securable
from nunatak.api.http import Request, decode_body, split_parent
from nunatak.api.wire import (
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RenameRequest,
    UpdateNamespaceRequest,
    identifier_of,
)
from nunatak.catalog.pointers import key_of
from nunatak.catalog.tables import default_location
from nunatak.catalog.temporary_access import find_access
from nunatak.database.records import Kind
from nunatak.errors import CatalogError, Forbidden, NoSuchNamespace, NoSuchTable, NoSuchView
from nunatak.iceberg import commit_request, requirements, view_commit
from nunatak.iceberg.chosen_places import ChosenPlace, places_of, places_of_namespace, places_of_updates
from nunatak.iceberg.commit_request import (
    AddSnapshot,
    AssignUuid,
    CommitTableRequest,
    SetCurrentSnapshot,
    SetPartitionStatistics,
    SetSnapshotRef,
    SetStatistics,
)
from nunatak.iceberg.identifiers import Identifier, Namespace, check_name, check_namespace, print_namespace, to_jdbc

P = Privilege

# Updates that need only TABLE_WRITE; every other update changes the table itself, and needs TABLE_ALTER too.
DATA_UPDATES = (AddSnapshot, SetSnapshotRef, SetCurrentSnapshot, SetStatistics, SetPartitionStatistics)


@dataclass(frozen=True, slots=True)
class Target:
    """A securable, and the error for a caller who may not see that it exists."""

    securable: str
    absent: CatalogError
    levels: Namespace = ()
    name: str | None = None
    kind: Kind | None = None
    may_be_missing: bool = False  # the parent of a new namespace is created along with it


@dataclass(frozen=True, slots=True)
class Need:
    privilege: P
    target: Target
    filtered: bool = False  # a list: without the privilege, the caller gets the entries it may see


class Declared(Protocol):
    """The part of a route that required privileges depend on."""

    @property
    def operation(self) -> str: ...
    @property
    def privilege(self) -> P: ...
    @property
    def securable(self) -> Securable: ...


Needs = Callable[[Declared, Request], Awaitable[list[Need]]]

# Targets


def server_target() -> Target:
    return Target(securables.SERVER, Forbidden("The server itself is never absent"))


def warehouse_target(request: Request) -> Target:
    """Returns the warehouse; its error repeats the name from the request, which may be a location."""
    absent = request.catalog.no_such_warehouse(request.asked_warehouse)
    return Target(securables.warehouse(request.warehouse.name), absent)


def namespace_target(request: Request, levels: Namespace) -> Target:
    if not levels:
        return warehouse_target(request)
    absent = NoSuchNamespace(f"Namespace does not exist: {print_namespace(levels)}")
    return Target(securables.namespace(request.warehouse.name, levels), absent, levels)


def entry_target(request: Request, identifier: Identifier, kind: Kind) -> Target:
    absent: CatalogError = NoSuchTable(f"Table does not exist: {identifier}")
    if kind == "VIEW":
        absent = NoSuchView(f"View does not exist: {identifier}")
    securable = securables.entry(request.warehouse.name, identifier.namespace, identifier.name)
    return Target(securable, absent, identifier.namespace, identifier.name, kind)


# Required privileges of routes


async def as_declared(route: Declared, request: Request) -> list[Need]:
    """Requires the route's privilege on the securable that its path names; the default."""
    match route.securable:
        case Securable.SERVER:
            target = server_target()
        case Securable.WAREHOUSE:
            target = warehouse_target(request)
        case Securable.NAMESPACE:
            target = namespace_target(request, request.namespace())
        case Securable.TABLE:
            target = entry_target(request, request.identifier("table"), "TABLE")
        case Securable.VIEW:
            target = entry_target(request, request.identifier("view"), "VIEW")
    return [Need(route.privilege, target)]


async def to_configure(route: Declared, request: Request) -> list[Need]:
    """Requires nothing of an authenticated caller, or, if a warehouse is named, that it may see something inside."""
    name = request.query.get("warehouse")
    if not name:
        return []
    found = (await request.catalog.load_warehouse(name)).name
    target = Target(securables.warehouse(found), request.catalog.no_such_warehouse(name))
    return [Need(P.NS_LIST, target, filtered=True)]


async def to_list_namespaces(route: Declared, request: Request) -> list[Need]:
    parent = request.query.get("parent")
    levels = check_namespace(split_parent(parent, request.catalog.namespace_separator)) if parent else ()
    return [Need(route.privilege, namespace_target(request, levels), filtered=True)]


async def to_search(route: Declared, request: Request) -> list[Need]:
    return [Need(route.privilege, warehouse_target(request), filtered=True)]


async def to_list_entries(route: Declared, request: Request) -> list[Need]:
    return [Need(route.privilege, namespace_target(request, request.namespace()), filtered=True)]


async def to_create_namespace(route: Declared, request: Request) -> list[Need]:
    """Requires the privilege on the parent; the response does not reveal whether the parent exists."""
    wanted = request.decode(CreateNamespaceRequest)
    levels = check_namespace(tuple(wanted.namespace))
    home = warehouse_target(request)
    where = Target(securables.namespace(request.warehouse.name, levels[:-1]), home.absent, may_be_missing=True)
    return _with_location([Need(route.privilege, where)], places_of_namespace(wanted.properties))


async def to_update_namespace(route: Declared, request: Request) -> list[Need]:
    wanted = request.decode(UpdateNamespaceRequest)
    return _with_location(await as_declared(route, request), places_of_namespace(wanted.updates))


async def to_create_table(route: Declared, request: Request) -> list[Need]:
    wanted = request.decode(CreateTableRequest)
    return _with_location(await as_declared(route, request), places_of(wanted.location, wanted.properties))


async def to_create_view(route: Declared, request: Request) -> list[Need]:
    wanted = request.decode(CreateViewRequest)
    return _with_location(await as_declared(route, request), places_of(wanted.location, wanted.properties))


async def to_replace_view(route: Declared, request: Request) -> list[Need]:
    commit = await decode_body(request, view_commit.decode_commit)
    return _with_location(await with_answer(route, request), places_of_updates(commit.updates))


async def with_answer(route: Declared, request: Request) -> list[Need]:
    """As `as_declared`, plus TABLE_READ_META: the response contains the metadata, as that of a load does."""
    return [Need(need.privilege | P.TABLE_READ_META, need.target) for need in await as_declared(route, request)]


async def to_load_credentials(route: Declared, request: Request) -> list[Need]:
    """As `as_declared`; for a table that is not there, what its temporary access needs.

    Both are always looked up: the time of a response must not tell a hidden table from an absent one.
    """
    identifier = request.identifier("table")
    key = key_of(request.warehouse, identifier)
    kind = await request.catalog.store.find_kind(key)
    found = await find_access(request.catalog, request.caller, key)
    if kind is not None or found is None:
        return await as_declared(route, request)
    if found.state == "staged":
        return [Need(P.TABLE_CREATE, namespace_target(request, identifier.namespace))]
    return []  # the grants went with the table; the record holds what the caller could do until then


async def to_register(route: Declared, request: Request) -> list[Need]:
    """Requires LOCATION_CHOOSE, since registering names a file; replacing a table needs what a commit to it needs."""
    needs = [Need(P.TABLE_CREATE | P.LOCATION_CHOOSE, namespace_target(request, request.namespace()))]
    if route.operation == "registerTable":
        wanted = request.decode(RegisterTableRequest)
        if wanted.overwrite:
            identifier = Identifier(request.namespace(), check_name(wanted.name, "table"))
            if await request.catalog.store.find_kind(key_of(request.warehouse, identifier)) is not None:
                request.replaces = True
                replacing = P.TABLE_WRITE | P.TABLE_ALTER | P.TABLE_READ_META
                needs.append(Need(replacing, entry_target(request, identifier, "TABLE")))
    return needs


async def to_rename(route: Declared, request: Request) -> list[Need]:
    """Also requires TABLE_DROP to move to another namespace: like a drop, it ends rights inherited from the old one."""
    wanted = request.decode(RenameRequest)
    kind: Kind = "VIEW" if route.operation == "renameView" else "TABLE"
    source, to = identifier_of(wanted.source, kind.lower()), identifier_of(wanted.destination, kind.lower())
    needed = P.TABLE_ALTER if source.namespace == to.namespace else P.TABLE_ALTER | P.TABLE_DROP
    return [
        Need(needed, entry_target(request, source, kind)),
        Need(P.TABLE_CREATE, namespace_target(request, to.namespace)),
    ]


async def to_commit(route: Declared, request: Request) -> list[Need]:
    commit = await decode_body(request, commit_request.decode_commit)
    return await _to_change(request, request.identifier("table"), commit)


async def to_commit_transaction(route: Declared, request: Request) -> list[Need]:
    transaction = await decode_body(request, commit_request.decode_transaction)
    needs: list[Need] = []
    for change in transaction.table_changes:
        needs += await _to_change(request, identifier_of(change.identifier, "table"), change)
    return needs


async def _to_change(request: Request, identifier: Identifier, commit: CommitTableRequest) -> list[Need]:
    places = list(places_of_updates(commit.updates))
    if requirements.is_create(commit.requirements):
        if places:
            offered = await _offered_folder(request, identifier, commit)
            places = [each for each in places if each != offered]
        return _with_location([Need(P.TABLE_CREATE, namespace_target(request, identifier.namespace))], places)
    needed = P.TABLE_WRITE | P.TABLE_READ_META  # the response contains the metadata
    if not all(isinstance(update, DATA_UPDATES) for update in commit.updates):
        needed |= P.TABLE_ALTER
    return _with_location([Need(needed, entry_target(request, identifier, "TABLE"))], places)


async def _offered_folder(request: Request, identifier: Identifier, commit: CommitTableRequest) -> ChosenPlace | None:
    """Returns the location that stage-create proposed for this table; using it does not need LOCATION_CHOOSE."""
    table_uuid = next((update.uuid for update in commit.updates if isinstance(update, AssignUuid)), None)
    if table_uuid is None:
        return None
    properties = await request.catalog.store.find_namespace(request.warehouse.name, to_jdbc(identifier.namespace))
    return next(places_of(default_location(request.warehouse, properties, identifier, table_uuid), None))


def _with_location(needs: Sequence[Need], places: Iterable[ChosenPlace]) -> list[Need]:
    """Adds LOCATION_CHOOSE to the needs if the request names a location for files."""
    if not any(True for _ in places):
        return list(needs)
    return [Need(need.privilege | P.LOCATION_CHOOSE, need.target) for need in needs]
