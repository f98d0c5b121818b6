"""Headers of a proxy are believed if they come from it, and from nowhere else."""

import contextlib
import json
import select
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nunatak.access.proxy import ProxyAuthenticator, TrustedProxies
from nunatak.api.transport.exchange import parse_head
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import SettingsError
from tests.access.external_world import a_principal, a_proof, settings_of
from tests.backends.conftest import Run
from tests.support.catalogs.local import LocalCatalog
from tests.support.catalogs.process import running_server

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
        ({"trusted_proxies": "10.1.0.0/16,0.0.0.0/0"}, "covers every address"),
        ({"trusted_proxies": "::/0"}, "covers every address"),
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
    settings = {
        "NUNATAK_AUTH": "proxy",
        "NUNATAK_TRUSTED_PROXIES": "127.0.0.1",
        "NUNATAK_PROXY_ROLES_HEADER": "X-Forwarded-Groups",
    }
    catalog = LocalCatalog(tmp_path / "data", settings)

    async def status(*names: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> int:
        headers = [*((b"x-forwarded-user", name) for name in names), *more]
        head = parse_head(b"GET", b"/v1/config", headers)
        return (await catalog.app.respond(head, b"", ("127.0.0.1", 5))).status

    try:
        assert catalog.run(status(b"ann")) == 200
        assert catalog.run(status(b"ann", b"root")) == 401
        assert catalog.run(status(b"root", b"ann")) == 401
        assert catalog.run(status(b"ann", b"")) == 401
        assert catalog.run(status(b"", b"ann")) == 401
        assert catalog.run(status(b"ann", more=[(b"x_forwarded_user", b"root")])) == 401
        assert catalog.run(status(b"ann", more=[(b"x-forwarded_user", b"")])) == 401
        groups = (b"x-forwarded-groups", b"a, b")
        assert catalog.run(status(b"ann", more=[groups])) == 200
        assert catalog.run(status(b"ann", more=[groups, groups])) == 401
        assert catalog.run(status(b"ann", more=[groups, (b"x-forwarded-groups", b"admins")])) == 401
        assert catalog.run(status(b"ann", more=[groups, (b"x_forwarded_groups", b"admins")])) == 401
        # Any other may come as often as it likes.
        assert catalog.run(status(b"ann", more=[(b"x-any", b"1"), (b"x-any", b"2")])) == 200
    finally:
        catalog.close()


def exchange(port: int, request: bytes) -> tuple[int, bytes]:
    """What a server answers to these bytes, sent at once."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


def test_a_trailer_of_a_chunked_body_names_nobody(tmp_path: Path) -> None:
    """A proxy that removes the header from what clients send does not look at what follows the body."""
    environment = {"NUNATAK_AUTH": "proxy", "NUNATAK_TRUSTED_PROXIES": "127.0.0.1"}
    with running_server(tmp_path, environment=environment, auth=True) as server:
        port = server.port
        chunks = b"2\r\n{}\r\n0\r\n"
        for user in (b"", b"X-Forwarded-User: ann\r\n"):
            for method in (b"GET", b"POST"):
                for trailer in (b"X-Forwarded-User: root", b"x-forwarded-user: root\r\nX-Forwarded-User: root"):
                    head = method + b" /management/v1/%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + user
                    head += b"Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-User\r\n\r\n"
                    path = b"me" if method == b"GET" else b"principals"

                    status, body = exchange(port, head % path + chunks + trailer + b"\r\n\r\n")

                    if not user:
                        assert status == 401, (status, body)
                    elif method == b"POST":
                        assert status == 403, (status, body)
                    else:
                        assert (status, json.loads(body)["principal"]) == (200, "ann")
        plain = b"GET /management/v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Forwarded-User: root\r\n\r\n"
        assert json.loads(exchange(port, plain)[1])["principal"] == "root"


def test_a_trailer_without_end_is_refused(tmp_path: Path) -> None:
    """Nothing of it is kept, but the parser collects a field until it is whole."""
    with running_server(tmp_path / "data") as server:
        head = b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Long: "
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            connection.sendall(head)
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 64 * 1024 * 1024:
                    connection.sendall(b"x" * 65536)
                    sent += 65536
                    if select.select([connection], [], [], 0)[0]:
                        break
            answer = connection.recv(65536)

    assert sent < 64 * 1024 * 1024
    assert answer.startswith(b"HTTP/1.1 431")
