"""Handlers of the management API for warehouses: list, load, create, change, rotate the secret, check and drop.

Only SERVER_ADMIN may create and change: a storage profile names hosts that the server connects to.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from nunatak.access import administration, securables
from nunatak.access.privileges import Privilege
from nunatak.api import warehouse_wire as wire
from nunatak.api.admission import is_seen
from nunatak.api.http import Request
from nunatak.api.management_requests import (
    next_token,
    page_of,
    path_name,
    securable_exists,
    write_and_answer,
    write_changes,
)
from nunatak.api.route import TOP_WORDS, handler
from nunatak.api.warehouse_wire import ChangeWarehouseRequest, CreateWarehouseRequest, RotateSecretRequest
from nunatak.catalog import warehouse_changes
from nunatak.catalog.catalog import WarehousePlace
from nunatak.catalog.warehouse_record import LOCAL, WarehouseOptions, WarehouseRecord
from nunatak.catalog.warehouses import check_warehouse_name
from nunatak.errors import BadRequest, Conflict
from nunatak.objectstore.profile import LocalProfile, StorageProfile, StorageSecret
from nunatak.objectstore.profile_checks import endpoints_of
from nunatak.objectstore.self_test import CheckStep, passed
from nunatak.settings import SettingsError

T = TypeVar("T")


@handler
async def list_warehouses(request: Request) -> wire.ListWarehousesResponse:
    """Lists the warehouses that the caller may see."""
    warehouses = request.catalog.warehouses
    await warehouses.refresh()
    page = page_of(request, "warehouses")
    seen = await _seen_warehouses(request, sorted(name for name in warehouses if name > page.after))
    found = [warehouses[name] for name in seen[: page.limit + 1]]
    token = next_token(request, "warehouses", page, found, lambda each: each.name)
    shown = [await _shown(request, each) for each in found[: page.limit]]
    return wire.ListWarehousesResponse(shown, next_page_token=token)


@handler
async def load_warehouse(request: Request) -> wire.Warehouse:
    name = path_name(request)
    seen = await _seen_warehouses(request, [name])
    if not await securable_exists(request, securables.warehouse(name)) or not seen:
        raise request.catalog.no_such_warehouse(name)
    return await _shown(request, request.catalog.warehouses[name])


@handler
async def create_warehouse(request: Request) -> wire.CheckedWarehouse:
    """Creates a warehouse after testing its store; this process serves it at once, others soon."""
    wanted = request.decode(CreateWarehouseRequest)
    warehouses, actor = request.catalog.warehouses, request.actor
    name = check_warehouse_name(wanted.name, TOP_WORDS)
    profile = wanted.profile or LOCAL
    if wanted.location is None and not isinstance(profile, LocalProfile):
        raise BadRequest("The location is missing: name a place in a bucket or container")
    record = WarehouseRecord(
        name=name,
        location=wanted.location or warehouses.default_location(name),
        created_ms=actor.at_ms,
        profile=warehouse_changes.without_scope(profile) if wanted.unscoped else profile,
        options=WarehouseOptions(
            format_versions=wanted.format_versions,
            default_format_version=wanted.default_format_version,
            layout=wanted.layout,
            read_only=wanted.read_only,
            region=wanted.region,
        ),
        further_locations=tuple(wanted.further_locations),
    )
    place = await warehouse_changes.draft_new(warehouses, record, wanted.secret)
    steps = await warehouse_changes.require_good_store(request.catalog, place)
    changes = warehouse_changes.create(actor, warehouses, record, place)
    answer = await write_and_answer(request, changes, await _checked(request, place, steps))
    await warehouses.refresh()
    return answer


@handler
async def change_warehouse(request: Request) -> wire.CheckedWarehouse:
    """Changes a warehouse if it is still at the version that the caller has seen; its store is tested before."""
    wanted = request.decode(ChangeWarehouseRequest)
    catalog, warehouses = request.catalog, request.catalog.warehouses
    before = await warehouse_changes.load_record(warehouses, path_name(request))
    _check_version(before, wanted.version)
    options = before.options
    profile = _or(wanted.profile, before.profile)
    after = msgspec.structs.replace(
        before,
        profile=warehouse_changes.without_scope(profile) if wanted.unscoped else profile,
        options=WarehouseOptions(
            format_versions=_or(wanted.format_versions, options.format_versions),
            default_format_version=_or(wanted.default_format_version, options.default_format_version),
            layout=_or(wanted.layout, options.layout),
            read_only=_or(wanted.read_only, options.read_only),
            region=_or(wanted.region, options.region),
        ),
        further_locations=tuple(_or(wanted.further_locations, before.further_locations)),
        version=before.version + 1,
    )
    secret = _kept_secret(request, before, after.profile) if wanted.secret is msgspec.UNSET else wanted.secret
    place = await warehouse_changes.draft_warehouse(warehouses, after, secret)
    await warehouse_changes.refuse_to_strand(catalog, before, after)
    steps = await warehouse_changes.require_good_store(catalog, place)
    changes = warehouse_changes.change(request.actor, warehouses, before, after, place)
    answer = await write_and_answer(request, changes, await _checked(request, place, steps))
    await warehouses.refresh()
    return answer


@handler
async def rotate_secret(request: Request) -> wire.CheckedWarehouse:
    """Replaces the secret of a warehouse once the self-test has passed with the new one; no request fails meanwhile."""
    wanted = request.decode(RotateSecretRequest)
    warehouses = request.catalog.warehouses
    record = await warehouse_changes.load_record(warehouses, path_name(request))
    if isinstance(record.profile, LocalProfile):
        raise BadRequest(f"Warehouse {record.name} is a local folder, which has no secret")
    _check_version(record, record.version if wanted.version is None else wanted.version)
    after = msgspec.structs.replace(record, version=record.version + 1)
    place = await warehouse_changes.draft_warehouse(warehouses, after, wanted.secret)
    steps = await warehouse_changes.require_good_store(request.catalog, place)
    changes = warehouse_changes.rotate_secret(request.actor, warehouses, record, place)
    answer = await write_and_answer(request, changes, await _checked(request, place, steps))
    await warehouses.refresh()
    return answer


@handler
async def drop_warehouse(request: Request) -> None:
    """Drops an empty warehouse that was created over the API; raises Conflict for one from the settings."""
    name, warehouses = path_name(request), request.catalog.warehouses
    place = warehouses.get(name)
    if place is not None and place.configured:
        raise Conflict(f"Warehouse {name} is one of the settings", hint="Take it out of the settings instead.")
    await write_changes(request, administration.drop_warehouse(request.actor, name))
    await warehouses.refresh()


@handler
async def check_warehouse(request: Request) -> wire.CheckWarehouseResponse:
    """Tests the store of a warehouse on demand; the test writes and deletes a few small files."""
    name, catalog = path_name(request), request.catalog
    if not await securable_exists(request, securables.warehouse(name)):
        raise catalog.no_such_warehouse(name)
    steps = await warehouse_changes.check_store(catalog, catalog.warehouses[name])
    answer = wire.CheckWarehouseResponse(passed(steps), steps)
    row = administration.audit_change(
        request.actor, "check-warehouse", securables.warehouse(name), {"passed": answer.passed}
    )
    return await write_and_answer(request, [row], answer)


def _or(given: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(given, UnsetType) else given


def _check_version(record: WarehouseRecord, wanted: int) -> None:
    """Raises Conflict early, before the store is tested; the database compares again."""
    if record.version != wanted:
        raise Conflict(
            f"Warehouse {record.name} is at version {record.version}, not {wanted}",
            hint="Load it, look at what changed, and send the change again with its version.",
        )


def _kept_secret(request: Request, before: WarehouseRecord, profile: StorageProfile) -> StorageSecret | None:
    """Returns the stored secret; raises BadRequest if it would be used at an address that it was not given for."""
    try:
        secret = request.catalog.warehouses.open_secret(before)
    except SettingsError as error:
        raise Conflict(f"The stored secret cannot be read: {error}", hint="Send the secret along.") from error
    if secret is not None and endpoints_of(profile, secret) != endpoints_of(before.profile, secret):
        raise BadRequest(
            "Another endpoint needs the secret again",
            hint="Send the secret along: the stored one was given for the endpoint that the warehouse has now.",
        )
    return secret


async def _seen_warehouses(request: Request, names: Sequence[str]) -> list[str]:
    """Returns the warehouses on which, or anywhere inside which, the caller has a right."""
    guard, known = request.guard, request.known
    if guard is None or known is None:
        return list(names)
    places = [securables.warehouse(name) for name in names]
    held = await guard.ask(known, places)
    return [
        name for name, place, rights in zip(names, places, held, strict=True) if await is_seen(request, place, rights)
    ]


async def _checked(request: Request, each: WarehousePlace, steps: list[CheckStep]) -> wire.CheckedWarehouse:
    shown = await _shown(request, each)
    return wire.CheckedWarehouse(**msgspec.structs.asdict(shown), steps=steps)


async def _shown(request: Request, each: WarehousePlace) -> wire.Warehouse:
    """Returns what the caller may see: the profile names accounts and roles, which only administrators need."""
    held = await request.rights(securables.warehouse(each.name))
    administers = held & (Privilege.SERVER_ADMIN | Privilege.WAREHOUSE_ADMIN)
    return wire.Warehouse(
        name=each.name,
        location=each.location,
        allowed_locations=[str(place) for place in each.allowed],
        configured=each.configured,
        default=each.name == request.catalog.default_warehouse,
        version=each.version,
        storage=str(each.profile.__struct_config__.tag),
        profile=each.profile if administers else None,
        has_secret=each.secret is not None,
        read_only=each.read_only,
        format_versions=each.format_versions,
        default_format_version=each.default_format_version,
        layout="plain" if each.plain else "uuid",
        region=each.region,
    )
