"""Spark on S3 with vended credentials and no key of its own."""

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.engines.s3.conftest import S3Lake
from tests.support.spark import configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(lake: S3Lake, spark: "SparkSession") -> "SparkSession":
    configure(spark, rest_catalog("s3", lake.uri))
    return spark


def keys_below(lake: S3Lake, location: str) -> list[str]:
    prefix = location.removeprefix(f"s3://{lake.bucket}/") + "/"
    with closing(lake.store.client()) as s3:
        listed = s3.list_objects_v2(Bucket=lake.bucket, Prefix=prefix)
    return [each["Key"] for each in listed.get("Contents", ())]


def test_spark_reads_what_pyiceberg_wrote_and_changes_it(lake: S3Lake, session: "SparkSession") -> None:
    first = lake.cities("for_spark").current_snapshot()
    assert first is not None
    session.sql("INSERT INTO s3.for_spark.cities VALUES (3, 'Qaanaaq')")
    session.sql("UPDATE s3.for_spark.cities SET city = 'Nuussuaq' WHERE id = 1")

    now = [tuple(row) for row in session.sql("SELECT id, city FROM s3.for_spark.cities ORDER BY id").collect()]
    then = session.sql(f"SELECT id FROM s3.for_spark.cities VERSION AS OF {first.snapshot_id}").count()

    assert now == [(1, "Nuussuaq"), (2, "Ilulissat"), (3, "Qaanaaq")] == lake.rows("for_spark.cities")
    assert then == 2


def test_spark_makes_fills_and_purges_tables(lake: S3Lake, session: "SparkSession") -> None:
    session.sql("CREATE NAMESPACE s3.by_spark")
    session.sql("CREATE TABLE s3.by_spark.cities (id BIGINT, city STRING) USING iceberg")
    session.sql("INSERT INTO s3.by_spark.cities VALUES (1, 'Nuuk'), (2, 'Ilulissat')")
    session.sql("CREATE TABLE s3.by_spark.selected USING iceberg AS SELECT * FROM s3.by_spark.cities WHERE id = 2")

    assert lake.rows("by_spark.cities") == [(1, "Nuuk"), (2, "Ilulissat")]
    assert lake.rows("by_spark.selected") == [(2, "Ilulissat")]
    location = lake.catalog.load_table("by_spark.cities").location()
    assert keys_below(lake, location)
    session.sql("DROP TABLE s3.by_spark.cities PURGE")
    assert keys_below(lake, location) == []
