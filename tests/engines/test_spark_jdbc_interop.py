"""Our database is a standard Iceberg JDBC catalog: Spark opens the file beside the server, and both go on writing."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.spark import Sql, catalog, configure, rest_catalog, run_together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = itertools.count(1)

# Both catalogs write here, so neither may remember a table from its last visit.
FORGETFUL = {"cache_enabled": "false"}


def jdbc_catalog(data: Path, schema_version: str = "V1") -> dict[str, str]:
    """The catalog in a server's database file; it finds its rows by its own name, which is the warehouse's."""
    settings = catalog(
        "default",
        catalog_impl="org.apache.iceberg.jdbc.JdbcCatalog",
        uri=f"jdbc:sqlite:{data}/nunatak.db",
        warehouse=(data / "warehouse").as_uri(),
        **FORGETFUL,
    )
    return settings | {
        "spark.sql.catalog.default.jdbc.schema-version": schema_version,
        "spark.sql.catalog.default.jdbc.busy_timeout": "30000",
    }


@pytest.fixture(scope="module")
def interop_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("interop") / "nunatak-data") as started:
        yield started


@pytest.fixture(scope="module")
def two_doors(spark: "SparkSession", interop_server: RunningServer) -> "SparkSession":
    """The session with two catalogs: `rest` through the server, and `default` through the database file."""
    configure(spark, rest_catalog("rest", interop_server.uri, **FORGETFUL))
    configure(spark, jdbc_catalog(interop_server.data))
    return spark


@pytest.fixture
def sql(two_doors: "SparkSession") -> Sql:
    """Statements that name their door, `rest` or `jdbc`, in front of every table."""
    namespace = f"interop_{next(NAMES)}"
    two_doors.sql(f"CREATE NAMESPACE rest.{namespace}")
    return Sql(two_doors, "rest", namespace)


@pytest.fixture
def rest(sql: Sql) -> str:
    """The test's namespace as the server shows it."""
    return f"rest.{sql.namespace}"


@pytest.fixture
def jdbc(sql: Sql) -> str:
    """The same namespace as the database file shows it."""
    return f"`default`.{sql.namespace}"


def names(sql: Sql, statement: str) -> list[str]:
    """What a listing of tables, views or namespaces names."""
    return sorted(row[1] if len(row) > 1 else row[0] for row in sql(statement))


def test_a_jdbc_client_lists_and_reads_what_the_server_made(sql: Sql, rest: str, jdbc: str) -> None:
    """MISSION: 004-04, 004-07, 004-20"""
    sql(f"CREATE TABLE {rest}.orders PARTITIONED BY (p) AS SELECT id, id % 2 AS p FROM range(10)")
    sql(f"DELETE FROM {rest}.orders WHERE id = 3")
    sql(f"CREATE NAMESPACE {rest}.inner WITH DBPROPERTIES ('owner-team' = 'sales')")
    sql(f"CREATE TABLE {rest}.inner.nested AS SELECT 1 AS id")

    assert names(sql, f"SHOW TABLES IN {jdbc}") == ["orders"]
    assert sql(f"SELECT count(*), sum(id) FROM {jdbc}.orders") == [(9, 42)]
    assert names(sql, f"SHOW NAMESPACES IN {jdbc}") == [f"{sql.namespace}.inner"]
    assert "(owner-team,sales)" in sql.pairs(f"DESCRIBE NAMESPACE EXTENDED {jdbc}.inner")["Properties"]
    assert sql(f"SELECT id FROM {jdbc}.inner.nested") == [(1,)]


def test_the_server_serves_every_commit_of_a_jdbc_client_at_once(sql: Sql, rest: str, jdbc: str) -> None:
    """MISSION: 004-13"""
    sql(f"CREATE TABLE {rest}.log (n INT) USING iceberg")

    for n in range(3):
        sql(f"INSERT INTO {jdbc}.log VALUES ({2 * n})")
        assert sql.value(f"SELECT max(n) FROM {rest}.log") == 2 * n
        sql(f"INSERT INTO {rest}.log VALUES ({2 * n + 1})")
        assert sql.value(f"SELECT max(n) FROM {jdbc}.log") == 2 * n + 1

    assert sql(f"SELECT n FROM {rest}.log ORDER BY n") == sql(f"SELECT n FROM {jdbc}.log ORDER BY n")
    assert sql.value(f"SELECT count(*) FROM {rest}.log.snapshots") == 6


def test_the_server_serves_tables_and_namespaces_that_a_jdbc_client_created(sql: Sql, rest: str, jdbc: str) -> None:
    sql(f"CREATE NAMESPACE {jdbc}.theirs WITH DBPROPERTIES ('owner-team' = 'science')")
    sql(f"CREATE TABLE {jdbc}.theirs.samples USING iceberg AS SELECT id FROM range(5)")
    sql(f"ALTER TABLE {jdbc}.theirs.samples ADD COLUMN note STRING")

    assert names(sql, f"SHOW NAMESPACES IN {rest}") == [f"{sql.namespace}.theirs"]
    assert "(owner-team,science)" in sql.pairs(f"DESCRIBE NAMESPACE EXTENDED {rest}.theirs")["Properties"]
    assert names(sql, f"SHOW TABLES IN {rest}.theirs") == ["samples"]
    assert sql.frame(f"SELECT * FROM {rest}.theirs.samples").columns == ["id", "note"]

    sql(f"UPDATE {rest}.theirs.samples SET note = 'seen' WHERE id = 4")
    assert sql(f"SELECT id, note FROM {jdbc}.theirs.samples WHERE note IS NOT NULL") == [(4, "seen")]


