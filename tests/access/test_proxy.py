"""Headers of a proxy are believed if they come from it, and from nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from nunatak.access.proxy import ProxyAuthenticator, TrustedProxies
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import SettingsError
from tests.access.external_world import a_principal, a_proof, settings_of
from tests.api.local import LocalCatalog
from tests.backends.conftest import Run

TRUSTED = "10.1.0.0/16, 192.0.2.7, fd00::/8"


def an_authenticator(store: Store, **changed: str) -> ProxyAuthenticator:
    return ProxyAuthenticator(settings_of(auth="proxy", **{"trusted_proxies": TRUSTED, **changed}), store)


@pytest.mark.parametrize("address", ["10.1.0.1", "10.1.255.255", "192.0.2.7", "::ffff:10.1.2.3", "fd00::1"])
def test_a_trusted_proxy_names_the_principal(address: str, plain_store: Store, run: Run[Any]) -> None:
    proof = a_proof({"X-Forwarded-User": "alice"}, address=address)

    session = run(an_authenticator(plain_store).authenticate(proof))

    assert (session.principal, session.grantees, session.method) == ("alice", ("p:alice",), "proxy")
    assert not session.cached


@pytest.mark.parametrize(
    "address", ["10.2.0.1", "192.0.2.8", "127.0.0.1", "::1", "fe80::1", "::ffff:10.2.0.1", "unix:", "", None]
)
def test_the_same_header_from_elsewhere_is_as_if_it_were_not_there(
    address: str | None, plain_store: Store, run: Run[Any]
) -> None:
    claimed = {"X-Forwarded-User": "admin", "X-Forwarded-For": "10.1.0.1", "X-Real-IP": "10.1.0.1"}

    assert run(an_authenticator(plain_store).authenticate(a_proof(claimed, address=address))) is None


@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-User": ""}, {"X-Forwarded-User": "  "}, {"X-Other": "alice"}])
def test_a_proxy_that_names_nobody_vouches_for_nobody(
    headers: dict[str, str], plain_store: Store, run: Run[Any]
) -> None:
    assert run(an_authenticator(plain_store).authenticate(a_proof(headers, address="10.1.0.1"))) is None


@pytest.mark.parametrize("name", ["alice, admin", "a\x1fb", "a" * 129, "a\x00"])
def test_a_header_that_is_no_name_is_refused(name: str, plain_store: Store, run: Run[Any]) -> None:
    """Two headers of one name arrive as one with a comma: the proxy let the client's through."""
    proof = a_proof({"X-Forwarded-User": name}, address="10.1.0.1")

    with pytest.raises(NotAuthenticated, match="x-forwarded-user"):
        run(an_authenticator(plain_store).authenticate(proof))


def test_roles_come_from_the_proxy_and_from_here(plain_store: Store, run: Run[Any]) -> None:
    run(plain_store.apply(a_principal("alice", "kept")))
    authenticator = an_authenticator(plain_store, proxy_header="X-User", proxy_roles_header="X-Roles")
    headers = {"X-User": "alice", "X-Roles": "etl, data team,, kept"}

    session = run(authenticator.authenticate(a_proof(headers, address="10.1.0.1")))

    assert session.roles == ("data team", "etl", "kept")
    assert run(authenticator.authenticate(a_proof(headers, address="10.2.0.1"))) is None


def test_no_header_of_roles_is_believed_unless_it_is_set(plain_store: Store, run: Run[Any]) -> None:
    proof = a_proof({"X-Forwarded-User": "alice", "X-Roles": "admin", "": "admin"}, address="10.1.0.1")

    assert run(an_authenticator(plain_store).authenticate(proof)).roles == ()


def test_a_disabled_principal_is_refused(plain_store: Store, run: Run[Any]) -> None:
    run(plain_store.apply(a_principal("alice", disabled=True)))

    with pytest.raises(NotAuthenticated, match="alice is disabled"):
        run(an_authenticator(plain_store).authenticate(a_proof({"X-Forwarded-User": "alice"}, address="10.1.0.1")))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"trusted_proxies": ""}, "needs trusted_proxies"),
        ({"trusted_proxies": "proxy.example"}, "neither an address nor a network"),
        ({"trusted_proxies": "10.1.0.1/16"}, "host bits"),
        ({"trusted_proxies": "10.1.0.0/16,0.0.0.0/0"}, "everybody"),
        ({"trusted_proxies": "::/0"}, "everybody"),
        ({"proxy_header": ""}, "needs proxy_header"),
    ],
)
def test_settings_that_would_believe_too_much_are_refused(
    changed: dict[str, str], told: str, plain_store: Store
) -> None:
    with pytest.raises(SettingsError, match=told):
        an_authenticator(plain_store, **changed)


@pytest.mark.parametrize(
    ("address", "forwarded", "client"),
    [
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # no proxy of ours: what it says of others does not count
        ("10.1.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.1.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),  # the client wrote 1.1.1.1 itself
        ("10.1.0.1", "198.51.100.1, 192.0.2.7", "198.51.100.1"),  # through two proxies of ours
        ("10.1.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        ("10.1.0.1", "192.0.2.7", "192.0.2.7"),  # one of our proxies asks for itself
        ("10.1.0.1", "", "10.1.0.1"),
        ("10.1.0.1", "nonsense", "10.1.0.1"),
        ("10.1.0.1", "198.51.100.1, nonsense", "10.1.0.1"),
        (None, "198.51.100.1", None),
    ],
)
def test_the_clients_address_is_the_last_one_that_a_proxy_vouches_for(
    address: str | None, forwarded: str, client: str | None
) -> None:
    trusted = TrustedProxies(settings_of(trusted_proxies=TRUSTED))

    assert trusted.client_address(address, {b"x-forwarded-for": forwarded.encode()}) == client


def test_without_trusted_proxies_the_clients_address_is_its_own() -> None:
    trusted = TrustedProxies(settings_of())

    assert trusted.client_address("10.1.0.1", {b"x-forwarded-for": b"198.51.100.1"}) == "10.1.0.1"


def test_a_header_that_came_twice_names_nobody(tmp_path: Path) -> None:
    """Whichever of them the proxy has set, the other may be the client's own."""
    settings = {"NUNATAK_AUTH": "proxy", "NUNATAK_TRUSTED_PROXIES": "127.0.0.1"}
    catalog = LocalCatalog(tmp_path / "data", settings)

    async def status(*names: bytes) -> int:
        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": b"/v1/config",
            "query_string": b"",
            "headers": [(b"x-forwarded-user", name) for name in names],
            "client": ("127.0.0.1", 5),
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await catalog.app(scope, receive, send)
        found: int = sent[0]["status"]
        return found

    try:
        assert catalog.run(status(b"ann")) == 200
        assert catalog.run(status(b"ann", b"root")) == 401
        assert catalog.run(status(b"root", b"ann")) == 401
    finally:
        catalog.close()
