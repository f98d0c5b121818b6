"""The stored description of a warehouse: location, storage profile, options and encrypted secret. No I/O."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from nunatak.errors import BadRequest
from nunatak.iceberg.table_metadata import DEFAULT_FORMAT_VERSION, SUPPORTED_FORMAT_VERSION
from nunatak.objectstore.profile import LocalProfile, StorageProfile, decode_profile

FORMAT_VERSIONS = tuple(range(1, SUPPORTED_FORMAT_VERSION + 1))
MAX_REGION_LENGTH = 100
MAX_PLACES = 50  # further locations of one warehouse: every commit compares its paths with all of them

LOCAL = LocalProfile()

Layout = Literal["uuid", "plain"]


class WarehouseOptions(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """What an operator decides about the tables of a warehouse; every field has a default, for older rows."""

    format_versions: tuple[int, ...] = ()  # that tables may have; empty: all that the server supports
    default_format_version: int | None = None  # of new tables that ask for none; None: the server's default
    layout: Layout | None = None  # of folders of new tables; None: as the setting plain_locations says
    read_only: bool = False
    region: str | None = None  # where the data must lie


class WarehouseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A row of nunatak_warehouses with its further locations. `secret` is encrypted."""

    name: str
    location: str
    created_ms: int
    version: int = 1
    profile: StorageProfile = LOCAL
    options: WarehouseOptions = WarehouseOptions()
    secret: bytes | None = None
    further_locations: tuple[str, ...] = ()

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.location, *self.further_locations)


def records_of(rows: Sequence[Sequence[Any]]) -> tuple[dict[str, WarehouseRecord], dict[str, str]]:
    """Returns the warehouses in the rows of `list_warehouses` by name, and why others cannot be read.

    A later version may have stored a profile that this one does not know.
    """
    found, unreadable = {}, {}
    for name, group in groupby(rows, lambda row: row[0]):
        try:
            found[name] = _record_of(list(group))
        except msgspec.DecodeError as error:
            unreadable[name] = f"its description cannot be read: {error}"
    return found, unreadable


def _record_of(rows: Sequence[Sequence[Any]]) -> WarehouseRecord:
    name, location, created_ms, version, profile, options, secret, _ = rows[0]
    return WarehouseRecord(
        name=name,
        location=location,
        created_ms=created_ms,
        version=version,
        profile=LOCAL if profile is None else decode_profile(profile),
        options=WarehouseOptions() if options is None else msgspec.json.decode(options, type=WarehouseOptions),
        secret=None if secret is None else bytes(secret),
        further_locations=tuple(row[7] for row in rows if row[7] is not None),
    )


def default_of(options: WarehouseOptions) -> int:
    """Returns the format version of new tables that ask for none; the highest allowed one if 2 is not allowed."""
    allowed = options.format_versions or FORMAT_VERSIONS
    if options.default_format_version is not None:
        return options.default_format_version
    return DEFAULT_FORMAT_VERSION if DEFAULT_FORMAT_VERSION in allowed else max(allowed)


def encode_json(value: StorageProfile | WarehouseOptions) -> str:
    return msgspec.json.encode(value).decode()


def check_options(options: WarehouseOptions, profile: StorageProfile) -> None:
    """Raises BadRequest for options that contradict each other or the profile."""
    unknown = [each for each in options.format_versions if each not in FORMAT_VERSIONS]
    if unknown or len(set(options.format_versions)) != len(options.format_versions):
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise BadRequest(f"Invalid format-versions: choose from {known}, each once")
    default = options.default_format_version
    if default is not None and default not in (options.format_versions or FORMAT_VERSIONS):
        raise BadRequest(f"Invalid default-format-version: {default} is not one of format-versions")
    if options.layout == "plain" and not isinstance(profile, LocalProfile):
        raise BadRequest(
            "Invalid layout: plain needs a local folder",
            hint="Object stores cannot create a folder atomically, so two tables could get the same one. Use uuid.",
        )
    region = options.region
    if region is not None and (not 1 <= len(region) <= MAX_REGION_LENGTH or not region.isprintable()):
        raise BadRequest(f"Invalid region: use 1 to {MAX_REGION_LENGTH} printable characters")
