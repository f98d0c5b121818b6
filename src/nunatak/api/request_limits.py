"""Rate limits per caller and the limit of requests in flight; a request refused here has had no effect.

Both count in this process only: N workers or servers allow N times as much.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from nunatak.addresses import network_of
from nunatak.errors import ServiceUnavailable, TooManyRequests
from nunatak.settings import Settings

BURST_SECONDS = 2.0  # a caller that was idle this long may use the whole allowance at once
_ROUNDING_SECONDS = 1e-6  # more than the floating-point error of adding up a burst


@dataclass(frozen=True, slots=True)
class Refusal:
    """The limit that was reached, and when to retry."""

    of: str
    limit: int
    remaining: int
    reset_epoch_seconds: int
    retry_after_seconds: int

    def error(self) -> TooManyRequests:
        return TooManyRequests(
            f"Too many requests of one {self.of}: {self.limit} a second are allowed",
            hint=f"Send the same request again in {self.retry_after_seconds} s; it had no effect.",
            headers=(
                ("Retry-After", str(self.retry_after_seconds)),
                ("X-RateLimit-Limit", str(self.limit)),
                ("X-RateLimit-Remaining", str(self.remaining)),
                ("X-RateLimit-Reset", str(self.reset_epoch_seconds)),
            ),
        )


class _Buckets:
    """A token bucket per key, stored as one number: the time when it is full again. Full buckets need no entry.

    A bucket is full after BURST_SECONDS at the latest, so all that were not used between two calls of `rotate` are
    dropped together.
    """

    __slots__ = ("limit", "of", "older", "seconds_each", "younger")

    def __init__(self, of: str, limit: int) -> None:
        self.of = of
        self.limit = limit
        self.seconds_each = 1 / limit if limit else 0.0  # 0: no limit, a bucket is always full
        self.younger: dict[str, float] = {}
        self.older: dict[str, float] = {}

    def full_after_one_more(self, key: str, now: float) -> float:
        full = self.younger.get(key)
        if full is None:
            full = self.older.get(key, now)
        return (full if full > now else now) + self.seconds_each

    def rotate(self) -> None:
        self.older, self.younger = self.younger, {}


class Rates:
    """Token buckets of principals and addresses: a limit per second, and twice that at once after a pause."""

    def __init__(
        self, per_principal: int, per_address: int, clock: Callable[[], float], now_ms: Callable[[], int]
    ) -> None:
        """`clock` is monotonic, in seconds; `now_ms` is the wall clock, for the headers of a refusal."""
        self._principals = _Buckets("principal", per_principal)
        self._addresses = _Buckets("address", per_address)
        self._clock = clock
        self._now_ms = now_ms
        self._rotate_at = clock() + BURST_SECONDS

    def take(self, principal: str, address: str | None) -> Refusal | None:
        """Counts one request of both, or of neither if one is over its limit; returns the refusal, or None.

        An empty principal (not authenticated yet) and the address None (counted before) are not counted.
        """
        now = self._clock()
        if now >= self._rotate_at:
            self._rotate_buckets(now)
        latest = now + BURST_SECONDS + _ROUNDING_SECONDS
        addresses, principals = self._addresses, self._principals
        if address is not None:
            if ":" in address:  # an IPv6 client owns a whole /64 network
                address = network_of(address)
            address_full = addresses.full_after_one_more(address, now)
            if address_full > latest:
                return self._refusal(addresses, address_full, now)
        if principal:
            principal_full = principals.full_after_one_more(principal, now)
            if principal_full > latest:
                return self._refusal(principals, principal_full, now)
            principals.younger[principal] = principal_full
        if address is not None:
            addresses.younger[address] = address_full
        return None

    def __len__(self) -> int:
        """The number of stored buckets."""
        return sum(
            len(kept) for buckets in (self._principals, self._addresses) for kept in (buckets.younger, buckets.older)
        )

    def _rotate_buckets(self, now: float) -> None:
        # Dropped buckets were last used at least BURST_SECONDS ago: they are full.
        quiet = now >= self._rotate_at + BURST_SECONDS
        for buckets in (self._principals, self._addresses):
            buckets.rotate()
            if quiet:
                buckets.rotate()
        self._rotate_at = now + BURST_SECONDS

    def _refusal(self, buckets: _Buckets, full: float, now: float) -> Refusal:
        full_before = full - buckets.seconds_each
        return Refusal(
            of=buckets.of,
            limit=buckets.limit,
            remaining=0,
            reset_epoch_seconds=math.ceil(self._now_ms() / 1000 + full_before - now),
            retry_after_seconds=max(1, math.ceil(full - now - BURST_SECONDS)),
        )


def rates_of(settings: Settings, clock: Callable[[], float], now_ms: Callable[[], int]) -> Rates | None:
    """Returns the rate limits, or None without authentication or if both limits are 0."""
    if settings.auth == ("none",) or not (settings.rate_limit or settings.address_rate_limit):
        return None
    return Rates(settings.rate_limit, settings.address_rate_limit, clock, now_ms)


class InFlight:
    """Counts the requests in flight; `with` enters one, and raises ServiceUnavailable if there are too many.

    One caller may have at most half of them, so that there is room for others.
    """

    __slots__ = ("_most", "_shares", "count")

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares: dict[str, int] = {}
        self.count = 0

    def take_share(self, caller: str) -> None:
        """Counts an entered request against its caller; raises ServiceUnavailable. End it with `give_back_share`."""
        held = self._shares.get(caller, 0)
        if held >= max(1, self._most // 2):
            raise ServiceUnavailable(
                f"The server already runs {held} requests of this caller; nothing was done",
                hint="Send fewer requests at once, and retry this one soon.",
            )
        self._shares[caller] = held + 1

    def give_back_share(self, caller: str) -> None:
        held = self._shares[caller] - 1
        if held:
            self._shares[caller] = held
        else:
            del self._shares[caller]

    def __enter__(self) -> Self:
        if self.count >= self._most:
            raise self._refusal()
        self.count += 1
        return self

    def _refusal(self) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"The server already runs {self._most} requests; nothing was done",
            hint="Send the same request again soon.",
        )

    @contextmanager
    def paused(self, caller: str | None) -> Iterator[None]:
        """Stops counting an entered request while it waits for its client.

        Counts it again at the end, and raises ServiceUnavailable if there are too many by then. `caller` is the owner
        of its share, or None if it has none.
        """
        self.count -= 1
        if caller is not None:
            self.give_back_share(caller)
        try:
            yield
        finally:
            self.count += 1
            # Taken without a check: `__exit__` and `give_back_share` follow even if this raises below.
            if caller is not None:
                self._shares[caller] = self._shares.get(caller, 0) + 1
        if self.count > self._most:
            raise self._refusal()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.count -= 1
