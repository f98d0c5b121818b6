"""Access tokens that this server issues: signing keys, issuing, and strict verification.

All servers on one database share the keys, which are stored there encrypted. The newest key signs. A replaced key
verifies for as long as a token that it signed may live, and no longer.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from nunatak.access.credentials import StoredCredential
from nunatak.access.scopes import Scope, format_scope
from nunatak.access.vault import BrokenSeal, Vault
from nunatak.database.records import Change, SaveSecret, Write
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated

ISSUER = "nunatak"
AUDIENCE = "nunatak:catalog"
ALGORITHM = "ES256"
TOKEN_TYPE = "at+jwt"  # RFC 9068: no other type of JWT is accepted as an access token
MAX_TOKEN_BYTES = 16 * 1024
MAX_HEADER_LENGTH = 1024  # encoded; the headers of our tokens take less than 100
LEEWAY_MS = 30_000  # how far the clocks of the issuing and the verifying server may differ
ROTATE_AFTER_MS = 30 * 86_400_000  # limits how long a key that leaked unnoticed is useful: one month
KEY_NAMES = "signing-key/"
_BEHIND_KEY_NAMES = "signing-key0"  # upper bound of the range: the character after the slash

EXPIRED = "The access token has expired"
HINT = "Get a new token from /v1/oauth/tokens."


class AccessToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All claims of a token; times are in seconds.

    `generation` identifies the secret that the client had when the token was issued. `scope` is informative; `roles`
    decides, because it distinguishes no role from all roles.
    """

    iss: str
    sub: str
    aud: str
    iat: int
    exp: int
    jti: str
    client_id: str
    generation: str
    scope: str
    roles: list[str] | None
    nbf: int = 0

    @property
    def allows(self) -> Scope:
        return None if self.roles is None else frozenset(self.roles)


@dataclass(frozen=True, slots=True)
class SigningKey:
    key_id: str
    created_ms: int
    private: ec.EllipticCurvePrivateKey

    def jwk(self) -> dict[str, Any]:
        """Returns the public key as an entry of a JWKS document."""
        public = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {**public, "kid": self.key_id, "use": "sig", "alg": ALGORITHM}


