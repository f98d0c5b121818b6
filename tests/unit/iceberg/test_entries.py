"""Long arrays that stay as they are written: a sequence of dicts to whoever looks, bytes to whoever writes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import InvalidMetadata
from nunatak.iceberg import table_metadata
from nunatak.iceberg.entries import Entries
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

    assert (longer, entries) == (before + added, before)
    assert all(one is other for one, other in zip(entries.written, longer.written, strict=False))
    assert longer.size_bytes == Entries.of(before + added).size_bytes


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

    for wrong in ([1], [{}], {}, [*table[name], None]):
        with pytest.raises(InvalidMetadata, match="Cannot parse table metadata"):
            table_metadata.decode(json.dumps(table | {name: wrong}).encode())
