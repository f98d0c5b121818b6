"""The score: what each fault costs and which command it names, and what must be true of every score."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from nunatak.iceberg.identifiers import Identifier
from nunatak.iceberg.snapshot import Snapshots
from nunatak.maintenance.commands import Subject
from nunatak.maintenance.facts import Facts, RefFact, facts_of
from nunatak.maintenance.layout import Counter
from nunatak.maintenance.table_health import MOST, Check, health_of, points_lost
from nunatak.objectstore.live_files import LiveFile, ManifestFile
from tests.unit.iceberg import builders
from tests.unit.maintenance.builders import DAY_MS, HOUR_MS, MIB, NOW_MS, ORDERS, facts, snapshots
from tests.unit.maintenance.test_planning import ANY_FACTS

COMPACT, EXPIRE = "nunatak maintain compact sales.orders", "nunatak maintain expire sales.orders"
STATISTICS = "nunatak maintain statistics sales.orders"


def check(table: Facts, name: str, subject: Subject = ORDERS) -> Check:
    return next(each for each in health_of(table, subject, NOW_MS).checks if each.name == name)


RETAIN, ORPHANS = "nunatak maintain metadata sales.orders", "nunatak maintain orphans sales.orders"
DELETING = {"write.metadata.delete-after-commit.enabled": "true"}
STALE = tuple(RefFact(name, True, 1) for name in ("a", "b"))


@pytest.mark.parametrize(
    ("table", "name", "value", "points", "fix"),
    [
        (facts(data_files=2000, data_bytes=200 * MIB), "small-files", 100.0, 25, COMPACT),
        (facts(data_files=100, data_bytes=30 * 512 * MIB), "small-files", 60.0, 15, COMPACT),
        (facts(data_files=4, data_bytes=4), "small-files", 100.0, 0, None),
        (facts(data_files=100, data_bytes=100 * 512 * MIB), "small-files", 0.0, 0, None),
        (facts(data_files=2000, data_bytes=200 * MIB), "compaction-debt", 2000.0, 10, COMPACT),
        (facts(data_files=300, data_bytes=100 * 512 * MIB), "compaction-debt", 3.0, 0, None),
        (facts(data_files=10, delete_files=10), "delete-files", 100.0, 20, "nunatak maintain deletes sales.orders"),
        (facts(data_files=10, delete_files=10, equality_deletes=5), "delete-files", 100.0, 20, COMPACT),
        (facts(data_files=10, delete_files=10, format_version=3), "delete-files", 100.0, 20, COMPACT),
        (facts(data_files=1, delete_files=1), "delete-files", 100.0, 0, None),
        (facts(data_files=100, delete_files=10), "delete-files", 10.0, 0, None),
        (facts(manifests=500, data_files=500), "manifests", 500.0, 3, "nunatak maintain manifests sales.orders"),
        (facts(manifests=500, data_files=50_000), "manifests", 500.0, 0, None),
        (facts(line=100), "snapshots", 100.0, 0, None),
        (facts(line=101), "snapshots", 101.0, 1, EXPIRE),
        (facts(line=2000, every_ms=1), "snapshots", 2000.0, 10, EXPIRE),
        (facts(line=10, every_ms=100 * DAY_MS), "old-snapshots", 900.0, 5, EXPIRE),
        (facts(line=10, every_ms=DAY_MS), "old-snapshots", 0.0, 0, None),
        (facts(metadata_bytes=8 * MIB), "metadata-size", 8.0 * MIB, 0, None),
        (facts(metadata_bytes=64 * MIB, line=200), "metadata-size", 64.0 * MIB, 5, EXPIRE),
        (facts(metadata_bytes=9 * MIB), "metadata-size", 9.0 * MIB, 1, "nunatak maintain metadata sales.orders"),
        (facts(metadata_log=100), "metadata-files", 101.0, 0, None),
        (facts(metadata_log=100, metadata_files=1000), "metadata-files", 1000.0, 0, None),
        (facts(metadata_log=100, metadata_files=20_000), "metadata-files", 20_000.0, 5, RETAIN),
        (facts(metadata_log=2000), "metadata-files", 2001.0, 1, RETAIN),
        (facts(metadata_files=1001, properties=DELETING), "metadata-files", 1001.0, 1, ORPHANS),
        (
            facts(snapshots=snapshots(1, newest_ms=NOW_MS - 31 * DAY_MS), refs=(RefFact("main", True, 1), *STALE)),
            "stale-branches",
            2.0,
            2,
            "ALTER TABLE sales.orders DROP BRANCH `a`; ALTER TABLE sales.orders DROP BRANCH `b`",
        ),
        (facts(records=100), "statistics", 0.0, 0, None),
        (facts(records=10**6), "statistics", 200.0, 5, STATISTICS),
        (facts(records=10**6, line=5, statistics=frozenset({5})), "statistics", 0.0, 0, None),
        (facts(records=10**6, line=50, statistics=frozenset({10})), "statistics", 40.0, 1, STATISTICS),
    ],
)
def test_a_fault_costs_points_and_names_what_helps(
    table: Facts, name: str, value: float, points: int, fix: str | None
) -> None:
    found = check(table, name)

    assert (found.value, found.points) == (value, points)
    assert found.fix == fix
    assert found.reason


def test_metadata_is_too_large_from_8_mib_on() -> None:
    """MISSION 003-55."""
    assert check(facts(metadata_bytes=8 * MIB), "metadata-size").points == 0
    assert check(facts(metadata_bytes=8 * MIB + 1), "metadata-size").points == 1


def test_a_table_of_its_own_age_is_measured_by_it() -> None:
    young = facts(line=10, every_ms=DAY_MS, properties={"history.expire.max-snapshot-age-ms": str(DAY_MS)})

    found = check(young, "old-snapshots")

    assert found.limit == 1
    assert found.value == 9
    assert found.points == 4


@pytest.mark.parametrize("name", ["small-files", "compaction-debt", "delete-files", "manifests"])
def test_what_nobody_told_costs_nothing_and_says_how_to_find_out(name: str) -> None:
    found = check(facts(data_files=None, data_bytes=None, delete_files=None), name)

    assert found.value is None
    assert found.points == 0
    assert found.fix == "nunatak health --deep sales.orders"


def test_names_are_written_as_the_command_line_and_sql_read_them() -> None:
    odd = Subject("second", Identifier(("a.b", 'say "hi"'), "it's"), in_default_warehouse=False)
    crowded = facts(data_files=2000, data_bytes=200 * MIB)

    assert check(crowded, "small-files", odd).fix == (
        'nunatak maintain compact \'"a.b"."say ""hi""".it\'"\'"\'s\' --warehouse second'
    )
    assert odd.sql_name == '`a.b`.`say "hi"`.`it\'s`'


