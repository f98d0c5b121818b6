"""The token endpoint as clients use it: MISSION 001-05, 001-06 and 003-30, and every way to get it wrong."""

import base64
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from pyiceberg.catalog.rest.response import OAuthErrorResponse, TokenResponse

from nunatak.api import oauth
from nunatak.api.http import Request, Response, error_response
from nunatak.errors import MethodNotAllowed, NotFound
from tests.access.home import MOMENT, Home, basic, said
from tests.backends.conftest import Run

Client = tuple[str, str]


def headers(answer: Response) -> dict[bytes, bytes]:
    return dict(answer.headers)


def refused(answer: Response, word: str, status: int = 400) -> dict[str, Any]:
    """The body of a refusal that clients of OAuth and of Iceberg understand alike."""
    body = said(answer)
    assert answer.status == status, body
    assert body["error"] == word, body
    assert body["code"] == status
    assert body["type"] == ("NotAuthorizedException" if status == 401 else "BadRequestException")
    assert body["message"] == body["error_description"]
    assert "access_token" not in body
    assert headers(answer)[b"cache-control"] == b"no-store"
    assert (b"www-authenticate" in headers(answer)) == (status == 401)
    return body


@pytest.fixture
def client(home: Home, run: Run[Any]) -> Client:
    """Of alice, who reads and writes."""

    async def made() -> Client:
        await home.principal("alice", "reader", "writer")
        return await home.client("alice")

    found: Client = run(made())
    return found


def test_a_client_gets_a_token_for_its_secret(home: Home, client: Client, run: Run[Any]) -> None:
    """MISSION: 001-06, 003-30"""
    answer = run(home.ask_as(client, scope="catalog"))
    body = said(answer)
    assert answer.status == 200
    assert body["token_type"] == "bearer"
    assert body["expires_in"] == 900
    assert body["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert body["scope"] == "catalog"
    assert jwt.get_unverified_header(body["access_token"])["alg"] == "ES256"
    assert headers(answer)[b"cache-control"] == b"no-store"
    assert headers(answer)[b"content-type"] == b"application/json"
    assert run(home.show(body["access_token"])).principal == "alice"


def test_the_seed_documents_request_for_a_role_works(home: Home, client: Client, run: Run[Any]) -> None:
    """MISSION 001-05: form-encoded, with `scope=PRINCIPAL_ROLE:my-role`."""
    run(home.write("add_role", role="my-role", note=None, created_ms=home.clock()))
    run(home.write("add_member", role="my-role", principal="alice"))
    body = said(run(home.ask_as(client, scope="PRINCIPAL_ROLE:my-role")))
    assert body["scope"] == "PRINCIPAL_ROLE:my-role"
    assert run(home.show(body["access_token"])).roles == ("my-role",)


def test_id_and_secret_may_come_with_http_basic(home: Home, client: Client, run: Run[Any]) -> None:
    """As DuckDB sends them."""
    form = {"grant_type": "client_credentials", "scope": "PRINCIPAL_ROLE:ALL"}
    body = said(run(home.ask(form, basic(client))))
    assert run(home.show(body["access_token"])).grantees == ("p:alice", "r:reader", "r:writer")


def test_basic_and_form_may_say_the_same(home: Home, client: Client, run: Run[Any]) -> None:
    form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1]}
    assert run(home.ask(form, basic(client))).status == 200
    refused(run(home.ask({**form, "client_id": "client-other"}, basic(client))), "invalid_request")


def test_an_api_key_alone_may_stand_for_id_and_secret(home: Home, client: Client, run: Run[Any]) -> None:
    """As clients send a `credential` without a colon."""
    key = run(home.api_key("alice"))
    body = said(run(home.ask({"grant_type": "client_credentials", "client_secret": key, "scope": "catalog"})))
    assert run(home.show(body["access_token"])).principal == "alice"


