"""The dependencies of every operation: the stores, the clock, the warehouses and the caller."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from nunatak.catalog.cache import MetadataCache
from nunatak.catalog.commit_contract import Progress
from nunatak.catalog.contention import Contention, Writer
from nunatak.catalog.large_work import LargeWork
from nunatak.catalog.table_locks import TableLocks
from nunatak.catalog.unpublished_files import UnpublishedFiles
from nunatak.catalog.warehouses import WarehousePlace, Warehouses
from nunatak.catalog.write_behind import WriteBehind
from nunatak.database.store import Store
from nunatak.errors import NoSuchWarehouse
from nunatak.events.spool import Spool
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.store import ObjectStore
from nunatak.objectstore.vending.cache import CredentialCache

__all__ = ["Caller", "Catalog", "WarehousePlace"]


class Caller(msgspec.Struct, frozen=True):
    """The principal and the request; `key` (the idempotency key) and `request_hash` identify a retried request.

    `policy` is the policy version under which the request was authorized; with `owns` the principal becomes the owner
    of what it creates; `origin` is the origin of the request in the audit trail, and `client` its User-Agent. `rights`
    returns the privileges on a securable; None means all.
    """

    principal: str = "anonymous"
    request_id: str | None = None
    key: str | None = None
    request_hash: bytes = b""
    address: Writer | None = None
    policy: int | None = None
    owns: bool = False
    origin: str | None = None
    client: str | None = None
    rights: Callable[[str], Awaitable[int]] | None = None
    progress: Progress = msgspec.field(default_factory=Progress)


@dataclass(frozen=True)
class Catalog:
    """The dependencies of every operation, built once by server.py; other servers on the database need none of it.

    `server_id` identifies this process as the owner of a job lease.
    """

    store: Store
    objects: ObjectStore
    warehouses: Warehouses
    default_warehouse: str
    now_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    cache: MetadataCache
    server_id: str
    credentials: CredentialCache
    namespace_separator: str = "\x1f"
    idempotency_seconds: int = 1800
    maintenance_lease_seconds: int = 90
    client_defaults: Mapping[str, str] = field(default_factory=dict)  # an operator's additions to /v1/config
    client_overrides: Mapping[str, str] = field(default_factory=dict)
    hints_show_names: bool = (
        True  # whether a hint may contain names that the request did not; False where names are secret
    )
    table_locks: TableLocks = field(default_factory=TableLocks)
    contention: Contention = field(default_factory=Contention)
    large_work: LargeWork = field(default_factory=LargeWork)
    job_added: asyncio.Event = field(default_factory=asyncio.Event)
    unpublished: UnpublishedFiles = field(default_factory=UnpublishedFiles)
    spool: Spool | None = None  # None: this process does not spool events
    write_behind: WriteBehind | None = (
        None  # None: other servers use this database, and read the content stored with a pointer
    )

    def warehouse(self, name: str) -> WarehousePlace:
        """Returns the warehouse by name or, as some engines are configured, by location; "" means the default."""
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
        """Returns what `warehouse` does, and also finds a warehouse that another server created."""
        try:
            return self.warehouse(name)
        except NoSuchWarehouse:
            if not await self.warehouses.refresh():
                raise
            return self.warehouse(name)

    def no_such_warehouse(self, name: str) -> NoSuchWarehouse:
        hint = f"Known warehouses are {', '.join(self.warehouses)}; leave it out to use {self.default_warehouse}."
        message = f"Warehouse does not exist: {name}" if name else "No default warehouse is configured"
        return NoSuchWarehouse(message, hint=hint if self.hints_show_names else None)
