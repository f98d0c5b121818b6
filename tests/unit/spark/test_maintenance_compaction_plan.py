"""What a compaction takes and in which pieces, without Spark."""

import datetime
from decimal import Decimal
from typing import Any

import pytest

from nunatak_spark.maintenance import compaction_plan as planning
from nunatak_spark.maintenance.compaction_plan import File, Partition, Sizes

MIB = 1 << 20
SIZES = Sizes(target=100 * MIB, min_input_files=5)
COLUMNS = planning.named_columns(
    [
        {"id": 1, "name": "day", "type": "date"},
        {"id": 2, "name": "at", "type": "timestamptz"},
        {"id": 3, "name": "clock", "type": "timestamp"},
        {"id": 4, "name": "region", "type": "string"},
        {"id": 5, "name": "who", "type": {"type": "struct", "fields": [{"id": 6, "name": "id", "type": "long"}]}},
    ]
)


def spec(**fields: tuple[int, str]) -> dict[str, Any]:
    return {
        "fields": [
            {"name": name, "source-id": source, "transform": transform} for name, (source, transform) in fields.items()
        ]
    }


@pytest.mark.parametrize(
    ("partition", "worth_it"),
    [
        (Partition(None, files=5, size_bytes=5), True),
        (Partition(None, files=4, size_bytes=4), False),
        (Partition(None, files=2, size_bytes=101 * MIB), True),
        (Partition(None, files=1, size_bytes=101 * MIB), False),
        (Partition(None, files=1, size_bytes=181 * MIB), True),
        (Partition(None, files=0, size_bytes=0), False),
        (Partition(None, files=0, size_bytes=0, delete_files=1), False),
    ],
)
def test_a_partition_is_taken_where_iceberg_would_take_files_of_it(partition: Partition, worth_it: bool) -> None:
    assert partition.is_worth_it(SIZES) is worth_it


def test_deletes_count_only_if_they_are_why() -> None:
    partition = Partition(None, files=0, size_bytes=0, delete_files=1)

    assert partition.is_worth_it(Sizes(target=MIB, deletes_count=True))
    assert not partition.is_worth_it(Sizes(target=MIB))


def test_one_file_is_enough_nowhere_however_few_the_policy_asks_for() -> None:
    assert not Partition(None, files=1, size_bytes=1).is_worth_it(Sizes(target=MIB, min_input_files=1))


def test_files_are_counted_by_partition_if_they_are_too_small_or_too_large() -> None:
    files = [
        File(None, True, 1, 3),
        File(None, True, 100 * MIB, 9),
        File(None, True, 181 * MIB, 4),
        File(None, False, 5, 2),
    ]

    assert planning.grouped(files, SIZES) == [Partition(None, 2, 181 * MIB + 1, delete_files=1, last_changed=9)]
    assert planning.grouped([], SIZES) == []


def test_what_nobody_wrote_to_for_longest_comes_first() -> None:
    hot, cold, done = (
        Partition({"part": 1}, files=9, size_bytes=9, last_changed=8),
        Partition({"part": 2}, files=9, size_bytes=99, last_changed=3),
        Partition({"part": 3}, files=1, size_bytes=1, last_changed=1),
    )

    assert planning.worth_it([hot, cold, done], SIZES) == [cold, hot]


@pytest.mark.parametrize(("budget", "files"), [(0, 0), (9, 0), (10, 1), (17, 1), (18, 2), (23, 3), (100, 3)])
def test_a_budget_holds_whichever_files_are_chosen(budget: int, files: int) -> None:
    assert planning.files_within([10, 8, 5], budget) == files


# Options


def wanted(todo: list[Partition], attempt: int = 1, **more: Any) -> dict[str, object]:
    given = {"has_deletes": False, "has_equality_deletes": False, **more}
    return planning.rewrite_options(SIZES, todo, attempt, **given)


def test_little_is_committed_at_once_and_much_in_parts() -> None:
    little = wanted([Partition(None, files=9, size_bytes=MIB)])
    much = wanted([Partition(None, files=9, size_bytes=9 << 30)])

    assert planning.PARTIAL not in little
    assert (much[planning.PARTIAL], much["partial-progress.max-commits"]) == ("true", 3)


