"""Spark keeps its views in the catalog: created, replaced, altered, shown and dropped."""

import pytest

from tests.support.spark import Sql

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(sql: Sql) -> str:
    sql("CREATE TABLE orders AS SELECT id, id % 2 = 0 AS paid, id * 10 AS total FROM range(1, 7)")
    return "orders"


def view_names(sql: Sql, condition: str = "") -> list[str]:
    """The catalog's views, without the temporary ones of the session that Spark lists with them."""
    return sorted(row.viewName for row in sql(f"SHOW VIEWS {condition}") if not row.isTemporary)


def test_a_view_answers_from_the_table_as_it_is_now(sql: Sql, orders: str) -> None:
    sql(f"""
        CREATE VIEW open_orders (number COMMENT 'the id', due) COMMENT 'not paid'
        AS SELECT id, total FROM {orders} WHERE NOT paid
    """)
    assert sql("SELECT number, due FROM open_orders ORDER BY number") == [(1, 10), (3, 30), (5, 50)]

    sql(f"INSERT INTO {orders} VALUES (7, false, 70)")

    assert sql("SELECT sum(due) FROM open_orders") == [(160,)]
    described = {row.col_name: row for row in sql("DESCRIBE EXTENDED open_orders")}
    assert described["number"].comment == "the id"
    assert described["Comment"].data_type == "not paid"


def test_a_view_finds_its_tables_from_another_namespace(sql: Sql, orders: str) -> None:
    sql(f"CREATE VIEW all_orders AS SELECT * FROM {orders}")
    sql("USE spark_catalog.default")

    assert sql("SELECT count(*) FROM here.all_orders") == [(6,)]


def test_views_and_tables_are_listed_apart(sql: Sql, orders: str) -> None:
    """MISSION: 000-26"""
    sql(f"CREATE VIEW b_view AS SELECT 1 AS one FROM {orders}")
    sql("CREATE VIEW a_view AS SELECT 2 AS two")

    assert view_names(sql) == ["a_view", "b_view"]
    assert sorted(row.tableName for row in sql("SHOW TABLES")) == ["orders"]
    assert view_names(sql, "LIKE 'a*'") == ["a_view"]


def test_a_replaced_view_answers_with_its_new_text(sql: Sql, orders: str) -> None:
    """MISSION: 000-27, 000-29"""
    sql(f"CREATE VIEW summary AS SELECT count(*) AS n FROM {orders}")
    sql(f"CREATE OR REPLACE VIEW summary AS SELECT max(total) AS largest FROM {orders}")
    sql("CREATE VIEW IF NOT EXISTS summary AS SELECT 'never' AS n")

    assert sql.frame("SELECT * FROM summary").columns == ["largest"]
    assert sql("SELECT * FROM summary") == [(60,)]
    with pytest.raises(Exception, match="already exists"):
        sql("CREATE VIEW summary AS SELECT 1 AS n")


def test_a_views_properties_and_name_are_altered(sql: Sql, orders: str) -> None:
    """MISSION: 000-32"""
    sql(f"CREATE VIEW summary TBLPROPERTIES ('drop' = 'me') AS SELECT count(*) AS n FROM {orders}")

    sql("ALTER VIEW summary SET TBLPROPERTIES ('owner-team' = 'sales')")
    sql("ALTER VIEW summary UNSET TBLPROPERTIES ('drop')")
    sql("ALTER VIEW summary RENAME TO overview")

    properties = sql.pairs("SHOW TBLPROPERTIES overview")
    assert properties["owner-team"] == "sales"
    assert "drop" not in properties
    assert view_names(sql) == ["overview"]
    assert sql("SELECT n FROM overview") == [(6,)]


def test_a_view_shows_the_statement_that_creates_it(sql: Sql, orders: str) -> None:
    sql(f"CREATE VIEW summary AS SELECT count(*) AS n FROM {orders}")

    text = sql.value("SHOW CREATE TABLE summary")

    assert text.startswith(f"CREATE VIEW lake.{sql.namespace}.summary")
    assert "SELECT count(*) AS n FROM orders" in text


def test_a_dropped_view_is_gone_and_its_table_is_not(sql: Sql, orders: str) -> None:
    """MISSION: 000-31"""
    sql(f"CREATE VIEW summary AS SELECT count(*) AS n FROM {orders}")

    sql("DROP VIEW summary")
    sql("DROP VIEW IF EXISTS summary")

    assert view_names(sql) == []
    assert sql.value(f"SELECT count(*) FROM {orders}") == 6
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM summary")


def test_a_view_and_a_table_cannot_share_a_name(sql: Sql, orders: str) -> None:
    with pytest.raises(Exception, match=r"(?i)already.exists"):
        sql(f"CREATE VIEW {orders} AS SELECT 1 AS one")
    sql("CREATE VIEW taken AS SELECT 1 AS one")
    with pytest.raises(Exception, match=r"(?i)already.exists"):
        sql("CREATE TABLE taken (id INT) USING iceberg")

    assert sql("SELECT one FROM taken") == [(1,)]
    assert sql.value(f"SELECT count(*) FROM {orders}") == 6


def test_a_view_over_a_view_and_a_time_travelled_table_works(sql: Sql, orders: str) -> None:
    first = sql.value(f"SELECT snapshot_id FROM here.{orders}.snapshots")
    sql(f"DELETE FROM {orders} WHERE id > 3")
    sql(f"CREATE VIEW then AS SELECT * FROM {orders} VERSION AS OF {first}")
    sql(f"CREATE VIEW lost AS SELECT t.id FROM then t LEFT ANTI JOIN {orders} o ON t.id = o.id")

    assert sql("SELECT id FROM lost ORDER BY id") == [(4,), (5,), (6,)]
