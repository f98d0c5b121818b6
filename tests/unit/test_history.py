"""The history checker of the fault tests: it accepts a run without fault and refuses each fault by its name."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.history import Answered, Attempt, FoundTable, LogLine, Read, findings, kinds_of, outcome_of

Run = tuple[list[Attempt], list[Read], list[FoundTable]]


def an_attempt(number: int, **changes: Any) -> Attempt:
    """Append `number`, which adds snapshot `number * 11` to table t from second 10n to 10n+5."""
    told = {
        "intent": f"i{number}",
        "snapshots": {"t": number * 11},
        "started": number * 10.0,
        "ended": number * 10.0 + 5,
    }
    return Attempt(**{**told, "status": 200, **changes})


def a_read(number: int, at: float) -> Read:
    return Read("t", number * 11 if number else None, at, at + 1)


def a_table(*numbers: int, name: str = "t", **changes: Any) -> FoundTable:
    """A table whose main branch is these appends in this order, with everything else in keeping."""
    snapshots = [
        {
            "snapshot-id": number * 11,
            "sequence-number": place,
            **({"parent-snapshot-id": numbers[place - 2] * 11} if place > 1 else {}),
        }
        for place, number in enumerate(numbers, 1)
    ]
    locations = [f"file:///t/{place}.json" for place in range(len(numbers) + 1)]
    metadata = {
        "table-uuid": f"uuid-of-{name}",
        "last-sequence-number": len(numbers),
        "current-snapshot-id": numbers[-1] * 11 if numbers else None,
        "snapshots": snapshots,
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": location} for location in locations[:-1]],
    }
    log = tuple(
        LogLine(
            f"c{place}", location, locations[place - 1] if place else None, numbers[place - 1] * 11 if place else None
        )
        for place, location in enumerate(locations)
    )
    found = FoundTable(name, locations[-1], metadata, json.dumps(metadata).encode(), log)
    return dataclasses.replace(found, **changes)


def with_metadata(table: FoundTable, **changes: Any) -> FoundTable:
    """The same change in the answer and in the file, so that only the checked rule is broken."""
    metadata = {**table.metadata, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return dataclasses.replace(table, metadata=metadata, pointer_file=json.dumps(metadata).encode())


def a_good_run() -> Run:
    attempts = [
        an_attempt(1),
        an_attempt(2, status=409, intent="i3"),  # refused, and tried anew as append 3
        an_attempt(3),
        an_attempt(4, status=None),  # no answer, and it happened
        an_attempt(5, status=None),  # no answer, and it did not happen
        an_attempt(6, status=500),
        an_attempt(7, started=31.0, ended=75.0),  # ran beside 4 and came in before it
    ]
    reads = [a_read(0, 5.0), a_read(0, 14.0), a_read(1, 14.0), a_read(1, 16.0), a_read(3, 36.0), a_read(4, 90.0)]
    return attempts, reads, [a_table(1, 3, 7, 4)]


def test_a_run_without_fault_has_no_findings() -> None:
    assert findings(*a_good_run()) == []


def test_an_empty_table_has_no_findings() -> None:
    assert findings([], [a_read(0, 1.0)], [a_table()]) == []


def lost(run: Run) -> Run:
    attempts, reads, _ = run
    return attempts, reads[:4], [a_table(1, 7, 4)]


def lost_from_main(run: Run) -> Run:
    """The snapshot is still listed, but the main branch goes past it."""
    attempts, _, (table,) = run
    snapshots = [dict(snapshot) for snapshot in table.metadata["snapshots"]]
    snapshots[2]["parent-snapshot-id"] = snapshots[0]["snapshot-id"]
    return attempts, [], [with_metadata(table, snapshots=snapshots)]


def doubled_snapshot(run: Run) -> Run:
    attempts, reads, (table,) = run
    return (
        attempts,
        reads,
        [with_metadata(table, snapshots=[*table.metadata["snapshots"], table.metadata["snapshots"][-1]])],
    )


def doubled_intent(run: Run) -> Run:
    """A lost reply, after which the writer did the same thing once more: both are in the table."""
    attempts, reads, _ = run
    return [*attempts, an_attempt(8, intent="i4")], reads, [a_table(1, 3, 7, 4, 8)]


def a_late_unknown_doubles(run: Run) -> Run:
    attempts, reads, _ = run
    return [*attempts, an_attempt(8, intent="i5")], reads[:5], [a_table(1, 3, 7, 4, 5, 8)]


def refused_but_applied(run: Run) -> Run:
    attempts, reads, _ = run
    return [*attempts, an_attempt(8, status=409)], reads, [a_table(1, 3, 7, 4, 8)]


def refused_as_missing(run: Run) -> Run:
    attempts, reads, tables = run
    return [*attempts, an_attempt(8, status=404)], reads, tables


def refused_for_now_but_applied(run: Run) -> Run:
    """A 503 tells the client that nothing was done."""
    attempts, reads, _ = run
    return [*attempts, an_attempt(8, status=503)], reads, [a_table(1, 3, 7, 4, 8)]


def an_acknowledgement_too_few(run: Run) -> Run:
    """Somebody's snapshot that no writer remembers."""
    attempts, reads, tables = run
    return attempts[1:], reads, tables


