"""A warehouse, namespace or table that a query or a body names, and the tables that the caller may look at in it."""

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

CHUNK = 200  # names that are read and decided about together
MOST_CHUNKS = 25  # for one page


class PlaceBody(Protocol):
    """A request body that names a place."""

    @property
    def securable(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SecurablePlace:
    """As the text names it; `name` is None for a container."""

    securable: str
    levels: Namespace
    name: str | None

    @property
    def identifier(self) -> Identifier:
        assert self.name is not None
        return Identifier(self.levels, self.name)


async def aim(request: Request, text: str | None) -> SecurablePlace:
    """What `text` names; from here on the request is about the warehouse in which it lies."""
    if not text:
        raise BadRequest(
            "The parameter securable is missing", hint="Write namespace:WAREHOUSE/A or table:WAREHOUSE/A/T."
        )
    securable = securables.parse_securable(text)
    if securable == securables.SERVER:
        raise BadRequest("The server itself is not meant here", hint="Name a warehouse, a namespace or a table.")
    home, levels, name = securables.parts(securable)
    warehouses = request.catalog.warehouses
    if home not in warehouses:
        await warehouses.refresh()
    if home not in warehouses:
        raise request.catalog.no_such_warehouse(home)
    request.warehouse, request.asked_warehouse = warehouses[home], home
    if levels:
        check_namespace(levels)
    return SecurablePlace(securable, levels, None if name is None else check_name(name, "table"))


async def load_table_at(request: Request, text: str | None) -> tuple[SecurablePlace, TableMetadata]:
    """The table that `text` names; BadRequest if it names a container."""
    place = await aim(request, text)
    if place.name is None:
        raise BadRequest("A table is meant here", hint="Write table:WAREHOUSE/A/T.")
    loaded = await load_pointer(request.catalog, request.warehouse, place.identifier, "TABLE")
    return place, loaded.table()


# What the routes about places need


async def on_place(route: Declared, request: Request) -> list[Need]:
    """The route's privilege on the place that the query names."""
    return [required_on(route, request, await aim(request, request.query.get("securable")))]


async def in_place(route: Declared, request: Request) -> list[Need]:
    """The same, and whoever holds it only on something inside a container is shown that."""
    return [required_on(route, request, await aim(request, request.query.get("securable")), filtered=True)]


def on_place_in_body(body: type[PlaceBody]) -> Needs:
    """The same for a place that the body names."""

    async def needs(route: Declared, request: Request) -> list[Need]:
        wanted = request.decode(body)
        return [required_on(route, request, await aim(request, wanted.securable))]

    return needs


def required_on(route: Declared, request: Request, place: SecurablePlace, *, filtered: bool = False) -> Need:
    if place.name is not None:
        return Need(route.privilege, entry_target(request, place.identifier, "TABLE"))
    return Need(route.privilege, namespace_target(request, place.levels), filtered=filtered)


# What is in one


async def require_namespace(request: Request, place: SecurablePlace) -> None:
    if place.levels and not await request.catalog.store.namespace_exists(request.warehouse.name, to_jdbc(place.levels)):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(place.levels)}")


async def tables_in(
    request: Request, place: SecurablePlace, privilege: Privilege, after: str, limit: int
) -> tuple[list[Identifier], str | None]:
    """The tables directly in a namespace, or all of a warehouse, on which the caller holds the privilege, in order.

    A page, and where the next one starts; `after` is where this one does. It may be short although more follow: of
    those that the caller may not see, so many are passed by and no more. Views may be among those of a warehouse.
    """
    found: list[Identifier] = []
    for _ in range(MOST_CHUNKS):
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
