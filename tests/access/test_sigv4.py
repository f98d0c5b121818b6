"""Signed requests, with the signers that clients use as oracles: botocore's, PyIceberg's and the Java client's."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from pyiceberg.catalog.rest import RestCatalog

from nunatak.access.credentials import NewCredential, new_access_key, new_client
from nunatak.access.sessions import NEVER_MS, Proof, Session
from nunatak.access.sigv4 import EMPTY_SHA256, SigV4Authenticator
from nunatak.access.vault import open_vault
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import load
from tests.access.external_world import Clock, a_principal
from tests.backends.conftest import Run
from tests.support.java.project import missing_tools
from tests.support.signing_client import run_signing_client

HOST = "http://127.0.0.1:8181"
NAMESPACES = f"{HOST}/v1/lake/namespaces"


@dataclass
class Signed:
    """A request as it travels; what arrives can be changed on the way."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""

    def proof(self, *, announced_only: bool = False) -> Proof:
        async def body_sha256() -> str:
            return hashlib.sha256(self.body).hexdigest()

        parts = urlsplit(self.url)
        headers = {name.lower().encode(): value.encode() for name, value in self.headers.items()}
        headers.setdefault(b"host", parts.netloc.encode())
        reader = None if announced_only else body_sha256
        return Proof(self.method, parts.path.encode(), parts.query.encode(), headers, "10.0.0.1", None, reader)