# Whatever the table


def test_the_checks_are_worth_a_hundred_points_together() -> None:
    assert sum(MOST.values()) == 100
    assert set(MOST) == {each.name for each in health_of(facts(), ORDERS, NOW_MS).checks}


@given(ANY_FACTS)
def test_the_score_is_what_the_checks_leave_of_a_hundred(table: Facts) -> None:
    health = health_of(table, ORDERS, NOW_MS)

    assert 0 <= health.score <= 100
    assert health.score == 100 - sum(each.points for each in health.checks)
    for each in health.checks:
        assert 0 <= each.points <= each.most == MOST[each.name]
        assert each.fix is not None or each.points == 0, each
        assert each.points == 0 or each.value is None or each.value > each.limit


@given(ANY_FACTS, st.sampled_from(["metadata_bytes", "delete_files", "data_files"]), st.integers(1, 10**6))
def test_more_of_what_is_bad_never_costs_less(table: Facts, field: str, more: int) -> None:
    before = getattr(table, field)
    if before is None or (field == "data_files" and table.data_bytes is None):
        return
    names = {"metadata_bytes": "metadata-size", "delete_files": "delete-files", "data_files": "small-files"}
    changed: dict[str, Any] = {field: before + more}
    worse = replace(table, **changed)

    assert check(worse, names[field]).points >= check(table, names[field]).points


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_points_grow_with_the_value(one: float, other: float) -> None:
    low, high = sorted((one, other))

    assert points_lost(low, 10, 1000, 20) <= points_lost(high, 10, 1000, 20)
    assert points_lost(low, 10, 1000, 20) == 0 or low > 10


