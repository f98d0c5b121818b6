"""Views: create, load, replace and register. Dropping, renaming and listing are in tables.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nunatak.catalog.cache import Loaded
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.foreign_paths import Registering, refuse_foreign
from nunatak.catalog.large_work import LARGE_BYTES, LARGE_METADATA_BYTES
from nunatak.catalog.pointers import check_chosen, check_file, check_places, key_of, load_pointer, make_loaded
from nunatak.catalog.publish import Publication, publish
from nunatak.catalog.size_limits import MAX_TRIES, check_counts, check_properties
from nunatak.catalog.tables import default_location, is_wide, refuse_existing
from nunatak.catalog.warehouse_rules import require_writable
from nunatak.database.store import PointerMoved
from nunatak.errors import CommitFailed, NoSuchNamespace
from nunatak.iceberg import java_readable, view_commit, view_metadata
from nunatak.iceberg.chosen_places import places_of_updates
from nunatak.iceberg.identifiers import Identifier, print_namespace
from nunatak.iceberg.view_commit import CommitViewRequest
from nunatak.iceberg.view_metadata import ViewMetadata
from nunatak.objectstore.location import require_inside


@dataclass(frozen=True)
class NewView:
    """The view that a client asks to create."""

    identifier: Identifier
    schema: dict[str, Any]
    view_version: dict[str, Any]
    location: str | None
    properties: Mapping[str, str]


async def create_view(catalog: Catalog, warehouse: WarehousePlace, caller: Caller, wanted: NewView) -> Loaded:
    require_writable(warehouse)
    key = key_of(warehouse, wanted.identifier)
    namespace = await catalog.store.find_namespace(key.catalog, key.namespace)
    if namespace is None:
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(wanted.identifier.namespace)}")
    await refuse_existing(catalog, key, wanted.identifier, "VIEW")
    check_properties(wanted.properties)
    view_uuid = catalog.new_uuid()
    metadata = await catalog.large_work.run_if(
        is_wide(wanted.schema),
        view_commit.new_view,
        schema=wanted.schema,
        view_version=wanted.view_version,
        location=wanted.location or default_location(warehouse, namespace, wanted.identifier, view_uuid),
        properties=wanted.properties,
        view_uuid=view_uuid,
        now_ms=catalog.now_ms(),
    )
    own = await check_places(catalog, warehouse, key, metadata)
    await refuse_foreign(catalog, caller, key, metadata, None, own, ())
    new = Publication(key, wanted.identifier, "create-view", None, None, metadata)
    (loaded,) = await publish(catalog, caller, [new])
    return loaded


async def load_view(catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier) -> Loaded:
    loaded = await load_pointer(catalog, warehouse, identifier, "VIEW")
    check_file(loaded)
    return loaded


async def commit_view(
    catalog: Catalog,
    warehouse: WarehousePlace,
    caller: Caller,
    identifier: Identifier,
    request: CommitViewRequest,
    size_bytes: int = 0,
) -> Loaded:
    """Change a view; if the pointer moved, apply the request to the newer metadata if its requirements still hold.

    `size_bytes` is the size of the request body.
    """
    require_writable(warehouse)
    check_counts(updates=len(request.updates), requirements=len(request.requirements))
    key = key_of(warehouse, identifier)
    async with catalog.table_locks.acquire([key]):
        for _ in range(MAX_TRIES):
            before = await load_pointer(catalog, warehouse, identifier, "VIEW")
            base = await catalog.large_work.run_if(len(before.answer) > LARGE_BYTES, before.view)
            view_commit.check_all(request.requirements, base)
            check_chosen(warehouse, places_of_updates(request.updates))
            after = await catalog.large_work.run_if(
                size_bytes > LARGE_BYTES or len(before.answer) > LARGE_METADATA_BYTES,
                view_commit.apply_all,
                request.updates,
                base,
                now_ms=catalog.now_ms(),
            )
            if after is not base:
                check_properties(after.properties)
                own = await check_places(catalog, warehouse, key, after)
                await refuse_foreign(catalog, caller, key, after, base, own, ())
            new = Publication(key, identifier, "commit-view", before, base, after)
            try:
                (loaded,) = await publish(catalog, caller, [new])
            except PointerMoved as error:
                moved = error
                continue
            return loaded
    raise CommitFailed(moved.message)


async def register_view(
    catalog: Catalog, warehouse: WarehousePlace, caller: Caller, identifier: Identifier, metadata_location: str
) -> Loaded:
    require_writable(warehouse)
    key = key_of(warehouse, identifier)
    if not await catalog.store.namespace_exists(key.catalog, key.namespace):
        raise NoSuchNamespace(f"Namespace does not exist: {print_namespace(identifier.namespace)}")
    await refuse_existing(catalog, key, identifier, "VIEW")
    require_inside(metadata_location, warehouse.allowed, "metadata location")
    registering = Registering(catalog, caller, key, metadata_location)
    data = await registering.read()
    metadata = await catalog.large_work.run(_read_registered, data)
    await registering.check(metadata)
    await check_places(catalog, warehouse, key, metadata)
    registered = make_loaded(metadata_location, data, metadata)
    new = Publication(key, identifier, "register-view", None, None, metadata, registered=registered)
    (loaded,) = await publish(catalog, caller, [new])
    return loaded


def _read_registered(data: bytes) -> ViewMetadata:
    """Decodes a metadata file that another writer made, with the same checks as for a commit."""
    metadata = view_metadata.decode(data)
    java_readable.check_view(data, metadata)
    check_properties(metadata.properties)
    return metadata
