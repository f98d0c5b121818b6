"""The warehouses of a server: those in its settings, and those created at run time, which all servers read."""

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import AlreadyExists, BadRequest, CatalogError, Conflict, NoSuchWarehouse
from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.store import ObjectStore

log = logging.getLogger(__name__)

REFRESH_SECONDS = 30  # how long a server may serve a warehouse that another server dropped; it is empty
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_LOCATION_LENGTH = 1000


@dataclass(frozen=True)
class WarehousePlace:
    """A warehouse and the locations its tables may use; `allowed` starts with its own location.

    A warehouse that is not `configured` was created at run time and can be dropped.
    """

    name: str
    location: str
    allowed: tuple[Location, ...]
    configured: bool = True
    plain: bool = False  # new tables lie at <namespace>/<table> where that folder is free


class Warehouses(dict[str, WarehousePlace]):
    """Warehouses by name: those of the settings are fixed, the others follow the rows of the database."""

    def __init__(
        self,
        configured: Mapping[str, WarehousePlace],
        store: Store,
        objects: ObjectStore,
        roots: tuple[Location, ...],
        plain: Collection[str] = (),
    ) -> None:
        super().__init__(configured)
        self._store = store
        self._objects = objects
        self._roots = roots  # new warehouses are created inside these
        self._plain = plain  # names of warehouses whose tables lie at <namespace>/<table>
        self._refused: set[str] = set()

    async def refresh(self) -> bool:
        """Read the warehouses from the database; returns whether anything changed."""
        rows = await self._store.rows("list_warehouses", {})
        kept = {row[0]: row[1] for row in rows}
        before = {name: place.location for name, place in self.items()}
        for name, place in list(self.items()):
            if not place.configured and kept.get(name) != place.location:
                del self[name]
        for name, location in kept.items():
            if name not in self:
                self._learn(name, location)
        return before != {name: place.location for name, place in self.items()}

    def _learn(self, name: str, location: str) -> None:
        try:
            place = self._inside(location)
            self._objects.attach(self._objects.local, [place])
        except CatalogError as error:  # created under other settings; logged once
            if name not in self._refused:
                log.warning("warehouse %s cannot be served: %s", name, error.message)
                self._refused.add(name)
            return
        self[name] = WarehousePlace(name, location, (place,), configured=False, plain=name in self._plain)

    def place_of_new(self, name: str, location: str | None) -> Location:
        """Returns the location of a new warehouse; raises AlreadyExists, BadRequest, or Conflict for an overlap."""
        if name in self:
            raise AlreadyExists(f"Warehouse already exists: {name}")
        place = self._inside(location or f"{self._roots[0]}/{name}")
        if len(str(place)) > MAX_LOCATION_LENGTH:
            raise BadRequest(f"The location of a warehouse is at most {MAX_LOCATION_LENGTH} characters long")
        for other in self.values():
            if any(each.contains(place) or place.contains(each) for each in other.allowed):
                raise Conflict(f"The location {place} overlaps the warehouse {other.name}")
        return place

    def _inside(self, location: str) -> Location:
        place = parse_location(location)
        if not any(root.contains(place) and root != place for root in self._roots):
            roots = ", ".join(str(root) for root in self._roots)
            raise BadRequest(
                f"Invalid location of a warehouse: {location} does not lie inside {roots}",
                hint="Leave it out to let the catalog choose, or allow its folder with NUNATAK_WAREHOUSE_ROOTS.",
            )
        return place


def check_warehouse_name(name: str, reserved: Collection[str]) -> str:
    """Returns a valid name or raises BadRequest; `reserved` words would be ambiguous in a URL path."""
    if not NAME.fullmatch(name) or name in reserved:
        raise BadRequest(
            f"{name[:100]!r} cannot name a warehouse",
            hint="Use 1 to 64 letters, digits, _ and -, and no word that begins a path.",
        )
    return name


def keep_warehouse(warehouse: WarehousePlace) -> list[Change]:
    """Returns the change by which creating a namespace fails if the warehouse was dropped, and blocks a drop meanwhile.

    Tables and views need none: they lie in a namespace, and only an empty warehouse can be dropped.
    """
    if warehouse.configured:
        return []
    gone = NoSuchWarehouse(f"Warehouse does not exist: {warehouse.name}")
    return [Write("touch_warehouse", {"warehouse": warehouse.name}, gone)]


async def keep_fresh(warehouses: Warehouses) -> None:
    """Refresh the warehouses periodically until cancelled, to see changes by other servers."""
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        try:
            await warehouses.refresh()
        except CatalogError as error:
            log.warning("the warehouses cannot be read: %s", error.message)
