"""Tokens that nobody may believe, as a table: each is made from what a valid one is made of.

A `Mint` makes valid tokens for one verifier: with the key that this verifier trusts, and claims that it accepts. Every
entry of FORGERIES changes one thing about them. The suite runs each against every verifier there is.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

Json = dict[str, Any]
LEFT_OUT = object()


@dataclass(frozen=True)
class Mint:
    """What a valid token consists of; `now` is the verifier's time in seconds, `leeway` what it forgives at most.

    `retired` is a key that the verifier once trusted, with its id.
    """

    key: Any
    algorithm: str
    header: Json
    claims: Json
    now: int
    leeway: int
    retired: tuple[Any, str]

    def token(self) -> str:
        return self.signed()

    def signed(self, header: Json | None = None, claims: Json | None = None, key: Any = None) -> str:
        """With changed headers and claims; some may be LEFT_OUT."""
        return self.sealed(_changed(self.header, header), _changed(self.claims, claims), key)

    def sealed(self, header: Json, claims: object, key: Any = None) -> str:
        """Whatever the header says, the signature is what its algorithm would make of it, with the trusted key."""
        signer = jwt.get_algorithm_by_name(self.algorithm)
        text = f"{encoded(header)}.{encoded(claims)}"
        return f"{text}.{encoded_bytes(signer.sign(text.encode(), key or self.key))}"

    def public_pem(self) -> bytes:
        return pem_of(self.key)


def encoded(value: object) -> str:
    return encoded_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())


def encoded_bytes(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def pem_of(private: PrivateKeyTypes) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def stranger() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _changed(original: Json, changes: Json | None) -> Json:
    return {name: value for name, value in {**original, **(changes or {})}.items() if value is not LEFT_OUT}


def _by_hand(mint: Mint, header: Json, sign: Callable[[bytes], bytes]) -> str:
    text = f"{encoded(_changed(mint.header, header))}.{encoded(mint.claims)}"
    return f"{text}.{encoded_bytes(sign(text.encode()))}"


def _hs256(mint: Mint, secret: bytes) -> str:
    return _by_hand(mint, {"alg": "HS256"}, lambda text: hmac.new(secret, text, hashlib.sha256).digest())


def _other_algorithm(mint: Mint, name: str, key: Any) -> str:
    """Signed correctly, by another algorithm and key than the trusted ones."""
    return _by_hand(mint, {"alg": name}, lambda text: jwt.get_algorithm_by_name(name).sign(text, key))


def _jwk_of(key: ec.EllipticCurvePrivateKey) -> Json:
    found: Json = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return found


def _own_key_in_header(mint: Mint) -> str:
    key = stranger()
    text = f"{encoded({**mint.header, 'alg': 'ES256', 'jwk': _jwk_of(key)})}.{encoded(mint.claims)}"
    return f"{text}.{encoded_bytes(jwt.get_algorithm_by_name('ES256').sign(text.encode(), key))}"


def _tampered(mint: Mint, claims: Json) -> str:
    header, _, signature = mint.token().split(".")
    return f"{header}.{encoded(_changed(mint.claims, claims))}.{signature}"


def _part(mint: Mint, number: int, change: Callable[[str], str]) -> str:
    parts = mint.token().split(".")
    parts[number] = change(parts[number])
    return ".".join(parts)


def _flipped(text: str) -> str:
    return ("A" if text[0] != "A" else "B") + text[1:]


def _deep(mint: Mint) -> str:
    header, _, signature = mint.token().split(".")
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    return f"{header}.{encoded_bytes(deep)}.{signature}"


SENTINEL = "http://127.0.0.1:9/keys"  # whoever fetches it has been fooled

FORGERIES: dict[str, Callable[[Mint], str]] = {
    "alg none, no signature": lambda m: f"{encoded({**m.header, 'alg': 'none'})}.{encoded(m.claims)}.",
    "alg None in other letters": lambda m: f"{encoded({**m.header, 'alg': 'nOnE'})}.{encoded(m.claims)}.",
    "alg none, with a signature": lambda m: m.signed({"alg": "none"}),
    "alg left out": lambda m: m.signed({"alg": LEFT_OUT}),
    "alg of another type": lambda m: m.signed({"alg": ["ES256", "RS256"]}),
    "alg unheard of": lambda m: m.signed({"alg": "XS256"}),
    "HS256 with the public key as its secret": lambda m: _hs256(m, m.public_pem()),
    "HS256 with an empty secret": lambda m: _hs256(m, b""),
    "HS256 with the key's id as its secret": lambda m: _hs256(m, str(m.header["kid"]).encode()),
    "ES384 with a key of that curve": lambda m: _other_algorithm(m, "ES384", ec.generate_private_key(ec.SECP384R1())),
    "PS256 with a stranger's key": lambda m: _other_algorithm(m, "PS256", rsa.generate_private_key(65537, 2048)),
    "another P-256 key under the trusted id": lambda m: _other_algorithm(m, "ES256", stranger()),
    "a key on the wrong curve under the trusted id": lambda m: _by_hand(
        m, {}, lambda text: jwt.get_algorithm_by_name("ES256K").sign(text, ec.generate_private_key(ec.SECP256K1()))
    ),
    "kid unknown": lambda m: m.signed({"kid": "0123456789abcdef"}),
    "kid left out": lambda m: m.signed({"kid": LEFT_OUT}),
    "kid a path": lambda m: m.signed({"kid": "../../../../dev/null"}),
    "kid SQL": lambda m: m.signed({"kid": f"x' OR '1'='1' UNION SELECT '{m.header['kid']}"}),
    "kid a number": lambda m: m.signed({"kid": 7}),
    "kid of a key that was given up": lambda m: m.signed({"kid": m.retired[1]}, key=m.retired[0]),
    "jwk: the sender's own key": _own_key_in_header,
    "jwk beside a valid signature": lambda m: m.signed({"jwk": _jwk_of(stranger())}),
    "jku": lambda m: m.signed({"jku": SENTINEL}),
    "x5u": lambda m: m.signed({"x5u": SENTINEL}),
    "x5c": lambda m: m.signed({"x5c": [base64.b64encode(b"certificate").decode()]}),
    "crit of an unknown extension": lambda m: m.signed({"crit": ["exp-policy"], "exp-policy": "lenient"}),
    "crit empty": lambda m: m.signed({"crit": []}),
    "b64 false: a payload that is not encoded": lambda m: m.signed({"b64": False, "crit": ["b64"]}),
    "expired": lambda m: m.signed(claims={"iat": m.now - 7200, "exp": m.now - m.leeway - 1}),
    "expired long ago": lambda m: m.signed(claims={"exp": 1}),
    "exp left out": lambda m: m.signed(claims={"exp": LEFT_OUT}),
    "exp a text": lambda m: m.signed(claims={"exp": "never"}),
    "exp endless": lambda m: m.sealed(m.header, json.dumps(m.claims | {"exp": 0}).replace(": 0,", ": 1e999,").encode()),
    "nbf ahead": lambda m: m.signed(claims={"nbf": m.now + m.leeway + 60}),
    "iat ahead": lambda m: m.signed(claims={"iat": m.now + m.leeway + 60}),
    "iat left out": lambda m: m.signed(claims={"iat": LEFT_OUT}),
    "sub left out": lambda m: m.signed(claims={"sub": LEFT_OUT}),
    "sub a list": lambda m: m.signed(claims={"sub": ["alice", "admin"]}),
    "aud of another service": lambda m: m.signed(claims={"aud": "elsewhere"}),
    "aud left out": lambda m: m.signed(claims={"aud": LEFT_OUT}),
    "aud nearly right": lambda m: m.signed(claims={"aud": f"{m.claims['aud']}x"}),
    "iss of somebody else": lambda m: m.signed(claims={"iss": "https://evil.example"}),
    "iss nearly right": lambda m: m.signed(claims={"iss": f"{m.claims['iss']}.evil.example"}),
    "iss left out": lambda m: m.signed(claims={"iss": LEFT_OUT}),
    "payload changed after signing": lambda m: _tampered(m, {"sub": "admin"}),
    "payload with a longer life": lambda m: _tampered(m, {"exp": m.now + 86_400}),
    "signature changed": lambda m: _part(m, 2, _flipped),
    "signature cut short": lambda m: _part(m, 2, lambda text: text[:-10]),
    "signature empty": lambda m: _part(m, 2, lambda text: ""),
    "signature all zeros": lambda m: _part(m, 2, lambda text: encoded_bytes(bytes(64))),
    "signature in DER": lambda m: _part(m, 2, lambda text: encoded_bytes(b"0\x06\x02\x01\x01\x02\x01\x01")),
    "token cut short": lambda m: m.token()[: len(m.token()) // 2],
    "two parts": lambda m: m.token().rpartition(".")[0],
    "four parts": lambda m: f"{m.token()}.{encoded_bytes(b'more')}",
    "JWE: five parts": lambda m: ".".join([encoded({"alg": "dir", "enc": "A256GCM"}), "", "AAAA", "AAAA", "AAAA"]),
    "two tokens, one after the other": lambda m: f"{m.token()},{m.token()}",
    "larger than 16 KB": lambda m: m.signed(claims={"jti": "x" * 17_000}),
    "payload no object": lambda m: m.sealed(m.header, ["admin"]),
    "payload no JSON": lambda m: m.sealed(m.header, b"admin"),
    "payload nested too deeply": _deep,
    "header no JSON": lambda m: _part(m, 0, lambda text: encoded_bytes(b"ES256")),
    "characters outside the alphabet": lambda m: _part(m, 1, lambda text: f"{text}!ü"),
    "empty parts": lambda m: "..",
}
