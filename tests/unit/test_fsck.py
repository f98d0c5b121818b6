"""The pure parts of fsck: whether lines of the commit log form one chain, and what metadata says against itself."""

import pytest
from msgspec.structs import replace

from nunatak.catalog.fsck import KINDS
from nunatak.catalog.fsck_repair import _REPAIRS
from nunatak.catalog.history import CommitHistory
from nunatak.catalog.sweep import is_superseded
from nunatak.database.records import InspectedPointer, LogLine
from nunatak.iceberg.entries import Entries
from nunatak.iceberg.java_readable import contradictions
from nunatak.iceberg.table_metadata import TableMetadata
from tests.unit.iceberg.builders import a_table


def history(*lines: tuple[str, str, str | None, str | None]) -> CommitHistory:
    """Of lines given as operation, name, previous and new location."""
    found = CommitHistory()
    for number, (operation, name, previous, new) in enumerate(lines, 1):
        found.add(LogLine(number, operation, "ns", name, new, previous))
    return found


def test_a_life_of_a_table_is_one_chain() -> None:
    found = history(
        ("create-table", "t", None, "1"),
        ("commit-table", "t", "1", "2"),
        ("rename-table", "u", "2", "2"),
        ("commit-table", "u", "2", "3"),
    )

    assert (found.gaps, found.ours) == ([], True)
    assert found.leads_to("ns", "u", "3")
    assert not found.leads_to("ns", "t", "2")


def test_a_table_that_comes_back_goes_on() -> None:
    found = history(
        ("create-table", "t", None, "1"),
        ("drop-table", "t", "1", None),
        ("register-table", "again", None, "1"),
        ("commit-table", "again", "1", "2"),
    )

    assert (found.gaps, found.ours) == ([], False)


def test_one_table_under_two_names_has_a_chain_for_each() -> None:
    found = history(
        ("create-table", "t", None, "1"),
        ("register-table", "twin", None, "1"),
        ("commit-table", "t", "1", "2"),
        ("commit-table", "twin", "1", "2b"),
        ("commit-table", "t", "2", "3"),
    )

    assert found.gaps == []
    assert found.leads_to("ns", "t", "3")
    assert found.leads_to("ns", "twin", "2b")


def test_a_move_by_another_client_is_no_gap_but_makes_the_history_not_ours() -> None:
    found = history(
        ("create-table", "t", None, "1"),
        ("external", "t", None, "2"),
        ("commit-table", "t", "2", "3"),
        ("external", "t", None, "2"),  # noted late, by a server that had looked before
        ("commit-table", "t", "3", "4"),
    )

    assert (found.gaps, found.ours) == ([], False)


def test_reading_the_same_file_again_leaves_the_history_ours() -> None:
    """As for metadata that is too large to be stored."""
    found = history(("create-table", "t", None, "1"), ("external", "t", None, "1"), ("commit-table", "t", "1", "2"))

    assert (found.gaps, found.ours) == ([], True)


@pytest.mark.parametrize(
    ("lines", "gap"),
    [
        ([("commit-table", "t", "2", "3")], "line 2 moves the pointer from 2, but the line before it set 1"),
        (
            [("commit-table", "t", "1", "2"), ("commit-table", "t", "1", "2")],
            "line 3 moves the pointer from 1, but the line before it set 2",
        ),
        ([("commit-table", "other", "1", "2")], "line 2 moves the pointer from 1, but the line before it set nothing"),
        ([("create-table", "t", None, "1b")], "line 2 creates the table a second time"),
    ],
    ids=["a line is missing", "a line is doubled", "another name", "created twice"],
)
def test_a_broken_chain_is_told(lines: list[tuple[str, str, str | None, str | None]], gap: str) -> None:
    assert history(("create-table", "t", None, "1"), *lines).gaps == [gap]


@pytest.mark.parametrize(
    ("file", "current", "passed"),
    [
        ("00002-x.metadata.json", "00003-y.metadata.json", True),
        ("00003-x.metadata.json", "00003-y.metadata.json", True),
        ("00004-x.metadata.json", "00003-y.metadata.json", False),
        ("00004-x.metadata.json", "00010-y.gz.metadata.json", True),
        ("00004-x.metadata.json", "without-a-number.json", False),
        ("without-a-number.json", "00003-y.metadata.json", False),
    ],
)
def test_a_file_is_passed_when_the_pointer_is_at_its_version(file: str, current: str, passed: bool) -> None:
    pointer = InspectedPointer(f"file:///w/t/metadata/{current}", None, "TABLE", None, namespace_marked=True)

    assert is_superseded(f"file:///w/t/metadata/{file}", pointer) == passed


def with_snapshot(metadata: TableMetadata, snapshot_id: int, sequence: int) -> TableMetadata:
    snapshot = {"snapshot-id": snapshot_id, "sequence-number": sequence, "timestamp-ms": 1}
    return replace(
        metadata,
        snapshots=metadata.snapshots.with_last(snapshot),
        current_snapshot_id=snapshot_id,
        snapshot_log=metadata.snapshot_log.with_last({"snapshot-id": snapshot_id, "timestamp-ms": 1}),
        last_sequence_number=sequence,
    )


def test_sound_metadata_has_no_contradictions() -> None:
    assert contradictions(with_snapshot(with_snapshot(a_table(), 7, 1), 8, 2)) == []


def test_contradictions_are_told_one_by_one() -> None:
    sound = with_snapshot(a_table(), 7, 5)

    assert contradictions(replace(sound, last_column_id=0)) == [
        f"last-column-id is 0, but a column has the id {sound.last_column_id}"
    ]
    assert contradictions(replace(sound, last_sequence_number=4)) == [
        "snapshot 7 has the sequence number 5, but last-sequence-number is 4"
    ]
    moved = replace(sound, snapshot_log=Entries.of([{"snapshot-id": 6, "timestamp-ms": 1}]))
    assert contradictions(moved) == ["the snapshot log ends with 6, but 7 is current"]


def test_every_kind_that_says_repair_has_one() -> None:
    assert {kind for kind, (_, hint) in KINDS.items() if "--repair" in hint} == set(_REPAIRS)
