"""Client secrets, API keys and access keys: how one is made, what is kept of it, and whether it still counts.

A client's secret and an API key are kept as a digest that needs the vault to be made. An access key is kept sealed,
since checking a signature takes the secret itself.
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
SECRET_BYTES = 32  # 256 random bits cannot be guessed, so a quick digest keeps them as well as a slow one
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 that are not taken for each other when somebody reads them aloud
_API_KEY = re.compile(rf"{API_KEY_PREFIX}([a-z0-9]{{8}})_([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True)
class NewCredential:
    """`shown` is what its owner is given, once; `stored` is all that is kept of it."""

    credential_id: str
    kind: Kind
    shown: Secret
    stored: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """What the database knows of a credential and its principal under one version of the policy.

    `roles` are those of the principal; `limit`, if given, are the only ones the credential may be used for.
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
        """Tells this secret from the one before and the one after, and nothing else about it."""
        return hashlib.sha256(self.stored).hexdigest()[:16]


def new_client(vault: Vault) -> NewCredential:
    """A client id and the secret for it."""
    return new_secret(vault, f"client-{_new_id(12)}", CLIENT)


def new_api_key(vault: Vault) -> NewCredential:
    """One text, `nunatak_<id>_<secret>`, which says itself whose secret it holds."""
    return new_secret(vault, _new_id(8), API_KEY)


def new_access_key(vault: Vault) -> NewCredential:
    """A pair for clients that sign their requests."""
    return new_secret(vault, f"NK{_new_id(18).upper()}", ACCESS_KEY)


def new_secret(vault: Vault, credential_id: str, kind: Kind) -> NewCredential:
    """A secret for a new credential, or another one for a credential that keeps its id."""
    text = secrets.token_urlsafe(SECRET_BYTES)
    if kind == ACCESS_KEY:
        return NewCredential(credential_id, kind, Secret(text), vault.seal(text.encode(), credential_id))
    shown = f"{API_KEY_PREFIX}{credential_id}_{text}" if kind == API_KEY else text
    return NewCredential(credential_id, kind, Secret(shown), vault.hmac(text.encode(), credential_id))


def split_api_key(text: str) -> tuple[str, str] | None:
    """The id and the secret of an API key; None if the text has not the form of one."""
    found = _API_KEY.fullmatch(text)
    return (found[1], found[2]) if found else None


async def find_credential(store: Store, credential_id: str) -> StoredCredential | None:
    """One read, which also tells the principal's roles and the version of the policy they belong to."""
    rows = await store.rows("find_credential", {"credential_id": credential_id})
    return _credential(credential_id, rows) if rows else None


def is_secret_of(vault: Vault, credential: StoredCredential | None, credential_id: str, secret: str) -> bool:
    """Whether this is the secret; takes as long for a credential that does not exist."""
    digest = vault.hmac(secret.encode(), credential_id)
    return hmac.compare_digest(digest, b"" if credential is None else credential.stored) and credential is not None


def check_usable(credential: StoredCredential, now_ms: int) -> None:
    """NotAuthenticated if the credential has expired, or its principal must not act."""
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
        disabled == 0,  # null, for a principal that is not kept, does not count as enabled
        tuple(row[3] for row in rows if row[3] is not None),
        kind,
        bytes(stored),
        None if limit is None else frozenset(json.loads(limit)),
        expires_ms,
        last_used_ms,
    )


def _new_id(length: int) -> str:
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
