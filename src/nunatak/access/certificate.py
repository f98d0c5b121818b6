"""Client certificates: the common name of one that TLS has verified is the principal."""

from dataclasses import replace

from nunatak.access.principals import find_roles, is_name
from nunatak.access.sessions import Proof, Session, session_of
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import Settings, SettingsError


def check_tls(settings: Settings) -> None:
    """Raises SettingsError if TLS would not ask for client certificates."""
    if not settings.tls_certificate or not settings.tls_client_ca:
        raise SettingsError(
            "auth certificate needs tls_certificate, so that the server speaks TLS, and tls_client_ca, the PEM "
            "file of the authority that signs the clients' certificates"
        )


class CertificateAuthenticator:
    """Trusts the TLS layer, which verifies the certificate against `tls_client_ca`."""

    def __init__(self, settings: Settings, store: Store) -> None:
        check_tls(settings)
        self._store = store

    async def authenticate(self, proof: Proof) -> Session | None:
        if proof.certificate is None:
            return None
        if not is_name(proof.certificate):
            raise NotAuthenticated(
                "The common name of the client certificate is no name of a principal",
                hint="Use a certificate whose common name has 1 to 128 printable characters and no comma.",
            )
        roles = await find_roles(self._store, proof.certificate)
        # Not cached: the certificate belongs to the connection, and the cache is keyed by the Authorization header.
        return replace(session_of(proof.certificate, roles, method="certificate"), cached=False)
