"""Vends ADLS credentials: SAS tokens of one directory, signed with a user delegation key that is kept for a while."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from nunatak.errors import Forbidden
from nunatak.objectstore.extras import load_library
from nunatak.objectstore.profile import AdlsProfile, AdlsSecret
from nunatak.objectstore.storage import CredentialScope, VendedCredential
from nunatak.objectstore.vending.adls_sas import EARLIER_START, DirectorySas, directory_sas
from nunatak.objectstore.vending.vendor import CONNECT_SECONDS, READ_SECONDS, MadeOnce, NoCredential, VendingThreads

KEY_LIFE = timedelta(hours=24)  # of a user delegation key; Azure allows seven days


class AdlsDelegation:
    """Vendor for warehouses on ADLS. Signs by itself; Azure is asked only for the delegation key, once a day.

    `token_credential` replaces the login at Entra ID, for emulators.
    """

    def __init__(self, profile: AdlsProfile, secret: AdlsSecret | None, token_credential: object = None) -> None:
        self._profile, self._secret = profile, secret
        self._threads = VendingThreads()
        self._login = MadeOnce(lambda: token_credential or self._make_login())
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[Any, datetime]] = {}  # by account: the key and when it ends

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        if self._secret is not None and self._secret.client_id is None:
            raise Forbidden(
                "The warehouse has an account key only, and a SAS of one directory needs a client of Entra ID",
                hint="Give it client-id and client-secret; an account key is never used for clients.",
            )
        terms = directory_sas(self._profile, scope, int(time.time() * 1000))
        return await self._threads.run(lambda: self._sign(scope, terms))

    async def close(self) -> None:
        self._threads.close()

    def _sign(self, scope: CredentialScope, terms: DirectorySas) -> VendedCredential:
        token = sign_directory_sas(terms, self._delegation_key(terms))
        expires_ms = int(terms.expires.timestamp() * 1000)
        config = {
            f"adls.sas-token.{terms.host}": token,
            f"adls.sas-token-expires-at-ms.{terms.host}": str(expires_ms),
        }
        return VendedCredential(str(scope.places[0]), config, expires_ms)

    def _delegation_key(self, terms: DirectorySas) -> Any:
        with self._lock:  # one question for all that wait
            kept = self._keys.get(terms.account)
            if kept is not None and kept[1] >= terms.expires:
                return kept[0]
            now = datetime.now(UTC).replace(microsecond=0)
            ends = max(now + KEY_LIFE, terms.expires)
            key = self._ask(terms, now - EARLIER_START, ends)
            self._keys[terms.account] = (key, ends)
            return key

    def _ask(self, terms: DirectorySas, starts: datetime, ends: datetime) -> Any:
        blob = load_library("azure.storage.blob", "azure")
        exceptions = load_library("azure.core.exceptions", "azure")
        url = self._profile.endpoint or f"https://{terms.host.replace('.dfs.', '.blob.', 1)}"
        try:
            with blob.BlobServiceClient(
                url,
                credential=self._login.get(),
                retry_total=0,
                connection_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
            ) as client:
                return client.get_user_delegation_key(starts, ends)
        except exceptions.AzureError as error:
            code = getattr(error, "error_code", None) or type(error).__name__
            raise NoCredential(f"Azure issued no user delegation key: {code}") from error

    def _make_login(self) -> object:
        identity = load_library("azure.identity", "azure")
        secret = self._secret
        if secret is None:
            made: object = identity.DefaultAzureCredential()
        else:
            made = identity.ClientSecretCredential(self._profile.tenant_id, secret.client_id, secret.client_secret)
        return made


def sign_directory_sas(terms: DirectorySas, delegation_key: object) -> str:
    """Returns the SAS token, as a query string without a question mark."""
    datalake = load_library("azure.storage.filedatalake", "azure")
    return str(
        datalake.generate_directory_sas(
            terms.account,
            terms.container,
            terms.directory,
            credential=delegation_key,
            permission=terms.permissions,
            start=terms.starts,
            expiry=terms.expires,
            protocol="https",
        )
    )
