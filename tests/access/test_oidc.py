"""Tokens of external issuers, checked against issuers in a process of their own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nunatak.access import jwks
from nunatak.access.oidc import OidcAuthenticator
from nunatak.access.sessions import Session
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated, ServiceUnavailable
from nunatak.settings import SettingsError
from tests.access.external_world import NOW, Believer, Clock, a_principal, a_proof, bearer, claims_of, settings_of
from tests.access.forged_tokens import encoded
from tests.backends.conftest import Run
from tests.support.issuer import Issuer, IssuerProcess
from tests.support.sentinel import Sentinel

NewBeliever = Callable[..., Believer]


@pytest.fixture
def issuer(issuers: IssuerProcess) -> Issuer:
    return issuers.new_issuer()


@pytest.fixture
def believer(issuer: Issuer, plain_store: Store) -> NewBeliever:
    def make(**settings: Any) -> Believer:
        return Believer(issuer, plain_store, settings=settings)

    return make


def authenticate(run: Run[Any], believer: Believer, token: str) -> Session | None:
    found: Session | None = run(believer.authenticator.authenticate(bearer(token)))
    return found


def a_token(issuer: Issuer, kid: str = "es-1", **changed: Any) -> str:
    return issuer.token(kid, claims_of(issuer, **changed))


# Whom a token names


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
def test_a_genuine_token_is_its_subjects(algorithm: str, issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    """MISSION: 002-04"""
    issuer.new_key("another", "ES256")
    issuer.new_key("k", algorithm)
    trusting = believer(oidc_algorithms=f"{algorithm}")

    session = authenticate(run, trusting, a_token(issuer, "k"))

    assert session is not None
    assert (session.principal, session.roles, session.method) == ("alice", (), "oidc")
    assert session.grantees == ("p:alice",)
    assert session.cached


def test_roles_come_from_the_token_and_from_here(issuer: Issuer, store: Store, run: Run[Any]) -> None:
    run(store.apply(a_principal("alice", "kept", "both")))

    session = authenticate(run, Believer(issuer, store), a_token(issuer, roles=["named", "both", "no,name", 7, ""]))

    assert session is not None
    assert session.roles == ("both", "kept", "named")
    assert session.grantees == ("p:alice", "r:both", "r:kept", "r:named")


@pytest.mark.parametrize(
    ("path", "claims"),
    [
        ("roles", {"roles": "a b"}),
        ("roles", {"roles": "a,b"}),
        ("scope", {"scope": " a  b "}),
        ("realm_access.roles", {"realm_access": {"roles": ["a", "b"]}}),
        ("https://lake.example/roles", {"https://lake.example/roles": ["a", "b"]}),
    ],
)
def test_roles_are_found_where_the_issuer_puts_them(
    path: str, claims: dict[str, Any], issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    session = authenticate(run, believer(oidc_roles_claim=path), a_token(issuer, **claims))

    assert session is not None
    assert session.roles == ("a", "b")


@pytest.mark.parametrize("roles", [7, {"a": 1}, [["a"]], True])
def test_a_roles_claim_of_another_type_gives_no_role(
    roles: object, issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    session = authenticate(run, believer(), a_token(issuer, roles=roles))

    assert session is not None
    assert session.roles == ()


def test_no_roles_are_taken_from_a_token_when_no_claim_is_set(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    session = authenticate(
        run, believer(oidc_roles_claim=""), a_token(issuer, "es-1", roles=["admin"], **{"": ["admin"]})
    )

    assert session is not None
    assert session.roles == ()


def test_the_principal_comes_from_the_claim_that_is_set(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer(oidc_principal_claim="user.email")

    session = authenticate(run, trusting, a_token(issuer, user={"email": "alice@example.com"}))

    assert session is not None
    assert session.principal == "alice@example.com"
    with pytest.raises(NotAuthenticated, match=r"user\.email"):
        authenticate(run, trusting, a_token(issuer))


@pytest.mark.parametrize("subject", [None, "", 7])
def test_a_token_needs_a_subject_although_another_claim_names_the_principal(
    subject: object, issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    with pytest.raises(NotAuthenticated, match="no subject"):
        authenticate(run, believer(oidc_principal_claim="email"), a_token(issuer, sub=subject, email="alice"))


def test_subjects_as_issuers_write_them_are_names(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer()

    for subject in ("auth0|5f7c8ec7c33c6c004bbafe82", "spiffe://lake/ns/etl", "system:serviceaccount:etl:spark"):
        session = authenticate(run, trusting, a_token(issuer, sub=subject))
        assert session is not None
        assert session.principal == subject


@pytest.mark.parametrize("subject", ["a,b", "a\x1fb", "a\nb", " a", "a" * 129])
def test_a_subject_that_is_no_name_is_refused(
    subject: str, issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    with pytest.raises(NotAuthenticated, match="no name of a principal"):
        authenticate(run, believer(), a_token(issuer, sub=subject))


def test_a_disabled_principal_is_refused(issuer: Issuer, store: Store, run: Run[Any]) -> None:
    run(store.apply(a_principal("alice", "kept", disabled=True)))

    with pytest.raises(NotAuthenticated, match="alice is disabled"):
        authenticate(run, Believer(issuer, store), a_token(issuer))


# Which tokens are somebody else's


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer nunatak_abcdefgh_secret"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Bearer"},
        {"Authorization": "AWS4-HMAC-SHA256 Credential=a.b.c"},
    ],
)
def test_what_is_no_token_of_an_issuer_is_left_to_others(
    headers: dict[str, str], issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    assert run(believer().authenticator.authenticate(a_proof(headers))) is None
    assert issuer.fetched() == 0


def test_a_token_of_another_issuer_is_left_to_others_and_nothing_is_fetched(
    issuers: IssuerProcess, issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    stranger = issuers.new_issuer()

    assert authenticate(run, believer(), a_token(stranger)) is None
    assert authenticate(run, believer(), a_token(issuer, iss=issuer.url + "/")) is None
    assert [each.fetched(kind) for each in (stranger, issuer) for kind in ("keys", "discovery")] == [0, 0, 0, 0]


# When it counts


@pytest.mark.parametrize(
    ("changed", "accepted"),
    [
        ({"exp": NOW - 59}, True),
        ({"exp": NOW - 60}, False),
        ({"iat": NOW + 60}, True),
        ({"iat": NOW + 61}, False),
        ({"nbf": NOW + 60}, True),
        ({"nbf": NOW + 61}, False),
        ({"aud": ["other", "lake"]}, True),
        ({"aud": ["other"]}, False),
    ],
)
def test_the_clocks_may_differ_by_a_minute(
    changed: dict[str, Any], accepted: bool, issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    token = a_token(issuer, **changed)

    if accepted:
        assert authenticate(run, believer(), token) is not None
    else:
        with pytest.raises(NotAuthenticated):
            authenticate(run, believer(), token)


def test_a_session_ends_with_its_token_and_is_looked_at_again_before(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    short = authenticate(run, believer(), a_token(issuer, exp=NOW + 300))
    long = authenticate(run, believer(), a_token(issuer, exp=NOW + 86_400))

    assert short is not None
    assert long is not None
    assert short.expires_ms == (NOW + 360) * 1000
    assert long.expires_ms == (NOW + 600) * 1000
    assert (short.ends_ms, long.ends_ms) == ((NOW + 300) * 1000, (NOW + 86_400) * 1000)


# Its keys


def test_keys_are_fetched_once_in_ten_minutes(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer()
    token = a_token(issuer, exp=NOW + 86_400)

    authenticate(run, trusting, token)
    trusting.clock.pass_seconds(599)
    authenticate(run, trusting, token)
    assert (issuer.fetched("discovery"), issuer.fetched("keys")) == (1, 1)

    trusting.clock.pass_seconds(1)
    authenticate(run, trusting, token)
    assert (issuer.fetched("discovery"), issuer.fetched("keys")) == (2, 2)


def test_a_key_that_is_new_is_found_at_once(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer()
    authenticate(run, trusting, a_token(issuer))

    issuer.new_key("es-2", "ES256")
    session = authenticate(run, trusting, a_token(issuer, "es-2"))

    assert session is not None
    assert issuer.fetched() == 2


def test_a_key_that_was_withdrawn_stops_working_within_ten_minutes(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    trusting = believer()
    token = a_token(issuer)
    authenticate(run, trusting, token)

    issuer.new_key("es-2", "ES256", forget=True)
    trusting.clock.pass_seconds(600)

    with pytest.raises(NotAuthenticated, match="no such key"):
        authenticate(run, trusting, token)


def test_keys_that_nobody_knows_are_searched_once_a_minute(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    trusting = believer()
    authenticate(run, trusting, a_token(issuer))
    forged = [issuer.token("es-1", claims_of(issuer), kid=f"invented-{number}") for number in range(20)]

    for token in forged:
        with pytest.raises(NotAuthenticated, match="no such key"):
            authenticate(run, trusting, token)
    assert issuer.fetched() == 2

    trusting.clock.pass_seconds(60)
    for token in forged:
        with pytest.raises(NotAuthenticated):
            authenticate(run, trusting, token)
    assert issuer.fetched() == 3


def test_the_first_token_with_a_key_that_nobody_knows_fetches_once(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    with pytest.raises(NotAuthenticated, match="no such key"):
        authenticate(run, believer(), issuer.token("es-1", claims_of(issuer), kid="invented"))

    assert issuer.fetched() == 1


def test_a_token_without_a_key_id_needs_an_issuer_with_one_key(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    token = issuer.token("es-1", claims_of(issuer), kid=None)
    assert authenticate(run, believer(), token) is not None

    issuer.new_key("rs-1", "RS256")  # for another algorithm: es-1 is still the only one that fits
    assert authenticate(run, believer(), token) is not None

    issuer.new_key("es-2", "ES256")
    with pytest.raises(NotAuthenticated, match="no such key"):
        authenticate(run, believer(), token)


def test_many_tokens_at_once_wait_for_one_fetch(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer()
    issuer.misbehave(keys="pause")
    token = a_token(issuer)

    async def all_at_once() -> list[Session | None]:
        return await asyncio.gather(*(trusting.authenticator.authenticate(bearer(token)) for _ in range(20)))

    assert all(session is not None for session in run(all_at_once()))
    assert issuer.fetched() == 1

    issuer.new_key("es-2", "ES256")
    token = a_token(issuer, "es-2")
    assert all(session is not None for session in run(all_at_once()))
    assert issuer.fetched() == 2


def test_a_caller_that_goes_away_does_not_take_the_fetch_along(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    trusting = believer()
    issuer.misbehave(keys="pause")
    token = a_token(issuer)

    async def first_goes_away() -> Session | None:
        first = asyncio.create_task(trusting.authenticator.authenticate(bearer(token)))
        second = asyncio.create_task(trusting.authenticator.authenticate(bearer(token)))
        for _ in range(200):
            if await asyncio.to_thread(issuer.fetched):
                break
        first.cancel()
        return await second

    assert run(first_goes_away()) is not None
    assert issuer.fetched() == 1


def test_the_address_of_the_keys_may_be_set(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer(oidc_keys=f"{issuer.url}={issuer.keys_url}")

    assert authenticate(run, trusting, a_token(issuer)) is not None
    assert (issuer.fetched("discovery"), issuer.fetched("keys")) == (0, 1)


@pytest.mark.parametrize("form", ["chunked", "unnumbered"])
def test_keys_may_come_in_any_form_of_http(form: str, issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    issuer.misbehave(keys=form, discovery=form)

    assert authenticate(run, believer(), a_token(issuer)) is not None


def test_keys_that_cannot_be_trusted_are_not_used(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    issuer.new_key("small", "RS256-small")
    issuer.misbehave(more_keys=["no key", {}, {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}, {"kty": "EC", "kid": "x"}])
    trusting = believer()

    with pytest.raises(NotAuthenticated, match="no such key"):
        authenticate(run, trusting, a_token(issuer, "small"))
    assert authenticate(run, trusting, a_token(issuer)) is not None


# An issuer that misbehaves


@pytest.mark.parametrize("document", ["discovery", "keys"])
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("error", "answered 500"),
        ("redirect", "answered 302"),
        ("garbage", "did not answer with JSON"),
        ("list", "did not answer with a JSON object"),
        ("huge", "answered with more than 1048576 bytes"),
        ("endless header", "answered with more than 1048576 bytes"),
        ("slow", "took longer than 0.5 s"),
    ],
)
def test_an_answer_that_is_no_set_of_keys_is_not_believed(
    document: str,
    fault: str,
    why: str,
    issuer: Issuer,
    believer: NewBeliever,
    sentinel: Sentinel,
    run: Run[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.5 if fault == "slow" else jwks.FETCH_SECONDS)
    issuer.misbehave(**{document: fault}, location=sentinel.url)

    with pytest.raises(ServiceUnavailable, match="cannot be fetched"):
        authenticate(run, believer(), a_token(issuer))
    assert why in caplog.text
    assert issuer.fetched(document) == 1
    assert sentinel.connections() == 0


def test_a_discovery_document_of_another_issuer_is_not_believed(
    issuers: IssuerProcess, issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    issuer.misbehave(issuer=issuers.new_issuer().url)

    with pytest.raises(ServiceUnavailable):
        authenticate(run, believer(), a_token(issuer))
    assert issuer.fetched("keys") == 0


@pytest.mark.parametrize("address", ["{sentinel}/keys", "file:///etc/passwd", "ftp://127.0.0.1/keys", 7, None])
def test_a_discovery_document_cannot_send_us_elsewhere(
    address: object, issuer: Issuer, believer: NewBeliever, sentinel: Sentinel, run: Run[Any]
) -> None:
    url = address.format(sentinel=sentinel.url) if isinstance(address, str) else address
    issuer.misbehave(jwks_uri=url)

    with pytest.raises(ServiceUnavailable):
        authenticate(run, believer(), a_token(issuer))
    assert sentinel.connections() == 0
    assert issuer.fetched("keys") == 0


def test_known_keys_survive_an_outage_of_an_hour(issuer: Issuer, believer: NewBeliever, run: Run[Any]) -> None:
    trusting = believer()
    token = a_token(issuer, exp=NOW + 86_400)
    authenticate(run, trusting, token)
    issuer.misbehave(keys="error")

    trusting.clock.pass_seconds(3599)
    assert authenticate(run, trusting, token) is not None
    trusting.clock.pass_seconds(1)
    with pytest.raises(ServiceUnavailable):
        authenticate(run, trusting, token)

    issuer.misbehave()
    trusting.clock.pass_seconds(10)
    assert authenticate(run, trusting, token) is not None


def test_an_issuer_that_is_down_is_asked_every_ten_seconds(
    issuer: Issuer, believer: NewBeliever, run: Run[Any]
) -> None:
    trusting = believer()
    issuer.misbehave(discovery="error")

    for _ in range(5):
        with pytest.raises(ServiceUnavailable):
            authenticate(run, trusting, a_token(issuer))
    assert issuer.fetched("discovery") == 1

    issuer.misbehave()
    trusting.clock.pass_seconds(10)
    assert authenticate(run, trusting, a_token(issuer)) is not None


def test_an_issuer_that_is_not_there_is_no_reason_to_refuse_for_good(plain_store: Store, run: Run[Any]) -> None:
    gone = Issuer(1, "nobody")  # nothing listens on port 1
    token = f"{encoded({'alg': 'ES256', 'kid': 'es-1'})}.{encoded(claims_of(gone))}.{encoded(bytes(64))}"

    with pytest.raises(ServiceUnavailable, match=gone.url):
        authenticate(run, Believer(gone, plain_store), token)


# What must not be started


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"oidc_audience": ""}, "oidc_audience"),
        ({"oidc_issuers": ""}, "oidc_issuers"),
        ({"oidc_issuers": "http://issuer.example"}, "must be https"),
        ({"oidc_issuers": "http://10.0.0.1"}, "must be https"),
        ({"oidc_issuers": "issuer.example"}, "no https address"),
        ({"oidc_issuers": "file:///etc"}, "no https address"),
        ({"oidc_issuers": "https://user@issuer.example"}, "no https address"),
        ({"oidc_issuers": "https://issuer.example?a=b"}, "no https address"),
        ({"oidc_issuers": "https://issuer.example:99999"}, "no https address"),
        ({"oidc_issuers": "nunatak", "oidc_keys": "nunatak=https://issuer.example/keys"}, "must not name nunatak"),
        ({"oidc_keys": "https://issuer.example=http://issuer.example/keys"}, "must be https"),
        ({"oidc_keys": "https://other.example=https://other.example/keys"}, "not one of oidc_issuers"),
        ({"oidc_algorithms": "HS256"}, "choose from RS256"),
        ({"oidc_algorithms": "RS256,none"}, "choose from RS256"),
        ({"oidc_algorithms": ""}, "choose from RS256"),
        ({"oidc_principal_claim": ""}, "oidc_principal_claim"),
    ],
)
def test_settings_that_would_believe_too_much_are_refused(
    changed: dict[str, str], told: str, plain_store: Store
) -> None:
    good = {"oidc_issuers": "https://issuer.example", "oidc_audience": "lake"}

    with pytest.raises(SettingsError, match=told):
        OidcAuthenticator(settings_of(**{**good, **changed}), plain_store, Clock())
    OidcAuthenticator(settings_of(**good), plain_store, Clock())


def test_an_issuer_need_not_be_an_address_if_its_keys_have_one(plain_store: Store) -> None:
    OidcAuthenticator(
        settings_of(
            oidc_issuers="kubernetes/serviceaccount",
            oidc_audience="lake",
            oidc_keys="kubernetes/serviceaccount=https://10.0.0.1/openid/v1/jwks",
        ),
        plain_store,
        Clock(),
    )
