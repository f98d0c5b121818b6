"""Authentication values: the proof that came with a request, and the session that an authenticator makes of it."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

NEVER_MS = 1 << 62
EXTERNAL_METHODS = frozenset({"oidc", "proxy", "certificate"})


class JoinedHeaders(dict[bytes, bytes]):
    """Headers of which some were repeated: their values are joined by commas, and `repeated` holds their names."""

    def __init__(self, listed: Iterable[tuple[bytes, bytes]]) -> None:
        super().__init__()
        self.repeated: set[bytes] = set()
        for name, value in listed:
            if name in self:
                self.repeated.add(name)
                self[name] += b", " + value
            else:
                self[name] = value


@dataclass(frozen=True, slots=True)
class Proof:
    """The unverified parts of a request that may authenticate its sender. Header names are in lower case."""

    method: str
    raw_path: bytes
    query_string: bytes
    headers: dict[bytes, bytes]
    address: str | None  # of the peer, from the socket; None for a request without a socket
    certificate: str | None = None  # the subject's common name of a client certificate that TLS has verified
    # Reads the whole body and returns its SHA-256 in hexadecimal, for a signature that covers it without a header.
    body_sha256: Callable[[], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """An authenticated principal and its active roles; `grantees` are those whose grants apply to it.

    `cached` is false for a proof that is valid for one request only. The body must have `body_sha256`, if given.
    `expires_ms` is when the proof must be checked again; `ends_ms` is when the key or token itself ends.
    """

    principal: str
    roles: tuple[str, ...]
    grantees: tuple[str, ...]
    expires_ms: int = NEVER_MS
    method: str = ""
    cached: bool = True
    body_sha256: str | None = None
    ends_ms: int = NEVER_MS

    @property
    def is_external(self) -> bool:
        """Returns whether the principal was authenticated externally, without a credential of this server."""
        return self.method in EXTERNAL_METHODS


def principal_grantee(name: str) -> str:
    return f"p:{name}"


def role_grantee(name: str) -> str:
    return f"r:{name}"


def session_of(
    principal: str,
    roles: tuple[str, ...],
    *,
    only_roles: bool = False,
    expires_ms: int = NEVER_MS,
    ends_ms: int = NEVER_MS,
    method: str = "",
) -> Session:
    """Builds a session; `only_roles`, for a scope that names roles, excludes grants to the principal itself."""
    own = () if only_roles else (principal_grantee(principal),)
    grantees = (*own, *(role_grantee(role) for role in roles))
    return Session(principal, roles, grantees, expires_ms, method, ends_ms=ends_ms)


class Authenticator(Protocol):
    """One method of authentication."""

    async def authenticate(self, proof: Proof) -> Session | None:
        """Returns the session, or None without a proof of this kind; raises NotAuthenticated for an invalid one."""
