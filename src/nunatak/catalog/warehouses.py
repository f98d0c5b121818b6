"""The warehouses of a server: those in its settings, and those created at run time, which all servers read."""

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from nunatak.access.vault import Vault, about_warehouse
from nunatak.catalog.warehouse_record import FORMAT_VERSIONS, LOCAL, WarehouseRecord, default_of, records_of
from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, CatalogError, Conflict, NoSuchWarehouse
from nunatak.iceberg.table_metadata import DEFAULT_FORMAT_VERSION
from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.profile import LocalProfile, StorageProfile, StorageSecret, decode_secret
from nunatak.objectstore.store import ObjectStore
from nunatak.settings import SettingsError

log = logging.getLogger(__name__)

REFRESH_SECONDS = 30  # how long a server may serve a warehouse that another server dropped; it is empty
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_LOCATION_LENGTH = 1000


@dataclass(frozen=True)
class WarehousePlace:
    """A warehouse as it is served; `allowed` are the locations its tables may use and starts with its own location.

    A warehouse that is not `configured` was created at run time and can be changed and dropped. `version` grows with
    every change: it belongs in ETags and in keys of caches that depend on the profile or the secret.
    """

    name: str
    location: str
    allowed: tuple[Location, ...]
    configured: bool = True
    plain: bool = False  # new tables lie at <namespace>/<table> where that folder is free
    profile: StorageProfile = LOCAL
    secret: StorageSecret | None = field(default=None, repr=False)
    version: int = 1
    read_only: bool = False
    format_versions: tuple[int, ...] = FORMAT_VERSIONS  # that tables may have
    default_format_version: int = DEFAULT_FORMAT_VERSION  # of new tables that ask for none
    region: str | None = None  # where the data must lie, as the operator declared