@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        ("", "catalog"),
        ("catalog", "catalog"),
        ("PRINCIPAL_ROLE:ALL", "catalog"),
        ("PRINCIPAL_ROLE:reader", "PRINCIPAL_ROLE:reader"),
        ("PRINCIPAL_ROLE:writer PRINCIPAL_ROLE:reader", "PRINCIPAL_ROLE:reader PRINCIPAL_ROLE:writer"),
        ("catalog PRINCIPAL_ROLE:reader", "PRINCIPAL_ROLE:reader"),
        ("openid email", "catalog"),
    ],
)
def test_the_answer_says_which_scope_was_granted(
    scope: str, granted: str, home: Home, client: Client, run: Run[Any]
) -> None:
    assert said(run(home.ask_as(client, scope=scope)))["scope"] == granted


def test_without_a_scope_everything_is_granted(home: Home, client: Client, run: Run[Any]) -> None:
    form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1]}
    assert said(run(home.ask(form)))["scope"] == "catalog"


@pytest.mark.parametrize(
    "scope",
    [
        "PRINCIPAL_ROLE:admin",
        "PRINCIPAL_ROLE:reader PRINCIPAL_ROLE:admin",
        "PRINCIPAL_ROLE:",
        "PRINCIPAL_ROLE",
        "PRINCIPAL_ROLES:reader",
        "principal_role:reader",
        "PRINCIPAL-ROLE:reader",
    ],
)
def test_a_role_that_is_not_held_or_not_understood_is_refused(
    scope: str, home: Home, client: Client, run: Run[Any]
) -> None:
    refused(run(home.ask_as(client, scope=scope)), "invalid_scope")


def test_a_limited_client_gets_no_other_role(home: Home, client: Client, run: Run[Any]) -> None:
    limited = run(home.client("alice", roles=["reader"]))
    refused(run(home.ask_as(limited, scope="PRINCIPAL_ROLE:writer")), "invalid_scope")
    assert said(run(home.ask_as(limited, scope="PRINCIPAL_ROLE:ALL")))["scope"] == "PRINCIPAL_ROLE:reader"


def test_an_unknown_client_and_a_wrong_secret_are_refused_alike(home: Home, client: Client, run: Run[Any]) -> None:
    wrong = refused(run(home.ask_as((client[0], "wrong"))), "invalid_client", 401)
    unknown = refused(run(home.ask_as(("client-nobody", client[1]))), "invalid_client", 401)
    assert wrong == unknown


def test_no_refusal_repeats_a_secret(home: Home, client: Client, run: Run[Any]) -> None:
    canary = "canary-4711"
    answers = [
        run(home.ask_as((client[0], canary))),
        run(home.ask_as((canary, canary))),
        run(home.ask({"grant_type": "client_credentials"}, f"Basic {canary}")),
        run(home.ask(f"grant_type=client_credentials&client_secret={canary}%FF".encode())),
        run(home.ask(f"client_secret={canary}&client_secret={canary}".encode())),
        run(home.exchange(canary)),
        run(home.exchange(canary, f"Bearer {canary}")),
    ]
    for answer in answers:
        assert answer.status in (400, 401)
        assert canary.encode() not in answer.body


def test_an_expired_or_disabled_client_gets_no_token(home: Home, client: Client, run: Run[Any]) -> None:
    expired = run(home.client("alice", expires_ms=MOMENT))
    refused(run(home.ask_as(expired)), "invalid_client", 401)
    run(home.write("set_principal", principal="alice", disabled=1, note=None))
    refused(run(home.ask_as(client)), "invalid_client", 401)