class AccessTokens:
    """Issues and verifies access tokens; call `load` once before use."""

    def __init__(self, store: Store, vault: Vault, token_seconds: int, now_ms: Callable[[], int]) -> None:
        self.token_seconds = token_seconds
        self._store = store
        self._vault = vault
        self._now_ms = now_ms
        self._keys: list[SigningKey] = []  # oldest first
        self._policy_version = 0  # the policy version up to which the keys were read
        self._loading = asyncio.Lock()
        self._rotating = asyncio.Lock()

    @property
    def signing_key(self) -> SigningKey:
        return self._keys[-1]

    async def load(self) -> None:
        await self.catch_up(await self._current_version())
        await self.rotate_if_due()

    async def rotate_if_due(self) -> None:
        """Creates a key if there is none, or the newest is older than ROTATE_AFTER_MS."""
        if not self._is_due():
            return
        async with self._rotating:
            await self.catch_up(await self._current_version())  # another request or server may have rotated
            if self._is_due():
                await self.rotate()

    def _is_due(self) -> bool:
        return not self._keys or self.signing_key.created_ms + ROTATE_AFTER_MS <= self._now_ms()

    async def catch_up(self, policy_version: int) -> bool:
        """Reads the keys again if they may have changed since; returns whether it read them."""
        async with self._loading:
            if policy_version <= self._policy_version:
                return False
            await self._read_keys(policy_version)
            return True

    async def rotate(self, *, forget_older: bool = False, along: Sequence[Change] = ()) -> str:
        """Makes all servers sign with a new key from now on; returns its id.

        `forget_older` is for a leaked key: it invalidates every token issued so far. The changes in `along`, such as an
        audit row, are written in the same transaction.
        """
        await self.catch_up(await self._current_version())
        newest_ms = self.signing_key.created_ms if self._keys else 0
        # Later than the newest key, even if a server whose clock is ahead created that one: the newest key signs.
        created_ms = max(self._now_ms(), newest_ms + 1)
        key_id = secrets.token_hex(8)
        kept = set() if forget_older else {key.key_id for key in self._verifying()}
        changes: list[Change] = [SaveSecret(KEY_NAMES + key_id, self._sealed_key(key_id, created_ms))]
        changes += [
            Write("drop_secret", {"name": KEY_NAMES + key.key_id}) for key in self._keys if key.key_id not in kept
        ]
        await self._store.apply([*changes, *along, Write("bump_policy", {})])
        await self.catch_up(await self._current_version())
        return key_id

    def issue(self, credential: StoredCredential, scope: Scope) -> str:
        """Returns a token that lives for `token_seconds`, or as long as the credential if that is shorter."""
        key = self.signing_key
        issued = self._now_ms() // 1000
        token = AccessToken(
            iss=ISSUER,
            sub=credential.principal,
            aud=AUDIENCE,
            iat=issued,
            exp=self._next_second() + self.lifetime_seconds(credential.expires_ms),
            jti=secrets.token_urlsafe(16),
            client_id=credential.credential_id,
            generation=credential.generation,
            scope=format_scope(scope),
            roles=None if scope is None else sorted(scope),
            nbf=issued,
        )
        return jwt.encode(msgspec.to_builtins(token), key.private, ALGORITHM, {"kid": key.key_id, "typ": TOKEN_TYPE})

    def lifetime_seconds(self, until_ms: int | None) -> int:
        if until_ms is None:
            return self.token_seconds
        return min(self.token_seconds, until_ms // 1000 - self._next_second())

    def _next_second(self) -> int:
        """Returns the current second, rounded up: no token may live shorter than its client was told."""
        return -(-self._now_ms() // 1000)

    async def verify(self, token: str, *, expired_too: bool = False) -> AccessToken:
        """Returns the claims, or raises NotAuthenticated; `expired_too` accepts an expired token."""
        key_id = _key_id(token)
        key = self._find(key_id)
        if key is None:  # it may be newer than the keys read here
            async with self._loading:
                await self._read_keys(await self._current_version())
            key = self._find(key_id)
        if key is None:
            raise _not_authenticated("was signed with a key that is not, or no longer, one of this server's")
        claims = _check_claims(token, key.private.public_key())
        self._check_times(claims, expired_too=expired_too)
        return claims

    async def jwks(self) -> dict[str, Any]:
        """Returns the public keys with which others can verify tokens issued here."""
        await self.catch_up(await self._current_version())
        return {"keys": [key.jwk() for key in self._verifying()]}

    def _find(self, key_id: str) -> SigningKey | None:
        return next((key for key in self._verifying() if key.key_id == key_id), None)

    def _verifying(self) -> list[SigningKey]:
        """Returns the newest key, and those replaced so recently that a token of theirs may still be valid."""
        since_ms = self._now_ms() - self.token_seconds * 1000 - LEEWAY_MS
        replaced = zip(self._keys, self._keys[1:], strict=False)
        return [*(key for key, successor in replaced if successor.created_ms >= since_ms), *self._keys[-1:]]

    def _check_times(self, token: AccessToken, *, expired_too: bool) -> None:
        """Checks iat, nbf and exp here, against the injected clock; PyJWT would use the system clock."""
        now_ms = self._now_ms()
        if max(token.iat, token.nbf) * 1000 > now_ms + LEEWAY_MS:
            raise _not_authenticated("is not valid yet; check the clocks of the servers")
        if token.exp * 1000 <= now_ms and not expired_too:
            raise NotAuthenticated(EXPIRED, hint=HINT)

    async def _current_version(self) -> int:
        version: int = (await self._store.rows("policy_version", {}))[0][0]
        return version

    async def _read_keys(self, policy_version: int) -> None:
        """Reads the keys. `policy_version` was read before, so that a concurrent change has a later version."""
        rows = await self._store.rows("list_secrets", {"first": KEY_NAMES, "behind": _BEHIND_KEY_NAMES})
        known = {KEY_NAMES + key.key_id: key for key in self._keys}  # a key never changes, so it is not decrypted again
        keys = [known.get(name) or self._opened_key(name, bytes(value)) for name, value in rows]
        self._keys = sorted(keys, key=lambda key: (key.created_ms, key.key_id))
        self._policy_version = policy_version

    def _sealed_key(self, key_id: str, created_ms: int) -> bytes:
        private = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._vault.seal(created_ms.to_bytes(8, "big") + private, KEY_NAMES + key_id)

    def _opened_key(self, name: str, sealed: bytes) -> SigningKey:
        plain = self._vault.open(sealed, name)
        private = serialization.load_der_private_key(plain[8:], password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
            raise BrokenSeal(f"{name} in the database is no key for {ALGORITHM}")
        return SigningKey(name.removeprefix(KEY_NAMES), int.from_bytes(plain[:8], "big"), private)


class _Issuer(msgspec.Struct):
    """The only claim read before verification; all other claims are skipped without creating objects."""

    iss: Any = None


def is_ours(token: str) -> bool:
    """Returns whether a token claims to be issued here; the claim is not verified."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN_BYTES or len(parts) != 3:
        return False
    try:
        claims = msgspec.json.decode(jwt.utils.base64url_decode(parts[1]), type=_Issuer)
    except (ValueError, RecursionError):
        return False
    return bool(claims.iss == ISSUER)


def _key_id(token: str) -> str:
    """Returns the id of the signing key; raises NotAuthenticated unless form and header are exactly as issued here."""
    if len(token) > MAX_TOKEN_BYTES:
        raise _not_authenticated(f"is longer than {MAX_TOKEN_BYTES} bytes")
    if token.count(".") != 2:
        raise _not_authenticated("is not a signed JWT")
    encoded = token.partition(".")[0]
    try:
        header = msgspec.json.decode(jwt.utils.base64url_decode(encoded[:MAX_HEADER_LENGTH]), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise _not_authenticated("is not a signed JWT") from error
    # No other fields: neither a key (jwk, jku, x5u, x5c) nor an extension (crit) chosen by the sender.
    if set(header) != {"alg", "kid", "typ"} or header["alg"] != ALGORITHM or header["typ"] != TOKEN_TYPE:
        raise _not_authenticated("has a header that this server does not write")
    if not isinstance(header["kid"], str):
        raise _not_authenticated("has a header that this server does not write")
    return header["kid"]


def _check_claims(token: str, public: ec.EllipticCurvePublicKey) -> AccessToken:
    # strict_aud refuses a list of audiences; _check_times checks the times.
    options: jwt.types.Options = {"strict_aud": True, "verify_exp": False, "verify_iat": False, "verify_nbf": False}
    try:
        claims = jwt.decode(token, public, [ALGORITHM], options, audience=AUDIENCE, issuer=ISSUER)
        return msgspec.convert(claims, AccessToken)
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise _not_authenticated("is not one that this server issued") from error


def _not_authenticated(why: str) -> NotAuthenticated:
    return NotAuthenticated(f"The access token {why}", hint=HINT)
