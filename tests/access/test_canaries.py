"""S4: secrets that are used, rightly and wrongly, on a server that logs all it can, appear in nothing it says or keeps.

Every secret is a canary. Afterwards logs, answers, metrics, the database and its files, the audit trail and what the
commands print are searched for each of them, as it is and encoded.
"""

import asyncio
import base64
import contextlib
import json
import os
import secrets
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import trustme
from click.testing import CliRunner

from nunatak.access.vault import open_vault
from nunatak.cli.main import root
from nunatak.errors import CatalogError
from nunatak.settings import SettingsError
from tests.api.wire import Answer
from tests.support import postgres as postgres_support
from tests.support.catalogs.local import LocalCatalog
from tests.support.catalogs.principals import MANAGEMENT
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.issuer import Issuer, running_issuers
from tests.support.postgres import PostgresServer

LOUD = {"NUNATAK_LOG_LEVEL": "debug"}
AUDIENCE = "canary-audience"
SHORTEST = 12  # characters of a piece that is worth a search
TOKENS = "/v1/oauth/tokens"
SIGNED = "AWS4-HMAC-SHA256"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"

Places = dict[str, bytes]


def a_canary(name: str) -> str:
    return f"canary-{name}-{os.urandom(12).hex()}"


@dataclass
class Canaries:
    """What must not be found, by name; and what the server answered, except where it hands out a secret on purpose."""

    secrets: dict[str, str | bytes] = field(default_factory=dict)
    answers: list[bytes] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)

    def new(self, name: str) -> str:
        return self.keep(name, a_canary(name.replace(" ", "-")))

    def keep(self, name: str, secret: str) -> str:
        self.secrets[name] = secret
        return secret

    def heard(self, name: str, answer: Answer) -> Answer:
        self.answers.append(repr(answer.headers).encode() + answer.body)
        self.statuses[name] = answer.status
        return answer

    def forms(self) -> dict[str, set[bytes]]:
        return {name: forms_of(secret) for name, secret in self.secrets.items()}


def forms_of(secret: str | bytes) -> set[bytes]:
    """The secret as it is, quoted and encoded; of a token the signature, of a key the part that nobody else knows."""
    raw = secret.encode() if isinstance(secret, str) else secret
    forms = {raw, raw.hex().encode(), base64.b64encode(raw), base64.urlsafe_b64encode(raw), raw[::-1]}
    if isinstance(secret, str):
        forms |= {quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode()}
        pieces = [secret.split("_", 2)[-1]] if secret.startswith("nunatak_") else secret.split(".")[2:]
        forms |= {piece.encode() for piece in pieces}
    return {form for form in forms if len(form) >= SHORTEST}


def found_in(places: Places, canaries: Canaries) -> list[str]:
    hits = {
        f"{name} in {place}"
        for place, content in places.items()
        for name, forms in canaries.forms().items()
        if any(form in content for form in forms)
    }
    return sorted(hits)


# What happens on the server


