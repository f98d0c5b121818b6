"""Tests remote signing on the store itself: a signed request inside the scope works, one outside is not signed."""

import asyncio
import http.client
from urllib.parse import quote, urlsplit

from nunatak.errors import CatalogError, Forbidden
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import S3Profile
from nunatak.objectstore.scope_test import TABLE, Step
from nunatak.objectstore.storage import AccessLevel, CredentialScope, SignedRequest, SigningRequest, Storage
from nunatak.objectstore.store_clock import TIMEOUT_SECONDS, store_url

NAME = "sign"


async def check_signing(storage: Storage, folder: Location) -> Step:
    """Writes a file with nothing but a signature; `folder` is a new one in the warehouse, which the caller deletes."""
    profile = storage.profile
    assert isinstance(profile, S3Profile)
    table = Location(folder.scheme, folder.authority, (*folder.segments, "signed"))
    scope = CredentialScope("nunatak-self-test", TABLE, (table,), AccessLevel.READ_WRITE)
    try:
        signed = storage.sign(_put(profile, Location("s3", folder.authority, (*table.segments, "new.txt"))), scope)
        status = await asyncio.to_thread(_send, signed)
    except CatalogError as error:
        return NAME, "failed", f"A request cannot be signed: {error.message}"
    except (OSError, http.client.HTTPException) as error:
        return NAME, "failed", f"The store did not answer a signed request: {type(error).__name__}"
    if not 200 <= status < 300:
        return NAME, "failed", f"The store answered {status} to a request that the server signed"
    try:
        storage.sign(_put(profile, Location("s3", folder.authority, (*folder.segments, "signed0", "new.txt"))), scope)
    except Forbidden:
        return NAME, "ok", ""
    return NAME, "failed", "The server signed a request outside the folder of the table"


def _put(profile: S3Profile, file: Location) -> SigningRequest:
    base, key = store_url(profile, file).rstrip("/"), quote("/".join(file.segments))
    if profile.uses_path_style:
        uri = f"{base}/{file.authority}/{key}"
    else:
        uri = f"{base.replace('://', f'://{file.authority}.', 1)}/{key}"
    return SigningRequest("PUT", uri, profile.region, {})


def _send(signed: SignedRequest) -> int:
    parts = urlsplit(signed.uri)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    try:
        headers = {name: ",".join(values) for name, values in signed.headers.items()}
        connection.request("PUT", parts.path, b"test", headers)
        return connection.getresponse().status
    finally:
        connection.close()
