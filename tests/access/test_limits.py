"""Rates and requests in flight, with a clock that the test sets; what is refused costs nobody anything."""

import os
import random

import pytest

from nunatak.api.http import error_response
from nunatak.api.request_limits import BURST_SECONDS, InFlight, Rates, rates_of
from nunatak.errors import NotAuthenticated, ServiceUnavailable, TooManyRequests
from nunatak.settings import load

EPOCH_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return EPOCH_MS + round((self.seconds - 1000) * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rates(clock: Clock, per_principal: int = 100, per_address: int = 0) -> Rates:
    return Rates(per_principal, per_address, clock, clock.now_ms)


def taken(limits: Rates, principal: str, address: str | None, tries: int) -> int:
    return sum(limits.take(principal, address) is None for _ in range(tries))


def test_after_a_pause_two_seconds_worth_may_come_at_once(clock: Clock) -> None:
    assert taken(rates(clock), "alice", "10.0.0.1", 1000) == 200


def test_then_as_many_a_second_as_the_limit_says(clock: Clock) -> None:
    limits = rates(clock)
    taken(limits, "alice", "10.0.0.1", 1000)

    counts = []
    for _ in range(5):
        clock.seconds += 1
        counts.append(taken(limits, "alice", "10.0.0.1", 1000))

    assert counts == pytest.approx([100] * 5, abs=1)


@pytest.mark.parametrize("step", [0.001, 0.0137, 0.5, 1.99, 2.0, 2.01])
def test_however_the_requests_are_spread_the_limit_holds_over_time(clock: Clock, step: float) -> None:
    """Whichever turn forgets a bucket: nobody gets more than a burst and the limit times the time."""
    limits = rates(clock)
    admitted = 0
    for _ in range(round(20 / step)):
        admitted += taken(limits, "alice", "10.0.0.1", 2 + round(150 * step))
        clock.seconds += step

    assert 20 * 100 - 200 <= admitted <= 20 * 100 + 200 + 100 * step


def test_each_principal_has_a_bucket_of_its_own(clock: Clock) -> None:
    limits = rates(clock)

    taken(limits, "alice", "10.0.0.1", 1000)

    assert taken(limits, "bob", "10.0.0.1", 1000) == 200


def test_an_address_is_limited_whoever_it_says_it_is(clock: Clock) -> None:
    limits = rates(clock, per_principal=100, per_address=10)

    admitted = sum(taken(limits, f"p{number}", "10.0.0.1", 1) for number in range(1000))

    assert admitted == 20
    assert taken(limits, "p0", "10.0.0.2", 1) == 1


def test_who_is_not_known_yet_is_limited_by_address_alone(clock: Clock) -> None:
    limits = rates(clock, per_principal=1, per_address=10)

    assert taken(limits, "", "10.0.0.1", 1000) == 20


def test_an_address_that_was_counted_before_is_not_counted_again(clock: Clock) -> None:
    limits = rates(clock, per_principal=10, per_address=1)

    assert taken(limits, "alice", None, 1000) == 20
    assert taken(limits, "", "10.0.0.1", 1000) == 2


def test_a_refused_request_costs_neither_the_address_nor_the_principal(clock: Clock) -> None:
    limits = rates(clock, per_principal=1, per_address=10)
    taken(limits, "alice", "10.0.0.1", 1000)

    assert taken(limits, "bob", "10.0.0.1", 1000) == 2
    assert taken(limits, "", "10.0.0.1", 1000) == 20 - 2 - 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
    ],
)
def test_addresses_that_belong_to_one_caller_share_a_bucket(clock: Clock, one: str, other: str) -> None:
    limits = rates(clock, per_principal=0, per_address=10)
    taken(limits, "", one, 1000)

    assert taken(limits, "", other, 1000) == 0


def test_another_network_has_a_bucket_of_its_own(clock: Clock) -> None:
    limits = rates(clock, per_principal=0, per_address=10)
    taken(limits, "", "2001:db8::1", 1000)

    assert taken(limits, "", "2001:db8:0:1::1", 1000) == 20
    assert taken(limits, "", "fe80::1%eth0", 1000) == 20


