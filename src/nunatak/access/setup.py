"""Builds the authenticators and the authorizer from the settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nunatak.access.cedar import open_cedar
from nunatak.access.certificate import CertificateAuthenticator, check_tls
from nunatak.access.decisions import Authorizer
from nunatak.access.embedded import EmbeddedIdentity, open_identity
from nunatak.access.grants import Grants
from nunatak.access.guard import Guard
from nunatak.access.oidc import OidcAuthenticator, keys_of_issuers
from nunatak.access.opa import open_opa
from nunatak.access.proxy import ProxyAuthenticator, TrustedProxies, read_trusted_proxies
from nunatak.access.sessions import Authenticator
from nunatak.access.sigv4 import SigV4Authenticator
from nunatak.access.vault import Vault
from nunatak.database.store import Store
from nunatak.settings import Settings


@dataclass(frozen=True)
class AccessSetup:
    """The configured parts; `identity` issues tokens, if `auth` includes embedded."""

    guard: Guard
    identity: EmbeddedIdentity | None
    proxies: TrustedProxies

    async def close(self) -> None:
        await self.guard.authorizer.close()
        if self.identity is not None:
            await self.identity.close()


def check_access(settings: Settings) -> None:
    """Raises SettingsError if a setting is missing or invalid; accesses neither the database nor the network."""
    if "oidc" in settings.auth:
        keys_of_issuers(settings, lambda: 0)
    if "certificate" in settings.auth:
        check_tls(settings)
    if "proxy" in settings.auth:
        read_trusted_proxies(settings)
    if settings.auth != ("none",):
        _external(settings)


async def open_access(settings: Settings, store: Store, vault: Vault, now_ms: Callable[[], int]) -> AccessSetup:
    """Builds the parts; raises SettingsError if a setting is missing or invalid. The vault must be unlocked."""
    identity = await open_identity(settings, store, vault, now_ms) if "embedded" in settings.auth else None
    guard = Guard(
        store, _authorizer(settings, store), _authenticators(settings, store, vault, identity, now_ms), now_ms
    )
    return AccessSetup(guard, identity, TrustedProxies(settings))


def _authenticators(
    settings: Settings,
    store: Store,
    vault: Vault,
    identity: EmbeddedIdentity | None,
    now_ms: Callable[[], int],
) -> Sequence[Authenticator]:
    """Returns them in the order they are tried: proofs in the request itself before what a proxy says of it."""
    found: list[Authenticator] = []
    if "oidc" in settings.auth:
        found.append(OidcAuthenticator(settings, store, now_ms))
    if identity is not None:
        found += [identity, SigV4Authenticator(store, vault, now_ms, identity.touch)]
    if "certificate" in settings.auth:
        found.append(CertificateAuthenticator(settings, store))
    if "proxy" in settings.auth:
        found.append(ProxyAuthenticator(settings, store))
    return found


def _authorizer(settings: Settings, store: Store) -> Authorizer:
    return _external(settings) or Grants(store)


def _external(settings: Settings) -> Authorizer | None:
    """Returns the external authorizer; None if the grants in the database decide."""
    if settings.authorizer == "opa":
        return open_opa(settings)
    if settings.authorizer == "cedar":
        return open_cedar(settings)
    return None
