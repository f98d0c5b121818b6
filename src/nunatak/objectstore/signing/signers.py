"""The signer of a storage profile."""

import time
from collections.abc import Callable

from nunatak.objectstore.cloud_stores import chain_of_botocore
from nunatak.objectstore.profile import S3Profile, S3Secret, StorageProfile, StorageSecret
from nunatak.objectstore.signing.s3_signer import S3Signer


def signs(profile: StorageProfile) -> bool:
    """Whether requests to the store are signed for clients that ask for it: a protocol of S3 alone."""
    return isinstance(profile, S3Profile) and "remote-signing" in profile.delegation


def make_signer(profile: StorageProfile, secret: StorageSecret | None) -> S3Signer | None:
    """Returns the signer with the warehouse's own keys, or those of the usual chain of AWS."""
    if not isinstance(profile, S3Profile) or not signs(profile):
        return None
    return S3Signer(profile, _keys(secret), lambda: time.time_ns() // 1_000_000)


def _keys(secret: StorageSecret | None) -> Callable[[], S3Secret]:
    if isinstance(secret, S3Secret):
        return lambda: secret
    chain = chain_of_botocore()

    def find() -> S3Secret:
        found = chain()
        token = found["token"]
        return S3Secret(str(found["access_key_id"]), str(found["secret_access_key"]), str(token) if token else None)

    return find