@pytest.mark.parametrize("schema_version", ["V0", "V1"])
def test_a_jdbc_catalog_moves_to_the_server_by_changing_nothing_but_the_configuration(
    spark: "SparkSession", tmp_path: Path, schema_version: str
) -> None:
    """The database that Spark filled by itself is the one that the server starts on. MISSION: 004-25"""
    data = tmp_path / "nunatak-data"
    data.mkdir()
    sql = Sql(spark.newSession(), "default", "sales")
    configure(sql.spark, jdbc_catalog(data, schema_version))
    sql("CREATE NAMESPACE `default`.sales WITH DBPROPERTIES ('owner-team' = 'sales')")
    sql("CREATE TABLE `default`.sales.orders USING iceberg AS SELECT id FROM range(5)")
    sql("CREATE TABLE `default`.sales.europe.orders USING iceberg AS SELECT id FROM range(3)")

    with running_server(data) as server:
        configure(sql.spark, rest_catalog("moved", server.uri, **FORGETFUL))
        assert names(sql, "SHOW TABLES IN moved.sales") == ["orders"]
        assert names(sql, "SHOW NAMESPACES IN moved.sales") == ["sales.europe"]
        assert "(owner-team,sales)" in sql.pairs("DESCRIBE NAMESPACE EXTENDED moved.sales")["Properties"]
        assert sql.value("SELECT count(*) FROM moved.sales.europe.orders") == 3

        sql("INSERT INTO moved.sales.orders VALUES (100)")
        sql("INSERT INTO `default`.sales.orders VALUES (200)")
        assert sql("SELECT count(*), max(id) FROM moved.sales.orders") == [(7, 200)]

    assert sql("SELECT count(*), sum(id) FROM `default`.sales.orders") == [(7, 310)], "whoever leaves keeps a catalog"


def test_renames_and_drops_on_one_side_are_seen_on_the_other(sql: Sql, rest: str, jdbc: str) -> None:
    for name in ("a", "b", "c", "d"):
        sql(f"CREATE TABLE {rest}.{name} AS SELECT '{name}' AS origin")

    sql(f"ALTER TABLE {jdbc}.a RENAME TO {sql.namespace}.renamed_by_jdbc")
    sql(f"ALTER TABLE {rest}.b RENAME TO {sql.namespace}.renamed_by_rest")
    sql(f"DROP TABLE {jdbc}.c")
    sql(f"DROP TABLE {rest}.d")

    expected = ["renamed_by_jdbc", "renamed_by_rest"]
    assert names(sql, f"SHOW TABLES IN {rest}") == names(sql, f"SHOW TABLES IN {jdbc}") == expected
    assert sql(f"SELECT origin FROM {rest}.renamed_by_jdbc") == [("a",)]
    assert sql(f"SELECT origin FROM {jdbc}.renamed_by_rest") == [("b",)]


def test_views_are_shared_both_ways(sql: Sql, rest: str, jdbc: str) -> None:
    sql(f"CREATE VIEW {rest}.one AS SELECT 1 AS n")
    sql(f"CREATE VIEW {jdbc}.two AS SELECT 2 AS n")

    assert sql(f"SELECT n FROM {jdbc}.one") == [(1,)]
    assert sql(f"SELECT n FROM {rest}.two") == [(2,)]
    assert names(sql, f"SHOW VIEWS IN {rest}") == names(sql, f"SHOW VIEWS IN {jdbc}") == ["one", "two"]


def test_concurrent_appends_through_both_doors_all_survive(sql: Sql, rest: str, jdbc: str) -> None:
    """MISSION: 004-12, 004-14, 000-36"""
    sql(f"CREATE TABLE {rest}.log (door STRING, n INT) USING iceberg TBLPROPERTIES ('commit.retry.num-retries' = '30')")

    run_together(
        lambda: [sql(f"INSERT INTO {rest}.log VALUES ('rest', {n})") for n in range(5)],
        lambda: [sql(f"INSERT INTO {jdbc}.log VALUES ('jdbc', {n})") for n in range(5)],
    )

    expected = [("jdbc", 5, 10), ("rest", 5, 10)]
    for side in (rest, jdbc):
        assert sql(f"SELECT door, count(*), sum(n) FROM {side}.log GROUP BY door ORDER BY door") == expected
        assert sql.value(f"SELECT count(*) FROM {side}.log.snapshots") == 10


def test_of_two_creates_through_both_doors_exactly_one_wins(sql: Sql, rest: str, jdbc: str) -> None:
    outcomes: list[str] = []

    def create(side: str) -> None:
        try:
            sql(f"CREATE TABLE {side}.contested USING iceberg AS SELECT '{side[:4]}' AS winner")
            outcomes.append("created")
        except Exception as refused:
            outcomes.append("exists" if "exist" in str(refused) else str(refused))

    run_together(lambda: create(rest), lambda: create(jdbc))

    assert sorted(outcomes) == ["created", "exists"]
    assert sql(f"SELECT * FROM {rest}.contested") == sql(f"SELECT * FROM {jdbc}.contested")
