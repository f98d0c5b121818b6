"""Issuers of OpenID Connect tokens in a process of their own: discovery, keys, rotation, and every way to misbehave.

Each path under the root is an issuer with keys of its own. It signs what it is asked to, and counts what is fetched.
"""

import json
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/keys"
BODY_LIMIT = 1024 * 1024
SLOW_SECONDS = 8  # longer than anybody should wait for keys
PAUSE_SECONDS = 0.2


@cache
def _rsa_key(kid: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """They take long to make, so all issuers have the same one under one id; the other keys are each issuer's own."""
    return rsa.generate_private_key(65537, bits)


MAKERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "RS256": (_rsa_key, RSAAlgorithm),
    "PS256": (_rsa_key, RSAAlgorithm),
    "RS256-small": (lambda kid: _rsa_key(kid, 1024), RSAAlgorithm),
    "ES256": (lambda _: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "ES384": (lambda _: ec.generate_private_key(ec.SECP384R1()), ECAlgorithm),
    "EdDSA": (lambda _: ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm),
}


# The process


@dataclass
class _Issuer:
    """`misbehave` is what the next fetches of discovery or keys get instead of an answer."""

    url: str
    keys: dict[str, tuple[str, Any]] = field(default_factory=dict)
    fetched: Counter[str] = field(default_factory=Counter)
    misbehave: dict[str, Any] = field(default_factory=dict)

    def published(self) -> dict[str, Any]:
        listed = []
        for kid, (kind, private) in self.keys.items():
            public = MAKERS[kind][1].to_jwk(private.public_key(), as_dict=True)
            listed.append({**public, "kid": kid, "use": "sig", "alg": kind.partition("-")[0]})
        return {"keys": [*listed, *self.misbehave.get("more_keys", [])]}

    def document(self) -> dict[str, Any]:
        return {
            "issuer": self.misbehave.get("issuer", self.url),
            "jwks_uri": self.misbehave.get("jwks_uri", self.url + KEYS),
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    issuers: dict[str, _Issuer] = {}  # noqa: RUF012 - one process, one table
    lock = threading.Lock()

    def do_GET(self) -> None:
        name, _, rest = self.path[1:].partition("/")
        issuer = self._issuer(name)
        kind = {DISCOVERY: "discovery", KEYS: "keys"}.get("/" + rest)
        if kind is None:
            self._answer(200, {"fetched": dict(issuer.fetched)})
            return
        with self.lock:
            issuer.fetched[kind] += 1
        self._fetched(issuer, kind)

    def _fetched(self, issuer: _Issuer, kind: str) -> None:
        document = issuer.document() if kind == "discovery" else issuer.published()
        match issuer.misbehave.get(kind):
            case "error":
                self._answer(500, {})
            case "redirect":
                self._answer(302, {}, location=issuer.misbehave["location"])
            case "garbage":
                self._answer(200, None, b"<html>not JSON</html>")
            case "list":
                self._answer(200, None, b"[]")
            case "huge":
                self._answer(200, document, padding=b" " * (2 * BODY_LIMIT))
            case "endless header":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
                for _ in range(64):
                    self.wfile.write(b"x" * 65_536)
            case "slow":  # no single byte is late
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                for _ in range(int(SLOW_SECONDS / PAUSE_SECONDS)):
                    self.wfile.write(b"X-Drip: 1\r\n")
                    self.wfile.flush()
                    time.sleep(PAUSE_SECONDS)
            case "pause":
                time.sleep(PAUSE_SECONDS)
                self._answer(200, document)
            case "unnumbered":  # neither a length nor chunks: it ends when the connection does
                self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + json.dumps(document).encode())
                self.close_connection = True
            case "chunked":
                body = json.dumps(document).encode()
                self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            case _:
                self._answer(200, document)

    def do_POST(self) -> None:
        name, _, action = self.path[1:].partition("/")
        issuer = self._issuer(name)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if action == "rotate":
            if asked["forget"]:
                issuer.keys.clear()
            issuer.keys[asked["kid"]] = (asked["kind"], MAKERS[asked["kind"]][0](asked["kid"]))
            self._answer(200, {})
        elif action == "misbehave":
            issuer.misbehave = asked
            self._answer(200, {})
        else:
            kind, private = issuer.keys[asked["key"]]
            claims = json.dumps(asked["claims"]).encode()
            token = jwt.PyJWS().encode(claims, private, asked["alg"] or kind.partition("-")[0], asked["headers"])
            self._answer(200, {"token": token})

    def _issuer(self, name: str) -> _Issuer:
        with self.lock:
            return self.issuers.setdefault(name, _Issuer(f"http://{self.headers['Host']}/{name}"))

    def _answer(
        self, status: int, document: object, body: bytes = b"", *, padding: bytes = b"", location: str = ""
    ) -> None:
        body = body or json.dumps(document).encode() + padding
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # whoever asked has heard enough

    def log_message(self, *_: object) -> None:
        """Nothing is logged: tests read the counts."""


def _serve() -> None:
    warnings.simplefilter("ignore")  # a key that is too small is made on purpose
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


# Its callers


@dataclass(frozen=True)
class Issuer:
    """One issuer of the process, from the outside."""

    port: int
    name: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.name}"

    @property
    def keys_url(self) -> str:
        return self.url + KEYS

    def new_key(self, kid: str, kind: str, *, forget: bool = False) -> None:
        """Publish a key more, or instead of all others."""
        self._call("POST", "rotate", {"kid": kid, "kind": kind, "forget": forget})

    def misbehave(self, **how: Any) -> None:
        self._call("POST", "misbehave", how)

    def token(self, key: str, claims: dict[str, Any], alg: str = "", **headers: Any) -> str:
        """Signed as it stands; the key's id is in the header unless `headers` say otherwise, or left out if None."""
        named = {name: value for name, value in {"kid": key, **headers}.items() if value is not None}
        return str(self._call("POST", "sign", {"key": key, "claims": claims, "alg": alg, "headers": named})["token"])

    def fetched(self, kind: str = "keys") -> int:
        """How often the keys, or the discovery document, were fetched."""
        return int(self._call("GET", "counts", None)["fetched"].get(kind, 0))

    def _call(self, method: str, action: str, asked: object) -> dict[str, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, f"/{self.name}/{action}", json.dumps(asked))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer


@dataclass
class IssuerProcess:
    port: int
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def new_issuer(self) -> Issuer:
        """With one key, es-1 for ES256."""
        issuer = Issuer(self.port, f"realm{next(self.numbers)}")
        issuer.new_key("es-1", "ES256")
        return issuer


@contextmanager
def running_issuers() -> Iterator[IssuerProcess]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.issuer"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            yield IssuerProcess(int(process.stdout.readline()))
        finally:
            process.terminate()


if __name__ == "__main__":
    _serve()
