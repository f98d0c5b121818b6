"""The public keys of an external issuer: fetched with limits and cached, never from an address that a token names."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httptools
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from nunatak.addresses import is_loopback
from nunatak.errors import ServiceUnavailable
from nunatak.settings import SettingsError

log = logging.getLogger(__name__)

FRESH_MS = 600_000  # how long a key remains valid here after its issuer withdraws it
SEARCH_MS = 60_000  # between two fetches for an unknown key id: any client can send one
RETRY_MS = 10_000  # after a failed fetch
STALE_MS = 3_600_000  # the longest outage that is tolerated; most tokens do not live longer
FETCH_SECONDS = 3
MAX_BYTES = 1024 * 1024
DISCOVERY = "/.well-known/openid-configuration"
SMALLEST_RSA_BITS = 2048

# Each algorithm with its key type and curve. No symmetric algorithms: their key would have to be published.
_RSA = ("RSA", None)
ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), _RSA),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}


class NotFetched(Exception):
    """The issuer gave no usable response; the message gives the reason."""


@dataclass(frozen=True)
class PublicKey:
    """One key of a set, and the algorithms it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class IssuerKeys:
    """The keys of one issuer, fetched on demand; concurrent callers share one fetch."""

    def __init__(self, issuer: str, keys_url: str | None, now_ms: Callable[[], int]) -> None:
        self._issuer = issuer
        self._keys_url = keys_url
        self._now_ms = now_ms
        self._keys: tuple[PublicKey, ...] | None = None
        # So long ago that the first request fetches, even by a clock that starts at 0.
        self._fetched_ms = self._failed_ms = self._searched_ms = -STALE_MS
        self._fetching: asyncio.Task[None] | None = None
        _check_url(f"keys of issuer {issuer}", keys_url or issuer)

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """Returns the key that a token names, or the only one that fits; None if the issuer has no such key."""
        fetched = await self._freshen()
        found = self._fitting(kid, algorithm)
        # A fetch in progress is joined even within SEARCH_MS: that causes no further one.
        if found is None and not fetched and (self._fetching or self._now_ms() - self._searched_ms >= SEARCH_MS):
            self._searched_ms = self._now_ms()
            await self._fetch_once()
            found = self._fitting(kid, algorithm)
        return found

    def _fitting(self, kid: str | None, algorithm: str) -> Any:
        fitting = [each for each in self._keys or () if algorithm in each.algorithms]
        if kid is not None:
            return next((each.key for each in fitting if each.kid == kid), None)
        return fitting[0].key if len(fitting) == 1 else None

    async def _freshen(self) -> bool:
        """Returns whether it fetched keys; raises ServiceUnavailable if there are none, or none recent enough."""
        if self._age_ms() < FRESH_MS:
            return False
        if self._fetching or self._now_ms() - self._failed_ms >= RETRY_MS:
            await self._fetch_once()
        if self._age_ms() >= STALE_MS:
            raise ServiceUnavailable(
                f"The keys of issuer {self._issuer} cannot be fetched now",
                hint="Try again; the server's log says why.",
            )
        return self._age_ms() < FRESH_MS

    def _age_ms(self) -> int:
        return STALE_MS if self._keys is None else self._now_ms() - self._fetched_ms

    async def _fetch_once(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
        # Shielded: if the caller that began the fetch is cancelled, the others still wait for it.
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        try:
            url = self._keys_url or await _discover_keys_url(self._issuer)
            self._keys = _parse_keys(await fetch_json(url))
            self._fetched_ms = self._now_ms()
        except NotFetched as error:
            self._failed_ms = self._now_ms()
            log.warning("the keys of issuer %s cannot be fetched: %s", self._issuer, error)
        finally:
            self._fetching = None


async def _discover_keys_url(issuer: str) -> str:
    """Returns the jwks_uri of the issuer's discovery document; raises NotFetched if that names another issuer."""
    found = await fetch_json(issuer.rstrip("/") + DISCOVERY)
    if found.get("issuer") != issuer:
        raise NotFetched("its discovery document names another issuer")
    url = found.get("jwks_uri")
    if not isinstance(url, str):
        raise NotFetched("its discovery document has no jwks_uri")
    parts = urlsplit(url)
    if parts.scheme != "https" and parts[:2] != urlsplit(issuer)[:2]:
        raise NotFetched("its discovery document has a jwks_uri that is neither https nor at the issuer's own address")
    return url


def _parse_keys(found: Mapping[str, Any]) -> tuple[PublicKey, ...]:
    """Returns the keys of the set that can verify a signature; other keys are skipped, not an error."""
    listed = found.get("keys")
    if not isinstance(listed, list):
        raise NotFetched("its jwks_uri does not return a JSON Web Key Set")
    return tuple(key for key in map(_parse_key, listed) if key is not None)


def _parse_key(jwk: object) -> PublicKey | None:
    # A key published with its private part ("d") is known to everyone, so it proves nothing.
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    operations = jwk.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    algorithms = frozenset(
        name
        for name, (kind, curve) in ALGORITHMS.items()
        if jwk.get("kty") == kind and curve in (None, jwk.get("crv")) and jwk.get("alg", name) == name
    )
    if not algorithms:
        return None
    try:
        key = jwt.PyJWK(jwk, min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < SMALLEST_RSA_BITS:
        return None
    kid = jwk.get("kid")
    return PublicKey(kid if isinstance(kid, str) else None, algorithms, key)


def _check_url(what: str, url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        plain = parts.hostname and parts.port != 0 and not (parts.username or parts.query or parts.fragment)
    except ValueError:
        plain = False
    if not plain or parts.scheme not in ("http", "https"):
        raise SettingsError(f"{what}: {url!r} is no https address without a user, query and fragment")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise SettingsError(f"{what}: {url!r} must be https, so that the keys cannot be replaced in transit")
    return parts


class _KeySetResponse:
    """The callbacks of the HTTP parser."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def fetch_json(url: str) -> dict[str, Any]:
    """Returns a JSON object by GET, within FETCH_SECONDS and MAX_BYTES; raises NotFetched. Follows no redirects."""
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            status, body = await _get(urlsplit(url))
    except TimeoutError as error:
        raise NotFetched(f"{url} took longer than {FETCH_SECONDS} s") from error
    except (OSError, httptools.HttpParserError) as error:
        raise NotFetched(f"{url} cannot be reached: {error}") from error
    if status != 200:
        raise NotFetched(f"{url} answered {status}")
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotFetched(f"{url} did not answer with JSON") from error
    if not isinstance(found, dict):
        raise NotFetched(f"{url} did not answer with a JSON object")
    return found


async def _get(parts: SplitResult) -> tuple[int, bytes]:
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=ssl.create_default_context() if secure else None
    )
    answer = _KeySetResponse()
    parser = httptools.HttpResponseParser(answer)
    received = 0
    try:
        writer.write(_request(parts))
        while not answer.complete and (data := await reader.read(65_536)):
            received += len(data)
            if received > MAX_BYTES:
                raise NotFetched(f"{parts.geturl()} answered with more than {MAX_BYTES} bytes")
            parser.feed_data(data)
    finally:
        writer.transport.abort()
    return parser.get_status_code(), bytes(answer.body)


def _request(parts: SplitResult) -> bytes:
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    host = parts.netloc.rpartition("@")[2]
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\nConnection: close\r\n\r\n".encode(
        "ascii"
    )
