"""TLS in the server's own process: what it speaks, whom it verifies, which files it refuses to start with."""

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from nunatak.api.transport.connection import certificate_name
from nunatak.api.transport.tls import keep_certificate, tls_context
from nunatak.settings import SettingsError, load
from tests.api.wire import a_commit, a_table, set_properties
from tests.support.catalogs.process import RunningServer, command, running_server
from tests.support.postgres import NOT_INSTALLED, find_binaries, running_postgres

PATIENCE_SECONDS = 60


class Files:
    """Certificates of one authority, and one of another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.other = trustme.CA(), trustme.CA()
        self.trusted = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.server = self.issue("server", "127.0.0.1", "localhost")

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def issue(self, name: str, *identities: str, by: trustme.CA | None = None, **more: Any) -> Path:
        """Key and certificate chain in one file."""
        issued = (by or self.authority).issue_cert(*identities, **more)
        self._write(f"{name}.key", issued.private_key_pem.bytes())
        self._write(f"{name}.crt", b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return self._write(f"{name}.pem", issued.private_key_and_cert_chain_pem.bytes())

    def client(self, certificate: Path | None = None, *, trusts: bytes | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=(trusts or self.authority.cert_pem.bytes()).decode())
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[RunningServer]:
    environment = {"NUNATAK_TLS_CERTIFICATE": str(files.server), "NUNATAK_TLS_CLIENT_CA": str(files.trusted)}
    with running_server(tmp_path_factory.mktemp("tls") / "nunatak-data", environment=environment) as started:
        with httpx.Client(base_url=started.uri, verify=files.client()) as client:
            assert client.post("/v1/namespaces", json={"namespace": ["ns"]}).status_code == 200
            assert client.post("/v1/namespaces/ns/tables", json=a_table("t")).status_code == 200
        yield started


def caller(server: RunningServer, context: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(base_url=server.uri, verify=context, timeout=PATIENCE_SECONDS)


# What is spoken


def test_the_address_says_that_it_speaks_tls(server: RunningServer) -> None:
    assert server.uri.startswith("https://127.0.0.1:")


def test_http_1_1_is_answered_over_tls(server: RunningServer, files: Files) -> None:
    with caller(server, files.client()) as client:
        answers = [client.get("/v1/namespaces/ns/tables/t") for _ in range(3)]
        missing = client.get("/v1/namespaces/ns/tables/nothing")

    assert {answer.http_version for answer in answers} == {"HTTP/1.1"}
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["metadata"]["format-version"] for answer in answers} == {2}
    assert len({answer.content for answer in answers}) == 1
    assert missing.json()["error"]["type"] == "NoSuchTableException"


def test_a_whole_life_of_a_table_over_tls(server: RunningServer, files: Files) -> None:
    with caller(server, files.client()) as client:
        path = "/v1/namespaces/ns/tables/by-tls"
        created = client.post("/v1/namespaces/ns/tables", json=a_table("by-tls"))
        large = {f"key{number}": "x" * 1000 for number in range(900)}
        committed = client.post(path, json=a_commit(set_properties(**large)))
        loaded = client.get(path, headers={"accept-encoding": "gzip"})
        unchanged = client.get(path, headers={"if-none-match": committed.headers["etag"]})
        dropped = client.delete(path)

    assert [each.status_code for each in (created, committed, loaded, unchanged, dropped)] == [200, 200, 200, 304, 204]
    assert loaded.headers["content-encoding"] == "gzip"
    assert loaded.json()["metadata"]["properties"].items() >= large.items()


@pytest.mark.parametrize("argument", ["--http1.1", "--http2"])
def test_curl_gets_http_1_1_whatever_it_offers(server: RunningServer, files: Files, argument: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed: only httpx was asked")
    shown = subprocess.run(
        [curl, "-sS", argument, "--cacert", files.trusted, "-w", "%{http_version} %{http_code}", "-o", "/dev/null",
         f"{server.uri}/v1/config"],
        check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    ).stdout  # fmt: skip

    assert shown == "1.1 200"


async def create_namespaces(server: RunningServer, context: ssl.SSLContext, count: int) -> list[tuple[int, str]]:
    async with httpx.AsyncClient(base_url=server.uri, verify=context, timeout=PATIENCE_SECONDS) as client:
        asked = [client.post("/v1/namespaces", json={"namespace": [f"tls-{number}"]}) for number in range(count)]
        return [(answer.status_code, answer.json()["namespace"][0]) for answer in await asyncio.gather(*asked)]


def test_commits_that_come_together_over_tls_are_each_answered_with_their_own(
    server: RunningServer, files: Files
) -> None:
    made = asyncio.run(create_namespaces(server, files.client(), 200))
    with caller(server, files.client()) as client:
        listed = {name for (name,) in client.get("/v1/namespaces").json()["namespaces"]}

    assert made == [(200, f"tls-{number}") for number in range(200)]
    assert {f"tls-{number}" for number in range(200)} <= listed


def handshake(server: RunningServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1"), ([], None), (["h2"], None), (["spdy/3"], None)],
    ids=["both", "1.1", "nothing", "only HTTP/2", "unknown"],
)
def test_http_1_1_is_chosen_whatever_else_is_offered(
    server: RunningServer, files: Files, offered: list[str], chosen: str | None
) -> None:
    context = files.client()
    if offered:
        context.set_alpn_protocols(offered)
    with handshake(server, context) as sock:
        assert sock.selected_alpn_protocol() == chosen
        sock.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_speaks_http_2_unasked_is_refused_and_let_go(server: RunningServer, files: Files) -> None:
    with handshake(server, files.client()) as sock:
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        received = b""
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            while chunk := sock.recv(65536):
                received += chunk

    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert received.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_from_1_2_on_is_spoken_with_forward_secrecy(
    server: RunningServer, files: Files, version: ssl.TLSVersion
) -> None:
    context = files.client()
    context.minimum_version = context.maximum_version = version
    with handshake(server, context) as sock:
        cipher = sock.cipher()

    assert cipher is not None
    assert "GCM" in cipher[0] or "CHACHA20" in cipher[0]
    assert cipher[0].startswith("TLS_" if version is ssl.TLSVersion.TLSv1_3 else "ECDHE-")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_older_tls_is_refused(server: RunningServer, files: Files) -> None:
    context = files.client()
    context.set_ciphers("ALL:@SECLEVEL=0")  # as lax as a client can be
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(server, context)


def test_weak_ciphers_are_refused(server: RunningServer, files: Files) -> None:
    context = files.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA:AES256-SHA:ECDHE+AES:!AESGCM:!AESCCM")

    with pytest.raises(ssl.SSLError):
        handshake(server, context)


def test_who_speaks_plain_http_is_not_answered(server: RunningServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/v1/config")
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        connection.getresponse()
    connection.close()


# Whose certificate


def test_a_client_need_not_show_a_certificate(server: RunningServer, files: Files) -> None:
    with caller(server, files.client()) as client:
        assert client.get("/v1/config").status_code == 200


def test_a_certificate_of_the_authority_is_accepted(server: RunningServer, files: Files) -> None:
    shown = files.issue("spark", "spark.example", common_name="spark")
    with caller(server, files.client(shown)) as client:
        assert client.get("/v1/namespaces/ns/tables/t").status_code == 200


def test_a_certificate_of_another_authority_is_refused(server: RunningServer, files: Files) -> None:
    shown = files.issue("stranger", "spark.example", by=files.other, common_name="spark")
    context = files.client(shown)
    with caller(server, context) as client, pytest.raises(httpx.TransportError):
        client.get("/v1/config")


def test_an_expired_certificate_is_refused(server: RunningServer, files: Files) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    shown = files.issue("late", "spark.example", common_name="spark", not_after=yesterday)
    with caller(server, files.client(shown)) as client, pytest.raises(httpx.TransportError):
        client.get("/v1/config")


def test_a_client_that_trusts_another_authority_does_not_connect(server: RunningServer, files: Files) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, files.client(trusts=files.other.cert_pem.bytes()))


def test_who_shows_a_certificate_is_known_by_it_and_nobody_else_is(tmp_path: Path, files: Files) -> None:
    """MISSION 003-32. Known, but without rights: what is there cannot be told from what is not."""
    environment = {
        "NUNATAK_TLS_CERTIFICATE": str(files.server),
        "NUNATAK_TLS_CLIENT_CA": str(files.trusted),
        "NUNATAK_AUTH": "certificate",
    }
    shown = files.issue("analyst", "analyst.example", common_name="analyst")
    with running_server(tmp_path / "nunatak-data", environment=environment) as server:
        with caller(server, files.client()) as stranger:
            refused = stranger.get("/v1/namespaces")
        with caller(server, files.client(shown)) as analyst:
            known = analyst.get("/v1/namespaces")
            known_by_changes = [
                analyst.post("/v1/namespaces", json={"namespace": ["n"]}),
                analyst.post("/v1/namespaces", content=iter([b'{"namespace":', b'["n"]}'])),
            ]

        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer ")
        assert known.status_code == 404
        assert [each.status_code for each in known_by_changes] == [404, 404]  # whole, and in chunks


class Shown:
    """A connection whose client showed this certificate, as the ssl module tells it."""

    def __init__(self, *subject: tuple[str, str]) -> None:
        self.subject = subject

    def get_extra_info(self, name: str) -> Any:
        return self if name == "ssl_object" else None

    def getpeercert(self) -> dict[str, Any]:
        return {"subject": tuple((field,) for field in self.subject)} if self.subject else {}


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((("organizationName", "x"), ("commonName", "spark")), "spark"),
        ((("organizationName", "x"),), None),
        ((("commonName", "spark"), ("commonName", "root")), None),
        ((), None),
    ],
    ids=["one", "none", "two", "no certificate"],
)
def test_a_name_is_taken_only_if_there_is_exactly_one(subject: tuple[tuple[str, str], ...], name: str | None) -> None:
    transport: Any = Shown(*subject)

    assert certificate_name(transport) == name


# The end


def test_what_was_begun_is_answered_before_the_server_ends(tmp_path: Path, files: Files) -> None:
    """A request of which half has come when the server is told to stop."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed: httpx does not wait for an answer after a server has said goodbye")
    body = json.dumps({"namespace": ["late"]}).encode()
    environment = {"NUNATAK_TLS_CERTIFICATE": str(files.server)}
    with running_server(tmp_path / "nunatak-data", environment=environment) as server:
        asked = subprocess.Popen(
            [curl, "-sSv", "--http1.1", "--cacert", files.trusted, "-X", "POST", "-T", "-", "-N",
             "-w", " %{http_version} %{http_code}", f"{server.uri}/v1/namespaces"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert asked.stdin is not None
        assert asked.stderr is not None
        asked.stdin.write(body[:5])
        asked.stdin.flush()
        for line in asked.stderr:
            if line.startswith(b"> POST"):
                break
        time.sleep(1)  # half of it is there; were it not, the server would refuse it and the test fail
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # the server has begun to stop; had it not, the test would prove less, not fail
        said, _ = asked.communicate(body[5:], timeout=PATIENCE_SECONDS)

        assert said.split()[-2:] == [b"1.1", b"200"]
        assert server.process.wait(PATIENCE_SECONDS) == 0


def test_several_workers_speak_tls(tmp_path: Path, files: Files) -> None:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres() as postgres:
        environment = {
            "NUNATAK_TLS_CERTIFICATE": str(files.server),
            "NUNATAK_DATABASE_URL": postgres.new_database(),
            "NUNATAK_WORKERS": "2",
        }
        with running_server(tmp_path / "nunatak-data", environment=environment) as server:
            for _ in range(10):
                with caller(server, files.client()) as client:
                    assert client.get("/v1/config").status_code == 200


async def served_certificates(folder: Path, files: Files) -> list[int]:
    """The serial numbers that new connections see: at first, amid a renewal, and after it."""
    certificate, key = folder / "live.crt", folder / "live.key"

    def renew(name: str, *, key_too: bool) -> None:
        shutil.copy(files.folder / f"{name}.crt", certificate)
        if key_too:
            shutil.copy(files.folder / f"{name}.key", key)

    files.issue("first", "127.0.0.1")
    files.issue("second", "127.0.0.1")
    renew("first", key_too=True)
    settings = load({"tls_certificate": str(certificate), "tls_key": str(key)}, {"NUNATAK_CONFIG": os.devnull})
    context = tls_context(settings)
    assert context is not None
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def serial() -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=files.client())
        found = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()
        return found.serial_number

    seen = [await serial()]
    duty = asyncio.create_task(keep_certificate(context, settings, 0.01))
    await asyncio.sleep(0.05)
    renew("second", key_too=False)
    await asyncio.sleep(0.2)
    seen.append(await serial())
    renew("second", key_too=True)
    for _ in range(1000):
        await asyncio.sleep(0.02)
        last = await serial()
        if last != seen[0]:
            break
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)
    server.close()
    await server.wait_closed()
    return [*seen, last]


