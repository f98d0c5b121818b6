"""Handlers of the management API for warehouses."""

from collections.abc import Sequence

from nunatak.access import administration, securables
from nunatak.access.administration import WarehouseRow
from nunatak.api import management_wire as wire
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
from nunatak.api.management_wire import CreateWarehouseRequest
from nunatak.api.route import TOP_WORDS, handler
from nunatak.catalog.warehouses import WarehousePlace, check_warehouse_name
from nunatak.errors import Conflict


@handler
async def list_warehouses(request: Request) -> wire.ListWarehousesResponse:
    """Lists the warehouses that the caller may see."""
    warehouses = request.catalog.warehouses
    await warehouses.refresh()
    page = page_of(request, "warehouses")
    seen = await _seen_warehouses(request, sorted(name for name in warehouses if name > page.after))
    found = [warehouses[name] for name in seen[: page.limit + 1]]
    token = next_token(request, "warehouses", page, found, lambda each: each.name)
    shown = [_warehouse(request, each) for each in found[: page.limit]]
    return wire.ListWarehousesResponse(shown, next_page_token=token)


@handler
async def load_warehouse(request: Request) -> wire.Warehouse:
    name = path_name(request)
    seen = await _seen_warehouses(request, [name])
    if not await securable_exists(request, securables.warehouse(name)) or not seen:
        raise request.catalog.no_such_warehouse(name)
    return _warehouse(request, request.catalog.warehouses[name])


@handler
async def create_warehouse(request: Request) -> wire.Warehouse:
    wanted = request.decode(CreateWarehouseRequest)
    warehouses = request.catalog.warehouses
    name = check_warehouse_name(wanted.name, TOP_WORDS)
    await warehouses.refresh()
    place = warehouses.place_of_new(name, wanted.location)
    made = WarehousePlace(name, str(place), (place,), configured=False)
    changes = administration.create_warehouse(request.actor, WarehouseRow(name, made.location))
    answer = await write_and_answer(request, changes, _warehouse(request, made))
    await warehouses.refresh()  # so that this process serves it at once
    return answer


@handler
async def drop_warehouse(request: Request) -> None:
    """Drops an empty warehouse that was created over the API; raises Conflict for one from the settings."""
    name, warehouses = path_name(request), request.catalog.warehouses
    place = warehouses.get(name)
    if place is not None and place.configured:
        raise Conflict(f"Warehouse {name} is defined in the settings", hint="Remove it from the settings instead.")
    await write_changes(request, administration.drop_warehouse(request.actor, name))
    await warehouses.refresh()


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


def _warehouse(request: Request, each: WarehousePlace) -> wire.Warehouse:
    return wire.Warehouse(
        name=each.name,
        location=each.location,
        allowed_locations=[str(place) for place in each.allowed],
        configured=each.configured,
        default=each.name == request.catalog.default_warehouse,
    )