class Warehouses(dict[str, WarehousePlace]):
    """Warehouses by name: those of the settings are fixed, the others follow the rows of the database."""

    def __init__(
        self,
        configured: Mapping[str, WarehousePlace],
        store: Store,
        objects: ObjectStore,
        roots: tuple[Location, ...],
        plain: Collection[str] = (),
        vault: Vault | None = None,
        *,
        private_endpoints: bool = False,
    ) -> None:
        super().__init__(configured)
        self._store = store
        self._objects = objects
        self._roots = roots  # new warehouses are created inside these
        self._plain = plain  # names of warehouses whose tables lie at <namespace>/<table>
        self._vault = vault  # decrypts the secrets of storage profiles
        self.private_endpoints = private_endpoints  # whether profiles may name addresses of private networks
        self._refused: dict[str, str] = {}  # why a stored warehouse is not served
        self.records: dict[str, WarehouseRecord] = {}  # of the database, as last read

    async def refresh(self) -> bool:
        """Read the warehouses from the database; returns whether anything changed."""
        records, unreadable = records_of(await self._store.rows("list_warehouses", {}))
        before = dict(self)
        for name, place in before.items():
            if not place.configured and records.get(name) != self.records.get(name):
                del self[name]
        self.records = records
        for name, reason in unreadable.items():
            self._refuse(name, reason)
        for record in records.values():
            if record.name not in self:
                self._add(record)
        return before != dict(self)

    def _add(self, record: WarehouseRecord) -> None:
        try:
            place = self.place_of(record, self.open_secret(record))
            self._objects.serve(place.profile, place.secret, place.allowed)
        except CatalogError as error:  # created under other settings
            self._refuse(record.name, error.message)
        except SettingsError as error:  # the key file lacks a key
            self._refuse(record.name, str(error))
        else:
            self._refused.pop(record.name, None)
            self[record.name] = place

    def _refuse(self, name: str, reason: str) -> None:
        """Logs once why a stored warehouse is not served."""
        if self._refused.get(name) != reason:
            log.warning("warehouse %s cannot be served: %s", name, reason)
            self._refused[name] = reason

    def place_of(self, record: WarehouseRecord, secret: StorageSecret | None) -> WarehousePlace:
        """Returns the warehouse that a record describes; raises BadRequest if its location is not allowed here."""
        options = record.options
        layout = options.layout or ("plain" if record.name in self._plain else "uuid")
        return WarehousePlace(
            record.name,
            record.location,
            tuple(self._inside(each, record.profile) for each in record.locations),
            configured=False,
            plain=layout == "plain",
            profile=record.profile,
            secret=secret,
            version=record.version,
            read_only=options.read_only,
            format_versions=options.format_versions or FORMAT_VERSIONS,
            default_format_version=default_of(options),
            region=options.region,
        )

    def seal_secret(self, name: str, secret: StorageSecret | None) -> bytes | None:
        """Encrypts the secret of a warehouse for the database."""
        if secret is None:
            return None
        assert self._vault is not None
        return self._vault.seal(msgspec.json.encode(secret), about_warehouse(name))

    def open_secret(self, record: WarehouseRecord) -> StorageSecret | None:
        """Decrypts the secret of a warehouse; raises SettingsError if the key file lacks its key."""
        if record.secret is None:
            return None
        if self._vault is None:
            raise SettingsError("this process opens no secrets")
        secret: StorageSecret = decode_secret(self._vault.open(record.secret, about_warehouse(record.name)))
        return secret

    def places_of(self, record: WarehouseRecord) -> tuple[Location, ...]:
        """Returns the locations of a new or changed warehouse; raises BadRequest, or Conflict for an overlap."""
        places = tuple(self._inside(text, record.profile) for text in record.locations)
        for number, place in enumerate(places):
            if len(str(place)) > MAX_LOCATION_LENGTH:
                raise BadRequest(f"The location of a warehouse is at most {MAX_LOCATION_LENGTH} characters long")
            if any(_overlap(place, each) for each in places[:number]):
                raise BadRequest(f"The location {place} overlaps another location of the same warehouse")
            for other in self.values():
                if other.name != record.name and any(_overlap(place, each) for each in other.allowed):
                    raise Conflict(f"The location {place} overlaps the warehouse {other.name}")
        return places

    def default_location(self, name: str) -> str:
        """Returns the location of a new local warehouse that asks for none."""
        return f"{self._roots[0]}/{name}"

    def _inside(self, text: str, profile: StorageProfile) -> Location:
        """Parses a location; a local one must lie inside the roots, others are limited by the store's own rights."""
        place = parse_location(text)
        if not isinstance(profile, LocalProfile):
            return place
        if not any(root.contains(place) and root != place for root in self._roots):
            roots = ", ".join(str(root) for root in self._roots)
            raise BadRequest(
                f"Invalid location of a warehouse: {text} does not lie inside {roots}",
                hint="Leave it out to let the catalog choose, or allow its folder with NUNATAK_WAREHOUSE_ROOTS.",
            )
        return place


def _overlap(one: Location, other: Location) -> bool:
    return one.contains(other) or other.contains(one)


def check_warehouse_name(name: str, reserved: Collection[str]) -> str:
    """Returns a valid name or raises BadRequest; `reserved` words would be ambiguous in a URL path."""
    if not NAME.fullmatch(name) or name in reserved:
        raise BadRequest(
            f"{name[:100]!r} cannot name a warehouse",
            hint="Use 1 to 64 letters, digits, _ and -, and no word that begins a path.",
        )
    return name


def require_warehouse(warehouse: WarehousePlace) -> list[Change]:
    """Returns the change by which creating a namespace fails if the warehouse was dropped, and blocks a drop meanwhile.

    Tables and views need none: they lie in a namespace, and only an empty warehouse can be dropped.
    """
    if warehouse.configured:
        return []
    gone = NoSuchWarehouse(f"Warehouse does not exist: {warehouse.name}")
    return [Write("touch_warehouse", {"warehouse": warehouse.name}, gone)]


async def refresh_periodically(warehouses: Warehouses) -> None:
    """Refresh the warehouses periodically until cancelled, to see changes by other servers."""
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        try:
            await warehouses.refresh()
        except CatalogError as error:
            log.warning("reading the warehouses from the database failed: %s", error.message)
