"""Dropping with and without purge: what stays on disk, whoever deletes it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.spark import Sql, configure, rest_catalog

pytestmark = pytest.mark.spark

PURGE_SECONDS = 60  # the server purges in the background, usually within a second


@pytest.fixture
def table(sql: Sql) -> Path:
    """The folder of a table `doomed` that owns files of every kind: data, deletes, statistics, a branch's."""
    sql("CREATE TABLE doomed (id INT) USING iceberg TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    sql("INSERT INTO doomed SELECT /*+ COALESCE(1) */ CAST(id AS INT) FROM range(10)")
    sql("DELETE FROM doomed WHERE id = 3")
    sql("ALTER TABLE doomed CREATE BRANCH side")
    sql("INSERT INTO here.doomed.branch_side VALUES (99)")
    sql.call("compute_table_stats", "table => 'doomed'")
    return sql.location("doomed")


def files(folder: Path) -> list[Path]:
    """The files below a folder, without the checksums that Hadoop's local file system leaves beside them."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".crc"))


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PURGE_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_a_drop_without_purge_leaves_every_file(sql: Sql, table: Path) -> None:
    before = files(table)

    sql("DROP TABLE doomed")

    assert sql("SHOW TABLES") == []
    assert files(table) == before
    assert len(before) > 10


def test_a_purge_by_spark_leaves_no_file(sql: Sql, table: Path) -> None:
    sql("DROP TABLE doomed PURGE")

    assert sql("SHOW TABLES") == []
    assert eventually(lambda: files(table) == []), files(table)


def test_a_purge_by_the_server_leaves_no_file_and_spares_the_neighbours(sql: Sql, table: Path, spark_uri: str) -> None:
    configure(sql.spark, rest_catalog("purging", spark_uri, rest_catalog_purge="true"))
    sql("CREATE TABLE neighbour AS SELECT 1 AS id")

    sql(f"DROP TABLE purging.{sql.namespace}.doomed PURGE")

    assert [row.tableName for row in sql("SHOW TABLES")] == ["neighbour"]
    assert eventually(lambda: files(table) == []), files(table)
    assert sql("SELECT id FROM neighbour") == [(1,)]


def test_the_name_of_a_purged_table_is_free_at_once_and_its_successor_is_not_harmed(
    sql: Sql, table: Path, spark_uri: str
) -> None:
    configure(sql.spark, rest_catalog("purging", spark_uri, rest_catalog_purge="true"))

    sql(f"DROP TABLE purging.{sql.namespace}.doomed PURGE")
    sql(f"CREATE TABLE purging.{sql.namespace}.doomed (id INT) USING iceberg")
    sql(f"INSERT INTO purging.{sql.namespace}.doomed VALUES (42)")

    assert eventually(lambda: files(table) == []), files(table)
    assert sql(f"SELECT id FROM purging.{sql.namespace}.doomed") == [(42,)]
