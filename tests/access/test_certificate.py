"""The common name of a client certificate is the principal, once TLS has verified the certificate."""

from typing import Any

import pytest

from nunatak.access.certificate import CertificateAuthenticator
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import SettingsError
from tests.access.external_world import a_principal, a_proof, settings_of
from tests.backends.conftest import Run


def an_authenticator(store: Store, **changed: str) -> CertificateAuthenticator:
    given = {"tls_certificate": "server.pem", "tls_client_ca": "ca.pem", **changed}
    return CertificateAuthenticator(settings_of(auth="certificate", **given), store)


def test_the_common_name_is_the_principal(plain_store: Store, run: Run[Any]) -> None:
    run(plain_store.apply(a_principal("etl.example", "writers")))

    session = run(an_authenticator(plain_store).authenticate(a_proof({}, certificate="etl.example")))

    assert (session.principal, session.roles, session.method) == ("etl.example", ("writers",), "certificate")
    assert not session.cached


def test_without_a_certificate_there_is_nothing_to_believe(plain_store: Store, run: Run[Any]) -> None:
    claimed = a_proof({"X-SSL-Client-S-DN": "CN=admin", "X-Forwarded-Client-Cert": "Subject=CN=admin"})

    assert run(an_authenticator(plain_store).authenticate(claimed)) is None


@pytest.mark.parametrize("name", ["", "a,b", "a\x1fr:admin", "a" * 129])
def test_a_common_name_that_is_no_name_is_refused(name: str, plain_store: Store, run: Run[Any]) -> None:
    with pytest.raises(NotAuthenticated, match="common name"):
        run(an_authenticator(plain_store).authenticate(a_proof({}, certificate=name)))


def test_a_disabled_principal_is_refused(plain_store: Store, run: Run[Any]) -> None:
    run(plain_store.apply(a_principal("alice", disabled=True)))

    with pytest.raises(NotAuthenticated, match="alice is disabled"):
        run(an_authenticator(plain_store).authenticate(a_proof({}, certificate="alice")))


@pytest.mark.parametrize("missing", ["tls_certificate", "tls_client_ca"])
def test_certificates_need_tls(missing: str, plain_store: Store) -> None:
    with pytest.raises(SettingsError, match=missing):
        an_authenticator(plain_store, **{missing: ""})
