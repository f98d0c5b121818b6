"""The built-in identity provider: clients, their short-lived tokens and API keys, all in our own database."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from nunatak.access.credentials import (
    API_KEY,
    CLIENT,
    Kind,
    StoredCredential,
    check_usable,
    find_credential,
    is_secret_of,
    split_api_key,
)
from nunatak.access.login_throttle import LoginThrottle
from nunatak.access.scopes import Scope, common
from nunatak.access.sessions import NEVER_MS, Proof, Session, session_of
from nunatak.access.tokens import AccessTokens, is_ours
from nunatak.access.vault import Vault
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.settings import Settings

log = logging.getLogger(__name__)

TOUCH_MS = 60_000  # resolution of a credential's last-used time
MAX_TOUCHED = 10_000
CLIENT_FAILURES = 10  # per minute, client and address, so that a client cannot be locked out from elsewhere
ADDRESS_FAILURES = 100  # per minute and address, for all clients; clients that logged in from there before may go on

WRONG_SECRET = "Unknown client or wrong secret"
WRONG_KEY = "Unknown API key"


class WrongSecret(NotAuthenticated):
    """`principal` is the owner of the secret, for the audit trail only; empty if the credential is unknown."""

    def __init__(self, message: str, principal: str) -> None:
        super().__init__(message)
        self.principal = principal


@dataclass(frozen=True, slots=True)
class Bearer:
    """A verified token or key: its credential, the scope that applies, and until when.

    It is verified again at `expires_ms`, and is invalid from `ends_ms` on.
    """

    credential: StoredCredential
    scope: Scope
    expires_ms: int
    ends_ms: int

    def session(self, method: str) -> Session:
        roles = self.credential.roles
        chosen = roles if self.scope is None else tuple(role for role in roles if role in self.scope)
        return session_of(
            self.credential.principal,
            chosen,
            only_roles=self.scope is not None,
            expires_ms=self.expires_ms,
            ends_ms=self.ends_ms,
            method=method,
        )


class EmbeddedIdentity:
    """The Authenticator of our own tokens and API keys, and the logic of the token endpoint; one per process."""

    def __init__(self, store: Store, vault: Vault, tokens: AccessTokens, now_ms: Callable[[], int]) -> None:
        self.store = store
        self.vault = vault
        self.tokens = tokens
        self.now_ms = now_ms
        self.throttle = LoginThrottle(CLIENT_FAILURES, ADDRESS_FAILURES, now_ms)
        self._touched: dict[str, int] = {}
        self._touches: set[asyncio.Task[None]] = set()

    async def authenticate(self, proof: Proof) -> Session | None:
        text = bearer_text(proof.headers.get(b"authorization"))
        if text is None:
            return None
        if split_api_key(text) is not None:
            return (await self.check_api_key(text)).session(API_KEY)
        if is_ours(text):
            return (await self.check_token(text)).session("token")
        return None

    async def check_api_key(self, text: str) -> Bearer:
        """Verifies an API key; raises NotAuthenticated unless it may be used now."""
        parts = split_api_key(text)
        if parts is None:
            raise NotAuthenticated(WRONG_KEY)
        credential = await self._check_secret(*parts, API_KEY, WRONG_KEY)
        # Verified again after TOUCH_MS even if nothing changed; otherwise its last use would not be recorded.
        ends_ms = NEVER_MS if credential.expires_ms is None else credential.expires_ms
        return Bearer(credential, credential.limit, min(ends_ms, self.now_ms() + TOUCH_MS), ends_ms)

    async def check_token(self, text: str) -> Bearer:
        """Verifies one of our tokens; raises NotAuthenticated unless its credential, secret and key are still valid."""
        token = await self.tokens.verify(text)
        credential = await find_credential(self.store, token.client_id)
        if credential is None or credential.principal != token.sub:
            raise NotAuthenticated("The client of this access token was deleted")
        if credential.generation != token.generation:
            raise NotAuthenticated("The client's secret was changed after this access token was issued")
        if await self.tokens.catch_up(credential.policy_version):
            await self.tokens.verify(text)  # the key that signed it may have been dropped
        check_usable(credential, self.now_ms())
        scope = common(token.allows, credential.limit)
        ends_ms = min(token.exp * 1000, credential.expires_ms or NEVER_MS)
        return Bearer(credential, scope, ends_ms, ends_ms)

    async def check_client(self, client_id: str, secret: str) -> StoredCredential:
        """Verifies a client's secret; raises NotAuthenticated unless it may be used now."""
        return await self._check_secret(client_id, secret, CLIENT, WRONG_SECRET)

    async def issue(self, credential: StoredCredential, scope: Scope) -> tuple[str, int]:
        """Returns a token for a verified credential, and its lifetime in seconds."""
        await self.tokens.catch_up(credential.policy_version)
        await self.tokens.rotate_if_due()
        token = self.tokens.issue(credential, scope)
        return token, self.tokens.lifetime_seconds(credential.expires_ms)

    async def close(self) -> None:
        """Waits until the last uses of credentials are recorded."""
        await asyncio.gather(*self._touches)

    async def _check_secret(self, credential_id: str, secret: str, kind: Kind, refusal: str) -> StoredCredential:
        found = await find_credential(self.store, credential_id)
        credential = found if found is not None and found.kind == kind else None
        # Also computed for an unknown id, so that the time taken does not reveal which ids exist.
        if not is_secret_of(self.vault, credential, credential_id, secret) or credential is None:
            raise WrongSecret(refusal, credential.principal if credential is not None else "")
        # After the secret: a wrong one must not reveal that a credential exists, or has expired.
        check_usable(credential, self.now_ms())
        self.touch(credential)
        return credential

    def touch(self, credential: StoredCredential) -> None:
        """Records the use of a credential in the background, at most once per TOUCH_MS."""
        now_ms = self.now_ms()
        if now_ms - max(credential.last_used_ms or 0, self._touched.get(credential.credential_id, 0)) < TOUCH_MS:
            return
        if len(self._touched) >= MAX_TOUCHED:
            self._touched.clear()
        self._touched[credential.credential_id] = now_ms
        task = asyncio.create_task(self._record_use(credential.credential_id, now_ms))
        self._touches.add(task)
        task.add_done_callback(self._touches.discard)

    async def _record_use(self, credential_id: str, now_ms: int) -> None:
        values = {"credential_id": credential_id, "last_used_ms": now_ms}
        try:
            await self.store.apply([Write("touch_credential", values)])
        except Exception as error:
            # The login succeeded; failing to record it must not fail the request.
            log.warning("The last use of credential %s was not recorded: %s", credential_id, error)


def bearer_text(authorization: bytes | None) -> str | None:
    """Returns the text after `Bearer`; None if the header is missing or has another scheme."""
    if authorization is None:
        return None
    scheme, _, text = authorization.decode("latin-1").strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


async def open_identity(settings: Settings, store: Store, vault: Vault, now_ms: Callable[[], int]) -> EmbeddedIdentity:
    """Loads the signing keys, creating the first one; the vault must be unlocked."""
    tokens = AccessTokens(store, vault, settings.token_seconds, now_ms)
    await tokens.load()
    return EmbeddedIdentity(store, vault, tokens, now_ms)
