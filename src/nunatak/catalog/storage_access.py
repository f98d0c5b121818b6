"""Access of clients to the files of a table: the level a caller gets, and the places that a credential opens.

A scope is made only from a stored table, or from one that was staged or dropped and is recorded. Its places are checked
again each time: an operator may have taken a location away from the warehouse since.
"""

from collections.abc import Sequence

from nunatak.access.privileges import Privilege
from nunatak.catalog.cache import StorageFacts
from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import owners_of_all, writers_around
from nunatak.database.records import Key
from nunatak.errors import BadRequest, Forbidden
from nunatak.iceberg.chosen_places import places_of
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


async def refuse_places_of_others(catalog: Catalog, key: Key, places: Sequence[Location]) -> None:
    """Raises Forbidden if any other live table or view lies in, around or inside one of the places."""
    owners = await owners_of_all(catalog, places)
    for place in places:
        ancestors = [str(place.parent(size)) for size in range(len(place.segments))]
        inside = [each.key for each in await catalog.store.find_overlapping(str(place), ancestors)]
        around = await writers_around(catalog, key, place)
        if any(other != key for other in (*inside, *around, *(owner for owner, _ in owners[place]))):
            raise Forbidden("No credential is issued for the table: it shares a place with another table or view")


async def scope_of_table(
    catalog: Catalog, warehouse: WarehousePlace, key: Key, facts: StorageFacts, principal: str, level: AccessLevel
) -> CredentialScope:
    """Returns the scope of a stored table; raises Forbidden if its places are not its own any more."""
    places = places_within(warehouse, facts)
    # The database keeps the locations of tables apart. It does not do so for the places of steering properties.
    await refuse_places_of_others(catalog, key, places[1:])
    return CredentialScope(principal, facts.table_uuid, places, level)


def storage_of(catalog: Catalog, warehouse: WarehousePlace, facts: StorageFacts) -> Storage:
    """Returns the storage of the table's location; raises Forbidden if the warehouse does not serve it."""
    return catalog.objects.storage_of(places_within(warehouse, facts)[0])


async def vend(catalog: Catalog, warehouse: WarehousePlace, scope: CredentialScope) -> Kept:
    """Returns a credential of the cache, or a new one; the caller's rights were checked before."""
    storage = catalog.objects.storage_of(scope.places[0])
    if any(catalog.objects.storage_of(place) is not storage for place in scope.places):
        raise Forbidden("No credential is issued for the table: its places lie in different stores")
    return await catalog.credentials.get((warehouse.name, warehouse.version, scope), storage.vend, catalog.now_ms)