@pytest.mark.parametrize(
    ("form", "word", "status"),
    [
        ({}, "invalid_request", 400),
        ({"grant_type": "password"}, "unsupported_grant_type", 400),
        ({"grant_type": "authorization_code"}, "unsupported_grant_type", 400),
        ({"grant_type": "refresh_token", "refresh_token": "x"}, "unsupported_grant_type", 400),
        ({"grant_type": "client_credentials"}, "invalid_client", 401),
        ({"grant_type": "client_credentials", "client_id": "x"}, "invalid_client", 401),
        ({"grant_type": "client_credentials", "client_secret": "x"}, "invalid_client", 401),
        ({"grant_type": "client_credentials", "client_id": "x" * 200, "client_secret": "x"}, "invalid_client", 401),
        ({"grant_type": "client_credentials", "client_id": "x\0", "client_secret": "x"}, "invalid_client", 401),
        ({"grant_type": oauth.TOKEN_EXCHANGE}, "invalid_request", 400),
    ],
)
def test_an_incomplete_request_is_refused(
    form: dict[str, str], word: str, status: int, home: Home, run: Run[Any]
) -> None:
    refused(run(home.ask(form)), word, status)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"grant_type=%FF",
        b"grant_type=client_credentials&grant_type=client_credentials",
        b"&".join(b"a%d=1" % number for number in range(100)),
        b'{"grant_type": "client_credentials"}',
        b"",
    ],
)
def test_a_malformed_body_is_refused(body: bytes, home: Home, run: Run[Any]) -> None:
    refused(run(home.ask(body)), "invalid_request")


def test_json_is_refused(home: Home, client: Client, run: Run[Any]) -> None:
    form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1]}
    answer = run(home.ask(form, content_type="application/json"))
    assert "x-www-form-urlencoded" in refused(answer, "invalid_request")["message"]
    charset = run(home.ask(form, content_type="application/x-www-form-urlencoded; charset=UTF-8"))
    assert charset.status == 200


@pytest.mark.parametrize(
    "authorization", ["Basic", "Basic !!!", "Basic YQ==", f"Basic {base64.b64encode(bytes([255, 58])).decode()}"]
)
def test_a_malformed_basic_header_is_refused(authorization: str, home: Home, run: Run[Any]) -> None:
    refused(run(home.ask({"grant_type": "client_credentials"}, authorization)), "invalid_request")


def test_a_secret_in_the_url_is_not_looked_at(home: Home, client: Client, run: Run[Any]) -> None:
    """URLs are logged."""
    request = home.request("POST")
    request.query_string = urlencode({"client_id": client[0], "client_secret": client[1]}).encode()
    request.body = b"grant_type=client_credentials"
    refused(run(oauth.post_token(request)), "invalid_client", 401)


def test_pyiceberg_reads_the_answers(home: Home, client: Client, run: Run[Any]) -> None:
    granted = TokenResponse.model_validate_json(run(home.ask_as(client)).body)
    assert (granted.token_type, granted.expires_in) == ("bearer", 900)
    refusal = OAuthErrorResponse.model_validate_json(run(home.ask_as((client[0], "wrong"))).body)
    assert (refusal.error, refusal.error_description) == ("invalid_client", "Unknown client or wrong secret")


# Token exchange: how Java's client refreshes.


@pytest.mark.parametrize("with_header", ["the old token", "HTTP Basic", "nothing"])
def test_a_token_is_exchanged_for_one_that_lives_longer(
    with_header: str, home: Home, client: Client, run: Run[Any]
) -> None:
    old = run(home.token(client))
    home.clock.pass_seconds(800)
    header = {"the old token": f"Bearer {old}", "HTTP Basic": basic(client), "nothing": None}[with_header]
    answer = run(home.exchange(old, header, scope="catalog"))
    body = said(answer)
    assert answer.status == 200
    assert body["issued_token_type"] == oauth.ACCESS_TOKEN
    assert body["expires_in"] == 900
    assert body["access_token"] != old
    home.clock.pass_seconds(800)
    session = run(home.show(body["access_token"]))
    assert session.grantees == ("p:alice", "r:reader", "r:writer")


def test_an_expired_token_is_exchanged_only_along_with_the_secret(home: Home, client: Client, run: Run[Any]) -> None:
    """Java's client, when it was asleep for too long."""
    old = run(home.token(client, "PRINCIPAL_ROLE:reader"))
    home.clock.pass_seconds(901)
    assert "expired" in refused(run(home.exchange(old)), "invalid_request")["message"]
    assert "expired" in refused(run(home.exchange(old, f"Bearer {old}")), "invalid_request")["message"]
    body = said(run(home.exchange(old, basic(client))))
    assert body["scope"] == "PRINCIPAL_ROLE:reader"
    assert run(home.show(body["access_token"])).roles == ("reader",)


