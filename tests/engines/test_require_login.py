"""The Spark settings of the page about logging in work; its other examples are followed by tests/install."""

from typing import TYPE_CHECKING

import pytest

from tests.support.catalogs.process import RunningServer
from tests.support.pages import DEFAULT_URI, DOCS, blocks_with
from tests.support.spark import configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_works_with_the_properties_of_the_page(secured: RunningServer, spark: "SparkSession") -> None:
    (shown,) = blocks_with(DOCS / "how-to" / "require-login.md", "properties", "login")
    etl = secured.principal("login_page_etl", warehouse="WRITE")
    text = shown.replace("CLIENT-ID:CLIENT-SECRET", etl.credential)
    text = text.replace(DEFAULT_URI, secured.uri).replace("catalog.lake.", "catalog.login_page.")

    configure(spark, rest_catalog("login_page", secured.uri))
    configure(spark, dict(line.split("=", 1) for line in text.split()))
    spark.sql("CREATE NAMESPACE login_page.login_page_sales")
    spark.sql("CREATE TABLE login_page.login_page_sales.orders AS SELECT 1 AS id, 'first' AS note")
    spark.sql("INSERT INTO login_page.login_page_sales.orders VALUES (3, 'third')")

    found = spark.sql("SELECT id FROM login_page.login_page_sales.orders ORDER BY id").collect()
    assert [row.id for row in found] == [1, 3]
