"""The cache of credentials: half of the life, one call at a time, no errors kept, never a credential about to end."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import msgspec
import pytest

from nunatak.errors import CatalogError, Forbidden
from nunatak.objectstore.storage import AccessLevel, CredentialScope, VendedCredential
from nunatak.objectstore.vending.cache import CacheKey, CredentialCache
from nunatak.objectstore.vending.vendor import MAX_SESSION_NAME, NoCredential, VendingThreads, session_name
from tests.unit.vending.scopes import a_scope

SCOPE = a_scope("s3://lake/wh/t")
P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class CountingVendor:
    """Counts its calls; each credential is another one. Waits while `gate` is closed, fails while `error` is set."""

    def __init__(self, clock: Clock, life_ms: int = HOUR_MS) -> None:
        self.clock, self.life_ms, self.calls = clock, life_ms, 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: CatalogError | None = None

    async def vend(self, scope: CredentialScope) -> VendedCredential:
        self.calls += 1
        number = self.calls
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return VendedCredential("s3://lake/wh/t", {"number": str(number)}, self.clock.ms + self.life_ms)


def a_key(scope: CredentialScope = SCOPE, version: int = 1, warehouse: str = "lake") -> CacheKey:
    return warehouse, version, scope


@in_a_loop
async def test_a_credential_is_handed_out_for_half_of_its_life() -> None:
    clock = Clock()
    cache, vendor = CredentialCache(), CountingVendor(clock)

    first = await cache.get(a_key(), vendor.vend, clock)
    clock.ms += HOUR_MS // 2 - 1
    again = await cache.get(a_key(), vendor.vend, clock)
    clock.ms += 1
    renewed = await cache.get(a_key(), vendor.vend, clock)

    assert (first.credential, vendor.calls) == (again.credential, 2)
    assert renewed.credential != first.credential
    assert first.renew_ms - 1_000_000 == HOUR_MS // 2
    assert (cache.counts.hits, cache.counts.issued) == (1, {"read": 2})


@in_a_loop
async def test_everything_that_decides_what_a_credential_opens_is_part_of_the_key() -> None:
    clock = Clock()
    cache, vendor = CredentialCache(), CountingVendor(clock)
    keys = [
        a_key(),
        a_key(version=2),
        a_key(warehouse="other"),
        a_key(a_scope("s3://lake/wh/t2")),
        a_key(a_scope("s3://lake/wh/t", "s3://lake/wh/data")),
        a_key(a_scope("s3://lake/wh/t", level=AccessLevel.READ_WRITE)),
        a_key(a_scope("s3://lake/wh/t", principal="ben")),
        a_key(msgspec.structs.replace(SCOPE, table_uuid="another")),
    ]

    kept = [await cache.get(key, vendor.vend, clock) for key in keys]

    assert len({each.credential.config["number"] for each in kept}) == len(keys) == vendor.calls


@in_a_loop
async def test_requests_at_once_share_one_call_even_if_the_first_hangs_up() -> None:
    clock = Clock()
    cache, vendor = CredentialCache(), CountingVendor(clock)
    vendor.gate.clear()

    waiting = [asyncio.create_task(cache.get(a_key(), vendor.vend, clock)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    other = CountingVendor(clock)  # another table's call does not wait for this one
    await cache.get(a_key(a_scope("s3://lake/wh/other")), other.vend, clock)
    vendor.gate.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert vendor.calls == other.calls == 1
    assert isinstance(answers[0], asyncio.CancelledError)
    assert len({each.credential.config["number"] for each in answers[1:] if not isinstance(each, BaseException)}) == 1


@pytest.mark.parametrize("error", [Forbidden("cannot be scoped"), NoCredential("STS is down")], ids=["never", "now"])
@in_a_loop
async def test_an_error_is_not_kept(error: CatalogError) -> None:
    clock = Clock()
    cache, vendor = CredentialCache(), CountingVendor(clock)
    vendor.error = error

    for _ in range(2):
        with pytest.raises(type(error)):
            await cache.get(a_key(), vendor.vend, clock)
    vendor.error = None
    await cache.get(a_key(), vendor.vend, clock)

    assert vendor.calls == 3
    assert sum(cache.counts.refused.values()) == 2
    assert sum(cache.counts.seconds[:-1]) == 3


@pytest.mark.parametrize(("left_ms", "is_vended"), [(300_000, False), (0, False), (-5, False), (300_001, True)])
@in_a_loop
async def test_no_credential_is_vended_that_ends_within_five_minutes(left_ms: int, is_vended: bool) -> None:
    clock = Clock()
    cache, vendor = CredentialCache(), CountingVendor(clock, left_ms)

    if is_vended:
        assert (await cache.get(a_key(), vendor.vend, clock)).credential.expires_ms == clock.ms + left_ms
    else:
        with pytest.raises(NoCredential, match="seconds"):
            await cache.get(a_key(), vendor.vend, clock)


@pytest.mark.parametrize("life_ms", [310_000, 400_000, 600_000, 900_000])
@in_a_loop
async def test_a_kept_credential_never_has_less_than_five_minutes_left(life_ms: int) -> None:
    clock = Clock()
    cache, vendor = CredentialCache(), CountingVendor(clock, life_ms)

    for _ in range(60):
        kept = await cache.get(a_key(), vendor.vend, clock)
        assert kept.credential.expires_ms - clock.ms > 300_000
        clock.ms += 10_000


@in_a_loop
async def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    clock = Clock()
    cache, vendor = CredentialCache(max_credentials=3), CountingVendor(clock)
    keys = [a_key(a_scope(f"s3://lake/wh/t{number}")) for number in range(4)]
    for key in (*keys[:3], keys[0], keys[3]):
        await cache.get(key, vendor.vend, clock)

    await cache.get(keys[0], vendor.vend, clock)
    assert vendor.calls == 4
    await cache.get(keys[1], vendor.vend, clock)
    assert vendor.calls == 5


@in_a_loop
async def test_callers_beyond_the_limit_are_told_at_once() -> None:
    threads = VendingThreads(max_waiting=1)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    first = asyncio.create_task(threads.run(lambda: asyncio.run_coroutine_threadsafe(release.wait(), loop).result()))
    await asyncio.sleep(0)
    with pytest.raises(NoCredential, match="Too many"):
        await threads.run(lambda: None)
    release.set()
    await first
    assert await threads.run(lambda: 7) == 7
    threads.close()


@pytest.mark.parametrize("principal", ["ana", "svc-spark@company.com", "a" * 64])
def test_a_plain_principal_is_the_session_name(principal: str) -> None:
    assert session_name(principal) == principal


def test_other_principals_get_valid_and_distinct_session_names() -> None:
    principals = ["a", "", "a b", "a/b", "a:b", "é", "e", "a" * 65, "a" * 66, "x" * 500, "ana\n", "\ud800", "＠"]
    names = [session_name(each) for each in principals]

    assert len(set(names)) == len(principals)
    for name in names:
        assert 2 <= len(name) <= MAX_SESSION_NAME
        assert name.isascii()
        assert all(each.isalnum() or each in "_+=,.@-" for each in name)
