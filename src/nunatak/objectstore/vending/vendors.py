"""Chooses the vendor of a storage profile, and says how its clients renew a credential."""

from nunatak.errors import Forbidden
from nunatak.objectstore.profile import (
    AdlsProfile,
    AdlsSecret,
    GcsProfile,
    GcsSecret,
    S3Profile,
    S3Secret,
    StorageProfile,
    StorageSecret,
)
from nunatak.objectstore.storage import CredentialScope, VendedCredential
from nunatak.objectstore.vending.adls_delegation import AdlsDelegation
from nunatak.objectstore.vending.gcs_token import GcsTokens
from nunatak.objectstore.vending.s3_sts import S3Sts, StaticKeys
from nunatak.objectstore.vending.vendor import Vendor


class NoVendor:
    """Vendor of warehouses whose clients bring credentials of their own."""

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        raise Forbidden("The warehouse vends no credentials")

    async def close(self) -> None:
        pass


def make_vendor(profile: StorageProfile, secret: StorageSecret | None) -> Vendor:
    """Returns the vendor of a warehouse, not connected yet; raises Forbidden if the secret is of another store."""
    if not vends(profile):
        return NoVendor()
    if isinstance(profile, S3Profile) and (secret is None or isinstance(secret, S3Secret)):
        return StaticKeys(profile, secret) if profile.static_keys else S3Sts(profile, secret)
    if isinstance(profile, AdlsProfile) and (secret is None or isinstance(secret, AdlsSecret)):
        return AdlsDelegation(profile, secret)
    if isinstance(profile, GcsProfile) and (secret is None or isinstance(secret, GcsSecret)):
        return GcsTokens(profile, secret)
    raise Forbidden("The secret of the warehouse belongs to another kind of store than its profile")


def vends(profile: StorageProfile) -> bool:
    """Whether clients of the warehouse can get credentials."""
    return isinstance(profile, S3Profile | AdlsProfile | GcsProfile) and "vended-credentials" in profile.delegation


def refresh_properties(profile: StorageProfile, endpoint: str) -> dict[str, str]:
    """Returns the properties by which clients fetch a new credential before theirs ends; `endpoint` is relative.

    Static keys never end: clients that refresh would miss the session token and its end.
    """
    if isinstance(profile, S3Profile) and not profile.static_keys:
        stem = "client"
    elif isinstance(profile, GcsProfile):
        stem = "gcs.oauth2"
    elif isinstance(profile, AdlsProfile):
        stem = "adls"
    else:
        return {}
    return {f"{stem}.refresh-credentials-enabled": "true", f"{stem}.refresh-credentials-endpoint": endpoint}
