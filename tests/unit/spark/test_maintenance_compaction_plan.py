"""What a compaction takes and in which pieces, without Spark."""

from typing import Any

import pytest

from nunatak_spark.maintenance import compaction_plan as planning
from nunatak_spark.maintenance.compaction_plan import CompactionFile, FileSizes, Partition
from nunatak_spark.maintenance.partition_filters import columns_by_id, partition_condition, partition_values_sql

MIB = 1 << 20
SIZES = FileSizes(target=100 * MIB, min_input_files=5)
COLUMNS = columns_by_id(
    [
        {"id": 1, "name": "day", "type": "date"},
        {"id": 2, "name": "at", "type": "timestamptz"},
        {"id": 3, "name": "clock", "type": "timestamp"},
        {"id": 4, "name": "region", "type": "string"},
        {"id": 5, "name": "who", "type": {"type": "struct", "fields": [{"id": 6, "name": "id", "type": "long"}]}},
        {"id": 7, "name": "rate", "type": "double"},
        {"id": 8, "name": "price", "type": "decimal(10, 2)"},
        {"id": 9, "name": "hash", "type": "fixed[2]"},
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
    assert partition.needs_rewrite(SIZES) is worth_it


def test_deletes_count_only_if_they_are_why() -> None:
    partition = Partition(None, files=0, size_bytes=0, delete_files=1)

    assert partition.needs_rewrite(FileSizes(target=MIB, rewrite_for_deletes=True))
    assert not partition.needs_rewrite(FileSizes(target=MIB))


def test_one_file_is_enough_nowhere_however_few_the_policy_asks_for() -> None:
    assert not Partition(None, files=1, size_bytes=1).needs_rewrite(FileSizes(target=MIB, min_input_files=1))


def test_files_are_counted_by_partition_if_they_are_too_small_or_too_large() -> None:
    files = [
        CompactionFile(None, True, 1, 3),
        CompactionFile(None, True, 100 * MIB, 9),
        CompactionFile(None, True, 181 * MIB, 4),
        CompactionFile(None, False, 5, 2),
    ]

    assert planning.group_by_partition(files, SIZES) == [
        Partition(None, 2, 181 * MIB + 1, delete_files=1, last_changed=9)
    ]
    assert planning.group_by_partition([], SIZES) == []


def test_what_nobody_wrote_to_for_longest_comes_first() -> None:
    hot, cold, done = (
        Partition(("1",), files=9, size_bytes=9, last_changed=8),
        Partition(("2",), files=9, size_bytes=99, last_changed=3),
        Partition(("3",), files=1, size_bytes=1, last_changed=1),
    )

    assert planning.select_partitions([hot, cold, done], SIZES) == [cold, hot]


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

FUNCTIONS = "`lake`.`system`"


def partitions(count: int) -> list[Partition]:
    return [Partition((f"r{number}",), files=9, size_bytes=9) for number in range(count)]


def pieces(todo: list[Partition], attempt: int, layout: dict[str, Any]) -> list[str | None]:
    return planning.rewrite_conditions(todo, attempt, layout, COLUMNS, FUNCTIONS)


def test_later_attempts_go_partition_by_partition_the_coldest_first() -> None:
    by_region = spec(region=(4, "identity"))

    assert pieces(partitions(8), 1, by_region) == [None]
    second = pieces(partitions(8), 2, by_region)
    assert second[0] == "(`region` = 'r0') OR (`region` = 'r1')"
    assert len(second) == 4
    assert pieces(partitions(8), 3, by_region)[:2] == ["(`region` = 'r0')", "(`region` = 'r1')"]


def test_partitions_that_sql_cannot_tell_apart_come_last_and_together() -> None:
    earlier_layout = [*partitions(2), Partition(None, files=9, size_bytes=9)]

    assert pieces(earlier_layout, 3, spec(region=(4, "identity"))) == ["(`region` = 'r0')", "(`region` = 'r1')", None]
    assert pieces([Partition((), 9, 9)], 3, spec()) == [None]
    assert pieces(partitions(2), 3, spec(region=(99, "identity"))) == [None]


@pytest.mark.parametrize(
    ("field", "text", "condition"),
    [
        ((4, "identity"), "it's", r"(`region` = 'it\'s')"),
        ((4, "identity"), None, "(`region` IS NULL)"),
        ((1, "identity"), "-1", "(`day` = date_from_unix_date(-1))"),
        ((6, "identity"), "7", "(`who`.`id` = CAST('7' AS BIGINT))"),
        ((8, "identity"), "1.50", "(`price` = CAST('1.50' AS decimal(10, 2)))"),
        ((7, "identity"), "NaN", "(`rate` = CAST('NaN' AS DOUBLE))"),
        ((9, "identity"), "00FF", "(`hash` = X'00FF')"),
        ((2, "identity"), "-1", "(`at` = timestamp_micros(-1))"),
        (
            (1, "month"),
            str(12 * 56 + 11),
            "(`day` >= date_from_unix_date(20788) AND `day` < date_from_unix_date(20819))",
        ),
        ((1, "years"), "-1", "(`day` >= date_from_unix_date(-365) AND `day` < date_from_unix_date(0))"),
        ((2, "day"), "1", "(`at` >= timestamp_micros(86400000000) AND `at` < timestamp_micros(172800000000))"),
        (
            (3, "hour"),
            "-1",
            "(`clock` >= TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(-1, 23) AND "
            "`clock` < TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0))",
        ),
        ((4, "truncate[2]"), "ab", "(`lake`.`system`.truncate(2, `region`) = 'ab')"),
        ((4, "bucket[8]"), "3", "(`lake`.`system`.bucket(8, `region`) = CAST('3' AS INT))"),
        ((4, "void"), None, None),
        ((99, "identity"), "1", None),
        ((4, "of a later version"), "1", None),
    ],
)
def test_a_partition_as_a_condition_on_columns(field: tuple[int, str], text: str | None, condition: str | None) -> None:
    assert partition_condition((text,), spec(f=field), COLUMNS, FUNCTIONS) == condition


def test_the_text_of_a_value_does_not_depend_on_the_session() -> None:
    layout = spec(a=(2, "identity"), b=(1, "day"), c=(9, "identity"), d=(99, "identity"))

    assert partition_values_sql(layout, COLUMNS, "p") == (
        "array(CAST(unix_micros(p.`a`) AS STRING), CAST(unix_date(p.`b`) AS STRING), hex(p.`c`), CAST(p.`d` AS STRING))"
    )
    assert partition_values_sql(spec(), COLUMNS, "p") == "CAST(array() AS ARRAY<STRING>)"


# Beside writers that update everything


def test_a_piece_shrinks_to_two_files_and_grows_slowly() -> None:
    sizes = [100]
    while sizes[-1] > planning.MIN_PIECE_FILES:
        sizes.append(planning.next_piece_size(sizes[-1], got_through=False))

    assert sizes == [100, 50, 25, 12, 6, 3, 2]
    assert planning.next_piece_size(2, got_through=False) == 2
    assert [planning.next_piece_size(each, got_through=True) for each in (2, 3, 50, 100)] == [3, 4, 63, 100]


def test_a_piece_is_the_smallest_files_and_no_other() -> None:
    options = planning.piece_options(SIZES, [1, 2, 9], has_deletes=True)

    assert (options["min-file-size-bytes"], options["max-files-to-rewrite"], options["min-input-files"]) == (10, 3, 2)
    assert options["remove-dangling-deletes"] == "true"
    assert planning.piece_options(SIZES, [1, 99 * MIB], has_deletes=False)["min-file-size-bytes"] == SIZES.small


def test_further_attempts_are_of_use_only_where_they_take_less_at_a_time() -> None:
    assert not planning.can_shrink([Partition(None, files=9, size_bytes=9)], SIZES)
    assert planning.can_shrink([Partition(None, files=9, size_bytes=201 * MIB)], SIZES)
    assert planning.can_shrink(partitions(2), SIZES)
