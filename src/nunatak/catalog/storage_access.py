"""Access of clients to the files of a table: the level a caller gets, and the places that a credential opens.

A scope is made only from a stored table, or from one that was staged or dropped and is recorded. Its places are checked
again each time: an operator may have taken a location away from the warehouse since.
"""

from collections.abc import Sequence

import msgspec

from nunatak.access.privileges import Privilege
from nunatak.catalog.cache import StorageFacts
from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import owners_of_all, writers_around
from nunatak.database.records import Key
from nunatak.errors import BadRequest, Forbidden
from nunatak.iceberg.chosen_places import places_of
from nunatak.iceberg.metadata_files import slug
from nunatak.objectstore.location import Location, require_inside
from nunatak.objectstore.storage import AccessLevel, CredentialScope, Storage
from nunatak.objectstore.vending.cache import Kept

_READ_DATA, _WRITE = int(Privilege.TABLE_READ_DATA), int(Privilege.TABLE_READ_DATA | Privilege.TABLE_WRITE)


def level_of(warehouse: WarehousePlace, held: int) -> AccessLevel | None:
    """Returns what a caller with these privileges on a table may do with its files; None: nothing.

    Writing includes reading, so it needs TABLE_READ_DATA too.
    """
    if held & _WRITE == _WRITE and not warehouse.read_only:
        return AccessLevel.READ_WRITE
    return AccessLevel.READ if held & _READ_DATA else None


def places_within(warehouse: WarehousePlace, facts: StorageFacts) -> tuple[Location, ...]:
    """Returns the places of a table, its location first; raises Forbidden if one lies outside the warehouse."""
    own: list[Location] = []
    try:
        for chosen in places_of(facts.location, facts.properties):
            place = require_inside(chosen.text, warehouse.allowed, chosen.field)
            if not any(each.contains(place) for each in own):
                own.append(place)
    except BadRequest as error:
        raise Forbidden(f"No credential is issued for the table: {error.message}") from error
    return tuple(own)


async def refuse_places_of_others(catalog: Catalog, key: Key, places: Sequence[Location], table_uuid: str) -> None:
    """Raises Forbidden if any other live table or view lies in, around or inside one of the places.

    A folder that the catalog named after the table may lie in a place that another table writes to: no other table has
    files in it.
    """
    for place in places:
        fresh = place.segments[-1:] == (f"{slug(key.name)}-{table_uuid}",)
        ancestors = [str(place.parent(size)) for size in range(len(place.segments))]
        others = [each.key for each in await catalog.store.find_overlapping(str(place), ancestors)]
        others += await writers_around(catalog, key, place, fresh=fresh)
        if not fresh:
            others += [owner for owner, _ in (await owners_of_all(catalog, [place]))[place]]
        if any(other != key for other in others):
            raise Forbidden("No credential is issued for the table: it shares a place with another table or view")


async def scope_of_table(
    catalog: Catalog, warehouse: WarehousePlace, key: Key, facts: StorageFacts, principal: str, level: AccessLevel
) -> CredentialScope:
    """Returns the scope of a stored table; raises Forbidden if its places are not its own any more."""
    places = places_within(warehouse, facts)
    # The database keeps the locations of tables apart. It does not do so for the places of steering properties.
    await refuse_places_of_others(catalog, key, places[1:], facts.table_uuid)
    return CredentialScope(principal, facts.table_uuid, places, level)


def storage_of(catalog: Catalog, warehouse: WarehousePlace, facts: StorageFacts) -> Storage:
    """Returns the storage of the table's location; raises Forbidden if the warehouse does not serve it."""
    return catalog.objects.storage_of(places_within(warehouse, facts)[0])


def storage_of_scope(catalog: Catalog, scope: CredentialScope) -> Storage:
    """Returns the storage of all places; raises Forbidden if they lie in different ones."""
    storage = catalog.objects.storage_of(scope.places[0])
    if any(catalog.objects.storage_of(place) is not storage for place in scope.places):
        raise Forbidden("No access is given to the table: its places lie in different stores")
    return storage


async def vend(catalog: Catalog, warehouse: WarehousePlace, scope: CredentialScope) -> tuple[Kept, AccessLevel]:
    """Returns a credential of the cache or a new one, and its level; the caller's rights were checked before.

    The files of a shadow belong to another catalog: nobody gets a credential to write there.
    """
    key = (warehouse.name, warehouse.version, scope)
    kept = catalog.credentials.find(key, catalog.now_ms())
    if kept is not None:
        return kept, scope.level
    storage = storage_of_scope(catalog, scope)
    scope = await without_writes_to_shadows(catalog, warehouse, scope)
    key = (warehouse.name, warehouse.version, scope)
    return await catalog.credentials.get(key, storage.vend, catalog.now_ms), scope.level


async def without_writes_to_shadows(
    catalog: Catalog, warehouse: WarehousePlace, scope: CredentialScope
) -> CredentialScope:
    """Returns the scope, for reading only if the table is a shadow."""
    if scope.level is AccessLevel.READ_WRITE and await is_shadow(catalog, warehouse, scope.table_uuid):
        return msgspec.structs.replace(scope, level=AccessLevel.READ)
    return scope


async def is_shadow(catalog: Catalog, warehouse: WarehousePlace, table_uuid: str) -> bool:
    rows = await catalog.store.rows("find_shadow", {"catalog": warehouse.name, "uuid": table_uuid})
    return any(state == "shadow" for _, state, _ in rows)
