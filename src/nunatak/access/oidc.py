"""Bearer tokens of external issuers: verification and the principal they name. jwks.py fetches the keys."""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import jwt
import msgspec

from nunatak.access.jwks import ALGORITHMS, FRESH_MS, IssuerKeys
from nunatak.access.principals import find_roles, is_name, merge_roles
from nunatak.access.sessions import Proof, Session, session_of
from nunatak.access.tokens import ISSUER
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import Settings, SettingsError

LEEWAY_SECONDS = 60  # how far the issuer's clock may differ from ours
LAST_SECOND = 1 << 40  # far beyond any date, and small enough for every calculation
MAX_TOKEN_BYTES = 16 * 1024
# Headers with which a token would bring its own key, or require extensions unknown here (RFC 7515, 4.1).
REFUSED_HEADERS = ("jwk", "jku", "x5u", "x5c", "crit")
TYPES = {"jwt", "at+jwt", "jose"}  # not logout+jwt, dpop+jwt and others with another purpose (RFC 8725, 3.11)


@dataclass(frozen=True, slots=True)
class Token:
    """A decoded token before verification."""

    text: bytes
    header: Mapping[str, Any]
    issuer: str


class OidcAuthenticator:
    """Accepts bearer tokens whose `iss` is one of `oidc_issuers`; ignores others without fetching keys."""

    def __init__(self, settings: Settings, store: Store, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._store = store
        self._now_ms = now_ms
        self._issuers = keys_of_issuers(settings, now_ms)

    async def authenticate(self, proof: Proof) -> Session | None:
        token = find_token(proof)
        if token is None or token.issuer not in self._issuers:
            return None
        claims = await self._verified(token)
        return await self._session(claims)

    async def _verified(self, token: Token) -> Mapping[str, Any]:
        algorithm, kid = token.header.get("alg"), token.header.get("kid")
        _check_header(token.header, self._settings.oidc_algorithms)
        key = await self._issuers[token.issuer].find(kid, str(algorithm))
        if key is None:
            raise _not_authenticated(
                "its issuer has no such key", "Get a new token; the issuer may have changed its keys."
            )
        # PyJWS checks only the signature; _check_claims checks the claims, by the injected clock.
        try:
            payload = jwt.PyJWS().decode(token.text, key, algorithms=[str(algorithm)])
        except jwt.PyJWTError as error:
            raise _not_authenticated("its signature is wrong", "Get a new token from the issuer.") from error
        claims = _object(payload)
        if claims is None:
            raise _not_authenticated("its claims are no JSON object", "Get a new token from the issuer.")
        _check_claims(claims, token.issuer, self._settings.oidc_audience, self._now_ms() / 1000)
        return claims

    async def _session(self, claims: Mapping[str, Any]) -> Session:
        principal = _claim(claims, self._settings.oidc_principal_claim)
        if not isinstance(principal, str) or not is_name(principal):
            raise _not_authenticated(
                f"its claim {self._settings.oidc_principal_claim} is no name of a principal",
                "Choose another claim with oidc_principal_claim.",
            )
        named = _roles(_claim(claims, self._settings.oidc_roles_claim)) if self._settings.oidc_roles_claim else []
        kept = await find_roles(self._store, principal)
        # Verified again before it expires, so that a key which the issuer withdraws does not live on in a session.
        expires_ms = min(int((claims["exp"] + LEEWAY_SECONDS) * 1000), self._now_ms() + FRESH_MS)
        ends_ms = int(claims["exp"] * 1000)
        return session_of(principal, merge_roles(named, kept), expires_ms=expires_ms, ends_ms=ends_ms, method="oidc")


def keys_of_issuers(settings: Settings, now_ms: Callable[[], int]) -> dict[str, IssuerKeys]:
    """Returns the keys of each accepted issuer, not fetched yet; raises SettingsError for unsuitable settings."""
    _check(settings)
    addresses = dict(settings.oidc_keys)
    return {issuer: IssuerKeys(issuer, addresses.get(issuer), now_ms) for issuer in settings.oidc_issuers}


def _check(settings: Settings) -> None:
    """Raises SettingsError for settings that would accept tokens issued for other services."""
    if not settings.oidc_issuers:
        raise SettingsError("auth oidc needs oidc_issuers: the issuers whose tokens are accepted, as `iss` names them")
    if not settings.oidc_audience:
        raise SettingsError(
            "auth oidc needs oidc_audience: without it a token that was issued for any other service would do; "
            "set it to what the issuer writes into `aud` of tokens for this server"
        )
    unknown = [name for name in settings.oidc_algorithms if name not in ALGORITHMS]
    if unknown or not settings.oidc_algorithms:
        raise SettingsError(f"oidc_algorithms: choose from {', '.join(ALGORITHMS)}")
    if ISSUER in settings.oidc_issuers:
        raise SettingsError(f"oidc_issuers must not name {ISSUER}: it is the issuer of this server's own tokens")
    strangers = [issuer for issuer, _ in settings.oidc_keys if issuer not in settings.oidc_issuers]
    if strangers:
        raise SettingsError(f"oidc_keys names {strangers[0]!r}, which is not one of oidc_issuers")
    if not settings.oidc_principal_claim:
        raise SettingsError("oidc_principal_claim must name a claim, for instance sub")


def find_token(proof: Proof) -> Token | None:
    """Returns the JWT of the Authorization header; None if there is none, or it cannot be decoded."""
    scheme, _, text = proof.headers.get(b"authorization", b"").partition(b" ")
    text = text.strip()
    if scheme.lower() != b"bearer" or text.count(b".") not in (2, 4):
        return None
    if len(text) > MAX_TOKEN_BYTES:
        raise _not_authenticated(
            f"it is longer than {MAX_TOKEN_BYTES} bytes", "Ask the issuer to put fewer claims into it."
        )
    if text.count(b".") == 4:
        raise _not_authenticated("it is encrypted", "Ask the issuer for a token that is signed only.")
    header, claims, _ = text.split(b".")
    read_header, read_claims = _segment(header), _segment(claims)
    if read_header is None or read_claims is None or not isinstance(read_claims.get("iss"), str):
        return None
    return Token(text, read_header, read_claims["iss"])


def _segment(text: bytes) -> dict[str, Any] | None:
    try:
        return _object(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    except ValueError:
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _check_header(header: Mapping[str, Any], algorithms: tuple[str, ...]) -> None:
    for name in REFUSED_HEADERS:
        if name in header:
            raise _not_authenticated(f"its header {name} is not accepted", "Ask the issuer for a token without it.")
    if header.get("alg") not in algorithms:
        raise _not_authenticated("its algorithm is not accepted", f"Accepted are {', '.join(algorithms)}.")
    if not isinstance(header.get("kid"), str | None):
        raise _not_authenticated("its header kid is no text", "Get a new token from the issuer.")
    kind = header.get("typ", "jwt")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in TYPES:
        raise _not_authenticated("it is of another type than an access token", "Ask the issuer for an access token.")


def _check_claims(claims: Mapping[str, Any], issuer: str, audience: str, now_seconds: float) -> None:
    if claims.get("iss") != issuer:
        raise _not_authenticated("its issuer is not trusted", "Get a new token from the issuer.")
    expires, issued, begins = (claims.get(name) for name in ("exp", "iat", "nbf"))
    if not _is_time(expires) or not _is_time(issued) or not (begins is None or _is_time(begins)):
        raise _not_authenticated(
            "its claims exp and iat must be times", "Ask the issuer for a token with both of them."
        )
    if expires + LEEWAY_SECONDS <= now_seconds:
        raise _not_authenticated("it has expired", "Get a new one.")
    if max(issued, begins or 0) - LEEWAY_SECONDS > now_seconds:
        raise _not_authenticated("it is not valid yet", "Check the clocks of the issuer and of this server.")
    named = claims.get("aud")
    if audience not in ([named] if isinstance(named, str) else named if isinstance(named, list) else []):
        raise _not_authenticated("it is for another audience", f"Ask the issuer for a token whose aud is {audience}.")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise _not_authenticated("it has no subject", "Ask the issuer for a token with the claim sub.")


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LAST_SECOND


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Returns a claim by its name, which may contain dots, or by a dotted path."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _roles(value: object) -> list[str]:
    if isinstance(value, str):
        return re.split(r"[\s,]+", value)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _not_authenticated(why: str, hint: str) -> NotAuthenticated:
    return NotAuthenticated(f"The token was refused: {why}", hint=hint)
