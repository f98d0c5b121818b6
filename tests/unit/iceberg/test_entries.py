"""Long arrays that stay as they are written: a sequence of dicts to whoever looks, bytes to whoever writes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import InvalidMetadata
from nunatak.iceberg import entries as entries_module
from nunatak.iceberg import table_metadata
from nunatak.iceberg.entries import RUN, Entries
from nunatak.iceberg.snapshot import Snapshots
from tests.unit.iceberg.builders import Json, a_snapshot, a_table

VALUES = st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists, max_leaves=5)
ENTRIES = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6)


@given(ENTRIES, st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([None, 2]))
def test_entries_are_the_sequence_they_were_made_of(
    made: list[Json], start: int, stop: int, indent: int | None
) -> None:
    """Whoever wrote the file may have spaced it out."""
    entries = Entries.of(made)

    assert entries == made
    assert list(entries) == made
    assert entries[start:stop] == made[start:stop]
    assert [entries[index] for index in range(len(entries))] == made
    assert json.loads(entries.array()) == made
    assert Entries.split(msgspec.Raw(json.dumps(made, indent=indent).encode())) == entries


@given(ENTRIES, ENTRIES)
def test_appending_leaves_what_was_there_untouched(before: list[Json], added: list[Json]) -> None:
    entries = longer = Entries.of(before)
    for each in added:
        longer = longer.with_last(each)

    assert longer == before + added
    assert entries == before
    assert longer.size_bytes == Entries.of(before + added).size_bytes


STEPS = st.lists(st.integers(-3, 12), max_size=40)


@given(ENTRIES, STEPS)
def test_however_an_array_grows_and_shrinks_it_is_the_same_sequence(before: list[Json], steps: list[int]) -> None:
    """A few entries make a run here, so that runs are made, opened and dropped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries_module, "RUN", 3)
        entries, expected = Entries.of(before), list(before)
        for number, step in enumerate(steps):
            if step > 0:
                entries, expected = entries.with_last({"n": number}), [*expected, {"n": number}]
            else:
                entries, expected = entries.without_first(-step), expected[-step:]

            assert entries == expected
            assert len(entries) == len(expected)
            assert entries.tail(step + 3) == expected[max(0, len(expected) - step - 3) :]
            assert [json.loads(each) for each in entries.written()] == expected
            assert [entries[index] for index in range(-len(expected), len(expected))] == expected * 2
            assert entries.size_bytes == sum(len(each) + 1 for each in entries.written())
            for wrong in (len(expected), -len(expected) - 1):
                with pytest.raises(IndexError):
                    entries[wrong]


def test_appending_keeps_the_pieces_that_are_there() -> None:
    entries = Entries.of([{"n": number} for number in range(10 * RUN)])
    longer = entries
    for number in range(RUN + 1):
        longer = longer.with_last({"n": number})

    before, after = entries.pieces(), longer.pieces()
    assert len(before) == 10
    assert len(after) == 12
    assert all(one is other for one, other in zip(before[1:], after[1:], strict=False))


def test_nothing_is_no_entries() -> None:
    assert Entries.split(None) == Entries.split(msgspec.Raw(b"null")) == Entries.split(msgspec.Raw(b" [ ] ")) == ()


def test_changing_what_one_got_changes_no_entry() -> None:
    entries = Entries.of([{"a": {"b": 1}}])

    entries[0]["a"]["b"] = 2
    next(iter(entries))["a"] = None

    assert entries == [{"a": {"b": 1}}]


def test_snapshots_are_chosen_by_their_ids() -> None:
    snapshots = Snapshots.of(a_snapshot(number) for number in (3, 1, 2))

    assert snapshots.ids() == [3, 1, 2]
    assert snapshots.without({1, 7}).ids() == [3, 2]
    assert snapshots.without({7}) is snapshots
    assert snapshots.only({2, 3, 7}).ids() == [3, 2]
    assert snapshots.find(1) == snapshots[1]
    assert (snapshots.holds(2), snapshots.holds(7), snapshots.find(7)) == (True, False, None)


def test_a_file_written_by_others_keeps_every_field_of_its_snapshots() -> None:
    table = json.loads(table_metadata.encode(a_table(snapshots=2)))
    table["snapshots"][0]["of-another-writer"] = {"nested": [1, None, "é"]}

    read = table_metadata.decode(json.dumps(table, indent=2).encode())

    assert json.loads(table_metadata.encode(read)) == table


@pytest.mark.parametrize("name", ["snapshots", "snapshot-log", "metadata-log"])
def test_what_is_no_entry_is_refused_when_the_file_is_read(name: str) -> None:
    table = json.loads(table_metadata.encode(a_table(snapshots=2)))

    wrongs: list[Any] = [[1], [{}], {}, [*table[name], None]]
    for wrong in wrongs:
        with pytest.raises(InvalidMetadata, match="Cannot parse table metadata"):
            table_metadata.decode(json.dumps(table | {name: wrong}).encode())
