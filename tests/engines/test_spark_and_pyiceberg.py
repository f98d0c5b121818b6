"""Spark and PyIceberg on the same tables: what one writes the other reads, row for row."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.spark import Sql

pytestmark = pytest.mark.spark


@pytest.fixture
def pyiceberg(spark_uri: str) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=spark_uri)) as opened:
        yield opened


def test_two_engines_give_identical_results(sql: Sql, pyiceberg: RestCatalog) -> None:
    """After deletes, evolution and compaction both still see the same rows. MISSION: 003-01, 003-69"""
    sql("""
        CREATE TABLE trips (id BIGINT, city STRING, fare DECIMAL(8, 2), at TIMESTAMP) USING iceberg
        PARTITIONED BY (days(at), bucket(2, city)) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')
    """)
    for day in (1, 2, 3):
        sql(f"""
            INSERT INTO trips SELECT id + {day} * 100, concat('city', id % 3), CAST(id AS DECIMAL(8, 2)) / 4,
              TIMESTAMP '2026-05-0{day} 08:00:00' + make_interval(0, 0, 0, 0, 0, CAST(id AS INT)) FROM range(20)
        """)
    sql("DELETE FROM trips WHERE id % 7 = 0")
    sql("ALTER TABLE trips RENAME COLUMN fare TO price")
    sql("ALTER TABLE trips ADD COLUMN tip DECIMAL(8, 2)")
    sql("UPDATE trips SET tip = 1.25 WHERE id > 310")

    table = pyiceberg.load_table((sql.namespace, "trips"))

    for spark_filter, row_filter in [
        ("true", "id > 0"),
        ("id >= 200 AND city = 'city1'", "id >= 200 and city = 'city1'"),
    ]:
        expected = sql(f"SELECT id, city, price, tip FROM trips WHERE {spark_filter} ORDER BY id")
        seen = (
            table.scan(row_filter=row_filter, selected_fields=("id", "city", "price", "tip")).to_arrow().sort_by("id")
        )
        assert expected
        assert [tuple(row.values()) for row in seen.to_pylist()] == expected
    with_time = table.scan(selected_fields=("id", "at")).to_arrow()
    instants = {row["id"]: int(row["at"].timestamp() * 1000) for row in with_time.to_pylist()}
    assert instants == sql.pairs("SELECT id, unix_millis(at) FROM trips")


def test_both_engines_write_in_turn_and_neither_loses_a_row(sql: Sql, pyiceberg: RestCatalog) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("writer", pa.string())])
    table = pyiceberg.create_table((sql.namespace, "log"), schema)

    for turn in range(3):
        table.refresh()
        table.append(pa.Table.from_pylist([{"id": turn, "writer": "pyiceberg"}], schema=schema))
        sql("REFRESH TABLE log")
        sql(f"INSERT INTO log VALUES ({turn + 10}, 'spark')")

    expected = [(0, "pyiceberg"), (1, "pyiceberg"), (2, "pyiceberg"), (10, "spark"), (11, "spark"), (12, "spark")]
    assert sql("SELECT * FROM log ORDER BY id") == expected
    seen = pyiceberg.load_table((sql.namespace, "log")).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["writer"]) for row in seen] == expected


def test_a_branch_and_a_tag_of_spark_are_read_by_pyiceberg(sql: Sql, pyiceberg: RestCatalog) -> None:
    sql("CREATE TABLE log AS SELECT 1 AS n")
    sql("ALTER TABLE log CREATE TAG first")
    sql("ALTER TABLE log CREATE BRANCH side")
    sql("INSERT INTO here.log.branch_side VALUES (2)")

    table = pyiceberg.load_table((sql.namespace, "log"))

    assert table.scan().use_ref("first").to_arrow()["n"].to_pylist() == [1]
    assert sorted(table.scan().use_ref("side").to_arrow()["n"].to_pylist()) == [1, 2]
