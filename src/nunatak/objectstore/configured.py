"""Storage profiles and secrets of the warehouses in the settings."""

import json
from collections.abc import Iterator

import msgspec

from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import (
    LocalProfile,
    S3Profile,
    S3Secret,
    StorageProfile,
    StorageSecret,
)
from nunatak.settings import Settings, SettingsError

TYPES = {"s3": "s3", "abfss": "adls", "gs": "gcs"}  # of profiles, by the scheme of their locations


def configured_storage(settings: Settings, name: str, place: Location) -> tuple[StorageProfile, StorageSecret | None]:
    """Returns the profile and the secret of a warehouse at this location; raises SettingsError."""
    if place.scheme == "file":
        return LocalProfile(), None
    if place.scheme not in TYPES:
        supported = ", ".join(("file", *TYPES))
        raise SettingsError(f"warehouse {name}: {place} cannot be served; supported are {supported}")
    return _profile(settings, name, TYPES[place.scheme]), _secret(settings, name, TYPES[place.scheme])


def _profile(settings: Settings, name: str, kind: str) -> StorageProfile:
    given = dict(settings.storage).get(name)
    if given is None and kind == "s3":
        return S3Profile(
            region=settings.s3_region, endpoint=settings.s3_endpoint or None, role_arn=settings.s3_role_arn or None
        )
    try:
        profile: StorageProfile = msgspec.convert({"type": kind, **json.loads(given or "{}")}, StorageProfile)
    except msgspec.MsgspecError as error:
        raise SettingsError(f"storage of the warehouse {name}: {error}") from error
    return profile


def _secret(settings: Settings, name: str, kind: str) -> StorageSecret | None:
    given = _secrets(settings).get(name)
    if given is None:
        key, secret = settings.s3_access_key_id, settings.s3_secret_access_key.reveal()
        if bool(key) != bool(secret):
            raise SettingsError("s3_access_key_id and s3_secret_access_key belong together: set both, or none")
        return S3Secret(key, secret) if kind == "s3" and key else None
    try:
        found: StorageSecret = msgspec.convert({"type": kind, **given}, StorageSecret)
    except msgspec.MsgspecError:
        # The error of msgspec may hold a part of what it could not read.
        raise SettingsError(f"storage_secrets of the warehouse {name} are not those of {kind}") from None
    return found


def _secrets(settings: Settings) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(settings.storage_secrets.reveal() or "{}")
    return found


def configured_secrets(settings: Settings) -> Iterator[str]:
    """Yields every text in `storage_secrets`: none of them may reach a client."""
    for table in _secrets(settings).values():
        yield from (value for name, value in table.items() if isinstance(value, str) and name != "type")