def log_in(server: RunningServer, canaries: Canaries) -> None:
    """As clients do, and as clients do it wrong."""
    principal = server.new_principal("carol")
    client_id, secret = server.new_credential(principal, "client")
    canaries.keep("client secret", secret)
    basic = canaries.keep("basic credentials", base64.b64encode(f"{client_id}:{secret}".encode()).decode())
    good = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}

    token = server.ask_token(good, headers={"Idempotency-Key": "0198c2b0-5c5e-7f00-8000-000000000001"})
    canaries.keep("access token", token.json["access_token"])
    again = server.ask_token({"grant_type": "client_credentials"}, authorization=f"Basic {basic}")
    canaries.keep("access token by basic", again.json["access_token"])
    exchange = {"grant_type": EXCHANGE, "subject_token": token.json["access_token"], "subject_token_type": ACCESS_TOKEN}
    exchanged = server.ask_token(exchange, authorization=f"Basic {basic}")
    canaries.keep("exchanged token", exchanged.json["access_token"])

    wrong = {
        "a wrong secret": {**good, "client_secret": canaries.new("wrong secret")},
        "the secret as the id": {**good, "client_id": secret, "client_secret": client_id},
        "a secret of nobody": {**good, "client_id": "client-nobody", "client_secret": canaries.new("stray secret")},
        "a password grant": {"grant_type": "password", "username": "u", "password": canaries.new("password")},
        "a bad subject token": {**exchange, "subject_token": canaries.new("subject token")},
        "a bad token type": {**exchange, "subject_token_type": "x", "subject_token": canaries.new("typed token")},
        "a bad scope": {**good, "scope": "PRINCIPAL_ROLE:nobody"},
    }
    for name, form in wrong.items():
        canaries.heard(name, server.ask_token(form))
    malformed = {
        "JSON instead of a form": (json.dumps({**good, "client_secret": canaries.new("json secret")}), JSON),
        "broken JSON": ('{"client_secret": "' + canaries.new("broken json"), JSON),
        "two secrets": (f"client_secret={canaries.new('first')}&client_secret={canaries.new('second')}", FORM),
        "a form that is none": (f"%%%={canaries.new('garbled')}&&=&", FORM),
    }
    for name, (body, kind) in malformed.items():
        answer = server.call("POST", TOKENS, body.encode(), authorization="", headers={"Content-Type": kind})
        canaries.heard(name, answer)
    in_the_url = f"{TOKENS}?client_secret={canaries.new('url secret')}"
    canaries.heard("a secret in the URL", server.call("POST", in_the_url, b"", authorization=""))
    canaries.heard("a secret in the URL of a GET", server.call("GET", in_the_url, authorization=""))


