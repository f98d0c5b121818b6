"""Keeps vended credentials for half of their life: one call to the store for each table, level and principal."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from nunatak.errors import CatalogError, Forbidden
from nunatak.objectstore.storage import CredentialScope, VendedCredential
from nunatak.objectstore.vending.vendor import NoCredential

log = logging.getLogger(__name__)

MAX_CREDENTIALS = 10_000  # kept at once; about 2 KB each
# Java and Trino ask for a new credential before every operation when five minutes or less are left.
MIN_LEFT_MS = 300_000
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds; the histogram's buckets

# Warehouse, its version, scope. A changed profile or secret has a new version, and so new credentials.
CacheKey = tuple[str, int, CredentialScope]
Vend = Callable[[CredentialScope], Awaitable[VendedCredential]]


class Kept(msgspec.Struct, frozen=True):
    """A credential and when the cache stops handing it out: a client that asks again then gets a new one."""

    credential: VendedCredential
    renew_ms: int


class VendingCounts:
    """What was vended since the start, for metrics."""

    def __init__(self) -> None:
        self.issued: dict[str, int] = {}  # by level
        self.hits = 0
        self.refused: dict[str, int] = {}  # by the name of the error
        self.seconds = [0.0] * (len(BOUNDS) + 2)  # calls in each bucket, then the sum of their seconds

    def count_call(self, seconds: float) -> None:
        self.seconds[bisect_left(BOUNDS, seconds)] += 1
        self.seconds[-1] += seconds


class CredentialCache:
    """Credentials by warehouse version and scope. The caller's rights are checked before every look-up.

    Concurrent requests for one key share one call. An error is given to those who wait for it and is not kept.
    """

    def __init__(self, max_credentials: int = MAX_CREDENTIALS) -> None:
        self._max = max_credentials
        self._kept: OrderedDict[CacheKey, Kept] = OrderedDict()
        self._running: dict[CacheKey, asyncio.Task[Kept]] = {}
        self.counts = VendingCounts()

    def find(self, key: CacheKey, now_ms: int) -> Kept | None:
        """Returns the credential that is kept for this key, or None."""
        kept = self._kept.get(key)
        if kept is None or kept.renew_ms <= now_ms:
            return None
        self._kept.move_to_end(key)
        self.counts.hits += 1
        return kept

    async def get(self, key: CacheKey, vend: Vend, now_ms: Callable[[], int]) -> Kept:
        """Returns a credential with more than half of its life left; raises Forbidden or NoCredential."""
        kept = self.find(key, now_ms())
        if kept is not None:
            return kept
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(self._issue(key, vend, now_ms))
            running.add_done_callback(lambda task: self._end(key, task))
        else:
            self.counts.hits += 1
        # A caller that hangs up must not cancel the call that others wait for.
        return await asyncio.shield(running)

    def _end(self, key: CacheKey, task: asyncio.Task[Kept]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # taken note of, even if all who waited have hung up

    async def _issue(self, key: CacheKey, vend: Vend, now_ms: Callable[[], int]) -> Kept:
        scope, asked_ms, started = key[2], now_ms(), time.perf_counter()
        try:
            credential = await vend(scope)
            if credential.expires_ms - now_ms() <= MIN_LEFT_MS:
                left = max(0, credential.expires_ms - now_ms()) // 1000
                raise NoCredential(f"The store issued a credential of {left} seconds, which is too short to be used")
        except CatalogError as error:
            name = "ungrantable" if isinstance(error, Forbidden) else "unavailable"
            self.counts.refused[name] = self.counts.refused.get(name, 0) + 1
            log.warning("no credential for table %s: %s", scope.table_uuid, error.message)
            raise
        finally:
            self.counts.count_call(time.perf_counter() - started)
        level = scope.level.value
        self.counts.issued[level] = self.counts.issued.get(level, 0) + 1
        half_ms = asked_ms + (credential.expires_ms - asked_ms) // 2
        kept = Kept(credential, min(half_ms, credential.expires_ms - MIN_LEFT_MS - 1))
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > self._max:
            self._kept.popitem(last=False)
        return kept
