"""Groups concurrent requests to the database into batches; what a batch sends is up to its caller."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
T = TypeVar("T")


class Member(Generic[Asked, Answer]):
    """A request of a batch and the future of its response; no two members of a batch share a claim."""

    __slots__ = ("answer", "asked", "claims")

    def __init__(self, asked: Asked, claims: frozenset[Hashable], answer: "asyncio.Future[Answer]") -> None:
        self.asked = asked
        self.claims = claims
        self.answer = answer

    def settle(self, outcome: Answer | Exception) -> None:
        """Sets the result or the exception, unless the caller was cancelled meanwhile."""
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Batches(Generic[Asked, Answer]):
    """Requests of one event loop iteration form a batch, as do those that arrive while `in_flight` batches run.

    No request waits for a batch to fill: batches grow as the database becomes busy. `carry_out` settles its members or
    hands them to a task that does; an exception of it goes to all of them.
    """

    def __init__(
        self,
        carry_out: Callable[[list[Member[Asked, Answer]]], Awaitable[None]],
        *,
        largest: int,
        in_flight: int,
    ) -> None:
        self.sent = 0
        self.members = 0
        self._carry_out = carry_out
        self._largest = largest
        self._in_flight = self._free = in_flight
        self._waiting: list[Member[Asked, Answer]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._awakened = False

    @property
    def idle(self) -> bool:
        """Whether no request is queued or in flight."""
        return self._free == self._in_flight and not self._waiting

    async def alone(self, work: Awaitable[T]) -> T:
        """Runs one request in the caller's task, which is fastest; it counts as a batch, so others queue behind it."""
        self._free -= 1
        self.sent += 1
        self.members += 1
        try:
            return await work
        finally:
            self._free += 1
            self._send()

    def ask(self, asked: Asked, claims: frozenset[Hashable] = frozenset()) -> "asyncio.Future[Answer]":
        loop = asyncio.get_running_loop()
        member: Member[Asked, Answer] = Member(asked, claims, loop.create_future())
        self._waiting.append(member)
        if self._free and not self._awakened:
            self._awakened = True
            loop.call_soon(self._send)
        return member.answer

    def _send(self) -> None:
        self._awakened = False
        while self._waiting and self._free:
            self._free -= 1
            task = asyncio.create_task(self._run(self._next()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self) -> list[Member[Asked, Answer]]:
        """Takes the next batch from the queue; a member that shares a claim with an earlier one is left for later."""
        taken: list[Member[Asked, Answer]] = []
        left: list[Member[Asked, Answer]] = []
        claimed: set[Hashable] = set()
        for member in self._waiting:
            if len(taken) < self._largest and claimed.isdisjoint(member.claims):
                taken.append(member)
            else:
                left.append(member)
            claimed |= member.claims  # also of those left, which keeps requests with the same claim in order
        self._waiting = left
        return taken

    async def _run(self, members: list[Member[Asked, Answer]]) -> None:
        self.sent += 1
        self.members += len(members)
        try:
            await self._carry_out(members)
        except Exception as error:
            for member in members:
                member.settle(error)
        finally:
            self._free += 1
            self._send()

    async def drain(self) -> None:
        """Waits until no request is queued or in flight."""
        while self._waiting or self._tasks:
            # The extra task keeps the list from being empty while members are queued but not sent yet.
            await asyncio.wait([*self._tasks, asyncio.create_task(asyncio.sleep(0))])