def basic_of(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def ask(server: RunningServer, canaries: Canaries) -> None:
    """Requests with every kind of header, good and bad."""
    principal = server.new_principal("dave")
    key_id, api_key = server.new_credential(principal, "api-key")
    pair = server.new_credential(principal, "access-key")
    canaries.keep("API key", api_key)
    canaries.keep("access key", pair[1])
    canaries.keep("the administrator's key", server.key)
    token = str(canaries.secrets["access token"])
    another = canaries.keep("wrong API key", f"nunatak_{key_id}_{secrets.token_urlsafe(32)}")
    stray = canaries.keep("stray API key", f"nunatak_abcdefgh_{secrets.token_urlsafe(32)}")
    swapped = f"Credential={canaries.new('swapped key')}/20250101/r/s/aws4_request"
    headers = {
        "a good token": f"Bearer {token}",
        "a good API key": f"Bearer {api_key}",
        "an API key as a user": basic_of(f"{api_key}:"),
        "a changed token": f"Bearer {canaries.keep('changed token', token[:-8] + 'AAAAAAAA')}",
        "an API key with another secret": f"Bearer {another}",
        "an API key of nobody": f"Bearer {stray}",
        "a text that is no token": f"Bearer {canaries.new('bearer')}",
        "three texts": f"Bearer {canaries.new('head')}.{canaries.new('claims')}.{canaries.new('signature')}",
        "a wrong password": basic_of(f"u:{canaries.new('basic password')}"),
        "basic that is none": f"Basic {canaries.new('basic')}",
        "an unknown scheme": f"Digest {canaries.new('digest')}",
        "a scheme alone": canaries.new("scheme"),
        "a signature of nobody": f"{SIGNED} {swapped}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}",
        "a broken signature": f"{SIGNED} {canaries.new('signed')}",
    }
    for name, header in headers.items():
        for method, path, body in (
            ("GET", "/v1/config", None),
            ("GET", "/v1/default/namespaces/none", None),
            ("POST", "/v1/default/namespaces", {"namespace": []}),
            ("GET", "/no/such/route", None),
            ("GET", "/v1/default/namespaces/none/tables/none", None),
        ):
            canaries.heard(f"{name}: {method} {path}", server.call(method, path, body, authorization=header))
    wrong_pair = (pair[0], canaries.new("wrong access key"))
    for name, own in {"signed": pair, "signed with another secret": wrong_pair}.items():
        signed = server.signed(own, "GET", "/v1/config")
        authorization = signed.pop("Authorization")
        canaries.keep(f"{name}: signature", authorization.rpartition("=")[2])
        canaries.heard(name, server.call("GET", "/v1/config", authorization=authorization, headers=signed))
    for header in ("Cookie", "X-Api-Key", "Proxy-Authorization", "Original-Authorization", "X-Amz-Security-Token"):
        canaries.heard(header, server.call("GET", "/v1/config", headers={header: canaries.new(header.lower())}))
    query = f"/v1/config?access_token={canaries.new('query token')}"
    canaries.heard("a token in the URL", server.call("GET", query, authorization=""))
    canaries.heard("a token in the URL, too", server.call("GET", query))


def babble(server: RunningServer, canaries: Canaries) -> None:
    """Requests that are none, with a secret in them."""
    head = f"GET /v1/config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {canaries.new('babbled token')}"
    for name, sent in {
        "a broken header": f"{head}\x00\r\n\r\n",
        "a header without a colon": f"{head}\r\n{canaries.new('bare line')}\r\n\r\n",
        "a header that is too long": f"{head}{'x' * 100_000}\r\n\r\n",
        "a length that is none": f"{head}\r\nContent-Length: {canaries.new('length')}\r\n\r\n",
        "no method": f"{canaries.new('method')} / HTTP/1.1\r\n\r\n",
    }.items():
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(sent.encode())
            connection.shutdown(socket.SHUT_WR)
            heard = b""
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(65_536):
                    heard += piece
        assert b" 4" in heard.partition(b"\r\n")[0], (name, heard)
        canaries.answers.append(heard)


def trust_others(server: RunningServer, issuer: Issuer, canaries: Canaries) -> None:
    """Tokens of an issuer that is believed, and of one whose keys are others."""
    now = int(time.time())
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "carol", "iat": now, "exp": now + 600}
    tokens = {
        "OIDC token": claims,
        "OIDC token that expired": {**claims, "exp": now - 600, "iat": now - 900},
        "OIDC token for others": {**claims, "aud": "somebody"},
        "OIDC token of others": {**claims, "iss": "https://elsewhere.example"},
        "OIDC token for nobody": {**claims, "sub": ""},
    }
    for name, content in tokens.items():
        token = canaries.keep(name, issuer.token("es-1", content))
        canaries.heard(name, server.call("GET", "/v1/config", authorization=f"Bearer {token}"))


def administer(server: RunningServer, canaries: Canaries) -> None:
    """Looking at credentials shows none, and new keys are not shown either."""
    for path in ("principals/carol/credentials", "principals/dave/credentials", "principals", "grants", "me"):
        canaries.heard(path, server.call("GET", f"{MANAGEMENT}/{path}"))
    canaries.heard("keys", server.call("GET", f"{MANAGEMENT}/encryption-keys"))
    canaries.heard("rotate", server.call("POST", f"{MANAGEMENT}/encryption-keys/rotate"))
    canaries.heard("rotate signing keys", server.call("POST", f"{MANAGEMENT}/keys/rotate"))
    canaries.heard("retire", server.call("POST", f"{MANAGEMENT}/encryption-keys/retire"))
    asked = {"kind": "client", "secret": canaries.new("chosen secret"), "expires-in-seconds": 0}
    canaries.heard("a bad credential", server.call("POST", f"{MANAGEMENT}/principals/dave/credentials", asked))


def fail(server: RunningServer, canaries: Canaries) -> None:
    """Something goes wrong inside: the log tells all about it."""
    key_file = open_vault(server.settings).key_file.path
    hidden = key_file.rename(key_file.with_name("nunatak.keys.hidden"))
    asked = {"kind": "access-key"}
    gone = server.call("POST", f"{MANAGEMENT}/principals/dave/credentials", asked)
    hidden.rename(key_file)
    canaries.heard("the key file is gone", gone)


