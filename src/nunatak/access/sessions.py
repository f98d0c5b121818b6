"""Who asks: the proof that came with a request, and the session it is worth."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

NEVER_MS = 1 << 62
EXTERNAL_METHODS = frozenset({"oidc", "proxy", "certificate"})


class JoinedHeaders(dict[bytes, bytes]):
    """Headers of a request of which some came several times: each is one list, and `repeated` are their names."""

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
    """What a request shows of its sender; nothing in it is believed yet. Header names are in small letters."""

    method: str
    raw_path: bytes
    query_string: bytes
    headers: dict[bytes, bytes]
    address: str | None  # of the peer, as the socket knows it; None for a request without a socket
    certificate: str | None = None  # the subject's common name of a client certificate that TLS has verified
    # Reads the whole body and gives its SHA-256 in hexadecimal, for a signature that covers it without announcing it.
    body_sha256: Callable[[], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A principal that is known, and the roles it acts in; `grantees` are the names its grants may stand under.

    `cached` is false for a proof that is good for one request only. `body_sha256` must be that of the body, if given.
    `expires_ms` is when the proof has to be checked again; `ends_ms` is when what was shown, a key or a token, ends.
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
        """Whether somebody else vouches for the principal: no credential of ours was needed."""
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
    """With `only_roles`, for a scope that names roles, what was granted to the principal itself does not count."""
    own = () if only_roles else (principal_grantee(principal),)
    grantees = (*own, *(role_grantee(role) for role in roles))
    return Session(principal, roles, grantees, expires_ms, method, ends_ms=ends_ms)


class Authenticator(Protocol):
    """One way to prove who asks."""

    async def authenticate(self, proof: Proof) -> Session | None:
        """The session, or None if the request shows nothing of this kind; NotAuthenticated if it is no good."""
