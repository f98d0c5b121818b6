"""Competing writers: whose load waits, whose does not, and that nobody waits for ever."""

import asyncio

import pytest

from nunatak.catalog import contention
from nunatak.catalog.contention import Contention
from nunatak.database.records import Key

TABLE = Key("default", "ns", "hot")
ANN, BOB, EVE = ("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 3)


async def _is_waiting(load: "asyncio.Task[None]") -> bool:
    for _ in range(3):
        await asyncio.sleep(0)
    return not load.done()


def test_nobody_waits_for_a_table_without_conflicts() -> None:
    async def scene() -> None:
        quiet = Contention()
        await asyncio.wait_for(quiet.wait_before_load(TABLE, ANN), 1)
        assert quiet.tables == {}

    asyncio.run(scene())


def test_refused_writers_reload_one_after_the_other() -> None:
    async def scene() -> None:
        hot = Contention()
        hot.add_conflict(TABLE, ANN)
        hot.add_conflict(TABLE, BOB)

        await hot.wait_before_load(TABLE, ANN)
        second = asyncio.create_task(hot.wait_before_load(TABLE, BOB))
        assert await _is_waiting(second)
        hot.commit_ended(TABLE, ANN)
        await asyncio.wait_for(second, 1)

    asyncio.run(scene())


def test_a_reader_never_waits_for_writers() -> None:
    async def scene() -> None:
        hot = Contention()
        hot.add_conflict(TABLE, ANN)
        await hot.wait_before_load(TABLE, ANN)

        reader = asyncio.create_task(hot.wait_before_load(TABLE, EVE))
        assert not await _is_waiting(reader)

    asyncio.run(scene())


def test_whoever_holds_the_turn_may_load_again() -> None:
    async def scene() -> None:
        hot = Contention()
        hot.add_conflict(TABLE, ANN)
        await hot.wait_before_load(TABLE, ANN)

        again = asyncio.create_task(hot.wait_before_load(TABLE, ANN))
        assert not await _is_waiting(again)

    asyncio.run(scene())


def test_a_writer_that_never_commits_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "HOLD_SECONDS", 0.01)

    async def scene() -> None:
        hot = Contention()
        hot.add_conflict(TABLE, ANN)
        hot.add_conflict(TABLE, BOB)
        await hot.wait_before_load(TABLE, ANN)
        await asyncio.wait_for(hot.wait_before_load(TABLE, BOB), 5)

    asyncio.run(scene())


def test_a_commit_that_has_arrived_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "HOLD_SECONDS", 0.01)

    async def scene() -> None:
        hot = Contention()
        hot.add_conflict(TABLE, ANN)
        hot.add_conflict(TABLE, BOB)
        await hot.wait_before_load(TABLE, ANN)
        hot.commit_started(TABLE, ANN)
        second = asyncio.create_task(hot.wait_before_load(TABLE, BOB))
        await asyncio.sleep(0.05)
        assert not second.done()
        hot.commit_ended(TABLE, ANN)
        await asyncio.wait_for(second, 5)

    asyncio.run(scene())


def test_a_quiet_table_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "CONTENDED_SECONDS", 0.01)

    async def scene() -> None:
        hot = Contention()
        hot.add_conflict(TABLE, ANN)
        for _ in range(500):
            if not hot.tables:
                break
            await asyncio.sleep(0.01)
        assert hot.tables == {}

    asyncio.run(scene())