# Where it is looked for


def printed(server: RunningServer, *arguments: str) -> bytes:
    """What a command says in the server's own environment."""
    where = {"NUNATAK_DATA": str(server.data), "NUNATAK_CONFIG": os.devnull}
    return printed_by({**where, **server.environment}, *arguments).encode()


def printed_by(environment: dict[str, str], *arguments: str) -> str:
    outcome = CliRunner().invoke(root, list(arguments), env=environment)
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    assert outcome.output
    return outcome.output


COMMANDS = (
    ("config", "check"),
    ("config", "check", "-o", "json"),
    ("audit", "export"),
    ("audit", "list", "-o", "json"),
    ("encryption-key", "list"),
    ("fsck", "--json"),
    ("encryption-key", "retire"),
)


def everything_said(server: RunningServer, canaries: Canaries) -> Places:
    places: Places = {f"nunatak {' '.join(command)}": printed(server, *command) for command in COMMANDS}
    places["metrics"] = server.call("GET", "/metrics").body
    places["answers"] = b"\n".join(canaries.answers)
    places["health"] = server.call("GET", "/health", authorization="").body
    places["settings"] = repr(server.settings).encode()
    return places


def everything_kept(server: RunningServer, database: str) -> Places:
    """Logs, files and rows; the key file alone may hold keys."""
    data = server.data
    places: Places = {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and not path.name.startswith("nunatak.keys")
    }
    places["log"] = server.log.read_bytes()
    if database:
        places["dump"] = asyncio.run(dump(database))
    return places


async def dump(url: str) -> bytes:
    """Every row of every table as text."""
    tables = await postgres_support.execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [await postgres_support.execute(url, f'SELECT t::text FROM "{name}" t') for (name,) in tables]
    return "\n".join(row[0] for table in rows for row in table).encode()


@dataclass(frozen=True)
class Scene:
    canaries: Canaries
    places: Places


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    canaries = Canaries()
    environment = {**LOUD, "NUNATAK_OIDC_AUDIENCE": AUDIENCE, "NUNATAK_AUTH": "embedded,oidc"}
    environment["NUNATAK_OPA_TOKEN"] = canaries.new("unused OPA token")
    database = ""
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        database = postgres.new_database()
        password = canaries.new("database password")
        environment["NUNATAK_DATABASE_URL"] = database.replace("postgres@", f"postgres:{password}@")
    data = tmp_path_factory.mktemp("canaries") / "data"
    with running_issuers() as issuers:
        issuer = issuers.new_issuer()
        environment["NUNATAK_OIDC_ISSUERS"] = issuer.url
        with running_server(data, environment=environment, auth=True) as server:
            log_in(server, canaries)
            ask(server, canaries)
            babble(server, canaries)
            trust_others(server, issuer, canaries)
            administer(server, canaries)
            fail(server, canaries)
            for key in open_vault(server.settings).key_file.ring().keys:
                canaries.secrets[f"encryption key {key.key_id}"] = key.material
            said = everything_said(server, canaries)
        yield Scene(canaries, {**said, **everything_kept(server, database)})


def test_no_canary_is_found_anywhere(scene: Scene) -> None:
    print(f"{len(scene.canaries.secrets)} canaries, {len(scene.canaries.answers)} answers, {len(scene.places)} places")
    assert len(scene.canaries.secrets) >= 40

    assert found_in(scene.places, scene.canaries) == []


