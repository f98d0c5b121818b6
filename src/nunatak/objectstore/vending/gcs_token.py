"""Vends GCS credentials: exchanges a token of the server for one that an access boundary limits to a table."""

import threading
import time
import urllib.error
import urllib.request
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

import msgspec

from nunatak.errors import Forbidden
from nunatak.objectstore.extras import load_library
from nunatak.objectstore.profile import GcsProfile, GcsSecret
from nunatak.objectstore.storage import CredentialScope, VendedCredential
from nunatak.objectstore.vending.gcs_boundary import access_boundary
from nunatak.objectstore.vending.vendor import READ_SECONDS, MadeOnce, NoCredential, VendingThreads

TOKEN_ENDPOINT = "https://sts.googleapis.com/v1/token"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
MAX_ANSWER_BYTES = 64 * 1024


class _Exchanged(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int | None = None


class GcsTokens:
    """Vendor for warehouses on GCS; the server's own token is kept by google-auth until it ends."""

    def __init__(self, profile: GcsProfile, secret: GcsSecret | None) -> None:
        self._profile, self._secret = profile, secret
        self._threads = VendingThreads()
        self._source = MadeOnce(self._make_source)
        self._refreshing = threading.Lock()

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        boundary = access_boundary(self._profile, scope)
        return await self._threads.run(lambda: self._exchange(scope, boundary))

    async def close(self) -> None:
        self._threads.close()

    def _exchange(self, scope: CredentialScope, boundary: dict[str, Any]) -> VendedCredential:
        token, source_ends_ms = self._source_token()
        form = {
            "grant_type": _EXCHANGE,
            "subject_token": token,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
            "options": msgspec.json.encode(boundary).decode(),
        }
        request = urllib.request.Request(
            self._profile.token_endpoint or TOKEN_ENDPOINT,
            urlencode(form).encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        asked_ms = int(time.time() * 1000)
        try:
            with urllib.request.urlopen(request, timeout=READ_SECONDS) as answer:
                got = msgspec.json.decode(answer.read(MAX_ANSWER_BYTES), type=_Exchanged)
        except urllib.error.HTTPError as error:
            with error:
                raise NoCredential(f"The token exchange was refused with status {error.code}") from error
        except (OSError, msgspec.DecodeError) as error:
            raise NoCredential(f"The token exchange cannot be used: {type(error).__name__}") from error
        # A downscoped token ends no later than the token it was made from.
        ends = [self._profile.session_seconds, *([got.expires_in] if got.expires_in is not None else [])]
        expires_ms = min(asked_ms + min(ends) * 1000, source_ends_ms)
        config = {"gcs.oauth2.token": got.access_token, "gcs.oauth2.token-expires-at": str(expires_ms)}
        return VendedCredential(str(scope.places[0]), config, expires_ms)

    def _source_token(self) -> tuple[str, int]:
        """Returns a token of the server and when it ends; a new one if half of its hour has passed."""
        if self._secret is not None and self._secret.access_token is not None:
            return self._secret.access_token, int(time.time() * 1000) + self._profile.session_seconds * 1000
        source: Any = self._source.get()
        exceptions = load_library("google.auth.exceptions", "gcs")
        transport = load_library("google.auth.transport.requests", "gcs")
        with self._refreshing:
            try:
                if not source.valid or _ends_ms(source) - time.time() * 1000 < self._profile.session_seconds * 500:
                    source.refresh(transport.Request())
            except exceptions.GoogleAuthError as error:
                raise NoCredential(f"Google issued no token to the server: {type(error).__name__}") from error
            return str(source.token), _ends_ms(source)

    def _make_source(self) -> object:
        if self._secret is not None and self._secret.service_account_key is not None:
            accounts = load_library("google.oauth2.service_account", "gcs")
            try:
                info = msgspec.json.decode(self._secret.service_account_key)
                made: object = accounts.Credentials.from_service_account_info(info, scopes=[_SCOPE])
            except (ValueError, msgspec.DecodeError) as error:
                raise Forbidden("The service account key of the warehouse cannot be read") from error
            return made
        google = load_library("google.auth", "gcs")
        exceptions = load_library("google.auth.exceptions", "gcs")
        try:
            made, _ = google.default(scopes=[_SCOPE])
        except exceptions.GoogleAuthError as error:
            raise NoCredential(f"The server has no credentials of Google: {type(error).__name__}") from error
        return made


def _ends_ms(source: Any) -> int:
    """Returns when the token of google-auth ends; its `expiry` is in UTC without saying so."""
    if source.expiry is None:
        return int(time.time() * 1000)
    return int(source.expiry.replace(tzinfo=UTC).timestamp() * 1000)
