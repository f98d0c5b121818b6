"""Spark changes rows: every statement, both ways of deleting, format versions 2 and 3, and two writers at once."""

from pathlib import Path

import pytest

from tests.support.spark import Sql, run_together

pytestmark = pytest.mark.spark

EVERY_WAY = [(2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read")]


def create_accounts(sql: Sql, format_version: int = 2, mode: str = "copy-on-write") -> None:
    """Ten accounts with a balance of 100 each, in one file."""
    sql(f"""
        CREATE TABLE accounts (id BIGINT, owner STRING, balance INT) USING iceberg TBLPROPERTIES (
          'format-version' = '{format_version}', 'write.delete.mode' = '{mode}',
          'write.update.mode' = '{mode}', 'write.merge.mode' = '{mode}')
    """)
    sql("INSERT INTO accounts SELECT /*+ COALESCE(1) */ id, concat('owner', id), 100 FROM range(10)")


def test_inserted_rows_are_read_back_with_every_type(sql: Sql) -> None:
    sql("""
        CREATE TABLE everything (flag BOOLEAN, small INT, big BIGINT, half FLOAT, full DOUBLE, money DECIMAL(20, 4),
          day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, text STRING, raw BINARY,
          list ARRAY<INT>, pairs MAP<STRING, INT>, nested STRUCT<a: INT, b: STRUCT<c: STRING>>) USING iceberg
    """)
    row = """
        true, 1, 9000000000, CAST(1.5 AS FLOAT), 2.25D, 12345.6789, DATE '2026-03-01', TIMESTAMP '2026-03-01 12:00:00',
        TIMESTAMP_NTZ '2026-03-01 12:00:00', 'snow ❄', X'00FF', array(1, NULL, 3), map('k', 1),
        named_struct('a', 1, 'b', named_struct('c', 'deep'))
    """
    sql(f"INSERT INTO everything VALUES ({row}), ({', '.join(['NULL'] * 14)})")

    columns = ", ".join(sql.spark.table("everything").columns)
    expected = sql.value(f"SELECT to_json(struct(*)) FROM (VALUES ({row})) AS v ({columns})")
    assert sql("SELECT to_json(struct(*)) FROM everything WHERE flag") == [(expected,)]
    assert sql("SELECT count(*), count(flag), count(nested), count(raw) FROM everything") == [(2, 1, 1, 1)]


def test_insert_overwrite_replaces_only_the_partitions_it_writes(sql: Sql) -> None:
    sql("CREATE TABLE sales (day DATE, amount INT) USING iceberg PARTITIONED BY (day)")
    sql("INSERT INTO sales VALUES (DATE '2026-01-01', 1), (DATE '2026-01-02', 2)")

    sql.spark.table("sales").where("day = DATE '2026-01-02'").selectExpr("day", "amount * 10 AS amount").writeTo(
        "sales"
    ).overwritePartitions()
    assert sql("SELECT amount FROM sales ORDER BY day") == [(1,), (20,)]

    sql("INSERT OVERWRITE sales VALUES (DATE '2026-01-03', 3)")
    assert sql("SELECT amount FROM sales") == [(3,)]


@pytest.mark.parametrize(("format_version", "mode"), EVERY_WAY)
def test_delete_removes_exactly_the_rows_it_names(sql: Sql, format_version: int, mode: str) -> None:
    create_accounts(sql, format_version, mode)

    sql("DELETE FROM accounts WHERE id % 3 = 0")

    assert sql("SELECT id FROM accounts ORDER BY id") == [(1,), (2,), (4,), (5,), (7,), (8,)]
    delete_files = sql("SELECT content, file_format FROM here.accounts.delete_files")
    assert (
        delete_files
        == {"copy-on-write": [], "merge-on-read": [(1, "PUFFIN" if format_version == 3 else "PARQUET")]}[mode]
    )


@pytest.mark.parametrize(("format_version", "mode"), EVERY_WAY)
def test_update_changes_exactly_the_rows_it_names(sql: Sql, format_version: int, mode: str) -> None:
    create_accounts(sql, format_version, mode)

    sql("UPDATE accounts SET balance = balance + id, owner = upper(owner) WHERE id >= 8")

    assert sql("SELECT * FROM accounts WHERE balance <> 100 ORDER BY id") == [(8, "OWNER8", 108), (9, "OWNER9", 109)]
    assert sql("SELECT count(*), sum(balance) FROM accounts") == [(10, 1017)]


@pytest.mark.parametrize(("format_version", "mode"), EVERY_WAY)
def test_merge_updates_deletes_and_inserts_in_one_commit(sql: Sql, format_version: int, mode: str) -> None:
    create_accounts(sql, format_version, mode)
    commits_before = sql.value("SELECT count(*) FROM here.accounts.snapshots")

    sql("""
        MERGE INTO accounts AS t USING (SELECT id, id * 2 AS amount FROM range(8, 12)) AS s ON t.id = s.id
        WHEN MATCHED AND s.id = 8 THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.balance = t.balance - s.amount
        WHEN NOT MATCHED THEN INSERT (id, owner, balance) VALUES (s.id, 'new', s.amount)
        WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET t.owner = 'unmatched'
    """)

    assert sql("SELECT * FROM accounts WHERE id IN (0, 8, 9, 10, 11) ORDER BY id") == [
        (0, "unmatched", 100),
        (9, "owner9", 82),
        (10, "new", 20),
        (11, "new", 22),
    ]
    assert sql.value("SELECT count(*) FROM accounts") == 11
    assert sql.value("SELECT count(*) FROM here.accounts.snapshots") == commits_before + 1


def test_a_table_created_from_a_query_has_its_rows_partitions_and_properties(sql: Sql) -> None:
    sql("""
        CREATE TABLE squares USING iceberg PARTITIONED BY (even) TBLPROPERTIES ('made-by' = 'ctas')
        AS SELECT id, id * id AS square, id % 2 = 0 AS even FROM range(6)
    """)

    assert sql("SELECT square FROM squares WHERE even ORDER BY id") == [(0,), (4,), (16,)]
    assert sql.value("SELECT count(DISTINCT partition) FROM here.squares.files") == 2
    assert sql.pairs("SHOW TBLPROPERTIES squares")["made-by"] == "ctas"


def test_a_create_from_a_failing_query_leaves_no_table(sql: Sql) -> None:
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        sql("CREATE TABLE broken USING iceberg AS SELECT 1 / (id - 3) AS x FROM range(6)")

    assert sql("SHOW TABLES") == []


def test_a_replaced_table_has_new_columns_and_keeps_its_history(sql: Sql) -> None:
    sql("CREATE TABLE report USING iceberg TBLPROPERTIES ('kept' = 'yes') AS SELECT 1 AS old_column")
    uuid = sql.pairs("SHOW TBLPROPERTIES report").get("uuid")
    first = sql.value("SELECT snapshot_id FROM here.report.snapshots")

    sql("REPLACE TABLE report USING iceberg AS SELECT 'x' AS new_column, 2 AS number")

    assert sql("SELECT * FROM report") == [("x", 2)]
    assert sql(f"SELECT * FROM report VERSION AS OF {first}") == [(1,)]
    assert sql.pairs("SHOW TBLPROPERTIES report").get("uuid") == uuid
    assert sql.pairs("SHOW TBLPROPERTIES report")["kept"] == "yes"


def test_create_or_replace_creates_first_and_replaces_then(sql: Sql) -> None:
    sql("CREATE OR REPLACE TABLE report USING iceberg AS SELECT 1 AS a")
    sql("CREATE OR REPLACE TABLE report USING iceberg PARTITIONED BY (b) AS SELECT 2 AS a, 3 AS b")
    sql("CREATE OR REPLACE TABLE report (c STRING) USING iceberg")
    sql("INSERT INTO report VALUES ('third')")

    assert sql("SELECT * FROM report") == [("third",)]
    assert sql.value("SELECT count(*) FROM here.report.snapshots") == 3


def test_replacing_a_table_that_is_not_there_is_refused(sql: Sql) -> None:
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("REPLACE TABLE report USING iceberg AS SELECT 1 AS a")

    assert sql("SHOW TABLES") == []


def test_truncate_empties_a_table_and_keeps_what_it_was(sql: Sql) -> None:
    create_accounts(sql)
    full = sql.value("SELECT snapshot_id FROM here.accounts.refs WHERE name = 'main'")

    sql("TRUNCATE TABLE accounts")

    assert sql.value("SELECT count(*) FROM accounts") == 0
    assert sql.value(f"SELECT count(*) FROM accounts VERSION AS OF {full}") == 10


def test_appends_of_two_threads_both_survive(sql: Sql) -> None:
    """The client reloads and retries by itself after a 409. MISSION: 000-36, 000-38, 003-23, 003-24"""
    sql("CREATE TABLE events (writer INT, n BIGINT) USING iceberg TBLPROPERTIES ('commit.retry.num-retries' = '20')")

    def append(writer: int) -> None:
        for n in range(5):
            sql(f"INSERT INTO events VALUES ({writer}, {n})")

    run_together(lambda: append(1), lambda: append(2))

    assert sql("SELECT writer, sum(n), count(*) FROM events GROUP BY writer ORDER BY writer") == [
        (1, 10, 5),
        (2, 10, 5),
    ]
    assert sql.value("SELECT count(*) FROM here.events.snapshots") == 10


def test_a_stream_appends_each_event_exactly_once(sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE events (id INT) USING iceberg")
    (tmp_path / "inbox").mkdir()

    def drain() -> None:
        arrivals = sql.spark.readStream.schema("id INT").json(str(tmp_path / "inbox"))
        writer = arrivals.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).toTable("events").awaitTermination(120)

    (tmp_path / "inbox" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    drain()
    drain()
    (tmp_path / "inbox" / "2.json").write_text('{"id": 3}\n')
    drain()

    assert sql("SELECT id FROM events ORDER BY id") == [(1,), (2,), (3,)]


def test_a_row_keeps_its_identity_through_updates_and_compaction_in_version_3(sql: Sql) -> None:
    create_accounts(sql, 3, "merge-on-read")
    identity = sql.pairs("SELECT id, _row_id FROM accounts")
    assert sorted(identity.values()) == list(range(10))

    sql("UPDATE accounts SET balance = 7 WHERE id = 4")
    sql("INSERT INTO accounts VALUES (10, 'late', 1)")
    sql("CALL lake.system.rewrite_data_files(table => 'accounts', options => map('rewrite-all', 'true'))")

    after = {
        row.id: (row._row_id, row._last_updated_sequence_number)
        for row in sql("SELECT id, _row_id, _last_updated_sequence_number FROM accounts")
    }
    assert {key: row_id for key, (row_id, _) in after.items() if key < 10} == identity
    assert after[10][0] not in identity.values()
    assert (after[3][1], after[4][1], after[10][1]) == (1, 2, 3)


def test_variant_columns_hold_any_shape_in_version_3(sql: Sql) -> None:
    sql("CREATE TABLE documents (id INT, body VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3')")

    sql("""
        INSERT INTO documents SELECT id, parse_json(body) FROM VALUES
          (1, '{"name": "Kaffe", "tags": ["hot", "black"], "price": 12.5}'), (2, '[1, 2]'), (3, NULL) AS v (id, body)
    """)

    assert sql("SELECT variant_get(body, '$.tags[1]', 'string') FROM documents ORDER BY id") == [
        ("black",),
        (None,),
        (None,),
    ]
    assert sql("SELECT to_json(body) FROM documents ORDER BY id") == [
        ('{"name":"Kaffe","price":12.5,"tags":["hot","black"]}',),
        ("[1,2]",),
        (None,),
    ]


def test_a_version_2_table_is_upgraded_to_version_3_and_then_writes_deletion_vectors(sql: Sql) -> None:
    """MISSION: 000-49"""
    create_accounts(sql, 2, "merge-on-read")
    sql("DELETE FROM accounts WHERE id = 1")

    sql("ALTER TABLE accounts SET TBLPROPERTIES ('format-version' = '3')")
    sql("DELETE FROM accounts WHERE id = 2")

    assert sql.value("SELECT count(*) FROM accounts") == 8
    assert sql("SELECT file_format FROM here.accounts.delete_files") == [("PUFFIN",)]
    assert sql("SELECT id FROM accounts WHERE id < 4 ORDER BY id") == [(0,), (3,)]
