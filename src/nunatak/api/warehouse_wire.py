"""Request and response bodies of the management API about warehouses."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nunatak.api.wire import PagedResponse, Wire
from nunatak.catalog.warehouse_record import Layout
from nunatak.iceberg.shapes import Int, Long
from nunatak.objectstore.profile import StorageProfile, StorageSecret
from nunatak.objectstore.self_test import CheckStep

WarehouseName = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_-]{1,64}$"})]
Version = Annotated[Long, Meta(description="Grows with every change of the warehouse.")]
FormatVersions = Annotated[tuple[Int, ...], Meta(description="That tables may have; empty: all that the server knows.")]
DefaultFormatVersion = Annotated[Int | None, Meta(description="Of new tables that ask for none.")]
FurtherLocations = Annotated[list[str], Meta(description="Where tables may lie besides the warehouse's own location.")]
Region = Annotated[str | None, Meta(description="Where the data must lie; the profile may name no other.")]
Unscoped = Annotated[
    bool,
    Meta(
        description="Accept a store that does not limit vended credentials to a table: none are vended, "
        "and requests are signed instead where the store allows it."
    ),
]


class Warehouse(Wire, frozen=True, kw_only=True):
    name: WarehouseName
    location: str
    allowed_locations: Annotated[list[str], Meta(description="Where tables may lie: its own location first.")]
    configured: Annotated[
        bool, Meta(description="Whether the settings define it; then it cannot be changed or dropped.")
    ]
    default: bool
    version: Version
    storage: Annotated[str, Meta(extra_json_schema={"enum": ["local", "s3", "adls", "gcs"]})]
    profile: Annotated[
        StorageProfile | None, Meta(description="How its files are reached; null for callers that may not change it.")
    ]
    has_secret: Annotated[bool, Meta(description="Whether a secret is stored; it is never shown.")]
    read_only: bool
    format_versions: tuple[int, ...]
    default_format_version: int
    layout: Layout
    region: Region


class CheckedWarehouse(Warehouse, frozen=True, kw_only=True):
    steps: Annotated[list[CheckStep], Meta(description="The self-test of the store; empty for a local folder.")]


class CheckWarehouseResponse(Wire, frozen=True):
    passed: Annotated[bool, Meta(description="Whether no step failed.")]
    steps: list[CheckStep]


class ListWarehousesResponse(PagedResponse, frozen=True):
    warehouses: list[Warehouse]


class CreateWarehouseRequest(Wire, frozen=True, kw_only=True):
    name: WarehouseName
    location: Annotated[
        str | None, Meta(description="A folder inside one of `warehouse_roots`, or a place in a bucket or container.")
    ] = None
    further_locations: FurtherLocations = msgspec.field(default_factory=list)
    profile: Annotated[StorageProfile | None, Meta(description="Absent: a local folder.")] = None
    secret: Annotated[
        StorageSecret | None, Meta(description="Absent: the server's own identity. Encrypted, and never shown again.")
    ] = None
    format_versions: FormatVersions = ()
    default_format_version: DefaultFormatVersion = None
    layout: Layout | None = None
    read_only: bool = False
    region: Region = None
    unscoped: Unscoped = False


class ChangeWarehouseRequest(Wire, frozen=True, kw_only=True):
    """What is absent stays as it is. Refused unless `version` is the current one."""

    version: Version
    further_locations: FurtherLocations | UnsetType = UNSET
    profile: StorageProfile | UnsetType = UNSET
    format_versions: FormatVersions | UnsetType = UNSET
    default_format_version: DefaultFormatVersion | UnsetType = UNSET
    layout: Layout | UnsetType | None = UNSET
    read_only: bool | UnsetType = UNSET
    region: Region | UnsetType = UNSET
    secret: Annotated[
        StorageSecret | UnsetType | None, Meta(description="Needed with a profile that names another endpoint.")
    ] = UNSET
    unscoped: Unscoped = False


class RotateSecretRequest(Wire, frozen=True, kw_only=True):
    """The new secret is tried by the self-test; if that fails, the old one stays."""

    secret: Annotated[StorageSecret | None, Meta(description="Null: the server's own identity from now on.")]
    version: Annotated[Long | None, Meta(description="The version to change; the current one if absent.")] = None
