"""The `securable` of a query or body: a warehouse, namespace or table, and the tables in it the caller may use."""

import json
from dataclasses import dataclass
from typing import Protocol

from nunatak.access import securables
from nunatak.access.privileges import Privilege
from nunatak.api.http import Request
from nunatak.api.required_privileges import Declared, Need, Needs, entry_target, namespace_target
from nunatak.catalog.pointers import load_pointer
from nunatak.database.records import Key
from nunatak.errors import BadRequest, NoSuchNamespace
from nunatak.iceberg.identifiers import (
    Identifier,
    Namespace,
    check_name,
    check_namespace,
    from_jdbc,
    print_namespace,
    to_jdbc,
)
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.maintenance.survey import tables_after

CHUNK = 200  # names that are read, and whose rights are checked, together
MAX_CHUNKS = 25  # for one page: bounds the work for a caller who may see few of many tables


class PlaceBody(Protocol):
    """A request body with a `securable`."""

    @property
    def securable(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SecurablePlace:
    """A parsed `securable`; `name` is None for a container."""

    securable: str
    levels: Namespace
    name: str | None

    @property
    def identifier(self) -> Identifier:
        assert self.name is not None
        return Identifier(self.levels, self.name)


async def resolve_securable(request: Request, text: str | None) -> SecurablePlace:
    """Parses `text` and sets the warehouse of the request to the one it names; raises BadRequest or NoSuchWarehouse."""
    if not text:
        raise BadRequest(
            "The parameter securable is missing", hint="Write namespace:WAREHOUSE/A or table:WAREHOUSE/A/T."
        )
    securable = securables.parse_securable(text)
    if securable == securables.SERVER:
        raise BadRequest("The securable must not be the server", hint="Name a warehouse, a namespace or a table.")
    home, levels, name = securables.parts(securable)
    warehouses = request.catalog.warehouses
    if home not in warehouses:
        await warehouses.refresh()  # another server may have created it
    if home not in warehouses:
        raise request.catalog.no_such_warehouse(home)
    request.warehouse, request.asked_warehouse = warehouses[home], home
    if levels:
        check_namespace(levels)
    return SecurablePlace(securable, levels, None if name is None else check_name(name, "table"))


async def load_table_at(request: Request, text: str | None) -> tuple[SecurablePlace, TableMetadata]:
    """Returns the table that `text` names; raises BadRequest for a container, NoSuchTable if there is none."""
    place = await resolve_securable(request, text)
    if place.name is None:
        raise BadRequest("The securable must be a table", hint="Write table:WAREHOUSE/A/T.")
    loaded = await load_pointer(request.catalog, request.warehouse, place.identifier, "TABLE")
    return place, loaded.table()


# Required privileges


async def on_place(route: Declared, request: Request) -> list[Need]:
    """Requires the route's privilege on the securable in the query."""
    return [required_on(route, request, await resolve_securable(request, request.query.get("securable")))]


async def in_place(route: Declared, request: Request) -> list[Need]:
    """As `on_place`; a caller with the privilege only inside a container gets the entries where it holds it."""
    return [
        required_on(route, request, await resolve_securable(request, request.query.get("securable")), filtered=True)
    ]


def on_place_in_body(body: type[PlaceBody]) -> Needs:
    """As `on_place`, for the securable in the body."""

    async def needs(route: Declared, request: Request) -> list[Need]:
        wanted = request.decode(body)
        return [required_on(route, request, await resolve_securable(request, wanted.securable))]

    return needs


def required_on(route: Declared, request: Request, place: SecurablePlace, *, filtered: bool = False) -> Need:
    if place.name is not None:
        return Need(route.privilege, entry_target(request, place.identifier, "TABLE"))
    return Need(route.privilege, namespace_target(request, place.levels), filtered=filtered)


# Contents of a container


async def require_namespace(request: Request, place: SecurablePlace) -> None:
    if place.levels and not await request.catalog.store.namespace_exists(request.warehouse.name, to_jdbc(place.levels)):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(place.levels)}")


async def tables_in(
    request: Request, place: SecurablePlace, privilege: Privilege, after: str, limit: int
) -> tuple[list[Identifier], str | None]:
    """Returns tables directly in a namespace, or all of a warehouse, on which the caller holds the privilege, in order.

    Returns one page, which starts after `after`, and the position of the next page, or None. A page may be short
    although more follow: at most MAX_CHUNKS chunks of names are read for it. Those of a warehouse may include views.
    """
    found: list[Identifier] = []
    for _ in range(MAX_CHUNKS):
        names = await _names(request, place, after)
        for each in await _allowed_tables(request, names, privilege):
            if len(found) == limit:
                return found, position(found[-1])
            found.append(each)
        if len(names) < CHUNK:
            return found, None
        after = position(names[-1])
    return found, after


async def _allowed_tables(request: Request, names: list[Identifier], privilege: Privilege) -> list[Identifier]:
    if request.known is None or request.guard is None or not names:
        return names
    held = await request.guard.ask(request.known, [_entry(request, each) for each in names])
    return [each for each, rights in zip(names, held, strict=True) if rights & privilege == privilege]


def position(identifier: Identifier) -> str:
    return json.dumps([to_jdbc(identifier.namespace), identifier.name])


def _entry(request: Request, identifier: Identifier) -> str:
    return securables.entry(request.warehouse.name, identifier.namespace, identifier.name)


async def _names(request: Request, place: SecurablePlace, after: str) -> list[Identifier]:
    namespace, name = json.loads(after) if after else ("", "")
    if place.levels:
        return await tables_after(request.catalog, request.warehouse, place.levels, name, CHUNK)
    home = request.warehouse.name
    keys = await request.catalog.store.keys_after(Key(home, namespace, name), CHUNK)
    return [Identifier(from_jdbc(key.namespace), key.name) for key in keys if key.catalog == home]
