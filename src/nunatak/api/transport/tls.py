"""TLS from the settings: the server's certificate, verification of client certificates, protocol versions.

No sockets here.
"""

import asyncio
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from nunatak.settings import Settings, SettingsError

log = logging.getLogger(__name__)

RENEWAL_SECONDS = 60.0  # how often the files are checked
# For TLS 1.2: forward secrecy and authenticated encryption. TLS 1.3 has its own list.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
ALPN_PROTOCOLS = ["http/1.1"]  # HTTP/2 is left to a proxy in front


def tls_context(settings: Settings, now: datetime | None = None) -> ssl.SSLContext | None:
    """Returns the TLS context, or None for plain HTTP if no certificate is set; raises SettingsError."""
    if not settings.tls_certificate:
        for name in ("tls_key", "tls_client_ca"):
            if getattr(settings, name):
                raise SettingsError(f"{name} is set, but tls_certificate is not: set it too, or neither")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    _refuse_untimely(settings.tls_certificate, now or datetime.now(UTC))
    load_certificate(context, settings)
    if settings.tls_client_ca:
        _verify_clients(context, settings.tls_client_ca)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Loads the certificate and key from disk, for new connections; raises SettingsError."""
    key = settings.tls_key or settings.tls_certificate
    _read("tls_certificate", settings.tls_certificate)
    _read("tls_key", key)
    try:
        context.load_cert_chain(settings.tls_certificate, key, password=_no_password)
    except _Encrypted as error:
        raise SettingsError(
            f"tls_key: {key} is encrypted; use a key without a passphrase, readable only by the server's user"
        ) from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(
                f"tls_key: {key} is not the key of the certificate in {settings.tls_certificate}; the file must begin "
                "with the server's own certificate, followed by those of its issuers"
            ) from error
        raise SettingsError(
            f"tls_certificate and tls_key: {settings.tls_certificate} and {key} cannot be used: "
            f"{error.reason or error}; both must be PEM files, the key of a sufficient length"
        ) from error


async def keep_certificate(context: ssl.SSLContext, settings: Settings, seconds: float = RENEWAL_SECONDS) -> None:
    """Loads a renewed certificate for new connections as soon as its files are complete; runs until cancelled."""
    used = _versions(settings)
    while True:
        await asyncio.sleep(seconds)
        found = _versions(settings)
        if found == used:
            continue
        try:
            tls_context(settings)  # tested on another context first: a failure would leave this one with half a pair
            load_certificate(context, settings)
        except SettingsError as error:
            log.error("the renewed TLS certificate cannot be loaded; the old one stays in use: %s", error)
        else:
            used = found
            log.info("the renewed TLS certificate was loaded")


def _versions(settings: Settings) -> list[tuple[int, int] | None]:
    """Returns the mtime and inode of the files, which change when they are replaced."""
    return [_version(path) for path in (settings.tls_certificate, settings.tls_key or settings.tls_certificate)]


def _version(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _verify_clients(context: ssl.SSLContext, path: str) -> None:
    """Makes client certificates optional, but verified against this authority if presented."""
    _read("tls_client_ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingsError(f"tls_client_ca: {path} holds no certificate of an authority in PEM format") from error
    context.verify_mode = ssl.CERT_OPTIONAL


def _refuse_untimely(path: str, now: datetime) -> None:
    try:
        certificate = x509.load_pem_x509_certificate(_read("tls_certificate", path))
    except ValueError as error:
        raise SettingsError(f"tls_certificate: {path} holds no certificate in PEM format") from error
    if now > certificate.not_valid_after_utc:
        raise SettingsError(f"tls_certificate: {path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; renew it")
    if now < certificate.not_valid_before_utc:
        begins = certificate.not_valid_before_utc
        raise SettingsError(f"tls_certificate: {path} is valid from {begins:%Y-%m-%d %H:%M} UTC on; check the clock")


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(
            f"{name}: {path} cannot be read: {error.strerror}; check the path and its permissions"
        ) from error


class _Encrypted(Exception):
    """The key is encrypted. Raised instead of waiting for a passphrase at a terminal."""


def _no_password() -> str:
    raise _Encrypted
