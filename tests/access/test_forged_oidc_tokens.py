"""S3, external issuers: forged and faulty tokens are refused, and nobody is called on their account."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from nunatak.access.grants import Grants
from nunatak.access.guard import Guard
from nunatak.access.oidc import LEEWAY_SECONDS
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from tests.access import forged_tokens
from tests.access.external_world import NOW, Believer, bearer, claims_of
from tests.access.forged_tokens import FORGERIES, Mint, encoded
from tests.backends.conftest import Run
from tests.support.issuer import Issuer, IssuerProcess
from tests.support.sentinel import Sentinel

EC_KEYS = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
PRIVATE = ECAlgorithm.to_jwk(EC_KEYS[0], as_dict=True)["d"]
RSA_KEYS = [rsa.generate_private_key(65537, 2048) for _ in range(2)]


@dataclass(frozen=True)
class Scene:
    """What a forger knows: the issuer, another one on the same host, and an address where it waits for a call."""

    issuer: Issuer
    stranger: Issuer
    sentinel: Sentinel

    def signed(self, *, alg: str = "", headers: dict[str, Any] | None = None, **changed: Any) -> str:
        """By the issuer's own key: only what is changed is wrong with it."""
        return self.issuer.token("es-1", claims_of(self.issuer, **changed), alg, **(headers or {}))

    def forged(self, kid: object = "es-1", **changed: Any) -> str:
        """By a key of the forger's own."""
        return signed_by_forger({"alg": "ES256", "kid": kid}, claims_of(self.issuer, **changed))

    def unsigned(self, **header: Any) -> str:
        return f"{encoded(header)}.{encoded(claims_of(self.issuer))}.{encoded(bytes(256))}"


def signed_by_forger(header: dict[str, Any], claims: object) -> str:
    text = f"{encoded(header)}.{encoded(claims)}"
    return f"{text}.{encoded(ECAlgorithm(ECAlgorithm.SHA256).sign(text.encode(), EC_KEYS[0]))}"


def of_two_issuers(scene: Scene) -> str:
    """Whoever reads the one `iss` before the signature and the other behind it fetches the forger's keys."""
    ours, theirs = json.dumps(scene.issuer.url), json.dumps(scene.sentinel.url)
    rest = json.dumps(claims_of(scene.issuer, iss=None))[1:]
    return signed_by_forger({"alg": "ES256", "kid": "es-1"}, f'{{"iss":{theirs},"iss":{ours},{rest}'.encode())


def padded(token: str) -> str:
    """With letters that lenient decoders of base64 skip."""
    header, claims, signature = token.split(".")
    return f"{header}.{claims[:4]}!!{claims[4:]}.{signature}"


def last_bit_changed(token: str) -> str:
    """Two bits of the last letter do not count for 64 bytes; lenient decoders ignore them."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]


# What forged_tokens.py does not have, since only an external issuer can be imitated so.
FORGED: dict[str, Callable[[Scene], str]] = {
    "the forger as its issuer": lambda s: s.forged(iss=s.sentinel.url),
    "the forger as its issuer, with a path": lambda s: s.forged(iss=f"{s.sentinel.url}/{s.issuer.name}"),
    "an issuer that begins as ours": lambda s: s.forged(iss=f"{s.issuer.url}@127.0.0.1:{s.sentinel.port}"),
    "an issuer with a slash more": lambda s: s.signed(iss=f"{s.issuer.url}/"),
    "an issuer in capital letters": lambda s: s.signed(iss=s.issuer.url.upper()),
    "a list of issuers": lambda s: s.signed(iss=[s.issuer.url]),
    "two issuers": of_two_issuers,
    "another issuer's key in our issuer's name": lambda s: s.stranger.token("es-1", claims_of(s.issuer)),
    "another issuer of the same host": lambda s: s.stranger.token("es-1", claims_of(s.stranger)),
    "a key's id that is an address": lambda s: s.forged(kid=f"{s.sentinel.url}/keys"),
    "a key's id that is a list": lambda s: s.forged(kid=["es-1"]),
    "an RSA alg for an EC key": lambda s: s.unsigned(alg="RS256", kid="es-1"),
    "an alg that is not accepted, correctly signed": lambda s: s.issuer.token("ps-1", claims_of(s.issuer)),
    "an alg that the key is not for, correctly signed": lambda s: s.issuer.token("rs-1", claims_of(s.issuer), "PS256"),
    "letters in it that do not count": lambda s: padded(s.signed()),
    "its signature written another way": lambda s: last_bit_changed(s.signed()),
    "the address of keys, correctly signed": lambda s: s.signed(headers={"jku": f"{s.sentinel.url}/keys"}),
    "the address of a certificate, correctly signed": lambda s: s.signed(headers={"x5u": f"{s.sentinel.url}/c.pem"}),
    "the type of a logout token": lambda s: s.signed(headers={"typ": "logout+jwt"}),
    "the type of a proof of possession": lambda s: s.signed(headers={"typ": "dpop+jwt"}),
    "a type that is no text": lambda s: s.signed(headers={"typ": 7}),
    "other audiences": lambda s: s.signed(aud=["another", "lake2"]),
    "no audience in its list": lambda s: s.signed(aud=[]),
    "an audience that is an object": lambda s: s.signed(aud={"lake": 1}),
    "an expiry that is true": lambda s: s.signed(exp=True),
    "an expiry beyond all numbers": lambda s: s.signed(exp=10**400),
    "a time of issue before time began": lambda s: s.signed(iat=-1),
    "a time of issue that is true": lambda s: s.signed(iat=True),
    "a beginning that is text": lambda s: s.signed(nbf="0"),
    "an empty subject": lambda s: s.signed(sub=""),
    "a subject that is a number": lambda s: s.signed(sub=7),
    "a subject with a role behind it": lambda s: s.signed(sub="alice\x1fr:admin"),
    "a subject of two": lambda s: s.signed(sub="alice,admin"),
}


@pytest.fixture
def scene(issuers: IssuerProcess, sentinel: Sentinel) -> Scene:
    issuer = issuers.new_issuer()
    issuer.new_key("rs-1", "RS256")
    issuer.new_key("ps-1", "PS256")
    return Scene(issuer, issuers.new_issuer(), sentinel)


@pytest.fixture
def guard(scene: Scene, plain_store: Store) -> Guard:
    """Nobody else accepts what the issuer's authenticator leaves to others."""
    believer = Believer(scene.issuer, plain_store)
    return Guard(plain_store, Grants(plain_store), [believer.authenticator], believer.clock)