def test_each_attempt_takes_smaller_groups_and_more_commits() -> None:
    todo = [Partition(None, files=9, size_bytes=3200 * MIB)]
    tried = [wanted(todo, attempt) for attempt in (1, 2, 3, 4, 5)]

    assert [each["max-file-group-size-bytes"] for each in tried] == [
        3200 * MIB,
        1600 * MIB,
        800 * MIB,
        400 * MIB,
        200 * MIB,
    ]
    assert [each.get("partial-progress.max-commits") for each in tried] == [None, 10, 20, 40, 80]


def test_equality_deletes_are_held_in_memory_by_one_small_group_at_a_time() -> None:
    options = wanted([Partition(None, files=9, size_bytes=50 << 30)], has_deletes=True, has_equality_deletes=True)

    assert options["max-file-group-size-bytes"] == planning.EQUALITY_GROUP_BYTES
    assert options["max-concurrent-file-group-rewrites"] == 1
    assert options["remove-dangling-deletes"] == "true"


def test_no_group_is_larger_than_what_the_budget_leaves() -> None:
    options = wanted([Partition(None, files=9, size_bytes=9 << 30)], max_files=3, max_bytes=5 * MIB)

    assert (options["max-files-to-rewrite"], options["max-file-group-size-bytes"]) == (3, 5 * MIB)


# Pieces


def partitions(count: int) -> list[Partition]:
    return [Partition({"region": f"r{number}"}, files=9, size_bytes=9) for number in range(count)]


def test_later_attempts_go_partition_by_partition_the_coldest_first() -> None:
    by_region = spec(region=(4, "identity"))

    assert planning.pieces(partitions(8), 1, by_region, COLUMNS) == [None]
    second = planning.pieces(partitions(8), 2, by_region, COLUMNS)
    assert second[0] == "(`region` = 'r0') OR (`region` = 'r1')"
    assert len(second) == 4
    assert planning.pieces(partitions(8), 3, by_region, COLUMNS)[:2] == ["(`region` = 'r0')", "(`region` = 'r1')"]


def test_partitions_that_sql_cannot_tell_apart_are_rewritten_together() -> None:
    earlier_layout = [*partitions(2), Partition(None, files=9, size_bytes=9)]

    assert planning.pieces(earlier_layout, 3, spec(region=(4, "identity")), COLUMNS) == [None]
    assert planning.pieces(partitions(2), 3, spec(region=(4, "bucket[8]")), COLUMNS) == [None]
    assert planning.pieces(partitions(2), 3, spec(), COLUMNS) == [None]


@pytest.mark.parametrize(
    ("field", "value", "condition"),
    [
        ((4, "identity"), "it's", r"(`region` = 'it\'s')"),
        ((4, "identity"), None, "(`region` IS NULL)"),
        ((1, "identity"), datetime.date(2026, 2, 28), "(`day` = DATE '2026-02-28')"),
        ((6, "identity"), 7, "(`who`.`id` = 7)"),
        ((6, "identity"), Decimal("1.50"), "(`who`.`id` = 1.50BD)"),
        ((6, "identity"), True, "(`who`.`id` = true)"),
        ((6, "identity"), 1.5, None),
        ((1, "month"), 12 * 56 + 11, "(`day` >= DATE '2026-12-01' AND `day` < DATE '2027-01-01')"),
        ((1, "year"), -1, "(`day` >= DATE '1969-01-01' AND `day` < DATE '1970-01-01')"),
        (
            (2, "day"),
            datetime.date(2026, 2, 28),
            "(`at` >= TIMESTAMP '2026-02-28 00:00:00Z' AND `at` < TIMESTAMP '2026-03-01 00:00:00Z')",
        ),
        (
            (3, "hour"),
            25,
            "(`clock` >= TIMESTAMP_NTZ '1970-01-02 01:00:00' AND `clock` < TIMESTAMP_NTZ '1970-01-02 02:00:00')",
        ),
        ((4, "truncate[2]"), "ab", None),
        ((4, "void"), None, None),
        ((99, "identity"), 1, None),
    ],
)
def test_a_partition_as_a_condition_on_columns(field: tuple[int, str], value: Any, condition: str | None) -> None:
    assert planning.where({"f": value}, spec(f=field), COLUMNS) == condition
