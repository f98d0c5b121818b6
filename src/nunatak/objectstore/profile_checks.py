"""Checks a storage profile, its secret and its locations against each other before anything connects. No I/O."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from nunatak.errors import BadRequest
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import (
    AdlsProfile,
    AdlsSecret,
    GcsProfile,
    GcsSecret,
    LocalProfile,
    S3Profile,
    S3Secret,
    StorageProfile,
    StorageSecret,
    scheme_of,
)

# Region, bucket and account become parts of host names: nothing may pass that could name another host.
_REGION = re.compile(r"[a-z0-9-]{1,63}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_GCS_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_CONTAINER = re.compile(
    r"(\$root|[a-z0-9](?:[a-z0-9-]{1,61}[a-z0-9]))@[a-z0-9][a-z0-9-]{2,62}"
    r"\.dfs\.(core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn|fabric\.microsoft\.com)"
)
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}")
_ROLE = re.compile(r"arn:[A-Za-z0-9_+=,.@:/-]{1,290}")
# A policy or SAS token that limits access to a folder needs names without wildcards, variables or look-alikes.
_SEGMENT = re.compile(r"[A-Za-z0-9_.=+@-]*[A-Za-z0-9_=+@-]")
_SECRETS: dict[type, type] = {S3Profile: S3Secret, AdlsProfile: AdlsSecret, GcsProfile: GcsSecret}


def check_profile(profile: StorageProfile, secret: StorageSecret | None, places: Sequence[Location]) -> None:
    """Raises BadRequest if the parts do not fit together or could lead to a host that the profile does not name."""
    scheme = scheme_of(profile)
    for place in places:
        if place.scheme != scheme:
            raise BadRequest(f"Invalid location: {place} is no {scheme}: location, as the storage profile needs")
        _check_place(profile, place)
    if secret is not None and _SECRETS.get(type(profile)) is not type(secret):
        raise BadRequest(f"Invalid secret: it is not one for {scheme}: locations")
    for text in _texts(profile):
        if not text.isprintable():
            raise BadRequest("Invalid profile: a text holds a character that cannot be printed")
    if isinstance(profile, S3Profile):
        _check_s3(profile, secret)
    elif isinstance(profile, AdlsProfile | GcsProfile):
        _check_bearer(profile, secret)


def _check_place(profile: StorageProfile, place: Location) -> None:
    if isinstance(profile, LocalProfile):
        return
    pattern = {S3Profile: _BUCKET, AdlsProfile: _CONTAINER, GcsProfile: _GCS_BUCKET}[type(profile)]
    if not pattern.fullmatch(place.authority) or ".." in place.authority:
        raise BadRequest(f"Invalid location: {place.authority!r} names no bucket or container")
    for segment in place.segments:
        if not _SEGMENT.fullmatch(segment):
            raise BadRequest(
                f"Invalid location: {segment!r} cannot be part of the location of a warehouse",
                hint="Use letters, digits and . _ = + @ -, and no dot at the end of a name.",
            )


def _check_s3(profile: S3Profile, secret: StorageSecret | None) -> None:
    if not _REGION.fullmatch(profile.region):
        raise BadRequest(f"Invalid region: {profile.region!r}", hint="Write it as us-east-1.")
    if profile.role_arn is not None and not _ROLE.fullmatch(profile.role_arn):
        raise BadRequest(f"Invalid role-arn: {profile.role_arn!r}", hint="Write arn:aws:iam::ACCOUNT:role/NAME.")
    if profile.static_keys and secret is None:
        raise BadRequest("Invalid profile: static-keys hands the secret of the warehouse to clients, and it has none")


def _check_bearer(profile: AdlsProfile | GcsProfile, secret: StorageSecret | None) -> None:
    """Checks what ADLS and GCS share: they send tokens, which an endpoint that is not the cloud's could keep."""
    if secret is None and profile.endpoint is not None:
        raise BadRequest(
            "Invalid profile: an endpoint of its own needs a secret of its own",
            hint="The server's own identity is only shown to the cloud itself.",
        )
    if isinstance(profile, AdlsProfile) and profile.tenant_id and not _TENANT.fullmatch(profile.tenant_id):
        raise BadRequest(f"Invalid tenant-id: {profile.tenant_id!r}")
    if isinstance(secret, GcsSecret) and secret.service_account_key is not None:
        _service_account(secret.service_account_key)


def endpoints_of(profile: StorageProfile, secret: StorageSecret | None, places: Sequence[Location] = ()) -> list[str]:
    """Returns every URL that the profile, its secret and its buckets tell the server to connect to."""
    found: list[str | None] = []
    if isinstance(profile, S3Profile):
        found = [profile.endpoint, profile.sts_endpoint]
        if profile.endpoint is not None and not profile.uses_path_style:  # then the bucket is a part of the host name
            found += [profile.endpoint.replace("://", f"://{place.authority}.", 1) for place in places]
    elif isinstance(profile, AdlsProfile):
        found = [profile.endpoint]
    elif isinstance(profile, GcsProfile):
        found = [profile.endpoint, profile.token_endpoint]
    if isinstance(secret, GcsSecret) and secret.service_account_key is not None:
        found.append(_service_account(secret.service_account_key).get("token_uri"))
    return [each for each in found if each]


def _service_account(text: str) -> dict[str, Any]:
    """Reads a key file of Google; raises BadRequest for other kinds, which may name commands and files."""
    try:
        key = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadRequest("Invalid service-account-key: it is not the JSON of a key file") from error
    uri = key.get("token_uri", "")
    if key.get("type") != "service_account" or not isinstance(uri, str):
        raise BadRequest("Invalid service-account-key: only a key of type service_account is accepted")
    if uri and not uri.startswith("https://"):
        raise BadRequest("Invalid service-account-key: its token_uri is no https: address")
    return key


def check_residency(profile: StorageProfile, region: str | None) -> None:
    """Raises BadRequest if the profile names another region than the one that the warehouse must lie in."""
    if region is not None and isinstance(profile, S3Profile) and profile.region != region:
        raise BadRequest(
            f"The warehouse must lie in {region}, but its storage profile names {profile.region}",
            hint="Use a bucket of that region, or declare the other region.",
        )


def _texts(profile: StorageProfile) -> list[str]:
    return [value for value in msgspec.structs.astuple(profile) if isinstance(value, str)]
