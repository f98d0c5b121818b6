"""Judges a run afterwards: what the clients saw against what the tables, their files and the commit log hold. No I/O.

Every append carries a snapshot id of its own, so each table's main branch is one total order to check everything by.
"""

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

Outcome = Literal["applied", "refused", "unknown"]

CONFLICT = 409
BUSY = (429, 503)  # certain that nothing was applied, worth another try
UNKNOWN = (500, 502, 504)  # the only answers that leave open whether the commit was applied
# What an append to a table that is there may be answered, with or without a body: any other answer makes a client
# give up, or delete files, for no reason.
DESERVED = (200, 204, CONFLICT, *BUSY, *UNKNOWN)
METADATA_LOG_LENGTH = 100  # Spec, write.metadata.previous-versions-max: its default


def outcome_of(status: int | None) -> Outcome:
    """What an answer says about a commit, by the commit contract; None is no answer at all."""
    if status is None or status in UNKNOWN:
        return "unknown"
    return "applied" if status < 300 else "refused"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request as its writer saw it, however often it was sent; what it wants, the intent, outlives a refusal."""

    intent: str
    snapshots: Mapping[str, int]  # the snapshot it adds to each of its tables
    started: float  # monotonic seconds
    ended: float
    status: int | None  # None if no answer ever came

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.status)

    @property
    def done_by(self) -> float:
        """When the writer knew that it had happened; what nobody confirmed may happen at any later time."""
        return self.ended if self.outcome == "applied" else math.inf


@dataclass(frozen=True, slots=True)
class Read:
    """A load of a table and the snapshot it showed as current."""

    table: str
    snapshot_id: int | None
    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class Answered:
    """What one copy of a request was answered, whether its writer heard it or not."""

    snapshots: Mapping[str, int]
    status: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """A row of the commit log."""

    commit_id: str
    metadata_location: str | None
    previous_metadata_location: str | None
    snapshot_id: int | None


@dataclass(frozen=True)
class FoundTable:
    """A table after the run: the catalog's answer with all snapshots, the pointer's file, the commit log."""

    name: str
    metadata_location: str
    metadata: Mapping[str, Any]
    pointer_file: bytes | None  # None if it is not there
    log: tuple[LogLine, ...]
    missing_files: tuple[str, ...] = ()  # metadata files of the log that are not there

    @cached_property
    def snapshots(self) -> dict[int, Mapping[str, Any]]:
        return {snapshot["snapshot-id"]: snapshot for snapshot in self.metadata["snapshots"]}

    @cached_property
    def chain(self) -> list[int]:
        """The snapshots from the first to the current one, by their parents."""
        backwards: list[int] = []
        seen: set[int] = set()
        current = current_snapshot(self.metadata)
        while current is not None and current in self.snapshots and current not in seen:
            seen.add(current)
            backwards.append(current)
            current = self.snapshots[current].get("parent-snapshot-id")
        return backwards[::-1]

    @cached_property
    def positions(self) -> dict[int, int]:
        """Where each snapshot stands on the main branch, counted from 1."""
        return {snapshot_id: number for number, snapshot_id in enumerate(self.chain, 1)}


def current_snapshot(metadata: Mapping[str, Any]) -> int | None:
    found = metadata.get("current-snapshot-id")
    return None if found in (None, -1) else int(found)


def findings(
    attempts: Iterable[Attempt],
    reads: Iterable[Read],
    tables: Iterable[FoundTable],
    answers: Iterable[Answered] = (),
) -> list[str]:
    """Everything that must not be, one sentence each; an empty list is a run without fault."""
    tried = list(attempts)
    found = {table.name: table for table in tables}
    added: dict[str, dict[int, Attempt]] = {name: {} for name in found}
    for attempt in tried:
        for name, snapshot_id in attempt.snapshots.items():
            added[name][snapshot_id] = attempt
    seen: dict[str, list[Read]] = {}
    for read in reads:
        seen.setdefault(read.table, []).append(read)
    sentences = [*_of_attempts(tried, found), *_of_intents(tried, found), *_of_answers(answers, found)]
    for name, table in found.items():
        sentences += _of_snapshots(table, added[name])
        sentences += _of_files(table)
        sentences += _of_log(table)
        sentences += _of_order(table, added[name])
        sentences += _of_reads(table, added[name], seen.get(name, []))
    return sentences


def kinds_of(sentences: Iterable[str]) -> Counter[str]:
    """How many findings of each kind, by the word before the colon."""
    return Counter(sentence.partition(":")[0] for sentence in sentences)


def _of_attempts(attempts: Sequence[Attempt], tables: Mapping[str, FoundTable]) -> Iterator[str]:
    for attempt in attempts:
        held = [name for name, snapshot_id in attempt.snapshots.items() if snapshot_id in tables[name].snapshots]
        absent = [name for name in attempt.snapshots if name not in held]
        if held and absent:
            yield f"torn: {attempt.intent} is in {', '.join(held)} but not in {', '.join(absent)}"
        if attempt.outcome == "applied" and absent:
            yield f"lost: {attempt.intent} was answered {attempt.status} but is not in {', '.join(absent)}"
        if attempt.outcome == "refused" and held:
            yield f"wrong answer: {attempt.intent} was answered {attempt.status} but is in {', '.join(held)}"
        if attempt.status is not None and attempt.status not in DESERVED:
            yield f"wrong answer: {attempt.intent} was answered {attempt.status}, which no append deserves"


def _of_answers(answers: Iterable[Answered], tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """The contract holds for every copy of a request: one that nobody heard might have been the one that counts."""
    for answer in answers:
        for name, snapshot_id in answer.snapshots.items():
            held = snapshot_id in tables[name].snapshots
            if outcome_of(answer.status) == ("refused" if held else "applied"):
                was = "is" if held else "is not"
                yield f"wrong answer: a copy of snapshot {snapshot_id} was answered {answer.status} but {was} in {name}"
            if answer.status not in DESERVED:
                yield f"wrong answer: a copy of snapshot {snapshot_id} was answered {answer.status}"


def _of_intents(attempts: Sequence[Attempt], tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """A writer that was refused tries the same thing anew: of all its attempts one may be in the table."""
    held = Counter(
        (attempt.intent, name)
        for attempt in attempts
        for name, snapshot_id in attempt.snapshots.items()
        if snapshot_id in tables[name].snapshots
    )
    for (intent, name), times in held.items():
        if times > 1:
            yield f"doubled: {intent} is {times} times in {name}"


def _of_snapshots(table: FoundTable, attempts: Mapping[int, Attempt]) -> Iterator[str]:
    for snapshot_id, times in Counter(each["snapshot-id"] for each in table.metadata["snapshots"]).items():
        if times > 1:
            yield f"doubled: snapshot {snapshot_id} is {times} times in {table.name}"
    for snapshot_id in table.snapshots:
        if snapshot_id not in attempts:
            yield f"foreign: nobody made snapshot {snapshot_id} of {table.name}"
        if snapshot_id not in table.positions:
            yield f"lost: snapshot {snapshot_id} of {table.name} is not on the main branch"
    if table.chain and (parent := table.snapshots[table.chain[0]].get("parent-snapshot-id")) is not None:
        yield f"gap: snapshot {table.chain[0]} of {table.name} has the parent {parent}, which is not there"
    numbers = [table.snapshots[snapshot_id].get("sequence-number") for snapshot_id in table.chain]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"gap: the sequence numbers of {table.name} are {numbers}"
    counted = table.metadata.get("last-sequence-number")
    if counted != len(numbers):
        yield f"gap: {table.name} counts {counted} and holds {len(numbers)} snapshots"


def _of_files(table: FoundTable) -> Iterator[str]:
    for location in table.missing_files:
        yield f"dangling: the log of {table.name} names {location}, which is not there"
    if table.pointer_file is None:
        yield f"dangling: {table.name} points at {table.metadata_location}, which is not there"
        return
    try:
        written = json.loads(table.pointer_file)
    except ValueError:
        yield f"dangling: {table.name} points at {table.metadata_location}, which is not whole"
        return
    if written.get("table-uuid") != table.metadata["table-uuid"]:
        yield f"dangling: {table.name} points at the file of another table, {written.get('table-uuid')}"
    elif written != table.metadata:
        yield f"dangling: {table.name} is answered differently from what its file says"


def _of_log(table: FoundTable) -> Iterator[str]:
    locations = [line.metadata_location for line in table.log]
    if not locations or locations[-1] != table.metadata_location:
        yield f"log: {table.name} points at {table.metadata_location}, its log ends with {locations[-1:]}"
    if [line.previous_metadata_location for line in table.log] != [None, *locations[:-1]]:
        yield f"log: the lines of {table.name} do not follow from each other"
    if len({line.commit_id for line in table.log}) != len(table.log):
        yield f"log: a commit of {table.name} is in the log twice"
    if [line.snapshot_id for line in table.log if line.snapshot_id is not None] != table.chain:
        yield f"log: the log of {table.name} names other snapshots than its main branch"
    previous = [entry["metadata-file"] for entry in table.metadata.get("metadata-log") or ()]
    if previous != locations[:-1][-METADATA_LOG_LENGTH:]:
        yield f"log: the metadata log of {table.name} differs from the commit log"


def _of_order(table: FoundTable, attempts: Mapping[int, Attempt]) -> Iterator[str]:
    """What was over before another thing began stands before it."""
    latest: Attempt | None = None
    for snapshot_id in table.chain:
        attempt = attempts.get(snapshot_id)
        if attempt is None:
            continue
        if latest is not None and attempt.done_by < latest.started:
            yield f"order: {attempt.intent} was done before {latest.intent} began, but {table.name} has it after"
        if latest is None or attempt.started > latest.started:
            latest = attempt


def _of_reads(table: FoundTable, attempts: Mapping[int, Attempt], reads: Iterable[Read]) -> Iterator[str]:
    """A read shows at least what was done or shown before it began, and nothing that began after it ended."""
    placed = [
        (attempts[snapshot_id], position)
        for snapshot_id, position in table.positions.items()
        if snapshot_id in attempts
    ]
    done = _Highest((attempt.done_by, position) for attempt, position in placed)
    begun = _Highest((attempt.started, position) for attempt, position in placed)
    shown = [(read, 0 if read.snapshot_id is None else table.positions.get(read.snapshot_id)) for read in reads]
    seen = _Highest((read.ended, position) for read, position in shown if position is not None)
    for attempt, position in placed:
        if position <= (least := seen.before(attempt.started)):
            yield f"order: {attempt.intent} began after {table.name} had shown number {least}, but is number {position}"
    for read, number in shown:
        if number is None:
            yield f"phantom read: {table.name} showed snapshot {read.snapshot_id}, which is not in it"
        elif number < (least := done.before(read.started)):
            yield f"stale read: {table.name} showed number {number} after {least} was done"
        elif number < (least := seen.before(read.started)):
            yield f"stale read: {table.name} showed number {number} after a read had shown {least}"
        elif number > begun.before(read.ended):
            yield f"early read: {table.name} showed number {number} before it began"


class _Highest:
    """The highest position among all that happened before a moment, found by bisection."""

    def __init__(self, events: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(events)
        self._times = [moment for moment, _ in ordered]
        self._highest = list(accumulate((position for _, position in ordered), max))

    def before(self, moment: float) -> int:
        count = bisect_left(self._times, moment)
        return self._highest[count - 1] if count else 0
