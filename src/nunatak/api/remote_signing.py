"""The handler that signs requests to the store for clients without credentials."""

import asyncio

import msgspec

from nunatak.api.encoded import Encoded
from nunatak.api.http import Request
from nunatak.api.route import handler
from nunatak.api.storage_access import scope_to_sign
from nunatak.api.wire import RemoteSignRequest, RemoteSignResponse
from nunatak.catalog.storage_access import storage_of_scope
from nunatak.errors import BadRequest
from nunatak.objectstore.storage import SigningRequest

# Java keeps a signature for 30 seconds by method and URI if the answer is private. Headers are not in its key, so only
# requests without a body may be reused.
_REUSABLE = ("GET", "HEAD")


@handler
async def sign_request(request: Request) -> Encoded[RemoteSignResponse]:
    """Signs one request inside the table's places; the privileges are checked each time."""
    wanted = request.decode(RemoteSignRequest)
    if wanted.provider not in (None, "s3"):
        raise BadRequest(f"Invalid provider: {wanted.provider[:50]!r}", hint="Only requests to S3 are signed.")
    scope = await scope_to_sign(request)
    asked = SigningRequest(wanted.method, wanted.uri, wanted.region, wanted.headers, wanted.body)
    storage = storage_of_scope(request.catalog, scope)
    if request.warehouse.secret is not None:
        signed = storage.sign(asked, scope)
    else:  # the keys come from botocore's chain, which may ask the instance's metadata service for new ones
        signed = await asyncio.to_thread(storage.sign, asked, scope)
    lifetime = b"private" if wanted.method in _REUSABLE else b"no-cache"
    answer = RemoteSignResponse(signed.uri, signed.headers)
    return Encoded(msgspec.json.encode(answer), cache_control=lifetime)