def an_acknowledgement_too_many(run: Run) -> Run:
    attempts, reads, tables = run
    return [*attempts, an_attempt(8)], reads, tables


def a_gap_in_the_sequence_numbers(run: Run) -> Run:
    attempts, reads, (table,) = run
    snapshots = [*table.metadata["snapshots"][:-1], {**table.metadata["snapshots"][-1], "sequence-number": 9}]
    return attempts, reads, [with_metadata(table, snapshots=snapshots)]


def a_wrong_count(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [with_metadata(table, last_sequence_number=3)]


def a_missing_parent(run: Run) -> Run:
    attempts, _, _ = run
    table = a_table(3, 7, 4)
    snapshots = [{**table.metadata["snapshots"][0], "parent-snapshot-id": 999}, *table.metadata["snapshots"][1:]]
    return attempts[1:], [], [with_metadata(table, snapshots=snapshots)]


def swapped_in_time(run: Run) -> Run:
    attempts, _, _ = run
    return attempts, [], [a_table(3, 1, 7, 4)]


def a_stale_read(run: Run) -> Run:
    attempts, reads, tables = run
    return attempts, [*reads, a_read(1, 36.0)], tables


def a_read_that_goes_back(run: Run) -> Run:
    """Each of two reads would do alone, but the second began when the first had seen more."""
    attempts, reads, tables = run
    return attempts, [*reads, a_read(4, 46.0), a_read(3, 48.0)], tables


def an_append_before_what_was_seen(run: Run) -> Run:
    """Nobody confirmed 4 yet, but a read had shown it when 8 began."""
    attempts, _, _ = run
    return [*attempts, an_attempt(8)], [a_read(4, 46.0)], [a_table(1, 3, 7, 8, 4)]


def a_read_from_the_future(run: Run) -> Run:
    attempts, reads, tables = run
    return attempts, [*reads, a_read(3, 20.0)], tables


def a_read_of_nothing(run: Run) -> Run:
    attempts, reads, tables = run
    return attempts, [*reads, a_read(6, 66.0)], tables


def no_file(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [dataclasses.replace(table, pointer_file=None)]


def half_a_file(run: Run) -> Run:
    attempts, reads, (table,) = run
    assert table.pointer_file is not None
    return attempts, reads, [dataclasses.replace(table, pointer_file=table.pointer_file[:-10])]


def the_file_of_another_table(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [dataclasses.replace(table, pointer_file=b'{"table-uuid": "uuid-of-u"}')]


def an_older_file(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [dataclasses.replace(table, pointer_file=a_table(1, 3, 7).pointer_file)]


def an_old_file_is_gone(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [dataclasses.replace(table, missing_files=("file:///t/1.json",))]


def a_line_too_few(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [dataclasses.replace(table, log=table.log[:-1])]


def a_line_twice(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [dataclasses.replace(table, log=(*table.log, table.log[-1]))]


def a_line_of_another_snapshot(run: Run) -> Run:
    attempts, reads, (table,) = run
    return (
        attempts,
        reads,
        [dataclasses.replace(table, log=(*table.log[:-1], dataclasses.replace(table.log[-1], snapshot_id=55)))],
    )


def a_shorter_metadata_log(run: Run) -> Run:
    attempts, reads, (table,) = run
    return attempts, reads, [with_metadata(table, metadata_log=table.metadata["metadata-log"][1:])]


FAULTS: dict[Callable[[Run], Run], str] = {
    lost: "lost: i3 was answered 200 but is not in t",
    lost_from_main: "lost: snapshot 33 of t is not on the main branch",
    doubled_snapshot: "doubled: snapshot 44 is 2 times in t",
    doubled_intent: "doubled: i4 is 2 times in t",
    a_late_unknown_doubles: "doubled: i5 is 2 times in t",
    refused_but_applied: "wrong answer: i8 was answered 409 but is in t",
    refused_for_now_but_applied: "wrong answer: i8 was answered 503 but is in t",
    refused_as_missing: "wrong answer: i8 was answered 404, which no append deserves",
    an_acknowledgement_too_few: "foreign: nobody made snapshot 11 of t",
    an_acknowledgement_too_many: "lost: i8 was answered 200 but is not in t",
    a_gap_in_the_sequence_numbers: "gap: the sequence numbers of t are [1, 2, 3, 9]",
    a_wrong_count: "gap: t counts 3 and holds 4 snapshots",
    a_missing_parent: "gap: snapshot 33 of t has the parent 999, which is not there",
    swapped_in_time: "order: i1 was done before i3 began, but t has it after",
    a_stale_read: "stale read: t showed number 1 after 2 was done",
    a_read_that_goes_back: "stale read: t showed number 2 after a read had shown 4",
    an_append_before_what_was_seen: "order: i8 began after t had shown number 5, but is number 4",
    a_read_from_the_future: "early read: t showed number 2 before it began",
    a_read_of_nothing: "phantom read: t showed snapshot 66, which is not in it",
    no_file: "dangling: t points at file:///t/4.json, which is not there",
    half_a_file: "dangling: t points at file:///t/4.json, which is not whole",
    the_file_of_another_table: "dangling: t points at the file of another table, uuid-of-u",
    an_older_file: "dangling: t is answered differently from what its file says",
    an_old_file_is_gone: "dangling: the log of t names file:///t/1.json, which is not there",
    a_line_too_few: "log: t points at file:///t/4.json, its log ends with ['file:///t/3.json']",
    a_line_twice: "log: a commit of t is in the log twice",
    a_line_of_another_snapshot: "log: the log of t names other snapshots than its main branch",
    a_shorter_metadata_log: "log: the metadata log of t differs from the commit log",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_run_with_a_fault_is_refused(fault: Callable[[Run], Run]) -> None:
    assert FAULTS[fault] in findings(*fault(a_good_run()))


@pytest.mark.parametrize("status", [204, 409, None])
def test_a_transaction_that_reached_only_some_of_its_tables_is_torn(status: int | None) -> None:
    transaction = an_attempt(1, snapshots={"t": 11, "u": 12}, status=status)

    found = findings([transaction], [], [a_table(1), a_table(name="u")])

    assert "torn: i1 is in t but not in u" in found


def test_a_metadata_log_keeps_its_hundred_newest_files_only() -> None:
    numbers = range(1, 151)
    table = a_table(*numbers)
    trimmed = with_metadata(table, metadata_log=table.metadata["metadata-log"][-100:])
    attempts = [an_attempt(number) for number in numbers]

    assert findings(attempts, [], [trimmed]) == []
    assert findings(attempts, [], [table]) == ["log: the metadata log of t differs from the commit log"]


# What each status says about a commit: certainly applied, certainly not, or neither.
CONTRACT: dict[int | None, str] = {
    200: "applied",
    204: "applied",
    **dict.fromkeys((400, 401, 403, 404, 409, 422, 429, 503), "refused"),
    **dict.fromkeys((500, 502, 504, None), "unknown"),
}


@pytest.mark.parametrize("status", CONTRACT)
def test_a_status_says_what_the_commit_contract_says(status: int | None) -> None:
    assert outcome_of(status) == CONTRACT[status]


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("status", [status for status in CONTRACT if status is not None])
def test_an_answer_that_nobody_heard_is_judged_too(status: int, applied: bool) -> None:
    """`t` holds snapshot 11, and nobody knows what became of 22."""
    attempts = [an_attempt(1), an_attempt(2, status=None)]

    found = findings(attempts, [], [a_table(1)], [Answered({"t": 11 if applied else 22}, status)])

    wrong = CONTRACT[status] == ("refused" if applied else "applied") or status in (400, 401, 403, 404, 422)
    assert bool(found) == wrong
    assert set(kinds_of(found)) <= {"wrong answer"}


def test_the_checker_takes_hardly_longer_for_each_of_many_tables() -> None:
    """A soak has thousands: looking at all attempts for each of them would never end."""
    attempts = [an_attempt(number, snapshots={f"t{number}": number * 11}) for number in range(1, 5001)]
    reads = [dataclasses.replace(a_read(number, number * 10.0 + 6), table=f"t{number}") for number in range(1, 5001)]
    tables = [a_table(number, name=f"t{number}") for number in range(1, 5001)]

    assert findings(attempts, reads, tables) == []


def test_findings_are_counted_by_their_kind() -> None:
    assert kinds_of(["lost: a", "stale read: b", "lost: c"]) == {"lost": 2, "stale read": 1}
