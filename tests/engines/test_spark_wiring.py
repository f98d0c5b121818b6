"""The ways users write a Spark catalog down, as the seed documents do, all reach the same tables."""

import itertools

import pytest

from tests.support.catalogs.process import RunningServer
from tests.support.spark import Sql, catalog, configure, rest_catalog

pytestmark = pytest.mark.spark

NAMES = itertools.count(1)


def use(sql: Sql, **options: str) -> str:
    """Add a catalog with just these options to the session; returns its name."""
    name = f"wired_{next(NAMES)}"
    configure(sql.spark, catalog(name, **options))
    return name


def walk_through(sql: Sql, name: str) -> None:
    """What every getting-started page does, and the proof that `lake` sees the same table."""
    sql(f"USE {name}")
    sql(f"CREATE NAMESPACE {sql.namespace}.walk")
    sql(f"CREATE TABLE {sql.namespace}.walk.events (id BIGINT, name STRING) USING iceberg")
    sql(f"INSERT INTO {sql.namespace}.walk.events VALUES (1, 'started'), (2, 'finished')")

    assert sql(f"SELECT * FROM {sql.namespace}.walk.events ORDER BY id") == [(1, "started"), (2, "finished")]
    assert sql("SELECT name FROM here.walk.events WHERE id = 2") == [("finished",)]


def test_the_wiring_of_seed_000_works(sql: Sql, spark_uri: str) -> None:
    """A uri that ends in /apis/iceberg/v1, and a prefix set by hand. MISSION: 000-04, 000-11, 000-81"""
    walk_through(sql, use(sql, type="rest", uri=f"{spark_uri}/apis/iceberg/v1", prefix="default"))


def test_the_wiring_of_seed_003_works(sql: Sql, spark_uri: str) -> None:
    """The implementation by its class name and a uri that ends in /v1; without credentials yet. MISSION: 003-60"""
    name = use(
        sql,
        catalog_impl="org.apache.iceberg.rest.RESTCatalog",
        uri=f"{spark_uri}/v1",
        scope="catalog",
        token_refresh_enabled="true",
    )
    walk_through(sql, name)


@pytest.mark.parametrize("end", ["", "/", "/v1/", "/apis/iceberg", "/apis/iceberg/v1/", "/iceberg", "/api/catalog"])
def test_a_uri_works_however_it_ends(sql: Sql, spark_uri: str, end: str) -> None:
    walk_through(sql, use(sql, type="rest", uri=spark_uri + end))


def test_a_warehouse_is_chosen_by_name(sql: Sql, spark_uri: str) -> None:
    walk_through(sql, use(sql, type="rest", uri=spark_uri, warehouse="default"))


def test_a_warehouse_is_chosen_by_its_location(sql: Sql, spark_uri: str, shared_server: RunningServer) -> None:
    """As users write who come from other catalogs. MISSION: 003-60"""
    location = (shared_server.data / "warehouse").as_uri()

    walk_through(sql, use(sql, type="rest", uri=spark_uri, warehouse=location))


def test_a_warehouse_nobody_knows_is_refused_by_name(sql: Sql, spark_uri: str) -> None:
    name = use(sql, type="rest", uri=spark_uri, warehouse="nowhere")

    with pytest.raises(Exception, match="nowhere"):
        sql(f"SHOW NAMESPACES IN {name}")


def test_a_page_size_of_two_lists_everything(sql: Sql, spark_uri: str) -> None:
    for n in range(5):
        sql(f"CREATE TABLE table_{n} (id INT) USING iceberg")
        sql(f"CREATE NAMESPACE here.space_{n}")
    name = use(sql, type="rest", uri=spark_uri, rest_page_size="2")

    tables = sorted(row.tableName for row in sql(f"SHOW TABLES IN {name}.{sql.namespace}"))
    spaces = sorted(row.namespace for row in sql(f"SHOW NAMESPACES IN {name}.{sql.namespace}"))

    assert tables == [f"table_{n}" for n in range(5)]
    assert spaces == [f"{sql.namespace}.space_{n}" for n in range(5)]


def test_default_and_override_table_properties_of_the_catalog_are_kept(sql: Sql, spark_uri: str) -> None:
    name = f"wired_{next(NAMES)}"
    settings = rest_catalog(name, spark_uri) | {
        f"spark.sql.catalog.{name}.table-default.write.format.default": "orc",
        f"spark.sql.catalog.{name}.table-override.owner-team": "platform",
    }
    configure(sql.spark, settings)

    sql(f"CREATE TABLE {name}.{sql.namespace}.orders TBLPROPERTIES ('owner-team' = 'me') AS SELECT 1 AS id")

    assert sql.pairs("SHOW TBLPROPERTIES here.orders")["owner-team"] == "platform"
    assert sql("SELECT DISTINCT file_format FROM here.orders.files") == [("ORC",)]
    assert sql("SELECT id FROM orders") == [(1,)]