@dataclass
class Desk:
    """An authenticator, one principal, and a key of it."""

    store: Store
    run: Run[Any]
    authenticator: SigV4Authenticator
    clock: Clock
    key: NewCredential
    used: list[str]

    def sign(
        self,
        method: str = "GET",
        url: str = NAMESPACES,
        body: bytes = b"",
        *,
        service: str = "execute-api",
        region: str = "us-east-1",
        secret: str | None = None,
        signer: type[SigV4Auth] = SigV4Auth,
        **headers: str,
    ) -> Signed:
        """As botocore signs it at the time of the clock."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = AWSRequest(method=method, url=url, data=body or None, headers=named)
        credentials = Credentials(self.key.credential_id, secret or self.key.shown.reveal())
        moment = datetime.fromtimestamp(self.clock.ms / 1000, UTC)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: moment)
            signer(credentials, service, region).add_auth(request)
        return Signed(method, url, dict(request.headers.items()), body)

    def authenticate(self, signed: Signed, **how: bool) -> Session | None:
        found: Session | None = self.run(self.authenticator.authenticate(signed.proof(**how)))
        return found

    def accepts(self, signed: Signed, **how: bool) -> Session:
        session = self.authenticate(signed, **how)
        assert session is not None
        assert session.principal == "alice"
        return session

    def refuses(self, signed: Signed, why: str, **how: bool) -> None:
        with pytest.raises(NotAuthenticated, match=why) as refused:
            self.authenticate(signed, **how)
        told = f"{refused.value.message} {refused.value.hint}"
        assert self.key.shown.reveal() not in told
        assert self.key.credential_id not in told

    def keep(self, made: NewCredential, **fields: Any) -> None:
        values = {"principal": "alice", "kind": made.kind, "secret": made.stored, "roles": None, "expires_ms": None}
        row = {"credential_id": made.credential_id, **values, "note": None, "created_ms": 0, **fields}
        self.run(self.store.apply([Write("add_credential", row)]))


@pytest.fixture
def desk(plain_store: Store, tmp_path: Path, run: Run[Any]) -> Desk:
    vault = open_vault(load({"data": tmp_path}, {"NUNATAK_CONFIG": os.devnull}))
    run(vault.unlock(plain_store))
    clock, used = Clock(), list[str]()
    authenticator = SigV4Authenticator(plain_store, vault, clock, lambda credential: used.append(credential.principal))
    made = Desk(plain_store, run, authenticator, clock, new_access_key(vault), used)
    run(plain_store.apply(a_principal("alice", "reader", "writer")))
    made.keep(made.key)
    return made


# What is accepted


def test_a_signed_request_is_its_keys_principals(desk: Desk) -> None:
    session = desk.accepts(desk.sign())

    assert session.roles == ("reader", "writer")
    assert session.grantees == ("p:alice", "r:reader", "r:writer")
    assert (session.method, session.cached, session.body_sha256) == ("sigv4", False, EMPTY_SHA256)
    assert desk.used == ["alice"]


@pytest.mark.parametrize(
    "url",
    [
        f"{HOST}/v1/config?warehouse=lake",
        f"{HOST}/v1/lake/namespaces/a%1Fb/tables/t",
        f"{HOST}/v1/lake/namespaces/a%20b",
        f"{HOST}/v1/lake/namespaces/%C3%A9t%C3%A9",
        f"{HOST}/v1/lake/namespaces/a%2Fb",
        f"{HOST}/v1/lake/namespaces/a~b.c-d_e",
        f"{HOST}/v1/lake/namespaces/a+b",
        f"{HOST}/v1/lake/namespaces/(a)!*'$&,;=:@",
        f"{NAMESPACES}?parent=a%1Fb&pageToken=&pageSize=7",
        f"{NAMESPACES}?b=2&a=1&b=1",
        f"{NAMESPACES}?pageToken=a%2Bb%2Fc%3D%3D",
        f"{NAMESPACES}?name=a%20b",
    ],
)
def test_paths_and_queries_are_read_as_botocore_signs_them(url: str, desk: Desk) -> None:
    desk.accepts(desk.sign(url=url))


@pytest.mark.parametrize(
    ("service", "region"), [("execute-api", "us-east-1"), ("glue", "eu-west-3"), ("s3tables", "x")]
)
def test_any_service_and_region_will_do(service: str, region: str, desk: Desk) -> None:
    desk.accepts(desk.sign(url=f"{NAMESPACES}/a%1Fb", service=service, region=region))


def test_the_path_is_encoded_once_for_s3(desk: Desk) -> None:
    signed = desk.sign("POST", f"{NAMESPACES}/a%1Fb", b"{}", service="s3", signer=S3SigV4Auth)

    assert desk.accepts(signed).body_sha256 == hashlib.sha256(b"{}").hexdigest()


def test_every_header_that_was_signed_is_read(desk: Desk) -> None:
    desk.accepts(
        desk.sign(content_type="application/json", x_client_version="  a   b ", original_authorization="Bearer x")
    )


def test_a_body_is_covered_although_nothing_announces_it(desk: Desk) -> None:
    signed = desk.sign("POST", body=b'{"namespace":["a"]}')

    assert "X-Amz-Content-SHA256" not in signed.headers
    assert desk.accepts(signed).body_sha256 == hashlib.sha256(signed.body).hexdigest()
    desk.refuses(replace(signed, body=b'{"namespace":["b"]}'), "does not fit")
    desk.refuses(signed, "does not fit", announced_only=True)  # without the body there is nothing to check it by


def test_an_announced_body_is_not_read_but_must_be_the_one_that_comes(desk: Desk) -> None:
    body = b'{"namespace":["a"]}'
    digest = hashlib.sha256(body).hexdigest()
    signed = desk.sign("POST", body=body, x_amz_content_sha256=digest)

    session = desk.accepts(replace(signed, body=b"another one"), announced_only=True)

    assert session.body_sha256 == digest


def test_a_hash_in_base64_is_understood_as_the_java_client_means_it(desk: Desk) -> None:
    """It signs the hexadecimal hash, and announces the same in base64 in a header that is signed as it stands."""
    body = b'{"namespace":["ns"],"properties":{}}'
    announced = base64.b64encode(hashlib.sha256(body).digest()).decode()

    class JavaSigner(SigV4Auth):
        def canonical_request(self, request: AWSRequest) -> str:
            lines: str = super().canonical_request(request)
            return lines.removesuffix(announced) + hashlib.sha256(body).hexdigest()

    signed = desk.sign("POST", body=body, signer=JavaSigner, x_amz_content_sha256=announced)

    assert signed.headers["x-amz-content-sha256"] == announced
    assert desk.accepts(signed, announced_only=True).body_sha256 == hashlib.sha256(body).hexdigest()


def test_a_key_may_be_limited_to_some_roles(desk: Desk) -> None:
    limited = new_access_key(desk.authenticator._vault)
    desk.keep(limited, roles=json.dumps(["reader", "admin"]))

    session = replace(desk, key=limited).accepts(replace(desk, key=limited).sign())

    assert (session.roles, session.grantees) == (("reader",), ("r:reader",))


# What is refused


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "DELETE"},
        {"url": f"{NAMESPACES}/a"},
        {"url": NAMESPACES + "/"},
        {"url": f"{HOST}/v1/lake/../lake/namespaces"},
        {"url": f"{HOST}/v1/lake//namespaces"},
        {"url": f"{HOST}/v1/lake/%6Eamespaces"},
        {"url": f"{NAMESPACES}?parent=a"},
        {"url": "http://127.0.0.1:8182/v1/lake/namespaces"},
    ],
)
def test_a_request_that_was_changed_is_refused(changed: dict[str, Any], desk: Desk) -> None:
    signed = desk.sign()

    desk.refuses(replace(signed, **changed), "does not fit")
    desk.accepts(signed)


@pytest.mark.parametrize("query", ["a=1", "a=1&b=3", "a=1&b=2&c=", "a=1&b=2&b=2", "b=1&a=2", ""])
def test_a_query_that_was_changed_is_refused(query: str, desk: Desk) -> None:
    signed = desk.sign(url=f"{NAMESPACES}?a=1&b=2")

    desk.refuses(replace(signed, url=f"{NAMESPACES}?{query}"), "does not fit")
    desk.accepts(replace(signed, url=f"{NAMESPACES}?b=2&a=%31"))  # the same to whoever reads it


def test_a_signed_header_that_was_changed_or_removed_is_refused(desk: Desk) -> None:
    signed = desk.sign(content_type="application/json")
    others = {name: value for name, value in signed.headers.items() if name.lower() != "content-type"}

    desk.refuses(replace(signed, headers={**signed.headers, "content-type": "text/plain"}), "does not fit")
    desk.refuses(replace(signed, headers=others), "did not arrive")


def test_another_secret_is_refused(desk: Desk) -> None:
    desk.refuses(desk.sign(secret="wrong"), "does not fit")
    desk.refuses(desk.sign(secret=desk.key.shown.reveal() + "x"), "does not fit")


@pytest.mark.parametrize("seconds", [-301, 301, 86_400, -86_400])
def test_a_signature_counts_for_five_minutes(seconds: int, desk: Desk) -> None:
    signed = desk.sign()
    desk.clock.pass_seconds(seconds)

    desk.refuses(signed, "too long ago, or too far ahead")


@pytest.mark.parametrize("seconds", [-300, 300])
def test_the_clocks_may_differ_by_five_minutes(seconds: int, desk: Desk) -> None:
    signed = desk.sign()
    desk.clock.pass_seconds(seconds)

    desk.accepts(signed)


@pytest.mark.parametrize(
    "date", ["", "20250615T150640", "20250615T150640Z ", "2025-06-15T15:06:40Z", "20250615T256140Z", "20250616T150640Z"]
)
def test_a_date_that_is_none_or_another_is_refused(date: str, desk: Desk) -> None:
    signed = desk.sign()

    desk.refuses(replace(signed, headers={**signed.headers, "X-Amz-Date": date}), "must agree")


def test_a_later_date_cannot_be_put_on_an_old_signature(desk: Desk) -> None:
    signed = desk.sign()
    desk.clock.pass_seconds(600)
    later = desk.sign()

    desk.refuses(replace(signed, headers={**signed.headers, "X-Amz-Date": later.headers["X-Amz-Date"]}), "not fit")


@pytest.mark.parametrize("header", ["host", "x-amz-date"])
def test_a_signature_must_cover_what_makes_it_ours_and_fresh(header: str, desk: Desk) -> None:
    class CarelessSigner(SigV4Auth):
        def headers_to_sign(self, request: AWSRequest) -> Any:
            kept = super().headers_to_sign(request)
            del kept[header]
            return kept

    desk.refuses(desk.sign(signer=CarelessSigner), f"does not cover the header {header}")


@pytest.mark.parametrize(
    "announced", ["UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "", EMPTY_SHA256.upper(), "AAAA"]
)
def test_a_body_that_is_not_covered_is_refused(announced: str, desk: Desk) -> None:
    desk.refuses(desk.sign("POST", body=b"{}", x_amz_content_sha256=announced), "does not cover the body")


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=NK/20250615/r/s/aws4_request",
        "AWS4-HMAC-SHA256 Credential=NK/20250615/r/s/aws4_request, SignedHeaders=host;x-amz-date, Signature=00",
        "AWS4-HMAC-SHA256 Credential=NK/r/s/aws4_request, SignedHeaders=host;x-amz-date, Signature=" + "0" * 64,
        "AWS4-HMAC-SHA256 Credential=/20250615/r/s/aws4_request, SignedHeaders=host, Signature=" + "0" * 64,
        "AWS4-HMAC-SHA256 Credential=NK/20250615/r/s/aws4_request, SignedHeaders=, Signature=" + "0" * 64,
    ],
)
def test_a_header_that_is_not_whole_is_refused(authorization: str, desk: Desk) -> None:
    desk.refuses(replace(desk.sign(), headers={"Authorization": authorization}), "incomplete")


@pytest.mark.parametrize("authorization", ["Bearer a.b.c", "Basic YTpi", "AWS4-ECDSA-P256-SHA256 Credential=x", ""])
def test_what_is_no_signature_is_left_to_others(authorization: str, desk: Desk) -> None:
    assert desk.authenticate(replace(desk.sign(), headers={"Authorization": authorization})) is None
    assert desk.authenticate(replace(desk.sign(), headers={})) is None


def test_a_key_that_nobody_has_is_refused_like_a_wrong_secret(desk: Desk) -> None:
    unknown = replace(desk, key=replace(desk.key, credential_id="NKNOBODY"))
    client = new_client(desk.authenticator._vault)
    desk.keep(client)

    unknown.refuses(unknown.sign(), "does not fit")
    replace(desk, key=client).refuses(replace(desk, key=client).sign(), "does not fit")


def test_a_key_that_expired_is_refused(desk: Desk) -> None:
    short = new_access_key(desk.authenticator._vault)
    desk.keep(short, expires_ms=desk.clock.ms + 1000)
    holder = replace(desk, key=short)
    assert holder.accepts(holder.sign()).ends_ms == desk.clock.ms + 1000
    assert desk.accepts(desk.sign()).ends_ms == NEVER_MS

    desk.clock.pass_seconds(1)

    with pytest.raises(NotAuthenticated, match="expired"):
        holder.authenticate(holder.sign())
    desk.accepts(desk.sign())


def test_the_key_of_a_disabled_principal_is_refused(desk: Desk) -> None:
    desk.run(desk.store.apply([Write("set_principal", {"principal": "alice", "disabled": 1, "note": None})]))

    with pytest.raises(NotAuthenticated, match="alice is disabled"):
        desk.authenticate(desk.sign())
    assert desk.used == []


# Clients themselves


@dataclass
class Recorder:
    """A server that answers like a catalog, and keeps each request as it came over the wire."""

    port: int
    requests: list[Signed]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    requests: list[Signed] = []

    class Handler(BaseHTTPRequestHandler):
        def record(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            url = f"http://{self.headers['Host']}{self.path}"
            requests.append(Signed(self.command, url, dict(self.headers.items()), body))
            answer = json.dumps(
                {"defaults": {}, "overrides": {}, "namespaces": [], "namespace": ["a"], "identifiers": []}
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def do_GET(self) -> None:
            self.record()

        def do_POST(self) -> None:
            self.record()

        def do_DELETE(self) -> None:
            self.record()

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Recorder(server.server_address[1], requests)
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("other_login", [{}, {"token": "a-token-of-another-login"}])
def test_what_pyiceberg_signs_is_accepted(other_login: dict[str, str], desk: Desk, recorder: Recorder) -> None:
    catalog = RestCatalog(
        "lake",
        uri=f"http://127.0.0.1:{recorder.port}",
        warehouse="lake house",
        **{
            "rest.sigv4-enabled": "true",
            "rest.signing-region": "us-east-1",
            "client.access-key-id": desk.key.credential_id,
            "client.secret-access-key": desk.key.shown.reveal(),
        },
        **other_login,
    )
    catalog.create_namespace(("a", "b é"), {"owner": "alice"})
    catalog.list_namespaces(("a", "b é"))
    catalog.list_tables(("a", "b é"))
    catalog.drop_namespace(("a", "b é"))

    assert_every_request_is_accepted(desk, recorder.requests)


@pytest.mark.java
def test_what_the_java_client_signs_is_accepted(desk: Desk, recorder: Recorder) -> None:
    if (reason := missing_tools()) is not None:
        pytest.skip(f"NOT RUN: what the Java client signs ({reason})")
    done = run_signing_client(
        f"http://127.0.0.1:{recorder.port}", "lake house", desk.key.credential_id, desk.key.shown.reveal()
    )

    assert done.returncode == 0, done.stderr
    assert all("Original-Authorization" in request.headers for request in recorder.requests)
    assert_every_request_is_accepted(desk, recorder.requests)


def assert_every_request_is_accepted(desk: Desk, requests: list[Signed]) -> None:
    assert [request.method for request in requests] == ["GET", "POST", "GET", "GET", "DELETE"]
    for request in requests:
        # Clients ask the clock of the machine, not ours.
        date = next(value for name, value in request.headers.items() if name.lower() == "x-amz-date")
        desk.clock.ms = int(datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)
        assert desk.accepts(request).body_sha256 == hashlib.sha256(request.body).hexdigest()
        desk.refuses(replace(request, url=request.url + "x"), "does not fit")
