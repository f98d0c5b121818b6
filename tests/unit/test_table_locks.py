"""Turns: one holder per table at a time, several tables in one order, and nothing left behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nunatak.catalog.table_locks import TableLocks
from nunatak.database.records import Key


def key(name: str) -> Key:
    return Key("default", "ns", name)


def within_seconds(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a scenario; one in which somebody waits for ever fails."""

    async def bounded() -> None:
        await asyncio.wait_for(work(), 30)

    asyncio.run(bounded())


def test_only_one_holds_the_turn_of_a_table() -> None:
    async def scenario() -> None:
        locks, inside, most = TableLocks(), 0, 0

        async def work() -> None:
            nonlocal inside, most
            async with locks.acquire([key("t")]):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(20)))
        assert most == 1
        assert locks._waiters == {}

    within_seconds(scenario)


def test_turns_come_in_the_order_they_were_asked_for() -> None:
    async def scenario() -> None:
        locks, order = TableLocks(), []

        async def work(number: int) -> None:
            async with locks.acquire([key("t")]):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(number) for number in range(10)))
        assert order == list(range(10))

    within_seconds(scenario)


def test_different_tables_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        locks = TableLocks()
        async with locks.acquire([key("a")]), locks.acquire([key("b")]):
            assert set(locks._waiters) == {key("a"), key("b")}
        assert locks._waiters == {}

    within_seconds(scenario)


def test_several_tables_in_any_order_never_block_for_ever() -> None:
    async def scenario() -> None:
        locks = TableLocks()

        async def work(number: int) -> None:
            names = ["a", "b", "c"] if number % 2 else ["c", "b", "a"]
            async with locks.acquire([key(name) for name in names]):
                await asyncio.sleep(0)

        await asyncio.gather(*(work(number) for number in range(30)))
        assert locks._waiters == {}

    within_seconds(scenario)


def test_a_table_named_twice_is_taken_once() -> None:
    async def scenario() -> None:
        locks = TableLocks()
        async with locks.acquire([key("a"), key("a")]):
            assert set(locks._waiters) == {key("a")}
        assert locks._waiters == {}

    within_seconds(scenario)


def test_whoever_fails_passes_the_turn_on() -> None:
    async def scenario() -> None:
        locks = TableLocks()
        with pytest.raises(ValueError, match="broken"):
            async with locks.acquire([key("a"), key("b")]):
                raise ValueError("broken")
        async with locks.acquire([key("a"), key("b")]):
            pass
        assert locks._waiters == {}

    within_seconds(scenario)


def test_whoever_stops_waiting_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        locks = TableLocks()

        async def work() -> None:
            async with locks.acquire([key("a"), key("b")]):
                raise AssertionError("it never got the lock")

        async with locks.acquire([key("b")]):
            waiting = asyncio.create_task(work())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert set(locks._waiters) == {key("a"), key("b")}
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert set(locks._waiters) == {key("b")}
        assert locks._waiters == {}

    within_seconds(scenario)


def test_a_turn_that_comes_to_somebody_who_just_went_away_is_passed_on() -> None:
    async def scenario() -> None:
        locks, order = TableLocks(), []

        async def work(name: str) -> None:
            async with locks.acquire([key("t")]):
                order.append(name)

        async with locks.acquire([key("t")]):
            gone, next_one = asyncio.create_task(work("gone")), asyncio.create_task(work("next"))
            await asyncio.sleep(0)
        gone.cancel()  # it has been given the lock, and has not run since
        with pytest.raises(asyncio.CancelledError):
            await gone
        await next_one
        assert order == ["next"]
        assert locks._waiters == {}

    within_seconds(scenario)
