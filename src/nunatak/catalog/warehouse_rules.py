"""What a warehouse permits its tables: writes at all, and which format versions they have."""

from nunatak.catalog.warehouses import WarehousePlace
from nunatak.errors import BadRequest, ReadOnlyWarehouse
from nunatak.iceberg.properties import FORMAT_VERSION


def require_writable(warehouse: WarehousePlace) -> None:
    """Raises ReadOnlyWarehouse before anything is done for a request that changes a read-only warehouse."""
    if warehouse.read_only:
        raise ReadOnlyWarehouse(
            f"Warehouse {warehouse.name} is read-only; nothing was changed",
            hint="An administrator can allow writes with `nunatak warehouse change`.",
        )


def check_format_version(warehouse: WarehousePlace, after: int, base: int | None = None) -> None:
    """Raises BadRequest for a new table or an upgrade to a format version that the warehouse does not allow.

    `base` is the version of the table before the change: a table that has another version already keeps it.
    """
    if after == base or after in warehouse.format_versions:
        return
    allowed = ", ".join(f"v{each}" for each in warehouse.format_versions)
    raise BadRequest(
        f"Format version v{after} is not allowed in warehouse {warehouse.name} (allowed: {allowed})",
        hint=f"Set the table property {FORMAT_VERSION} to an allowed version, or use another warehouse.",
    )