@given(st.lists(st.integers(1, 2000 * MIB), max_size=30), st.integers(MIB, 1000 * MIB))
def test_the_estimate_of_small_files_is_never_more_than_there_are(sizes: list[int], target: int) -> None:
    table = facts(data_files=len(sizes), data_bytes=sum(sizes), target_bytes=target)

    assert table.small_files is not None
    assert table.small_files <= sum(size < table.small_bytes for size in sizes)


# Layout


def test_a_small_file_alone_in_its_partition_is_nobodys_fault() -> None:
    counter = Counter(target_bytes=100 * MIB, small_bytes=75 * MIB)
    counter.add([LiveFile(MIB, "day=1"), LiveFile(MIB, "day=2"), LiveFile(100 * MIB, "day=2")])

    layout = counter.layout([ManifestFile("m", 1, False, 3)])

    assert (layout.small_files, layout.files_saved, layout.partitions) == (0, 0, 2)
    assert layout.largest_partition == "day=2"


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 300 * MIB)), max_size=60))
def test_a_rewrite_never_saves_more_files_than_it_may(files: list[tuple[int, int]]) -> None:
    counter = Counter(target_bytes=100 * MIB, small_bytes=75 * MIB)
    counter.add(LiveFile(size, f"day={day}") for day, size in files)

    layout = counter.layout([ManifestFile("m", 1, False, len(files))])

    assert layout.is_whole
    assert layout.data_files == len(files) == sum(layout.histogram)
    assert layout.data_bytes == sum(size for _, size in files)
    left = len(files) - layout.files_saved
    assert left >= len({day for day, _ in files})
    assert left * 100 * MIB >= sum(size for _, size in files if size < 75 * MIB)


def test_delete_manifests_are_counted_by_the_list_alone() -> None:
    counter = Counter(target_bytes=100 * MIB, small_bytes=75 * MIB)
    counter.add([LiveFile(MIB, "")])

    layout = counter.layout([ManifestFile("m", 1, False, 1), ManifestFile("d", 1, True, 7)])

    assert (layout.manifests, layout.data_files, layout.delete_files, layout.is_whole) == (2, 1, 7, True)


# From metadata


def test_facts_are_read_from_the_current_snapshots_summary() -> None:
    told = {
        "operation": "append",
        "total-data-files": "12",
        "total-files-size": "34",
        "total-delete-files": "5",
        "total-records": "99",
        "total-equality-deletes": "2",
        "manifests-created": "1",
        "manifests-kept": "3",
        "changed-partition-count": "4",
    }
    snapshot = {**builders.a_snapshot(1), "summary": told}
    table = builders.a_table(spec=builders.a_spec(("id", "identity", 1)))
    table = structs.replace(
        table,
        snapshots=Snapshots.of([snapshot]),
        current_snapshot_id=1,
        refs={"main": {"type": "branch", "snapshot-id": 1}},
        properties={"write.target-file-size-bytes": "1000"},
    )

    found = facts_of(table, 77)

    assert (found.data_files, found.data_bytes, found.delete_files, found.records) == (12, 34, 5, 99)
    assert (found.equality_deletes, found.manifests, found.partitions_at_least) == (2, 4, 4)
    assert (found.target_bytes, found.metadata_bytes, found.partitioned) == (1000, 77, True)


@pytest.mark.parametrize("text", ["", "-1", "many", "1e9", "99999999999999999999"])
def test_a_total_that_is_no_number_is_as_good_as_none(text: str) -> None:
    snapshot = {**builders.a_snapshot(1), "summary": {"operation": "append", "total-data-files": text}}
    table = structs.replace(builders.a_table(), snapshots=Snapshots.of([snapshot]), current_snapshot_id=1)

    assert facts_of(table, 1).data_files is None


def test_ancestors_that_name_each_other_end() -> None:
    one, two = snapshots(2)
    table = facts(snapshots=(replace(one, parent_id=2), two))

    assert [each.snapshot_id for each in table.ancestors(2)] == [2, 1]
    assert table.commits_since(NOW_MS - HOUR_MS) == 1
