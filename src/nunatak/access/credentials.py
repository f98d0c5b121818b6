"""Client secrets, API keys and access keys: how they are created, stored and verified.

Client secrets and API keys are stored as a digest (HMAC) keyed by the vault. Access keys are stored encrypted, because
verifying a signature needs the secret itself.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nunatak.access.vault import Vault
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from nunatak.secret import Secret

Kind = Literal["client", "api-key", "access-key"]
CLIENT: Kind = "client"
API_KEY: Kind = "api-key"
ACCESS_KEY: Kind = "access-key"

API_KEY_PREFIX = "nunatak_"
SECRET_BYTES = 32  # 256 random bits cannot be guessed, so a fast digest protects them as well as a slow one
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 letters that are not confused when read aloud
_API_KEY = re.compile(rf"{API_KEY_PREFIX}([a-z0-9]{{8}})_([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True)
class NewCredential:
    """`shown` is given to the owner, once; `stored` is all that the database keeps."""

    credential_id: str
    kind: Kind
    shown: Secret
    stored: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """A stored credential and its principal under one policy version.

    `roles` are the principal's; `limit`, if given, are the only roles that the credential may be used for.
    """

    credential_id: str
    policy_version: int
    principal: str
    enabled: bool
    roles: tuple[str, ...]
    kind: Kind
    stored: bytes = field(repr=False)
    limit: frozenset[str] | None
    expires_ms: int | None
    last_used_ms: int | None

    @property
    def generation(self) -> str:
        """Identifies this secret among those that the credential had or will have; reveals nothing else about it."""
        return hashlib.sha256(self.stored).hexdigest()[:16]


def new_client(vault: Vault) -> NewCredential:
    """Returns a client id and its secret."""
    return new_secret(vault, f"client-{_new_id(12)}", CLIENT)


def new_api_key(vault: Vault) -> NewCredential:
    """Returns a key of the form `nunatak_<id>_<secret>`, which includes its own id."""
    return new_secret(vault, _new_id(8), API_KEY)


def new_access_key(vault: Vault) -> NewCredential:
    """Returns an access key and its secret, for clients that sign requests."""
    return new_secret(vault, f"NK{_new_id(18).upper()}", ACCESS_KEY)


def new_secret(vault: Vault, credential_id: str, kind: Kind) -> NewCredential:
    """Returns a secret for a new credential, or a new secret for an existing credential id."""
    text = secrets.token_urlsafe(SECRET_BYTES)
    if kind == ACCESS_KEY:
        return NewCredential(credential_id, kind, Secret(text), vault.seal(text.encode(), credential_id))
    shown = f"{API_KEY_PREFIX}{credential_id}_{text}" if kind == API_KEY else text
    return NewCredential(credential_id, kind, Secret(shown), vault.hmac(text.encode(), credential_id))


def split_api_key(text: str) -> tuple[str, str] | None:
    """Returns the id and secret of an API key; None if the text does not have its form."""
    found = _API_KEY.fullmatch(text)
    return (found[1], found[2]) if found else None


async def find_credential(store: Store, credential_id: str) -> StoredCredential | None:
    """Returns the credential, or None; one read that includes the principal's roles and the policy version."""
    rows = await store.rows("find_credential", {"credential_id": credential_id})
    return _credential(credential_id, rows) if rows else None


def is_secret_of(vault: Vault, credential: StoredCredential | None, credential_id: str, secret: str) -> bool:
    """Returns whether the secret is right; takes the same time for a credential that does not exist."""
    digest = vault.hmac(secret.encode(), credential_id)
    return hmac.compare_digest(digest, b"" if credential is None else credential.stored) and credential is not None


def check_usable(credential: StoredCredential, now_ms: int) -> None:
    """Raises NotAuthenticated if the credential has expired, or its principal is disabled."""
    if credential.expires_ms is not None and credential.expires_ms <= now_ms:
        raise NotAuthenticated("The credential has expired", hint="Ask an administrator for a new one.")
    if not credential.enabled:
        raise NotAuthenticated(f"Principal {credential.principal} is disabled")


def _credential(credential_id: str, rows: Sequence[Sequence[Any]]) -> StoredCredential:
    version, principal, disabled, _, kind, stored, limit, expires_ms, last_used_ms = rows[0]
    return StoredCredential(
        credential_id,
        version,
        principal,
        disabled == 0,  # NULL, for a principal that is not stored, does not count as enabled
        tuple(row[3] for row in rows if row[3] is not None),
        kind,
        bytes(stored),
        None if limit is None else frozenset(json.loads(limit)),
        expires_ms,
        last_used_ms,
    )


def _new_id(length: int) -> str:
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
