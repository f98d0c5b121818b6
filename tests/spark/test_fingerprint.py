"""The fingerprint of real tables: what must be equal is, and what differs is named."""

from typing import TYPE_CHECKING

import pytest

from nunatak_spark.comparison import compare, compare_partitions
from nunatak_spark.comparison_jobs import CompareReport, FingerprintReport, sum_fingerprints
from nunatak_spark.fingerprint import (
    SETTINGS,
    Fingerprint,
    TooManyPartitions,
    fingerprint,
    fingerprint_by,
    fingerprints,
)
from nunatak_spark.jobs import ProgressStep, find_job, parse_spec, run
from tests.support.spark import Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of(spark: "SparkSession", query: str) -> Fingerprint:
    return fingerprint(spark, spark.sql(query))


@pytest.mark.parametrize(
    "value",
    [
        "true",
        "cast(1 as tinyint)",
        "date'2026-01-01'",
        "timestamp'2026-01-01 00:00:00'",
        "timestamp_ntz'2026-01-01 00:00:00'",
        "time'12:34:56.789'",
        "x'cafe'",
        "cast('Oslo' as string)",
        "interval 1 day",
        "null",
        "named_struct('a', array(map('k', named_struct('v', parse_json('[1]')))))",
    ],
)
def test_every_type_has_a_fingerprint(spark: "SparkSession", value: str) -> None:
    found = of(spark, f"select {value} as v")

    assert found.rows == 1
    assert found.columns["v"].nulls == (value == "null")


def test_names_that_need_quotes_are_no_trouble(spark: "SparkSession") -> None:
    assert set(of(spark, "select 1 as `a b`, 2 as `c.d`, 3 as `e``f`, 4 as e0").columns) == {"a b", "c.d", "e`f", "e0"}


def test_nulls_are_counted(spark: "SparkSession") -> None:
    found = of(spark, "select nullif(id, 3) as a, id as b from range(5)")

    assert (found.rows, found.columns["a"].nulls, found.columns["b"].nulls) == (5, 1, 0)


def test_several_tables_have_their_fingerprints_by_one_job(spark: "SparkSession") -> None:
    frames = [spark.sql(query) for query in ("select 1 a, 'x' b", "select id from range(0)", "select null n, 2.5 d")]

    assert fingerprints(spark, frames) == [fingerprint(spark, frame) for frame in frames]


def test_the_session_gets_its_settings_back(spark: "SparkSession") -> None:
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        of(spark, "select 1 as a")
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert {key: spark.conf.get(key, None) for key in SETTINGS} == before


