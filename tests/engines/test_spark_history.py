"""Spark looks back and branches off: snapshots, tags, branches, time travel and the metadata tables."""

import pytest

from tests.support.spark import Sql

pytestmark = pytest.mark.spark


def append(sql: Sql, value: int) -> int:
    """Append one row; returns the snapshot that is current afterwards."""
    sql(f"INSERT INTO log VALUES ({value})")
    return int(sql.value("SELECT snapshot_id FROM here.log.refs WHERE name = 'main'"))


def values(sql: Sql, source: str) -> list[int]:
    return [row.n for row in sql(f"SELECT n FROM {source} ORDER BY n")]


@pytest.fixture
def log(sql: Sql) -> list[int]:
    """A table `log` with one row per snapshot, 1 to 3; the snapshots' ids, oldest first."""
    sql("CREATE TABLE log (n INT) USING iceberg")
    return [append(sql, value) for value in (1, 2, 3)]


def test_every_version_is_read_by_its_snapshot_id(sql: Sql, log: list[int]) -> None:
    assert [values(sql, f"log VERSION AS OF {snapshot}") for snapshot in log] == [[1], [1, 2], [1, 2, 3]]


def test_every_version_is_read_by_the_time_it_was_current(sql: Sql, log: list[int]) -> None:
    times = [
        row.made_current_at for row in sql("SELECT made_current_at FROM here.log.history ORDER BY made_current_at")
    ]

    assert [values(sql, f"log TIMESTAMP AS OF '{at.isoformat(' ')}'") for at in times] == [[1], [1, 2], [1, 2, 3]]
    with pytest.raises(Exception, match="Cannot find a snapshot older than"):
        sql("SELECT * FROM log TIMESTAMP AS OF '2001-01-01'")


def test_a_version_is_read_with_the_columns_it_had(sql: Sql, log: list[int]) -> None:
    sql("ALTER TABLE log ADD COLUMN note STRING")
    sql("INSERT INTO log VALUES (4, 'new')")

    assert sql(f"SELECT * FROM log VERSION AS OF {log[0]}") == [(1,)]
    assert sql("SELECT * FROM log WHERE n = 4") == [(4, "new")]


def test_a_tag_stays_where_it_was_put_until_it_is_moved_or_dropped(sql: Sql, log: list[int]) -> None:
    sql(f"ALTER TABLE log CREATE TAG `year-end` AS OF VERSION {log[1]} RETAIN 365 DAYS")
    append(sql, 4)
    assert values(sql, "log VERSION AS OF 'year-end'") == [1, 2]
    assert sql("SELECT type, snapshot_id, max_reference_age_in_ms FROM here.log.refs WHERE name = 'year-end'") == [
        ("TAG", log[1], 365 * 24 * 3600 * 1000)
    ]

    sql(f"ALTER TABLE log REPLACE TAG `year-end` AS OF VERSION {log[2]}")
    assert values(sql, "log VERSION AS OF 'year-end'") == [1, 2, 3]

    sql("ALTER TABLE log DROP TAG `year-end`")
    assert [row.name for row in sql("SELECT name FROM here.log.refs")] == ["main"]


def test_a_branch_is_written_alone_and_fast_forwarded_into_main(sql: Sql, log: list[int]) -> None:
    sql("ALTER TABLE log CREATE BRANCH audit")
    sql("INSERT INTO here.log.branch_audit VALUES (10)")
    sql("UPDATE here.log.branch_audit SET n = 20 WHERE n = 2")

    assert values(sql, "log") == [1, 2, 3]
    assert values(sql, "here.log.branch_audit") == values(sql, "log VERSION AS OF 'audit'") == [1, 3, 10, 20]

    moved = sql.call("fast_forward", "table => 'log', branch => 'main', to => 'audit'")

    assert moved.previous_ref == log[2]
    assert values(sql, "log") == [1, 3, 10, 20]


def test_a_branch_that_left_main_cannot_be_fast_forwarded(sql: Sql, log: list[int]) -> None:
    sql("ALTER TABLE log CREATE BRANCH audit")
    sql("INSERT INTO here.log.branch_audit VALUES (10)")
    sql("INSERT INTO log VALUES (4)")

    with pytest.raises(Exception, match="Cannot fast-forward"):
        sql.call("fast_forward", "table => 'log', branch => 'main', to => 'audit'")

    assert values(sql, "log") == [1, 2, 3, 4]
    assert values(sql, "here.log.branch_audit") == [1, 2, 3, 10]