def test_the_requests_were_what_they_are_meant_to_be(scene: Scene) -> None:
    """A search that finds nothing because nothing happened would show nothing."""
    statuses = scene.canaries.statuses

    for good in ("a good token: GET /v1/config", "a good API key: GET /v1/config", "signed", "OIDC token"):
        assert statuses[good] == 200, good
    for bad in ("a wrong secret", "signed with another secret", "an API key of nobody: GET /v1/config"):
        assert statuses[bad] == 401, bad
    assert sum(status >= 400 for status in statuses.values()) >= 40
    assert [name for name, status in statuses.items() if status >= 500] == ["the key file is gone"]
    assert b"carol" in scene.places["nunatak audit export"]
    assert b"***" in scene.places["nunatak config check"]
    assert b"Traceback" in scene.places["log"]


@pytest.mark.parametrize("place", ["log", "answers", "metrics", "nunatak config check", "nunatak audit export"])
def test_a_canary_that_is_planted_is_found_in_every_form(scene: Scene, place: str) -> None:
    for name, forms in scene.canaries.forms().items():
        for form in forms:
            planted = {place: scene.places[place] + form}

            assert f"{name} in {place}" in found_in(planted, scene.canaries)


def test_a_canary_that_a_client_lets_out_itself_is_found_in_the_database_and_the_audit_trail(tmp_path: Path) -> None:
    """Whoever calls itself by a secret has it kept: the search looks where the server writes."""
    canaries = Canaries()
    with running_server(tmp_path / "data", environment=LOUD, auth=True) as server:
        agent = canaries.new("user agent")
        server.call("GET", "/v1/config", headers={"User-Agent": agent})
        canaries.heard("shown", server.call("GET", f"/v1/default/namespaces/{canaries.new('namespace')}"))
    found = found_in({**everything_said_offline(server, canaries), **everything_kept(server, "")}, canaries)

    assert "user agent in nunatak audit export" in found
    assert "user agent in nunatak.db" in found
    assert "namespace in answers" in found


def everything_said_offline(server: RunningServer, canaries: Canaries) -> Places:
    return {"nunatak audit export": printed(server, "audit", "export"), "answers": b"\n".join(canaries.answers)}


# The first administrator


def test_the_first_administrator_is_told_its_secret_in_one_file_and_nowhere_else(tmp_path: Path) -> None:
    canaries = Canaries()
    data = tmp_path / "data"
    environment = {"NUNATAK_DATA": str(data), "NUNATAK_CONFIG": os.devnull, **LOUD}

    said = printed_by(environment, "init") + printed_by(environment, "init")

    kept = json.loads((data / "admin.json").read_text())
    canaries.keep("client secret", kept["client-secret"])
    files = {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}
    assert found_in({"output": said.encode(), **files}, canaries) == ["client secret in admin.json"]
    assert (data / "admin.json").stat().st_mode & 0o777 == 0o600


# TLS