def test_zero_means_no_limit(clock: Clock) -> None:
    assert taken(rates(clock, per_principal=0, per_address=0), "alice", "10.0.0.1", 5000) == 5000


def test_buckets_of_callers_that_went_away_are_forgotten(clock: Clock) -> None:
    limits = rates(clock, per_address=100)
    chance = random.Random(1)
    most = 0
    for number in range(20_000):
        limits.take(f"p{number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        most = max(most, len(limits))
        clock.seconds += chance.uniform(0, 0.002)

    assert most <= 2 * 2 * BURST_SECONDS / 0.001 * 1.2  # two buckets for each request of two turns
    clock.seconds += 60
    limits.take("one", "10.0.0.1")
    assert len(limits) == 2


def test_a_refusal_says_when_to_come_back(clock: Clock) -> None:
    """MISSION 002-51."""
    limits = rates(clock, per_principal=2)
    taken(limits, "alice", "10.0.0.1", 4)

    refusal = limits.take("alice", "10.0.0.1")

    assert refusal is not None
    assert (refusal.limit, refusal.remaining, refusal.retry_after_seconds) == (2, 0, 1)
    assert refusal.reset_epoch_seconds == EPOCH_MS // 1000 + 2
    clock.seconds += refusal.retry_after_seconds
    assert limits.take("alice", "10.0.0.1") is None


def test_the_answer_carries_what_a_client_waits_by(clock: Clock) -> None:
    """MISSION 002-51."""
    limits = rates(clock, per_principal=100)
    taken(limits, "alice", "10.0.0.1", 200)
    refusal = limits.take("alice", "10.0.0.1")
    assert refusal is not None

    answer = error_response(refusal.error())

    headers = dict(answer.headers)
    assert answer.status == 429
    assert headers[b"retry-after"] == b"1"
    assert headers[b"x-ratelimit-limit"] == b"100"
    assert headers[b"x-ratelimit-remaining"] == b"0"
    assert headers[b"x-ratelimit-reset"] == str(EPOCH_MS // 1000 + 2).encode()
    assert b'"code":429' in answer.body
    assert b"alice" not in answer.body


def test_without_authentication_nobody_is_limited(clock: Clock) -> None:
    none = {"NUNATAK_CONFIG": os.devnull}

    assert rates_of(load({}, none), clock, clock.now_ms) is None
    assert rates_of(load({"auth": "embedded"}, none), clock, clock.now_ms) is not None
    unlimited = load({"auth": "embedded", "rate_limit": 0, "address_rate_limit": 0}, none)
    assert rates_of(unlimited, clock, clock.now_ms) is None


# Requests in flight


def test_one_request_more_than_allowed_is_refused_and_counts_for_nothing() -> None:
    in_flight = InFlight(2)

    with in_flight, in_flight:
        with pytest.raises(ServiceUnavailable) as refused, in_flight:
            pytest.fail("it was let in")
        assert in_flight.count == 2
    with in_flight:
        assert in_flight.count == 1

    assert in_flight.count == 0
    assert (b"retry-after", b"1") in error_response(refused.value).headers


def test_a_request_that_fails_leaves_too() -> None:
    in_flight = InFlight(1)

    for _ in range(3):
        with pytest.raises(ValueError), in_flight:
            raise ValueError

    assert in_flight.count == 0


# Headers of errors


def test_an_error_has_the_headers_of_its_class_or_its_own() -> None:
    default = error_response(NotAuthenticated("who are you?"))
    own = error_response(NotAuthenticated("who are you?", headers=(("WWW-Authenticate", "Basic"),)))
    busy = error_response(TooManyRequests("wait"))

    assert dict(default.headers)[b"www-authenticate"] == b'Bearer realm="nunatak", error="invalid_token"'
    assert dict(own.headers)[b"www-authenticate"] == b"Basic"
    assert dict(busy.headers)[b"retry-after"] == b"1"
