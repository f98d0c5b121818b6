"""Clients that prove who they are from outside, against a server process: signatures, tokens of an issuer, a proxy."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, UnauthorizedError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from nunatak.access.privileges import Privilege
from tests.access.external_world import AUDIENCE, claims_of
from tests.access.forged_tokens import encoded
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.issuer import Issuer, IssuerProcess
from tests.support.java.project import missing_tools
from tests.support.sentinel import Sentinel
from tests.support.signing_client import run_signing_client

SCHEMA = Schema(NestedField(1, "id", LongType()))
PROXY = {"X-Forwarded-User": "proxied"}


@pytest.fixture(scope="module")
def issuer(issuers: IssuerProcess) -> Issuer:
    return issuers.new_issuer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[RunningServer]:
    """It knows an issuer and its own keys; the proxy it trusts is another machine."""
    environment = {
        "NUNATAK_AUTH": "embedded,oidc,proxy",
        "NUNATAK_OIDC_ISSUERS": issuer.url,
        "NUNATAK_OIDC_AUDIENCE": AUDIENCE,
        "NUNATAK_TRUSTED_PROXIES": "192.0.2.1",
    }
    with running_server(tmp_path_factory.mktemp("external") / "data", environment=environment, auth=True) as started:
        yield started


def a_token(issuer: Issuer, subject: str, **changed: Any) -> str:
    now = int(time.time())
    return issuer.token("es-1", claims_of(issuer, **{"sub": subject, "iat": now, "exp": now + 300, **changed}))


def pyiceberg(server: RunningServer, **properties: str) -> RestCatalog:
    return RestCatalog("lake", uri=server.uri, **properties)


def make_and_drop_a_table(catalog: RestCatalog, namespace: str) -> None:
    """Requests of every kind: with a body and without, with a query, with names that need encoding."""
    catalog.create_namespace((namespace,))
    catalog.create_namespace((namespace, "b é"), {"owner": "somebody"})
    table = catalog.create_table((namespace, "b é", "t 1"), SCHEMA)
    with table.transaction() as transaction:
        transaction.set_properties(color="red")
    assert catalog.load_table((namespace, "b é", "t 1")).properties["color"] == "red"
    assert catalog.list_namespaces((namespace,)) == [(namespace, "b é")]
    catalog.drop_table((namespace, "b é", "t 1"))
    catalog.drop_namespace((namespace, "b é"))
    catalog.drop_namespace((namespace,))


def test_pyiceberg_works_with_signed_requests(server: RunningServer) -> None:
    """MISSION: 003-09, 003-31"""
    key, secret = server.new_credential(server.new_principal("signer", Privilege.SERVER_ADMIN), "access-key")
    signing = {"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1", "client.access-key-id": key}

    make_and_drop_a_table(pyiceberg(server, **signing, **{"client.secret-access-key": secret}), "signed")

    with pytest.raises(UnauthorizedError, match="signature was refused"):
        pyiceberg(server, **signing, **{"client.secret-access-key": secret + "x"})


@pytest.mark.java
def test_the_java_client_works_with_signed_requests(server: RunningServer) -> None:
    """MISSION: 003-09, 003-31"""
    if (reason := missing_tools()) is not None:
        pytest.skip(f"NOT RUN: the Java client with signed requests ({reason})")
    pair = server.new_credential(server.new_principal("java", Privilege.SERVER_ADMIN), "access-key")
    server.expect(200, "POST", "/v1/default/namespaces", {"namespace": ["a"]})

    done = run_signing_client(server.uri, "default", *pair)

    assert done.returncode == 0, done.stderr
    assert run_signing_client(server.uri, "default", pair[0], "wrong").returncode != 0


def test_a_signed_body_cannot_be_replaced(server: RunningServer) -> None:
    pair = server.new_credential(server.new_principal("signer2", Privilege.SERVER_ADMIN), "access-key")
    signed = server.signed(pair, "POST", "/v1/default/namespaces", b'{"namespace":["mine"]}')

    def send(body: bytes) -> int:
        headers = {name: value for name, value in signed.items() if name != "Authorization"}
        authorization = signed["Authorization"]
        return server.call("POST", "/v1/default/namespaces", body, authorization=authorization, headers=headers).status

    assert send(b'{"namespace":["ours"]}') == 401
    assert send(b'{"namespace":["mine"]}') == 200


def test_pyiceberg_works_with_tokens_of_an_issuer(server: RunningServer, issuer: Issuer) -> None:
    """MISSION: 003-09, 003-33, 003-40"""
    server.new_principal("etl", Privilege.SERVER_ADMIN)

    make_and_drop_a_table(pyiceberg(server, token=a_token(issuer, "etl")), "issued")


def test_roles_of_an_issuer_are_worth_what_is_granted_to_them(server: RunningServer, issuer: Issuer) -> None:
    server.expect(200, "POST", "/v1/default/namespaces", {"namespace": ["shown"]})
    server.expect(200, "POST", "/management/v1/roles", {"name": "viewers"})
    grant = {"grantee": "role:viewers", "securable": "server", "privileges": ["NS_LIST"]}
    server.expect(204, "POST", "/management/v1/grants", grant)

    viewer = pyiceberg(server, token=a_token(issuer, "stranger", roles=["viewers"]))
    assert ("shown",) in viewer.list_namespaces()
    with pytest.raises(ForbiddenError):
        viewer.drop_namespace("shown")

    without_role = server.call(
        "GET", "/v1/default/namespaces/shown", authorization=f"Bearer {a_token(issuer, 'stranger')}"
    )
    assert without_role.status == 404


def test_a_token_that_expired_is_told_to_be_renewed(server: RunningServer, issuer: Issuer) -> None:
    answer = server.call("GET", "/v1/config", authorization=f"Bearer {a_token(issuer, 'etl', exp=1)}")

    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "expired" in answer.json["error"]["message"]


def test_a_token_of_an_unknown_issuer_calls_nobody(server: RunningServer, sentinel: Sentinel, issuer: Issuer) -> None:
    header = {"alg": "ES256", "kid": "k", "jku": f"{sentinel.url}/keys"}
    token = f"{encoded(header)}.{encoded(claims_of(issuer, iss=sentinel.url))}.{encoded(bytes(64))}"

    answer = server.call("GET", "/v1/config", authorization=f"Bearer {token}")

    assert answer.status == 401
    assert token.encode() not in answer.body
    assert sentinel.connections() == 0


def test_a_header_that_no_trusted_proxy_sent_is_not_believed(server: RunningServer) -> None:
    claimed = {**PROXY, "X-Forwarded-For": "192.0.2.1"}

    assert server.call("GET", "/v1/config", authorization="", headers=claimed).status == 401


def test_a_trusted_proxy_is_believed(tmp_path: Path) -> None:
    environment = {"NUNATAK_AUTH": "embedded,proxy", "NUNATAK_TRUSTED_PROXIES": "127.0.0.0/8"}
    with running_server(tmp_path / "data", environment=environment, auth=True) as behind_proxy:
        make = {"namespace": ["proxied"]}
        assert behind_proxy.call("GET", "/v1/config", authorization="").status == 401
        assert behind_proxy.call("GET", "/v1/config", authorization="", headers=PROXY).status == 200
        refused = behind_proxy.call("POST", "/v1/default/namespaces", make, authorization="", headers=PROXY)
        assert refused.status == 404  # somebody known, who may not even see the warehouse

        behind_proxy.new_principal("proxied", Privilege.SERVER_ADMIN)
        made = behind_proxy.call("POST", "/v1/default/namespaces", make, authorization="", headers=PROXY)
        assert made.status == 200
