"""Namespaces: create, list, load, update and drop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nunatak.access import securables
from nunatak.catalog import ownership
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.size_limits import MAX_PROPERTIES, MAX_TRIES, check_properties
from nunatak.catalog.warehouse_rules import require_writable
from nunatak.catalog.warehouses import require_warehouse
from nunatak.catalog.write import write
from nunatak.database.records import CreateNamespace, DropNamespace, StoredResponse, UpdateNamespace
from nunatak.database.store import PointerMoved
from nunatak.errors import BadRequest, CommitFailed, NoSuchNamespace, Unprocessable
from nunatak.iceberg.identifiers import Namespace, from_jdbc, print_namespace, to_jdbc
from nunatak.iceberg.metadata_files import slug
from nunatak.objectstore.location import require_inside

RESERVED_PROPERTY = "exists"  # the row with which JDBC clients mark a namespace; no client may set or remove it


@dataclass(frozen=True, slots=True)
class UpdatedProperties:
    """The result of a properties update; `missing` are the keys to remove that did not exist."""

    updated: list[str]
    removed: list[str]
    missing: list[str]


async def create_namespace(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    namespace: Namespace,
    properties: Mapping[str, str],
    answer: StoredResponse,
) -> None:
    """Create the namespace and its missing ancestors; `answer` is stored for the caller's idempotency key."""
    require_writable(warehouse)
    check_properties(properties)
    _check_location(warehouse, properties)
    ancestors = tuple(to_jdbc(namespace[:depth]) for depth in range(1, len(namespace)))
    kept = {key: value for key, value in properties.items() if key != RESERVED_PROPERTY}
    change = CreateNamespace(warehouse.name, to_jdbc(namespace), ancestors, kept, print_namespace(namespace))
    owned = ownership.grant_ownership(catalog, caller, securables.namespace(warehouse.name, namespace))
    await write(catalog, caller, [*require_warehouse(warehouse), change, *owned], answer)


def _check_location(warehouse: WarehousePlace, properties: Mapping[str, str]) -> None:
    """Raises BadRequest for a `location` outside the warehouse: tables would silently be created somewhere else."""
    if "location" in properties:
        require_inside(properties["location"], warehouse.allowed, "namespace location")


async def load_namespace(catalog: Catalog, warehouse: WarehousePlace, namespace: Namespace) -> dict[str, str]:
    """Returns the properties, always with `location`, since some engines build table locations from it."""
    properties = await catalog.store.find_namespace(warehouse.name, to_jdbc(namespace))
    if properties is None:
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(namespace)}")
    if "location" not in properties:
        properties["location"] = "/".join([warehouse.location, *(slug(level) for level in namespace)])
    return properties


async def namespace_exists(catalog: Catalog, warehouse: WarehousePlace, namespace: Namespace) -> bool:
    return await catalog.store.namespace_exists(warehouse.name, to_jdbc(namespace))


async def list_namespaces(
    catalog: Catalog, warehouse: WarehousePlace, parent: Namespace | None, after: str, limit: int
) -> tuple[list[Namespace], str | None]:
    """Returns the direct children of `parent` and the position of the next page; raises NoSuchNamespace."""
    if parent is not None and not await namespace_exists(catalog, warehouse, parent):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(parent)}")
    joined = to_jdbc(parent) if parent is not None else ""
    names, position = await catalog.store.list_namespaces(warehouse.name, joined, after, limit)
    return [from_jdbc(name) for name in names], position


async def update_namespace(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    namespace: Namespace,
    updates: Mapping[str, str],
    removals: Sequence[str],
    answer_of: Callable[[UpdatedProperties], StoredResponse],
) -> UpdatedProperties:
    """Set and remove properties; `answer_of` makes the response to store for the caller's idempotency key."""
    require_writable(warehouse)
    check_properties(updates)
    _check_location(warehouse, updates)
    both = [key for key in removals if key in updates]
    if both:
        raise Unprocessable(
            f"Invalid namespace update, cannot simultaneously set and remove keys: [{', '.join(sorted(set(both)))}]"
        )
    if len(removals) > MAX_PROPERTIES:
        raise BadRequest(f"Too many properties: {len(removals)}, at most {MAX_PROPERTIES} are allowed")
    unwanted = tuple(dict.fromkeys(removals))
    unique = tuple(key for key in unwanted if key != RESERVED_PROPERTY)
    kept = {key: value for key, value in updates.items() if key != RESERVED_PROPERTY}
    name, printed = to_jdbc(namespace), print_namespace(namespace)
    for _ in range(MAX_TRIES):
        properties = await catalog.store.find_namespace(warehouse.name, name) or {}
        missing = [key for key in unwanted if key not in properties]
        removed = tuple(key for key in unique if key in properties)
        updated = UpdatedProperties(list(updates), list(removed), missing)
        change = UpdateNamespace(warehouse.name, name, kept, unique, printed, removed)
        try:
            await write(catalog, caller, [change], answer_of(updated))
        except PointerMoved as error:  # the properties changed since they were read, so `updated` may be wrong
            moved = error
            continue
        return updated
    raise CommitFailed(f"Cannot update {printed}: {moved.message}", hint="Nothing was changed; try again.")


async def drop_namespace(catalog: Catalog, warehouse: WarehousePlace, caller: Caller, namespace: Namespace) -> None:
    require_writable(warehouse)
    change = DropNamespace(warehouse.name, to_jdbc(namespace), print_namespace(namespace))
    await write(
        catalog,
        caller,
        [change, *ownership.revoke_grants_inside(change.catalog, change.namespace)],
        StoredResponse(204),
    )