def test_the_secret_must_be_right_when_a_token_is_exchanged_with_it(home: Home, client: Client, run: Run[Any]) -> None:
    old = run(home.token(client))
    refused(run(home.exchange(old, basic((client[0], "wrong")))), "invalid_client", 401)
    form = {"client_id": client[0], "client_secret": "wrong"}
    refused(run(home.exchange(old, **form)), "invalid_client", 401)


def test_no_exchange_widens_a_scope(home: Home, client: Client, run: Run[Any]) -> None:
    narrow = run(home.token(client, "PRINCIPAL_ROLE:reader"))
    for header in (None, f"Bearer {narrow}", basic(client)):
        for everything in ("catalog", "PRINCIPAL_ROLE:ALL", ""):
            assert said(run(home.exchange(narrow, header, scope=everything)))["scope"] == "PRINCIPAL_ROLE:reader"
        refused(run(home.exchange(narrow, header, scope="PRINCIPAL_ROLE:writer")), "invalid_scope")


def test_an_exchange_may_narrow_a_scope(home: Home, client: Client, run: Run[Any]) -> None:
    wide = run(home.token(client))
    narrow = said(run(home.exchange(wide, scope="PRINCIPAL_ROLE:reader")))
    assert narrow["scope"] == "PRINCIPAL_ROLE:reader"
    assert run(home.show(narrow["access_token"])).grantees == ("r:reader",)


def test_a_limited_client_gains_nothing_from_a_wide_token(home: Home, client: Client, run: Run[Any]) -> None:
    limited = run(home.client("alice", roles=["reader"]))
    wide = run(home.token(client))
    assert said(run(home.exchange(wide, basic(limited))))["scope"] == "PRINCIPAL_ROLE:reader"


def test_nobody_exchanges_the_token_of_another_principal(home: Home, client: Client, run: Run[Any]) -> None:
    run(home.principal("mallory"))
    mallory = run(home.client("mallory"))
    token = run(home.token(client))
    own = run(home.token(mallory))
    refused(run(home.exchange(token, basic(mallory))), "invalid_request")
    refused(run(home.exchange(token, f"Bearer {own}")), "invalid_request")
    # An actor token changes nothing, whoever's it is.
    body = said(run(home.exchange(own, None, actor_token=token, actor_token_type=oauth.ACCESS_TOKEN)))
    assert run(home.show(body["access_token"])).principal == "mallory"


def test_a_token_that_is_not_ours_is_not_exchanged(home: Home, client: Client, run: Run[Any]) -> None:
    foreign = jwt.encode({"sub": "alice", "iss": "nunatak"}, "x" * 32, "HS256")
    unsecured = jwt.encode({"sub": "alice", "iss": "nunatak"}, "", "none")
    for subject in (foreign, unsecured, "None", "nunatak_abcdefgh_" + "x" * 43):
        for header in (None, basic(client)):
            refused(run(home.exchange(subject, header)), "invalid_request")
    refused(run(home.exchange(run(home.token(client)), f"Bearer {foreign}")), "invalid_client", 401)


@pytest.mark.parametrize("kind", ["id_token", "saml2", "refresh_token"])
def test_other_types_of_tokens_are_refused(kind: str, home: Home, client: Client, run: Run[Any]) -> None:
    token = run(home.token(client))
    urn = f"urn:ietf:params:oauth:token-type:{kind}"
    refused(run(home.exchange(token, subject_token_type=urn)), "invalid_request")
    refused(run(home.exchange(token, requested_token_type=urn)), "invalid_request")