def assert_refused_without_a_call(token: str, guard: Guard, scene: Scene, run: Run[Any]) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        run(guard.identify(bearer(token)))

    assert scene.sentinel.connections() == 0
    assert scene.stranger.fetched() == scene.stranger.fetched("discovery") == 0
    assert scene.issuer.fetched() <= 1  # our own issuer may be asked for its keys, once
    told = f"{refused.value.message} {refused.value.hint}"
    assert all(part not in told for part in token.split(".") if len(part) > 8)


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_token_is_refused_and_nobody_is_called(
    forgery: str, scene: Scene, guard: Guard, run: Run[Any]
) -> None:
    assert_refused_without_a_call(FORGED[forgery](scene), guard, scene, run)
    assert run(guard.identify(bearer(scene.signed()))).session.principal == "alice"


def a_mint(scene: Scene, algorithm: str, **published: Any) -> Mint:
    """Signs here with a key that the issuer publishes there, so that a token can be wrong in every way."""
    keys: tuple[Any, Any] = (EC_KEYS, ECAlgorithm) if algorithm == "ES256" else (RSA_KEYS, RSAAlgorithm)
    (key, retired), kind = keys
    public = kind.to_jwk(key.public_key(), as_dict=True)
    scene.issuer.misbehave(more_keys=[{**public, "kid": "minted", "use": "sig", "alg": algorithm, **published}])
    header = {"alg": algorithm, "kid": "minted", "typ": "JWT"}
    return Mint(key, algorithm, header, claims_of(scene.issuer), NOW, LEEWAY_SECONDS, (retired, "given-up"))


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_our_own_tokens_are_refused_for_an_issuers_are_too(
    forgery: str, algorithm: str, scene: Scene, guard: Guard, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forged_tokens, "SENTINEL", f"{scene.sentinel.url}/keys")
    mint = a_mint(scene, algorithm)

    assert_refused_without_a_call(FORGERIES[forgery](mint), guard, scene, run)
    assert run(guard.identify(bearer(mint.token()))).session.principal == "alice"


@pytest.mark.parametrize(
    "published",
    [{"use": "enc"}, {"key_ops": ["sign"]}, {"key_ops": "verify"}, {"alg": "ES384"}, {"crv": "P-384"}, {"d": PRIVATE}],
)
def test_a_key_that_is_published_for_something_else_verifies_nothing(
    published: dict[str, Any], scene: Scene, guard: Guard, run: Run[Any]
) -> None:
    assert_refused_without_a_call(a_mint(scene, "ES256", **published).token(), guard, scene, run)


def test_a_key_that_is_published_for_verifying_verifies(scene: Scene, guard: Guard, run: Run[Any]) -> None:
    token = a_mint(scene, "ES256", key_ops=["verify"], x5t="ignored").token()

    assert run(guard.identify(bearer(token))).session.principal == "alice"