def test_a_renewed_certificate_is_used_without_a_restart_and_half_of_one_is_not(tmp_path: Path, files: Files) -> None:
    first, amid, after = asyncio.run(served_certificates(tmp_path, files))

    assert first == amid != after


# Files that cannot be used


def made(files: Files, **settings: object) -> ssl.SSLContext | None:
    return tls_context(load({name: str(value) for name, value in settings.items()}, {"NUNATAK_CONFIG": os.devnull}))


def test_key_and_certificate_may_lie_in_two_files(files: Files) -> None:
    folder = files.folder
    assert made(files, tls_certificate=folder / "server.crt", tls_key=folder / "server.key") is not None
    assert made(files) is None


def refusal(files: Files, **settings: object) -> str:
    with pytest.raises(SettingsError) as refused:
        made(files, **settings)
    return str(refused.value)


def test_a_file_that_is_not_there_is_named(files: Files) -> None:
    missing = files.folder / "missing.pem"

    assert "tls_certificate: " in refusal(files, tls_certificate=missing)
    assert "tls_key: " in refusal(files, tls_certificate=files.server, tls_key=missing)
    assert "tls_client_ca: " in refusal(files, tls_certificate=files.server, tls_client_ca=missing)
    assert "missing.pem cannot be read: No such file" in refusal(files, tls_certificate=missing)


