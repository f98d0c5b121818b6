"""Fetching keys over TLS, from a server whose certificate is checked; plain HTTP and its faults are in test_oidc.py."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nunatak.access.jwks import NotFetched, fetch_json
from nunatak.addresses import is_loopback
from tests.backends.conftest import Run

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"keys":[]}'


def a_certificate(folder: Path, host: str) -> Path:
    """Signed by itself: a file with the certificate, and its private key, which is also the authority's file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{host}.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


async def fetched_from(certificate: Path) -> tuple[dict[str, Any], bytes]:
    """What a server with this certificate, here under the name localhost, is asked and answers."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await fetch_json(f"https://localhost:{port}/keys?of=lake")
    return found, asked[0]


def test_keys_come_over_tls_from_a_server_that_the_system_trusts(
    tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = a_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    found, asked = run(fetched_from(certificate))

    assert found == {"keys": []}
    assert asked.startswith(b"GET /keys?of=lake HTTP/1.1\r\nHost: localhost:")


def test_a_server_that_nobody_vouches_for_is_not_asked(tmp_path: Path, run: Run[Any]) -> None:
    with pytest.raises(NotFetched, match="CERTIFICATE_VERIFY_FAILED"):
        run(fetched_from(a_certificate(tmp_path, "localhost")))


def test_a_server_of_another_name_is_not_asked(tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = a_certificate(tmp_path, "issuer.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    with pytest.raises(NotFetched, match="Hostname mismatch"):
        run(fetched_from(certificate))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