def test_no_more_partitions_reach_the_driver_than_it_can_hold(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nunatak_spark.fingerprint.MAX_PARTITIONS", 3)

    assert len(fingerprint_by(spark, spark.sql("select id % 3 as a from range(9)"), ["a"])) == 3
    with pytest.raises(TooManyPartitions, match="more than 3 different values of a"):
        fingerprint_by(spark, spark.sql("select id % 4 as a from range(9)"), ["a"])


# Tables


@pytest.fixture
def orders(sql: Sql) -> str:
    """300 orders of three days in many small files, with deletes, and a null here and there."""
    sql(
        "CREATE TABLE here.orders (id BIGINT, day DATE, city STRING, price DECIMAL(9,2), tags ARRAY<STRING>) "
        "USING iceberg PARTITIONED BY (day) "
        "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'format-version' = '3')"
    )
    for n in range(3):
        sql(
            f"INSERT INTO here.orders SELECT id, date_add(date'2026-01-01', {n}), nullif(concat('c', id % 7), 'c3'), "
            f"id / 8, array(concat('c', id % 5), 'x') FROM range({n * 110}, {n * 110 + 110})"
        )
    sql("DELETE FROM here.orders WHERE id % 11 = 0")
    return f"{sql.catalog}.{sql.namespace}.orders"


def test_compaction_and_sorting_change_nothing(sql: Sql, orders: str) -> None:
    before = fingerprint(sql.spark, orders)
    assert before.rows == 300

    rewritten = sql.call(
        "rewrite_data_files",
        f"table => '{orders}', strategy => 'sort', sort_order => 'city, id DESC', "
        "options => map('rewrite-all', 'true')",
    )

    assert rewritten.rewritten_data_files_count > 0
    assert compare(before, fingerprint(sql.spark, orders)).same_data


def test_a_copy_in_another_layout_and_format_is_the_same(sql: Sql, orders: str) -> None:
    sql(
        "CREATE TABLE here.copied USING iceberg PARTITIONED BY (bucket(4, id)) "
        "TBLPROPERTIES ('write.format.default' = 'orc') "
        f"AS SELECT tags, price, city, day, id FROM {orders} ORDER BY price"
    )

    assert compare(fingerprint(sql.spark, orders), fingerprint(sql.spark, f"{orders[:-6]}copied")).same_data


def test_a_widened_table_is_the_same_and_says_so(sql: Sql, orders: str) -> None:
    before = fingerprint(sql.spark, orders)
    sql("ALTER TABLE here.orders ALTER COLUMN price TYPE DECIMAL(20,2)")

    difference = compare(before, fingerprint(sql.spark, orders))

    assert difference.same_data
    assert list(difference.sentences()) == ["price was decimal(9,2) and is decimal(20,2)"]


def test_one_changed_value_among_equal_counts_is_caught_and_named(sql: Sql, orders: str) -> None:
    whole, parts = fingerprint(sql.spark, orders), fingerprint_by(sql.spark, orders, ["day"])
    sql("UPDATE here.orders SET price = price + 0.01 WHERE id = 150")

    difference = compare(whole, fingerprint(sql.spark, orders))
    partitions = compare_partitions(parts, fingerprint_by(sql.spark, orders, ["day"]))

    assert (difference.rows_left, difference.rows_right) == (300, 300)
    assert difference.changed == ("price",)
    assert list(partitions.changed) == ["day=2026-01-02"]
    assert partitions.changed["day=2026-01-02"].changed == ("price",)


def test_partitions_add_up_to_the_table(sql: Sql, orders: str) -> None:
    parts = fingerprint_by(sql.spark, orders, ["day", "city"])

    assert sum_fingerprints(parts) == fingerprint(sql.spark, orders)
    assert any("city is null" in name for name in parts)


def test_partitions_are_those_of_the_table_if_asked_for(sql: Sql, orders: str) -> None:
    sql("ALTER TABLE here.orders REPLACE PARTITION FIELD day WITH bucket(2, id)")
    sql("INSERT INTO here.orders (id, day) VALUES (1000, date'2026-01-09'), (1001, date'2026-01-09')")

    parts = fingerprint_by(sql.spark, orders, ["_partition"])

    assert len(parts) >= 4
    assert sum_fingerprints(parts) == fingerprint(sql.spark, orders)


def test_an_older_snapshot_has_its_old_fingerprint(sql: Sql, orders: str) -> None:
    before = fingerprint(sql.spark, orders)
    snapshot_id = sql.value("SELECT max_by(snapshot_id, committed_at) FROM here.orders.snapshots")
    sql("INSERT INTO here.orders (id) VALUES (1000)")

    assert fingerprint(sql.spark, orders, snapshot_id=snapshot_id) == before
    assert fingerprint(sql.spark, orders) != before


# The jobs


def test_the_fingerprint_job_reports_the_table_and_its_partitions(sql: Sql, orders: str) -> None:
    steps: list[ProgressStep] = []
    job = find_job("fingerprint")

    report = run(job, sql.spark, parse_spec(job, f'{{"table": "{orders}", "by": ["day"]}}'), steps.append)

    assert isinstance(report, FingerprintReport)
    assert report.fingerprint == fingerprint(sql.spark, orders)
    assert sorted(report.partitions) == [f"day=2026-01-0{day}" for day in (1, 2, 3)]
    assert {step.text for step in steps} == {f"reading {orders}"}
    assert steps[-1].done == steps[-1].total > 0


def test_the_fingerprint_job_works_on_an_empty_table(sql: Sql) -> None:
    sql("CREATE TABLE here.nothing (id BIGINT, day DATE) USING iceberg")
    job = find_job("fingerprint")
    spec = parse_spec(job, f'{{"table": "lake.{sql.namespace}.nothing", "by": ["day"]}}')

    report = run(job, sql.spark, spec)

    assert isinstance(report, FingerprintReport)
    assert (report.fingerprint.rows, report.fingerprint.sum, report.partitions) == (0, "0", {})


def test_the_compare_job_looks_into_the_partitions_that_differ(sql: Sql, orders: str) -> None:
    sql(f"CREATE TABLE here.copied USING iceberg AS SELECT * FROM {orders}")
    job = find_job("compare")
    copied = f"lake.{sql.namespace}.copied"
    spec = parse_spec(job, f'{{"left": "{orders}", "right": "{copied}", "by": ["day"]}}')

    same = run(job, sql.spark, spec)
    sql("UPDATE here.copied SET city = 'elsewhere' WHERE id = 5")
    other = run(job, sql.spark, spec)

    assert isinstance(same, CompareReport)
    assert same.ok
    assert same.partitions is None
    assert isinstance(other, CompareReport)
    assert not other.ok
    assert other.sentences == ("values differ in: city",)
    assert other.partitions is not None
    assert list(other.partitions.changed) == ["day=2026-01-01"]