def test_tls_logs_no_header(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    canaries = Canaries()
    environment = {**LOUD, "NUNATAK_TLS_CERTIFICATE": str(tmp_path / "server.pem")}
    with running_server(tmp_path / "data", environment=environment, auth=True) as server:
        canaries.keep("the administrator's key", server.key)
        trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        with httpx.Client(verify=trusted, base_url=server.uri, timeout=30) as client:
            for token, status in ((server.key, 200), (canaries.new("bearer"), 401)):
                answer = client.get("/v1/config", headers={"Authorization": f"Bearer {token}", "Cookie": token})
                assert (answer.http_version, answer.status_code) == ("HTTP/1.1", status)
                canaries.heard(f"{status}", Answer(status, dict(answer.headers), answer.content))
        private = (tmp_path / "server.pem").read_text().splitlines()
        canaries.keep("the server's private key", private[1])
        places = {**everything_kept(server, ""), "answers": b"".join(canaries.answers)}

    assert found_in(places, canaries) == []


# The decision point


@contextlib.contextmanager
def a_decision_point() -> Iterator[tuple[str, list[str]]]:
    """Speaks OPA's documented protocol: in turns all is allowed, an error, nonsense. Also what it was sent."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            turn = len(heard) % 3
            heard.append(self.headers["Authorization"] or "")
            count = len(question["input"]["securables"])
            allowed = json.dumps({"result": [["SERVER_ADMIN"]] * count}).encode()
            body = (allowed, b"denied: " + heard[-1].encode(), b"\xff" + heard[-1].encode())[turn]
            self.send_response((200, 500, 200)[turn])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The test reads `heard`."""

    double = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=double.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{double.server_address[1]}/v1/data/nunatak/rights", heard
    finally:
        double.shutdown()
        thread.join()
        double.server_close()


def test_the_token_for_the_decision_point_is_sent_and_nothing_else_is_done_with_it(tmp_path: Path) -> None:
    canaries = Canaries()
    token = canaries.new("OPA token")
    with a_decision_point() as (url, heard):
        environment = {**LOUD, "NUNATAK_AUTHORIZER": "opa", "NUNATAK_OPA_URL": url, "NUNATAK_OPA_TOKEN": token}
        with running_server(tmp_path / "data", environment=environment, auth=True) as server:
            for number in range(9):
                answer = server.call("POST", "/v1/default/namespaces", {"namespace": [f"n{number}"]})
                canaries.heard(f"{number}", answer)
            canaries.keep("the administrator's key", server.key)
            said = {"config": printed(server, "config", "check"), "answers": b"\n".join(canaries.answers)}
        places = {**said, **everything_kept(server, "")}

    assert len(heard) >= 9
    assert set(heard) == {f"Bearer {token}"}
    assert {200} < set(canaries.statuses.values())
    assert found_in(places, canaries) == []


# Settings that are wrong


def broken_urls(password: str) -> dict[str, str]:
    half = password[:20] + "{}" + password[20:]
    return {
        "nobody there": f"postgresql://me:{password}@127.0.0.1:1/lake",
        "a slash": f"postgresql://me:{half.format('/')}@127.0.0.1:1/lake",
        "a hash": f"postgresql://me:{half.format('#')}@127.0.0.1:1/lake",
        "a question mark": f"postgresql://me:{half.format('?')}@127.0.0.1:1/lake",
        "an at": f"postgresql://me:{half.format('@')}@127.0.0.1:1/lake",
        "a bracket": f"mariadb://me:{half.format('[')}@127.0.0.1:1/lake",
        "a percent sign": f"postgresql://me:{half.format('%zz')}@127.0.0.1:1/lake",
        "a port in letters": f"mariadb://me:{password}@127.0.0.1:port/lake",
        "an option": f"postgresql://me@127.0.0.1:1/lake?password={password}",
        "an unknown option": f"mariadb://me@127.0.0.1:1/lake?passwort={password}",
        "another database": f"oracle://me:{password}@db/lake",
        "one slash": f"postgresql:/me:{password}@db/lake",
        "no scheme": f"me:{password}@db/lake",
        "two slashes": f"sqlite://me:{password}@db/lake",
    }


@pytest.mark.parametrize("case", broken_urls("x" * 40))
def test_a_database_url_that_cannot_be_used_is_refused_without_its_password(tmp_path: Path, case: str) -> None:
    password = os.urandom(20).hex()
    environment = {"NUNATAK_DATABASE_URL": broken_urls(password)[case]}

    with pytest.raises((SettingsError, CatalogError)) as refused:
        LocalCatalog(tmp_path, environment)

    # The causes are printed, too, if somebody logs the error with them.
    whole = "".join(traceback.format_exception(refused.value))
    shown = str(refused.value)
    assert all(piece not in shown for piece in (password, password[:20], password[20:]))
    assert password not in whole


def test_a_setting_that_cannot_be_used_is_printed_by_the_command_without_its_password(tmp_path: Path) -> None:
    password = os.urandom(20).hex()
    for case, url in broken_urls(password).items():
        environment = {"NUNATAK_DATABASE_URL": url, "NUNATAK_CONFIG": os.devnull}
        outcome = printed_by(environment, "config", "check")

        assert all(piece not in outcome for piece in (password, password[:20], password[20:])), case
