"""How much one caller may ask and how much is worked on at once; what is refused here has had no effect.

Both count in this process alone: several workers or servers allow so many times as much.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from nunatak.access.addresses import network_of
from nunatak.errors import ServiceUnavailable, TooManyRequests
from nunatak.settings import Settings

BURST_SECONDS = 2.0  # a caller that was quiet for so long may ask for all of it at once
_ROUNDING_SECONDS = 1e-6  # more than adding up the moments of a burst can be wrong by


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which limit was reached, and when to come back."""

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
    """A bucket for each key, told by one number: when it will be full again. A full one need not be kept.

    It is full after BURST_SECONDS at the latest, so those that nobody touched for a whole turn are forgotten together.
    """

    __slots__ = ("limit", "of", "older", "seconds_each", "younger")

    def __init__(self, of: str, limit: int) -> None:
        self.of = of
        self.limit = limit
        self.seconds_each = 1 / limit if limit else 0.0  # 0: no limit, and a bucket is always full
        self.younger: dict[str, float] = {}
        self.older: dict[str, float] = {}

    def full_after_one_more(self, key: str, now: float) -> float:
        full = self.younger.get(key)
        if full is None:
            full = self.older.get(key, now)
        return (full if full > now else now) + self.seconds_each

    def turn(self) -> None:
        self.older, self.younger = self.younger, {}


class Rates:
    """Token buckets for principals and addresses: so many requests a second, and twice as many after a pause."""

    def __init__(
        self, per_principal: int, per_address: int, clock: Callable[[], float], now_ms: Callable[[], int]
    ) -> None:
        """`clock` counts seconds and never goes back; `now_ms` is the time of day, for those who are refused."""
        self._principals = _Buckets("principal", per_principal)
        self._addresses = _Buckets("address", per_address)
        self._clock = clock
        self._now_ms = now_ms
        self._turn_at = clock() + BURST_SECONDS

    def take(self, principal: str, address: str | None) -> Refusal | None:
        """Count one request of both, or of neither if one of them asks too much.

        A principal that is not known yet is "", an address that was counted before is None: neither is counted.
        """
        now = self._clock()
        if now >= self._turn_at:
            self._turn(now)
        latest = now + BURST_SECONDS + _ROUNDING_SECONDS
        addresses, principals = self._addresses, self._principals
        if address is not None:
            if ":" in address:
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
        """How many buckets are kept."""
        return sum(
            len(kept) for buckets in (self._principals, self._addresses) for kept in (buckets.younger, buckets.older)
        )

    def _turn(self, now: float) -> None:
        # What is forgotten was touched before the last turn, which is BURST_SECONDS ago: it is full.
        quiet = now >= self._turn_at + BURST_SECONDS
        for buckets in (self._principals, self._addresses):
            buckets.turn()
            if quiet:
                buckets.turn()
        self._turn_at = now + BURST_SECONDS

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
    """None where nobody is limited: without authentication, or if both limits are 0."""
    if settings.auth == ("none",) or not (settings.rate_limit or settings.address_rate_limit):
        return None
    return Rates(settings.rate_limit, settings.address_rate_limit, clock, now_ms)


class InFlight:
    """Counts requests that are worked on; enter one with `with`, which refuses if there are too many.

    One caller has at most half of them, so that there is always room for others.
    """

    __slots__ = ("_most", "_shares", "count")

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares: dict[str, int] = {}
        self.count = 0

    def take_share(self, caller: str) -> None:
        """Of a request that has entered, once it is known whose it is; has to be given back."""
        held = self._shares.get(caller, 0)
        if held >= max(1, self._most // 2):
            raise ServiceUnavailable(
                f"The server works on {held} requests of yours already; nothing was done",
                hint="Send fewer at once, and the same request again soon.",
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
            f"The server works on {self._most} requests already; nothing was done",
            hint="Send the same request again soon.",
        )

    @contextmanager
    def paused(self, caller: str | None) -> Iterator[None]:
        """While one that has entered waits for its client; refuses at the end if there are too many by then.

        `caller` is whose share it has, if it has one.
        """
        self.count -= 1
        if caller is not None:
            self.give_back_share(caller)
        try:
            yield
        finally:
            self.count += 1
            if caller is not None:
                self._shares[caller] = self._shares.get(caller, 0) + 1
        if self.count > self._most:
            raise self._refusal()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.count -= 1
