"""Records of tables without a pointer whose files a principal may still reach: staged, or dropped a moment ago.

An engine that creates a table from a query writes its files before the commit; Spark's DROP TABLE … PURGE drops the
table first and then deletes the files itself. Both ask for credentials of a table that is not there.
"""

from typing import Literal

import msgspec

from nunatak.access.privileges import EVERYTHING
from nunatak.catalog import storage_access
from nunatak.catalog.cache import StorageFacts
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.ownership import securable_of
from nunatak.catalog.pointers import find_pointer
from nunatak.database.records import Change, Key, Write
from nunatak.objectstore.profile import LocalProfile
from nunatak.objectstore.storage import AccessLevel, CredentialScope

STAGED_ACCESS_MS = 4 * 3_600_000  # as long as a query may run that creates a table from its result
DROPPED_ACCESS_MS = 30 * 60_000  # as long as a client takes to delete the files of a table

State = Literal["staged", "dropped"]


class TemporaryAccess(msgspec.Struct, frozen=True):
    """What a record says of a table; `level` is what its principal could do when the record was made."""

    state: State
    level: AccessLevel
    facts: StorageFacts


def record_access(
    catalog: Catalog, caller: Caller, key: Key, state: State, level: AccessLevel, facts: StorageFacts
) -> list[Change]:
    """Returns the changes that make a record and forget those that have ended."""
    now_ms = catalog.now_ms()
    values = {
        "catalog": key.catalog,
        "namespace": key.namespace,
        "name": key.name,
        "principal": caller.principal,
        "state": state,
        "level": level.value,
        "facts": msgspec.json.encode(facts).decode(),
        "expires_ms": now_ms + (STAGED_ACCESS_MS if state == "staged" else DROPPED_ACCESS_MS),
    }
    return [Write("forget_ended_access", {"now_ms": now_ms}), Write("add_temporary_access", values)]


async def record_dropped(catalog: Catalog, warehouse: WarehousePlace, caller: Caller, key: Key) -> list[Change]:
    """Returns the changes for a table that is about to be dropped; none if its clients get no credentials.

    Reads the table before its pointer and its grants are gone. A shadow gets no record: its files belong to another
    catalog, and with the drop the server forgets that.
    """
    if isinstance(warehouse.profile, LocalProfile):
        return []
    loaded = await find_pointer(catalog, key, "TABLE")
    held = int(EVERYTHING) if caller.rights is None else await caller.rights(securable_of(key))
    level = storage_access.level_of(warehouse, held)
    if loaded is None or level is None:
        return []
    facts = loaded.find_storage_facts()
    if await storage_access.is_shadow(catalog, warehouse, facts.table_uuid):
        return []
    return record_access(catalog, caller, key, "dropped", level, facts)


async def find_access(catalog: Catalog, caller: Caller, key: Key) -> TemporaryAccess | None:
    """Returns the record of the caller, or None."""
    values = {"catalog": key.catalog, "namespace": key.namespace, "name": key.name, "principal": caller.principal}
    rows = await catalog.store.rows("find_temporary_access", {**values, "now_ms": catalog.now_ms()})
    if not rows:
        return None
    state, level, facts = rows[0]
    return TemporaryAccess(state, AccessLevel(level), msgspec.json.decode(facts, type=StorageFacts))


async def scope_of_record(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, key: Key, found: TemporaryAccess
) -> CredentialScope:
    """Returns the scope of a record; raises Forbidden if any table lies in its places by now."""
    places = storage_access.places_within(warehouse, found.facts)
    await storage_access.refuse_places_of_others(catalog, key, places, found.facts.table_uuid)
    level = AccessLevel.READ if warehouse.read_only else found.level
    return CredentialScope(caller.principal, found.facts.table_uuid, places, level)
