"""Storage profiles and secrets: what is shown and what is refused."""

import pytest

from nunatak.objectstore.profile import AdlsSecret, GcsSecret, S3Secret, StorageSecret

CANARY = "c4n4ry-of-a-secret"


@pytest.mark.parametrize(
    "secret",
    [
        S3Secret("AKIA", CANARY, CANARY),
        AdlsSecret(account_key=CANARY, client_id="id", client_secret=CANARY),
        GcsSecret(service_account_key=CANARY, access_token=CANARY),
    ],
)
def test_a_printed_secret_does_not_show_itself(secret: StorageSecret) -> None:
    assert CANARY not in f"{secret} {secret!r} {[secret]} {(secret,)!s}"
