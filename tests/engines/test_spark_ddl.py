"""Spark defines and redefines tables and namespaces, under any name it permits."""

import pytest

from tests.support.spark import Sql

pytestmark = pytest.mark.spark


def columns(sql: Sql, table: str) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in sql.spark.table(table).schema.fields]


def properties(sql: Sql, table: str) -> dict[str, str]:
    return sql.pairs(f"SHOW TBLPROPERTIES {table}")


def test_a_created_table_has_the_columns_comments_and_properties_it_was_given(sql: Sql) -> None:
    sql("""
        CREATE TABLE orders (
          id BIGINT NOT NULL COMMENT 'the key',
          placed TIMESTAMP,
          total DECIMAL(12, 2),
          address STRUCT<street: STRING, lines: ARRAY<STRING>>,
          labels MAP<STRING, INT>
        ) USING iceberg COMMENT 'what was bought' TBLPROPERTIES ('owner-team' = 'sales')
    """)

    assert columns(sql, "orders") == [
        ("id", "bigint"),
        ("placed", "timestamp"),
        ("total", "decimal(12,2)"),
        ("address", "struct<street:string,lines:array<string>>"),
        ("labels", "map<string,int>"),
    ]
    assert not sql.spark.table("orders").schema["id"].nullable
    described = {row.col_name: row for row in sql("DESCRIBE TABLE EXTENDED orders")}
    assert described["id"].comment == "the key"
    assert described["Comment"].data_type == "what was bought"
    assert properties(sql, "orders").items() >= {"owner-team": "sales"}.items()
    assert [row.tableName for row in sql("SHOW TABLES")] == ["orders"]