@pytest.mark.parametrize("name", ["tls_key", "tls_client_ca"])
def test_a_key_or_authority_without_a_certificate_is_refused(files: Files, name: str) -> None:
    assert (
        refusal(files, **{name: files.server}) == f"{name} is set, but tls_certificate is not: set it too, or neither"
    )


def test_a_key_of_another_certificate_is_refused(files: Files) -> None:
    files.issue("another", "127.0.0.1")

    said = refusal(files, tls_certificate=files.folder / "server.crt", tls_key=files.folder / "another.key")

    assert "another.key is not the key of the certificate in" in said


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it(files: Files) -> None:
    key = load_pem_private_key((files.folder / "server.key").read_bytes(), None)
    locked = files.folder / "locked.key"
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open sesame")))

    assert "locked.key is encrypted" in refusal(files, tls_certificate=files.folder / "server.crt", tls_key=locked)


def test_what_is_no_certificate_is_refused(files: Files) -> None:
    nonsense = files.folder / "nonsense.pem"
    nonsense.write_text("no PEM at all")

    assert "holds no certificate in PEM format" in refusal(files, tls_certificate=nonsense)
    assert "cannot be used" in refusal(files, tls_certificate=files.folder / "server.crt", tls_key=nonsense)
    assert "holds no certificate of an authority" in refusal(
        files, tls_certificate=files.server, tls_client_ca=nonsense
    )


def test_an_expired_certificate_is_refused_at_the_start(files: Files) -> None:
    late = files.issue("expired", "127.0.0.1", not_after=datetime(2020, 1, 2, tzinfo=UTC))

    assert "expired.pem expired on 2020-01-02; renew it" in refusal(files, tls_certificate=late)


def test_one_that_is_not_valid_yet_is_refused_too(files: Files) -> None:
    settings = load({"tls_certificate": str(files.server)}, {"NUNATAK_CONFIG": os.devnull})

    with pytest.raises(SettingsError, match=r"is valid from .* check the clock"):
        tls_context(settings, datetime(1990, 1, 1, tzinfo=UTC))


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*command(), "serve", "--port", "0", "--data", str(tmp_path / "data")],
        env={"NUNATAK_TLS_CERTIFICATE": str(tmp_path / "missing.pem"), "NUNATAK_CONFIG": os.devnull, "PATH": ""},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip

    assert ended.returncode != 0
    assert "missing.pem cannot be read: No such file or directory" in ended.stderr
    assert "Traceback" not in ended.stderr
