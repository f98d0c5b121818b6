"""A cache of authenticated sessions with their rights, limited in bytes; expired sessions are dropped.

The key of a session is a digest of its Authorization header, so that a memory dump shows no bearer tokens among the
keys, only those of requests in flight.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from nunatak.access.audit_rows import origin_text
from nunatak.access.sessions import Session

MAX_BYTES = 64 * 1024 * 1024  # of all sessions; beyond that the oldest are dropped, and authenticated again
MAX_BYTES_OF_ONE = MAX_BYTES // 4  # a session whose rights need more loses them, and they are queried again
MAX_ORIGINS = 100  # of one session; further User-Agent values are not recorded
SWEEP_MS = 60_000  # how often expired sessions are dropped

# Measured with tracemalloc: a session with its empty dictionaries, and a dictionary entry with its int.
SESSION_BYTES, ENTRY_BYTES = 1500, 150

_DIGEST_KEY = os.urandom(32)  # makes digests useless to other processes, and collisions impossible to construct


def digest_of(secret: bytes) -> bytes:
    """Returns a digest as dictionary key for a token, or a request with one; takes about a microsecond."""
    return blake2b(secret, key=_DIGEST_KEY, digest_size=16).digest()


class Known:
    """An authenticated session and its known rights, under one policy version."""

    __slots__ = ("_origins", "cache", "rights", "session", "version", "weight_bytes")

    def __init__(self, session: Session, version: int) -> None:
        self.session = session
        self.version = version
        self.rights: dict[str, int] = {}
        self.weight_bytes = SESSION_BYTES
        self.cache: KnownSessions | None = None  # None: not cached (used by one request only), or dropped
        self._origins: dict[tuple[str, bytes], str] = {}

    def remember(self, wanted: Sequence[str], found: Sequence[int]) -> None:
        """Caches the rights found on securables; if they become too large, drops the earlier ones."""
        added = _weight_of_rights(wanted)
        if self.weight_bytes + added > MAX_BYTES_OF_ONE:
            freed = _weight_of_rights(self.rights)
            self.rights.clear()
            self._weigh(-freed)
        else:
            added -= _weight_of_rights(each for each in wanted if each in self.rights)
        self.rights.update(zip(wanted, found, strict=True))
        self._weigh(added)

    def origin(self, address: str, agent: bytes) -> str:
        """Returns the origin text for the audit trail; cached, since a client sends the same each time."""
        origin = self._origins.get((address, agent))
        if origin is None:
            if len(self._origins) >= MAX_ORIGINS:  # otherwise each request could get an audit row of its own
                if len(self._origins) >= 2 * MAX_ORIGINS:  # too many addresses, too
                    self._forget_origins()
                agent = b""
            origin = origin_text(address or None, self.session.roles, agent.decode("latin-1") or None)
            self._origins[address, agent] = origin
            self._weigh(_weight_of_origin(address, agent, origin))
        return origin

    def _forget_origins(self) -> None:
        freed = sum(_weight_of_origin(*key, origin) for key, origin in self._origins.items())
        self._origins.clear()
        self._weigh(-freed)

    def _weigh(self, added_bytes: int) -> None:
        self.weight_bytes += added_bytes
        if self.cache is not None:
            self.cache.weigh(added_bytes)


def _weight_of_rights(securables: Iterable[str]) -> int:
    return sum(ENTRY_BYTES + sys.getsizeof(securable) for securable in securables)


def _weight_of_origin(address: str, agent: bytes, origin: str) -> int:
    return ENTRY_BYTES + sum(sys.getsizeof(each) for each in (address, agent, origin))


class KnownSessions:
    """Sessions by the digest of their Authorization header."""

    def __init__(self, now_ms: Callable[[], int], most_bytes: int = MAX_BYTES) -> None:
        self.bytes = 0
        self._now_ms = now_ms
        self._most_bytes = most_bytes
        self._by_digest: dict[bytes, Known] = {}  # oldest first
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._by_digest)

    def find(self, digest: bytes) -> Known | None:
        """Returns the session, unless it has expired."""
        now_ms = self._now_ms()
        # The second condition: a clock that was set back must not stop the sweeps.
        if now_ms >= self._swept_ms + SWEEP_MS or now_ms < self._swept_ms:
            self._drop_expired(now_ms)
        known = self._by_digest.get(digest)
        if known is None or known.session.expires_ms > now_ms:
            return known
        self._drop(digest)
        return None

    def add(self, digest: bytes, known: Known) -> None:
        self._drop(digest)
        self._by_digest[digest] = known
        known.cache = self
        self.weigh(known.weight_bytes)

    def weigh(self, added_bytes: int) -> None:
        """Adds the change in a session's size to the total, and drops sessions if the total exceeds the limit."""
        self.bytes += added_bytes
        if self.bytes <= self._most_bytes:
            return
        self._drop_expired(self._now_ms())
        for digest in list(self._by_digest):
            if self.bytes <= self._most_bytes * 3 // 4:  # with slack, so that the next addition does not evict again
                return
            self._drop(digest)

    def clear(self) -> None:
        for digest in list(self._by_digest):
            self._drop(digest)

    def _drop_expired(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        for digest in [key for key, known in self._by_digest.items() if known.session.expires_ms <= now_ms]:
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        known = self._by_digest.pop(digest, None)
        if known is not None:
            known.cache = None
            self.bytes -= known.weight_bytes
