"""Creates and changes warehouses: checks the description, tests the store, and returns the changes to write."""

from collections.abc import Mapping

import msgspec

from nunatak.access import administration
from nunatak.access.administration import Actor, WarehouseRow
from nunatak.catalog.catalog import Catalog
from nunatak.catalog.warehouse_record import MAX_PLACES, WarehouseRecord, check_options, encode_json
from nunatak.catalog.warehouses import WarehousePlace, Warehouses
from nunatak.database.records import Change
from nunatak.errors import AlreadyExists, BadRequest, Conflict, NoSuchWarehouse, StorageTestFailed
from nunatak.objectstore.endpoints import check_endpoints
from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.opening import open_storage
from nunatak.objectstore.profile import LocalProfile, S3Profile, StorageProfile, StorageSecret
from nunatak.objectstore.profile_checks import check_profile, check_residency, endpoints_of
from nunatak.objectstore.scope_test import UNENFORCED
from nunatak.objectstore.self_test import CheckStep, check_storage, passed

UNSCOPED_HINT = (
    "Use a store that enforces session policies, or --unscoped: then nothing is vended, and requests are signed"
)


def without_scope(profile: StorageProfile) -> StorageProfile:
    """Returns the profile for a store that does not enforce scope: nothing is vended; S3 requests are signed."""
    if isinstance(profile, LocalProfile):
        return profile
    delegation = ("remote-signing",) if isinstance(profile, S3Profile) else ("none",)
    return msgspec.structs.replace(profile, delegation=delegation)


async def draft_warehouse(
    warehouses: Warehouses, record: WarehouseRecord, secret: StorageSecret | None
) -> WarehousePlace:
    """Checks a description and returns the warehouse that it would be; raises BadRequest or Conflict."""
    check_options(record.options, record.profile)
    if len(record.further_locations) > MAX_PLACES:
        raise BadRequest(f"Too many further-locations: at most {MAX_PLACES} are allowed")
    places = warehouses.places_of(record)
    check_profile(record.profile, secret, places)
    check_residency(record.profile, record.options.region)
    endpoints = endpoints_of(record.profile, secret, places)
    await check_endpoints(endpoints, allow_private=warehouses.private_endpoints)
    return warehouses.place_of(record, secret)


async def draft_new(warehouses: Warehouses, record: WarehouseRecord, secret: StorageSecret | None) -> WarehousePlace:
    """Checks the description of a new warehouse; raises AlreadyExists, BadRequest or Conflict."""
    await warehouses.refresh()
    if record.name in warehouses or record.name in warehouses.records:
        raise AlreadyExists(f"Warehouse already exists: {record.name}")
    return await draft_warehouse(warehouses, record, secret)


async def load_record(warehouses: Warehouses, name: str) -> WarehouseRecord:
    """Returns the current record of a warehouse that can be changed; raises NoSuchWarehouse or Conflict."""
    await warehouses.refresh()
    place = warehouses.get(name)
    if place is not None and place.configured:
        raise Conflict(f"Warehouse {name} is one of the settings", hint="Change the settings instead.")
    record = warehouses.records.get(name)
    if record is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {name}")
    return record


async def refuse_to_strand(catalog: Catalog, before: WarehouseRecord, after: WarehouseRecord) -> None:
    """Raises Conflict if a location is taken away in which tables of the warehouse lie: they could not be changed."""
    kept = [parse_location(text) for text in after.locations]
    for text in before.further_locations:
        place = parse_location(text)
        if any(each.contains(place) for each in kept):
            continue
        ancestors = [str(place.parent(size)) for size in range(len(place.segments))]
        for found in await catalog.store.find_overlapping(str(place), ancestors):
            if found.key.catalog == before.name:
                raise Conflict(f"The location {text} cannot be taken away: tables of {before.name} lie in it")


async def check_store(catalog: Catalog, place: WarehousePlace) -> list[CheckStep]:
    """Runs the self-test on the store of a warehouse that exists or is to be made; returns its steps."""
    if not place.configured:  # what the name of the endpoint leads to may have changed; the settings are trusted
        endpoints = endpoints_of(place.profile, place.secret, place.allowed)
        try:
            await check_endpoints(endpoints, allow_private=catalog.warehouses.private_endpoints)
        except BadRequest as error:
            return [CheckStep("endpoint", "failed", error.message)]
    storage = open_storage(place.profile, place.secret, place.allowed[0], catalog.objects.local)
    try:
        return await check_storage(storage, place.secret, place.allowed, region=place.region, read_only=place.read_only)
    finally:
        if storage is not catalog.objects.local:
            await storage.close()


async def require_good_store(catalog: Catalog, place: WarehousePlace) -> list[CheckStep]:
    """Tests the store before a warehouse is created or changed; raises StorageTestFailed with the evidence.

    A local folder is not tested: it is made by the first table.
    """
    if isinstance(place.profile, LocalProfile):
        return []
    steps = await check_store(catalog, place)
    if not passed(steps):
        told = "; ".join(f"{step.name}: {step.detail}" for step in steps if step.outcome == "failed")
        unscoped = any(UNENFORCED in step.detail for step in steps)
        raise StorageTestFailed(
            f"The store of warehouse {place.name} failed the self-test, and nothing was changed. {told}",
            hint=UNSCOPED_HINT if unscoped else None,
        )
    return steps


def create(actor: Actor, warehouses: Warehouses, record: WarehouseRecord, place: WarehousePlace) -> list[Change]:
    return administration.create_warehouse(actor, _row_of(warehouses, record, place, _described(record)))


def change(
    actor: Actor, warehouses: Warehouses, before: WarehouseRecord, after: WarehouseRecord, place: WarehousePlace
) -> list[Change]:
    """Returns the changes that replace `before` by `after`, if it is still at its version."""
    told = _described(after)
    changed = {name: value for name, value in told.items() if value != _described(before).get(name)}
    return administration.change_warehouse(actor, _row_of(warehouses, after, place, changed), before.version)


def rotate_secret(actor: Actor, warehouses: Warehouses, record: WarehouseRecord, place: WarehousePlace) -> list[Change]:
    row = _row_of(warehouses, record, place, {"has-secret": place.secret is not None})
    return administration.change_warehouse(actor, row, record.version, "rotate-warehouse-secret")


def _row_of(
    warehouses: Warehouses, record: WarehouseRecord, place: WarehousePlace, audited: Mapping[str, object]
) -> WarehouseRow:
    base, *further = (_canonical(each) for each in place.allowed)
    return WarehouseRow(
        record.name,
        base,
        None if isinstance(record.profile, LocalProfile) else encode_json(record.profile),
        encode_json(record.options),
        warehouses.seal_secret(record.name, place.secret),
        tuple(further),
        audited,
    )


def _canonical(place: Location) -> str:
    """Returns the location without a slash at the end, also of a whole bucket: the database compares by segments."""
    return str(place).rstrip("/")


def _described(record: WarehouseRecord) -> dict[str, object]:
    """Returns what the audit trail tells about a warehouse; no secret."""
    options: dict[str, object] = msgspec.to_builtins(record.options)
    profile = msgspec.to_builtins(record.profile)
    return {"profile": profile, "further-locations": list(record.further_locations), **options}