def test_a_branch_may_start_in_the_past_and_be_replaced_and_dropped(sql: Sql, log: list[int]) -> None:
    sql(f"ALTER TABLE log CREATE BRANCH old AS OF VERSION {log[0]} RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    assert values(sql, "here.log.branch_old") == [1]
    assert sql("SELECT min_snapshots_to_keep FROM here.log.refs WHERE name = 'old'") == [(2,)]

    sql(f"ALTER TABLE log CREATE OR REPLACE BRANCH old AS OF VERSION {log[1]}")
    assert values(sql, "here.log.branch_old") == [1, 2]

    sql("ALTER TABLE log DROP BRANCH old")
    sql("ALTER TABLE log DROP BRANCH IF EXISTS old")
    with pytest.raises(Exception, match="old"):
        sql("SELECT * FROM log VERSION AS OF 'old'")


def test_the_first_write_of_an_empty_table_may_go_to_a_branch(sql: Sql) -> None:
    sql("CREATE TABLE log (n INT) USING iceberg")
    sql("ALTER TABLE log CREATE BRANCH staging")

    sql("INSERT INTO here.log.branch_staging VALUES (1)")

    assert values(sql, "log") == []
    assert values(sql, "here.log.branch_staging") == [1]


def test_write_audit_publish_shows_the_rows_only_after_publishing(sql: Sql, log: list[int]) -> None:
    sql("ALTER TABLE log SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    sql.spark.conf.set("spark.wap.id", "audit-1")
    try:
        sql("INSERT INTO log VALUES (4)")
    finally:
        sql.spark.conf.unset("spark.wap.id")
    assert values(sql, "log") == [1, 2, 3]

    sql.call("publish_changes", "table => 'log', wap_id => 'audit-1'")

    assert values(sql, "log") == [1, 2, 3, 4]


def test_rollback_goes_back_and_set_current_snapshot_goes_forward_again(sql: Sql, log: list[int]) -> None:
    answer = sql.call("rollback_to_snapshot", f"table => 'log', snapshot_id => {log[0]}")
    assert (answer.previous_snapshot_id, answer.current_snapshot_id) == (log[2], log[0])
    assert values(sql, "log") == [1]

    sql.call("set_current_snapshot", f"table => 'log', snapshot_id => {log[2]}")
    assert values(sql, "log") == [1, 2, 3]

    assert [row.is_current_ancestor for row in sql("SELECT * FROM here.log.history ORDER BY made_current_at")] == [
        True
    ] * 5


def test_rollback_to_a_time_takes_the_snapshot_of_that_time(sql: Sql, log: list[int]) -> None:
    third = sql.value(f"SELECT CAST(committed_at AS STRING) FROM here.log.snapshots WHERE snapshot_id = {log[2]}")

    sql.call("rollback_to_timestamp", f"table => 'log', timestamp => TIMESTAMP '{third}'")

    assert values(sql, "log") == [1, 2]


def test_a_cherry_picked_snapshot_brings_its_rows_along(sql: Sql, log: list[int]) -> None:
    sql(f"ALTER TABLE log CREATE BRANCH side AS OF VERSION {log[0]}")
    sql("INSERT INTO here.log.branch_side VALUES (10)")
    picked = sql.value("SELECT snapshot_id FROM here.log.refs WHERE name = 'side'")

    sql.call("cherrypick_snapshot", f"table => 'log', snapshot_id => {picked}")

    assert values(sql, "log") == [1, 2, 3, 10]


def test_the_metadata_tables_tell_the_tables_story(sql: Sql, log: list[int]) -> None:
    sql("DELETE FROM log WHERE n = 2")

    snapshots = sql("SELECT snapshot_id, parent_id, operation, summary FROM here.log.snapshots ORDER BY committed_at")
    assert [row.operation for row in snapshots] == ["append", "append", "append", "delete"]
    assert [row.parent_id for row in snapshots] == [None, *log]
    assert [row.summary["total-records"] for row in snapshots] == ["1", "2", "3", "2"]
    assert [row.snapshot_id for row in sql("SELECT * FROM here.log.history ORDER BY made_current_at")] == [
        row.snapshot_id for row in snapshots
    ]
    assert sql("SELECT count(*), sum(record_count) FROM here.log.files") == [(2, 2)]
    assert sql("SELECT count(*) FROM here.log.all_data_files WHERE record_count = 1")[0][0] >= 3
    assert sql("SELECT status, count(*) FROM here.log.entries GROUP BY status ORDER BY status")[-1] == (2, 1)
    assert sql.value("SELECT sum(existing_data_files_count + added_data_files_count) FROM here.log.manifests") == 2
    assert sql("SELECT name, type, snapshot_id FROM here.log.refs") == [("main", "BRANCH", snapshots[-1].snapshot_id)]
    assert sql("SELECT record_count, file_count FROM here.log.partitions") == [(2, 2)]
    assert sql.value("SELECT count(*) FROM here.log.metadata_log_entries") == 5


def test_an_incremental_read_gives_only_what_was_appended_in_between(sql: Sql, log: list[int]) -> None:
    read = sql.spark.read.format("iceberg").option("start-snapshot-id", log[0]).option("end-snapshot-id", log[2])

    assert sorted(row.n for row in read.load(f"lake.{sql.namespace}.log").collect()) == [2, 3]
