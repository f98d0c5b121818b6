"""What every operation is handed: the stores, the clock, the warehouses and the caller."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from nunatak.catalog.cache import MetadataCache
from nunatak.catalog.commit_contract import Progress
from nunatak.catalog.contention import Contention, Writer
from nunatak.catalog.large_work import LargeWork
from nunatak.catalog.table_locks import TableLocks
from nunatak.catalog.warehouses import WarehousePlace, Warehouses
from nunatak.catalog.write_behind import WriteBehind
from nunatak.database.store import Store
from nunatak.errors import NoSuchWarehouse
from nunatak.events.spool import Spool
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.store import ObjectStore

__all__ = ["Caller", "Catalog", "WarehousePlace"]


class Caller(msgspec.Struct, frozen=True):
    """Who asks and under which request; `key` and `request_hash` recognise a request that is sent again.

    `policy` is the version of the rights under which it was let in; `owns` says that what it creates becomes its own;
    `origin` is what the audit trail keeps of where it came from. `rights` tells what it may do with a securable; None
    means everything.
    """

    principal: str = "anonymous"
    request_id: str | None = None
    key: str | None = None
    request_hash: bytes = b""
    address: Writer | None = None
    policy: int | None = None
    owns: bool = False
    origin: str | None = None
    rights: Callable[[str], Awaitable[int]] | None = None
    progress: Progress = msgspec.field(default_factory=Progress)


@dataclass(frozen=True)
class Catalog:
    """Built once by server.py; nothing in it is needed by another server on the same database.

    `server_id` tells this process from every other, to say whose work a job is.
    """

    store: Store
    objects: ObjectStore
    warehouses: Warehouses
    default_warehouse: str
    now_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    cache: MetadataCache
    server_id: str
    namespace_separator: str = "\x1f"
    idempotency_seconds: int = 1800
    maintenance_lease_seconds: int = 90
    client_defaults: Mapping[str, str] = field(default_factory=dict)  # what an operator adds to /v1/config
    client_overrides: Mapping[str, str] = field(default_factory=dict)
    tells_names: bool = True  # whether a hint may name what was not asked for; not where names are secret
    table_locks: TableLocks = field(default_factory=TableLocks)
    contention: Contention = field(default_factory=Contention)
    large_work: LargeWork = field(default_factory=LargeWork)
    job_added: asyncio.Event = field(default_factory=asyncio.Event)
    spool: Spool | None = None  # None: nobody wants to analyse what happened
    write_behind: WriteBehind | None = (
        None  # None: others serve this database, too, and find metadata beside its pointer
    )

    def warehouse(self, name: str) -> WarehousePlace:
        """By name, or by its location as some engines are configured; an empty name means the default."""
        place = self.warehouses.get(name or self.default_warehouse)
        if place is not None:
            return place
        if name.startswith("file:/") or ("://" in name and not name.startswith("http")):
            wanted = parse_location(name)
            for candidate in self.warehouses.values():
                if candidate.allowed[0] == wanted:
                    return candidate
        if name.startswith(("http://", "https://")):  # some clients send the catalog's own address as the warehouse
            return self.warehouses[self.default_warehouse]
        raise self.no_such_warehouse(name)

    async def load_warehouse(self, name: str) -> WarehousePlace:
        """As `warehouse`, and one that another server has made is found, too."""
        try:
            return self.warehouse(name)
        except NoSuchWarehouse:
            if not await self.warehouses.refresh():
                raise
            return self.warehouse(name)

    def no_such_warehouse(self, name: str) -> NoSuchWarehouse:
        hint = f"Known warehouses are {', '.join(self.warehouses)}; leave it out to use {self.default_warehouse}."
        message = f"Warehouse does not exist: {name}" if name else "There is no default warehouse"
        return NoSuchWarehouse(message, hint=hint if self.tells_names else None)
