"""Who goes to the database with whom."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nunatak.database.batches import Batches, Member

Sent = list[list[str]]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


class Database:
    """Answers each question in capitals, when told to; remembers what came together."""

    def __init__(self) -> None:
        self.sent: Sent = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def carry_out(self, members: list[Member[str, str]]) -> None:
        self.sent.append([member.asked for member in members])
        await self.gate.wait()
        for member in members:
            member.settle(member.asked.upper())

    def batches(self, *, largest: int = 10, in_flight: int = 1) -> Batches[str, str]:
        return Batches(self.carry_out, largest=largest, in_flight=in_flight)


def test_what_is_asked_in_one_turn_of_the_event_loop_goes_together() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches()

        assert await asyncio.gather(*(batches.ask(name) for name in "abc")) == ["A", "B", "C"]
        assert await batches.ask("d") == "D"

        assert database.sent == [["a", "b", "c"], ["d"]]
        assert (batches.sent, batches.members) == (2, 4)

    run(work)


def test_those_who_come_while_all_are_on_their_way_go_together_next() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches(in_flight=2)
        database.gate.clear()
        answers = []
        for name in "abcde":
            answers.append(batches.ask(name))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        assert database.sent == [["a"], ["b"]]
        database.gate.set()

        assert await asyncio.gather(*answers) == list("ABCDE")
        assert database.sent == [["a"], ["b"], ["c", "d", "e"]]

    run(work)


def test_one_that_goes_alone_lets_others_gather_behind_it() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches()

        async def alone() -> str:
            await asyncio.sleep(0.001)
            return "alone"

        assert batches.idle
        first = asyncio.create_task(batches.alone(alone()))
        await asyncio.sleep(0)
        assert not batches.idle
        answers = [batches.ask(name) for name in "ab"]

        assert await first == "alone"
        assert await asyncio.gather(*answers) == ["A", "B"]
        assert database.sent == [["a", "b"]]
        await batches.drain()
        assert batches.idle

    run(work)


def test_a_batch_is_no_larger_than_allowed() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches(largest=2)

        assert await asyncio.gather(*(batches.ask(name) for name in "abcde")) == list("ABCDE")

        assert database.sent == [["a", "b"], ["c", "d"], ["e"]]

    run(work)


def test_two_who_claim_the_same_go_one_after_the_other_in_their_order() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches()
        claims = {"a1": {"a"}, "a2b1": {"a", "b"}, "b2": {"b"}, "c": {"c"}}

        await asyncio.gather(*(batches.ask(name, frozenset(claimed)) for name, claimed in claims.items()))

        assert database.sent == [["a1", "c"], ["a2b1"], ["b2"]]

    run(work)


def test_what_a_batch_raises_each_of_its_members_is_told_and_the_next_goes_on() -> None:
    async def work() -> None:
        database = Database()

        async def fail_once(members: list[Member[str, str]]) -> None:
            if not database.sent:
                database.sent.append([])
                raise OSError("no")
            await database.carry_out(members)

        batches: Batches[str, str] = Batches(fail_once, largest=2, in_flight=1)
        outcomes = await asyncio.gather(*(batches.ask(name) for name in "abc"), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [OSError, OSError, str]

    run(work)


def test_whoever_goes_away_changes_nothing_for_the_others() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches()
        database.gate.clear()
        gone, stays = batches.ask("a"), batches.ask("b")
        await asyncio.sleep(0)
        gone.cancel()
        database.gate.set()

        assert await stays == "B"
        assert database.sent == [["a", "b"]]
        with pytest.raises(asyncio.CancelledError):
            await gone

    run(work)


def test_draining_waits_for_those_who_wait_and_those_on_their_way() -> None:
    async def work() -> None:
        database = Database()
        batches = database.batches(largest=1)
        answers = [batches.ask(name) for name in "abc"]

        await batches.drain()

        assert all(answer.done() for answer in answers)

    run(work)