def test_an_api_key_is_exchanged_for_a_token_that_ends_with_it(home: Home, client: Client, run: Run[Any]) -> None:
    """Java's client tries that after an hour with whatever `token` it was given."""
    key = run(home.api_key("alice", roles=["reader"], expires_ms=MOMENT + 100_000))
    body = said(run(home.exchange(key, f"Bearer {key}", scope="catalog")))
    assert (body["scope"], body["expires_in"]) == ("PRINCIPAL_ROLE:reader", 100)
    assert run(home.show(body["access_token"])).roles == ("reader",)
    run(home.write("drop_credential", credential_id=key.split("_")[1], principal="alice"))
    refused(run(home.exchange(body["access_token"])), "invalid_request")


# Failures are counted.


def test_after_ten_failures_a_client_has_to_wait(home: Home, client: Client, run: Run[Any]) -> None:
    for _ in range(10):
        refused(run(home.ask_as((client[0], "wrong"))), "invalid_client", 401)
    home.clock.pass_seconds(20)
    answer = run(home.ask_as(client))
    assert answer.status == 429, "even with the right secret, or guessing would go on"
    assert headers(answer)[b"retry-after"] == b"40"
    assert said(answer)["error"]["type"] == "TooManyRequestsException"
    home.clock.pass_seconds(40)
    assert run(home.ask_as(client)).status == 200


def test_failures_elsewhere_lock_nobody_out(home: Home, client: Client, run: Run[Any]) -> None:
    form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": "wrong"}
    for _ in range(11):
        run(home.ask(form, address="10.6.6.6"))
    assert run(home.ask(form, address="10.6.6.6")).status == 429
    assert run(home.ask_as(client)).status == 200
    other = run(home.client("alice"))
    right = {"grant_type": "client_credentials", "client_id": other[0], "client_secret": other[1]}
    assert run(home.ask(right, address="10.6.6.6")).status == 200


def test_an_address_that_tries_many_clients_has_to_wait_as_well(home: Home, client: Client, run: Run[Any]) -> None:
    for number in range(100):
        refused(run(home.ask_as((f"client-{number}", "wrong"))), "invalid_client", 401)
    assert run(home.ask_as(client)).status == 429


def test_failed_exchanges_are_counted_too(home: Home, run: Run[Any]) -> None:
    for _ in range(10):
        refused(run(home.exchange("guess")), "invalid_request")
    assert run(home.exchange("guess")).status == 429


def test_successes_and_mistakes_are_not_counted(home: Home, client: Client, run: Run[Any]) -> None:
    for _ in range(15):
        assert run(home.ask_as(client)).status == 200
        refused(run(home.ask_as(client, scope="PRINCIPAL_ROLE:nobody")), "invalid_scope")
        refused(run(home.ask_as(client, grant_type="password")), "unsupported_grant_type")


# Beside the endpoint.


def test_get_is_answered_with_how_to_ask(home: Home, run: Run[Any]) -> None:
    """MISSION: 003-19"""
    with pytest.raises(MethodNotAllowed) as refusal:
        run(oauth.explain_token(home.request("GET")))
    answer = error_response(refusal.value)
    assert answer.status == 405
    assert headers(answer)[b"allow"] == b"POST"
    assert "client_credentials" in said(answer)["error"]["hint"]


def test_the_public_keys_are_published(home: Home, client: Client, run: Run[Any]) -> None:
    token = run(home.token(client))
    answer = run(oauth.get_keys(home.request("GET")))
    (key,) = said(answer)["keys"]
    assert answer.status == 200
    assert set(key) == {"kty", "crv", "x", "y", "kid", "use", "alg"}
    assert (key["kty"], key["crv"], key["alg"], key["use"]) == ("EC", "P-256", "ES256", "sig")
    assert key["kid"] == jwt.get_unverified_header(token)["kid"]


@pytest.mark.parametrize("handler", [oauth.post_token, oauth.get_keys])
def test_a_server_without_embedded_identity_says_so(handler: Any, run: Run[Any]) -> None:
    nothing: Any = None
    request = Request(nothing, nothing, "POST", [], b"", {}, SimpleNamespace(identity=None))
    with pytest.raises(NotFound, match="issues no tokens"):
        run(handler(request))