def test_a_second_table_of_the_same_name_is_refused_and_the_first_stays(sql: Sql) -> None:
    sql("CREATE TABLE orders (id BIGINT) USING iceberg")

    with pytest.raises(Exception, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        sql("CREATE TABLE orders (other STRING) USING iceberg")
    sql("CREATE TABLE IF NOT EXISTS orders (other STRING) USING iceberg")

    assert columns(sql, "orders") == [("id", "bigint")]


def test_columns_are_added_renamed_widened_moved_and_dropped_without_touching_old_rows(sql: Sql) -> None:
    sql("CREATE TABLE orders (id INT, note STRING, obsolete STRING, place STRUCT<city: STRING>) USING iceberg")
    sql("INSERT INTO orders VALUES (1, 'first', 'x', named_struct('city', 'Nuuk'))")

    sql("ALTER TABLE orders ADD COLUMNS (total DOUBLE COMMENT 'in kroner', place.zip STRING)")
    sql("ALTER TABLE orders RENAME COLUMN note TO remark")
    sql("ALTER TABLE orders ALTER COLUMN id TYPE BIGINT")
    sql("ALTER TABLE orders ALTER COLUMN total AFTER id")
    sql("ALTER TABLE orders DROP COLUMN obsolete")
    sql("INSERT INTO orders VALUES (5000000000, 9.5, 'second', named_struct('city', 'Sisimiut', 'zip', '3911'))")

    assert columns(sql, "orders") == [
        ("id", "bigint"),
        ("total", "double"),
        ("remark", "string"),
        ("place", "struct<city:string,zip:string>"),
    ]
    assert sql("SELECT * FROM orders ORDER BY id") == [
        (1, None, "first", ("Nuuk", None)),
        (5000000000, 9.5, "second", ("Sisimiut", "3911")),
    ]


def test_a_dropped_and_added_column_does_not_show_the_old_values(sql: Sql) -> None:
    sql("CREATE TABLE orders (id INT, note STRING) USING iceberg")
    sql("INSERT INTO orders VALUES (1, 'secret')")

    sql("ALTER TABLE orders DROP COLUMN note")
    sql("ALTER TABLE orders ADD COLUMN note STRING")

    assert sql("SELECT id, note FROM orders") == [(1, None)]


def test_properties_are_set_changed_and_unset(sql: Sql) -> None:
    """MISSION: 000-10, 000-65"""
    sql("CREATE TABLE orders (id INT) USING iceberg TBLPROPERTIES ('keep' = '1', 'change' = '1', 'drop' = '1')")

    sql("ALTER TABLE orders SET TBLPROPERTIES ('change' = '2', 'read.split.target-size' = '1048576')")
    sql("ALTER TABLE orders UNSET TBLPROPERTIES ('drop')")

    now = properties(sql, "orders")
    assert (now["keep"], now["change"], now["read.split.target-size"]) == ("1", "2", "1048576")
    assert "drop" not in now


def test_a_renamed_table_keeps_its_rows_and_its_history(sql: Sql) -> None:
    """MISSION: 000-25, 003-07"""
    sql("CREATE TABLE orders (id INT) USING iceberg")
    sql("INSERT INTO orders VALUES (1)")
    before = sql("SELECT snapshot_id FROM here.orders.snapshots")

    sql("ALTER TABLE orders RENAME TO purchases")
    sql("INSERT INTO purchases VALUES (2)")

    assert [row.tableName for row in sql("SHOW TABLES")] == ["purchases"]
    assert sql("SELECT id FROM purchases ORDER BY id") == [(1,), (2,)]
    assert sql("SELECT snapshot_id FROM here.purchases.snapshots ORDER BY committed_at")[:1] == before
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM orders")


def test_a_table_moves_to_another_namespace(sql: Sql) -> None:
    sql(f"CREATE NAMESPACE lake.{sql.namespace}_archive")
    sql("CREATE TABLE orders AS SELECT 7 AS id")

    sql(f"ALTER TABLE orders RENAME TO {sql.namespace}_archive.orders")

    assert sql("SHOW TABLES") == []
    assert sql(f"SELECT id FROM lake.{sql.namespace}_archive.orders") == [(7,)]


def test_old_and_new_partitions_are_read_together_after_the_partitioning_changed(sql: Sql) -> None:
    sql("CREATE TABLE events (id INT, at TIMESTAMP, kind STRING) USING iceberg PARTITIONED BY (months(at))")
    sql("INSERT INTO events VALUES (1, TIMESTAMP '2026-01-15 00:00:00', 'a')")

    sql("ALTER TABLE events REPLACE PARTITION FIELD months(at) WITH days(at)")
    sql("ALTER TABLE events ADD PARTITION FIELD bucket(4, kind) AS kind_bucket")
    sql("INSERT INTO events VALUES (2, TIMESTAMP '2026-02-20 00:00:00', 'b')")
    sql("ALTER TABLE events DROP PARTITION FIELD kind_bucket")
    sql("INSERT INTO events VALUES (3, TIMESTAMP '2026-02-21 00:00:00', 'c')")

    assert sql("SELECT id FROM events WHERE at >= TIMESTAMP '2026-02-01' ORDER BY id") == [(2,), (3,)]
    assert sql.value("SELECT count(DISTINCT spec_id) FROM here.events.files") == 3
    assert sql.value("SELECT count(*) FROM events") == 3
    partitioning = sql.pairs("DESCRIBE TABLE EXTENDED events")
    assert partitioning["Part 0"] == "days(at)"
    assert "Part 1" not in partitioning


def test_a_write_order_and_identifier_fields_are_kept(sql: Sql) -> None:
    sql("CREATE TABLE orders (id BIGINT NOT NULL, customer STRING) USING iceberg")

    sql("ALTER TABLE orders SET IDENTIFIER FIELDS id")
    sql("ALTER TABLE orders WRITE ORDERED BY customer DESC, id")
    sql("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'b')")

    assert (
        properties(sql, "orders").items()
        >= {
            "identifier-fields": "[id]",
            "sort-order": "customer DESC NULLS LAST, id ASC NULLS FIRST",
        }.items()
    )
    assert sql("SELECT id FROM orders") == [(2,), (3,), (1,)]
    sql("ALTER TABLE orders DROP IDENTIFIER FIELDS id")
    assert "identifier-fields" not in properties(sql, "orders")


def test_namespaces_nest_three_levels_deep(sql: Sql) -> None:
    """MISSION: 003-06"""
    sql("CREATE NAMESPACE here.europe")
    sql("CREATE NAMESPACE here.europe.denmark")
    sql("CREATE TABLE here.europe.denmark.orders AS SELECT 1 AS id")
    sql("CREATE TABLE here.europe.orders AS SELECT 2 AS id")

    assert sql(f"SHOW NAMESPACES IN lake.{sql.namespace}") == [(f"{sql.namespace}.europe",)]
    assert sql("SHOW NAMESPACES IN here.europe") == [(f"{sql.namespace}.europe.denmark",)]
    assert sql("SELECT id FROM here.europe.denmark.orders") == [(1,)]
    assert sql("SELECT id FROM here.europe.orders") == [(2,)]
    assert [row.tableName for row in sql("SHOW TABLES IN here.europe")] == ["orders"]


def test_a_namespace_keeps_its_properties_and_goes_only_when_empty(sql: Sql) -> None:
    """MISSION: 000-08, 000-17, 000-18, 000-75"""
    name = "here.temporary"
    sql(f"CREATE NAMESPACE {name} COMMENT 'for a while' WITH DBPROPERTIES ('owner-team' = 'sales')")
    sql(f"ALTER NAMESPACE {name} SET PROPERTIES ('color' = 'red')")
    sql(f"CREATE TABLE {name}.orders (id INT) USING iceberg")

    described = sql.pairs(f"DESCRIBE NAMESPACE EXTENDED {name}")
    assert described["Comment"] == "for a while"
    assert "(color,red)" in described["Properties"]
    assert "(owner-team,sales)" in described["Properties"]
    with pytest.raises(Exception, match=r"(?i)not.empty"):
        sql(f"DROP NAMESPACE {name}")
    sql(f"DROP TABLE {name}.orders")
    sql(f"DROP NAMESPACE {name}")

    assert sql(f"SHOW NAMESPACES IN lake.{sql.namespace}") == []


NAMES = ["with space", "with.dot", "with/slash", "percent%20sign", "plus+sign", "æøå-雪", "Mixed'Quote\"", "a&b=c?d#e"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_and_its_namespace_may_have_any_name_that_spark_lets_us_quote(sql: Sql, name: str) -> None:
    namespace = f"here.`{name}`"
    sql(f"CREATE NAMESPACE {namespace}")

    sql(f"CREATE TABLE {namespace}.`{name}` (`{name}` INT) USING iceberg")
    sql(f"INSERT INTO {namespace}.`{name}` VALUES (1)")
    sql(f"INSERT INTO {namespace}.`{name}` VALUES (2)")

    assert sql(f"SELECT `{name}` FROM {namespace}.`{name}` ORDER BY 1") == [(1,), (2,)]
    assert [row.tableName for row in sql(f"SHOW TABLES IN {namespace}")] == [name]
    sql(f"ALTER TABLE {namespace}.`{name}` RENAME TO {sql.namespace}.`{name}`.plain")
    assert sql(f"SELECT count(*) FROM {namespace}.plain") == [(2,)]
    sql(f"DROP TABLE {namespace}.plain")
    sql(f"DROP NAMESPACE {namespace}")
    assert sql(f"SHOW NAMESPACES IN lake.{sql.namespace}") == []
